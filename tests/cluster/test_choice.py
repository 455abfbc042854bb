"""What start() makes of machines: with one GPU, with many, with none, and with something missing."""

from dataclasses import replace

import pytest

from cluster import Machine, choose
from mgraph.errors import DeviceError, InvalidOption

CPU = Machine(gpus=(), cores=12, memory=24 << 30, cupy=False, dask_cuda=False, distributed_ucxx=False)
ONE = Machine(gpus=("0",), cores=16, memory=128 << 30)
FOUR = Machine(gpus=("0", "1", "2", "3"), cores=64, memory=512 << 30)


def test_no_gpu():
    choice = choose(CPU)
    assert (choice.device, choice.workers, choice.gpus, choice.threads) == ("cpu", 12, (), 1)
    assert (choice.protocol, choice.exchange, choice.rmm_pool) == ("tcp", "peer", None)
    assert choice.memory_limit == 2 << 30
    assert "CuPy is not installed" in choice.why["device"]


@pytest.mark.parametrize(("workers", "threads"), [(1, 12), (2, 6), (5, 2), (24, 1)])
def test_cpu_workers_share_the_cores_and_the_memory(workers, threads):
    choice = choose(CPU, workers)
    assert choice.threads == threads
    assert choice.memory_limit == (24 << 30) // workers
    assert choose(CPU, workers, threads=3, memory_limit=5).threads == 3
    assert choose(CPU, workers, memory_limit=5).memory_limit == 5


def test_one_gpu_is_one_worker_that_speaks_to_nobody():
    choice = choose(ONE)
    assert (choice.device, choice.workers, choice.gpus, choice.threads) == ("gpu", 1, ("0",), 1)
    assert (choice.protocol, choice.exchange, choice.memory_limit) == ("tcp", "loopback", None)


def test_many_gpus_are_a_worker_each():
    choice = choose(FOUR)
    assert (choice.workers, choice.gpus, choice.exchange) == (4, FOUR.gpus, "peer")
    assert choose(FOUR, 2).gpus == ("0", "1")
    assert choose(FOUR, gpus=[3, 1]).gpus == ("3", "1")
    assert choose(FOUR, 1, gpus=[3, 1]).gpus == ("3",)
    assert choose(FOUR, device="cpu").workers == 64
    assert choose(FOUR, protocol="ucxx", rmm_pool="2GB").why["rmm_pool"] == "asked for"


def test_every_choice_has_a_reason():
    for machine in (CPU, ONE, FOUR):
        choice = choose(machine)
        assert all(choice.why.values())
        assert set(choice.why) == set(vars(choice)) - {"gpus", "why"}


def test_gpus_without_dask_cuda_are_left_alone_unless_asked_for():
    machine = replace(FOUR, dask_cuda=False)
    assert choose(machine).device == "cpu"
    assert "dask-cuda" in choose(machine).why["device"]
    with pytest.raises(DeviceError, match="dask-cuda"):
        choose(machine, device="gpu")
    with pytest.raises(DeviceError, match=r"gpus=\[0\] was asked for"):
        choose(machine, gpus=[0])


@pytest.mark.parametrize(
    ("machine", "options", "error", "named"),
    [
        (CPU, {"device": "gpu"}, DeviceError, "0 GPUs"),
        (CPU, {"gpus": [0]}, DeviceError, "0 GPUs"),
        (CPU, {"protocol": "ucxx"}, DeviceError, "distributed-ucxx"),
        (CPU, {"protocol": "udp"}, InvalidOption, "'udp'"),
        (CPU, {"rmm_pool": "1GB"}, InvalidOption, "rmm_pool"),
        (FOUR, {"workers": 5}, DeviceError, "workers is 5 and this machine has 4 usable GPUs"),
        (FOUR, {"workers": 3, "gpus": [0, 1]}, DeviceError, "workers is 3 and this machine has 2 usable GPUs"),
        (FOUR, {"gpus": []}, InvalidOption, "gpus is empty"),
        (FOUR, {"gpus": [4]}, InvalidOption, "4; the GPUs here are 0 to 3"),
        (FOUR, {"gpus": [-1]}, InvalidOption, "-1"),
        (FOUR, {"gpus": [1, 1]}, InvalidOption, "1 2 times"),
        (FOUR, {"gpus": [0], "device": "cpu"}, InvalidOption, "exclude each other"),
        (FOUR, {"memory_limit": 2**30}, InvalidOption, "memory_limit"),
    ],
)
def test_refuses(machine, options, error, named):
    with pytest.raises(error, match=named):
        choose(machine, **options)


@pytest.mark.parametrize(
    ("variable", "count", "names"),
    [(None, 2, ("0", "1")), ("5,7", 2, ("5", "7")), ("GPU-ab, GPU-cd", 2, ("GPU-ab", "GPU-cd")), ("3,99,1", 1, ("3",))],
)
def test_gpus_are_named_as_the_environment_names_them(monkeypatch, variable, count, names):
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    monkeypatch.setattr("cluster.choice.gpu_count", lambda: count)
    assert Machine.here().gpus == names
