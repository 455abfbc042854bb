"""The probe on this machine, and on machines that it is told of."""

import json
import os
import sys
from types import SimpleNamespace

import pytest
from distributed import __version__ as distributed_version

from cluster import Machine, facts
from cluster.__main__ import main
from cluster.probe import _exchange_lines, as_text
from cluster.transports import transports_of
from mgraph.device import gpu_count

UCP_CONTEXT = """
#
# UCP context
#
#     component 0  :  self
#     component 1  :  tcp
#            md 1  :  component 1  tcp
#
#      resource 0  :  md 0  dev 0  flags -- self/memory
#      resource 1  :  md 1  dev 1  flags -- tcp/eth0
#      resource 2  :  md 1  dev 2  flags -- tcp/lo
#      resource 3  :  md 5  dev 3  flags a- rc_mlx5/mlx5_0:1
#      resource 4  :  md 6  dev 4  flags -- cuda_ipc/cuda
#
"""


class Nvml:
    """NVML of four GPUs: 0 and 1 on NVLink, 2 on the bridge of 0, 3 unknown to the topology calls."""

    class NVMLError(Exception):
        pass

    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_FEATURE_ENABLED, NVML_NVLINK_MAX_LINKS = 2, 0, 1, 36
    NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE, NVML_TOPOLOGY_HOSTBRIDGE = 10, 20, 30
    NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 40, 50

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return b"580.1"

    def nvmlDeviceGetCount(self):
        return 4

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, index):
        return f"NVIDIA H200 {index}"

    def nvmlDeviceGetMemoryInfo(self, index):
        return SimpleNamespace(total=(139 + index) << 30)

    def nvmlDeviceGetUUID(self, index):
        return f"GPU-{index}"

    def nvmlDeviceGetP2PStatus(self, one, other, capability):
        if 3 in (one, other):
            raise self.NVMLError
        return 0 if {one, other} == {0, 1} else 3

    def nvmlDeviceGetNvLinkState(self, index, link):
        if link >= 18:
            raise self.NVMLError
        return 1 if (index, link) != (1, 0) else 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 30 if {one, other} == {0, 2} else 50


def run(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_json_says_what_this_machine_has(capsys):
    found = json.loads(run(capsys, "probe", "--json", "--no-exchange", "--workers", "2", "--device", "cpu"))
    assert found["versions"]["distributed"] == distributed_version
    assert len(found["usable_gpus"]) == gpu_count()
    assert 1 <= found["host"]["cores"] <= os.cpu_count()
    assert 0 < found["host"]["memory_free_bytes"] <= found["host"]["memory_bytes"]
    choice = found["choice"]
    assert (choice["device"], choice["workers"], choice["exchange"]) == ("cpu", 2, "peer")
    assert ("why" in found["ucx"]) or found["ucx"]["transports"]


def test_text_has_every_part(capsys):
    text = run(capsys, "probe", "--no-exchange", "--workers", "1", "--device", "cpu")
    for part in ("GPUs\n", "UCX\n", "versions\n", "host\n", "compiler: ", "start() would choose\n", "loopback"):
        assert part in text


def test_what_start_refuses_ends_with_status_2(capsys):
    assert main(["probe", "--workers", "0"]) == 2
    assert "workers is 0" in capsys.readouterr().err


def test_gpus_and_links_by_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    gpus = facts.gpus()
    assert [gpu["name"] for gpu in gpus] == [f"NVIDIA H200 {index}" for index in range(4)]
    assert gpus[1] == {"name": "NVIDIA H200 1", "memory_bytes": 140 << 30, "driver": "580.1", "uuid": "GPU-1"}
    links = {tuple(one["gpus"]): one["link"] for one in facts.links(4)}
    assert links[0, 1] == "NVLink, 17 links per GPU"
    assert links[0, 2] == "PCIe, one host bridge"
    assert links[1, 2] == "PCIe, across NUMA nodes"
    assert links[0, 3] == links[1, 3] == links[2, 3] == "unknown"


def test_links_without_nvml_are_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert facts.links(2) == [{"gpus": [0, 1], "link": "unknown"}]
    assert facts.links(1) == []


def test_transports_by_the_text_of_ucx():
    assert transports_of(UCP_CONTEXT) == {
        "self": ["memory"],
        "tcp": ["eth0", "lo"],
        "rc_mlx5": ["mlx5_0:1"],
        "cuda_ipc": ["cuda"],
    }


def test_ucx_that_hangs_or_aborts_is_reported(monkeypatch, tmp_path):
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\necho 'ucx: abort' >&2\nkill -ABRT $$\n")
    stub.chmod(0o755)
    monkeypatch.setattr(facts.sys, "executable", str(stub))
    assert "ucx: abort" in facts.ucx()["why"]
    stub.write_text("#!/bin/sh\nexec sleep 20\n")
    monkeypatch.setattr(facts, "LOOK_SECONDS", 0.3)
    assert "did not answer within 0.3 s" in facts.ucx()["why"]


@pytest.mark.parametrize(("command", "named"), [("no-such-compiler", "not on the PATH"), ("false", "does not run")])
def test_a_missing_compiler_is_named(monkeypatch, command, named):
    monkeypatch.setenv("CXX", command)
    found = facts.host(Machine(gpus=(), cores=1, memory=2**30))
    assert found["compiler"] is None
    assert command in found["compiler_why"]
    assert named in found["compiler_why"]


def test_text_of_a_machine_with_gpus():
    text = as_text(
        {
            "gpus": [{"name": "NVIDIA H200", "memory_bytes": 139 << 30, "driver": "580.1", "uuid": "GPU-0"}] * 2,
            "usable_gpus": ["0", "1"],
            "links": [{"gpus": [0, 1], "link": "NVLink, 18 links per GPU"}],
            "ucx": {"version": "1.21.0", "ucxx": "0.52", "cuda": True, "transports": {"cuda_ipc": ["cuda"]}},
            "versions": {"python": "3.11"},
            "host": {"system": "Linux", "cores": 2, "memory_bytes": 1, "memory_free_bytes": 1, "compiler": "g++ 12"},
            "choice": {
                "device": "gpu", "workers": 2, "gpus": ["0", "1"], "memory_limit": None,
                "why": {"device": "CuPy sees 2 GPUs", "workers": "one per GPU"},
            },
        }
    )  # fmt: skip
    for part in ("0: NVIDIA H200, 139.00 GiB, driver 580.1", "0 - 1: NVLink, 18", "cuda_ipc: cuda", "gpu (0, 1): CuPy"):
        assert part in text


def test_text_of_several_hosts_names_who_maps_and_who_sends():
    exchanges = [{"exchange": "peer+ucx:0,0,1,1,2", "allreduce_s": 5e-5, "bulk_s": 2e-3, "bulk_bytes": 1 << 20}]
    comparison = {"ranks": 5, "auto": "peer+ucx:0,0,1,1,2", "why": "..", "call_s": 1e-4, "calls_by_comm": ""}
    lines = _exchange_lines({**comparison, "exchanges": exchanges})
    assert "workers that map each other's memory: 0, 1 | 2, 3 | 4" in lines
    assert "workers that send for their hosts by ucx: 2 - 0, 4 - 1, 4 - 3" in lines
    assert _exchange_lines({**comparison, "auto": "peer", "exchanges": []})[1].startswith("an empty call")
