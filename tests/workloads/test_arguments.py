"""The options that commands share: every command that has a device declares it alike, and names of devices agree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from cluster.choice import KINDS, kind_of
from mgraph.client.options import DEVICES
from mgraph.device import gpu_count
from mgraph.errors import DeviceError, InvalidOption
from workloads.__main__ import COMMANDS, main, parser_of
from workloads.arguments import add_device, device_of


def options_of(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.Action]]:
    """The options of all commands under `parser`, each with the command's name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from options_of(below, f"{name} {word}".strip())
        else:
            yield name, action


def test_every_device_is_the_same_option():
    devices = {name: action for name, action in options_of(parser_of(COMMANDS)) if action.dest == "device"}
    assert {"bench exchange", "bench updates", "demo", "gap", "longrun", "scaling", "stream"} <= devices.keys()
    parser = argparse.ArgumentParser()
    add_device(parser)
    alike = vars(parser._option_string_actions["--device"])
    for name, action in devices.items():
        assert {**vars(action), "container": None} == {**alike, "container": None}, name


def test_the_names_of_devices():
    assert {kind_of(name) for name in KINDS} == set(DEVICES)
    assert kind_of("gpu") == kind_of("cuda") == "cuda"
    assert (device_of("cpu").kind, device_of("cpu", 1).threads) == ("cpu", 1)
    assert device_of("auto").kind == ("cuda" if gpu_count() else "cpu")
    for refuse in (kind_of, device_of):
        with pytest.raises(InvalidOption, match="'tpu' is n"):
            refuse("tpu")


@pytest.mark.skipif(gpu_count() > 0, reason="for machines without a GPU")
@pytest.mark.parametrize("device", ["gpu", "cuda"])
@pytest.mark.parametrize("command", ["bench exchange", "bench updates", "bench store", "gap", "longrun", "scaling"])
def test_a_gpu_that_is_not_there_is_one_line(command, device, capsys):
    with pytest.raises(DeviceError):
        device_of(device)
    assert main([*command.split(), "--device", device]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "GPU" in said
