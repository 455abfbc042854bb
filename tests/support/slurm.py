"""A Slurm of the tests' own: munged, slurmctld and two slurmd on one machine.

They are on the loopback interface, or the second node is another host (`two_hosts`).
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cluster_processes import ROOT, environment, send, wait_until

__all__ = ["Job", "Slurm", "missing", "slurm"]

NODES = ("one", "two")
DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "srun")
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
START_SECONDS = 30.0
COMMAND_SECONDS = 20.0
GONE_SECONDS = 5.0
KILL_SECONDS = 45.0  #: Slurm kills a cancelled job after 30
UNENDED = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}

# The nodes claim CPUs and GPUs enough for the scripts' heads; jobs run on CPU workers. Processes are tracked by their
# process groups, so that neither cgroups nor root are needed, and what a job leaves running goes on running.
CONFIGURATION = """\
ClusterName=mgraph
SlurmctldHost={host}({addresses[0]})
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
{listen}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
MailProg=/bin/true
GresTypes=gpu
NodeName=one NodeHostname={host} NodeAddr={addresses[0]} Port={ports[1]} CPUs=32 RealMemory=16000 Gres=gpu:4
NodeName=two NodeHostname={host} NodeAddr={addresses[1]} Port={ports[2]} CPUs=32 RealMemory=16000 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES State=UP
"""
GPUS = "".join(f"Name=gpu File=/dev/{device}\n" for device in ("null", "zero", "full", "random"))


def missing() -> list[str]:
    """The programs of Slurm and MUNGE that are not installed here."""
    return [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name, path=PATH) is None]


@dataclass
class Slurm:
    """A running Slurm with two idle nodes; `folder` holds all its files, and workers use the interface."""

    folder: Path
    interface: str = "lo"
    jobs: list[Job] = field(default_factory=list)

    def environment(self, **settings: str) -> dict[str, str]:
        """For Slurm's programs; a Slurm that the tests themselves run under is left out."""
        ours = {k: v for k, v in environment().items() if not k.startswith(("SLURM", "SBATCH", "SRUN"))}
        return {**ours, "PATH": PATH, "SLURM_CONF": f"{self.folder}/slurm.conf", **settings}

    def call(self, *command: str, **settings: str) -> str:
        """What a command of Slurm prints; raises with its errors where it fails."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, cwd=ROOT, env=self.environment(**settings)
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} returned {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, script: str, *command: str, gpus: int, **settings: str) -> Job:
        """Submit a batch script for `gpus` GPUs a node; with a CPU worker in place of each."""
        folder = self.folder / f"job-{len(self.jobs)}"
        output = folder.with_suffix(".log")
        folder.mkdir()
        mgraph = {"DEVICE": "cpu", "INTERFACE": self.interface, "RUN_DIR": str(folder), "PYTHON": sys.executable}
        mgraph |= {"DASHBOARD": "127.0.0.1:0", "START_SECONDS": "60"}
        mgraph |= {"WORKER_OPTIONS": f"--local-directory {folder}", **settings}
        options = ["--parsable", f"--gpus-per-node={gpus}", f"--output={output}"]
        number = self.call(
            "sbatch", *options, f"cluster/slurm/{script}", *command, **{f"MGRAPH_{k}": v for k, v in mgraph.items()}
        )
        self.jobs.append(Job(self, int(number), folder, output))
        return self.jobs[-1]

    def end_jobs(self) -> None:
        """End what a failed test left running, for the next one to have the nodes."""
        for job in self.jobs:
            if job.facts()["JobState"] in UNENDED:
                job.cancel()
                job.ended(KILL_SECONDS)


@dataclass
class Job:
    """A submitted job; `folder` is where it keeps its files while it runs, `output` has what its script printed."""

    slurm: Slurm
    id: int
    folder: Path
    output: Path

    def facts(self) -> dict[str, str]:
        """Slurm's account of the job, such as JobState and ExitCode."""
        told = self.slurm.call("scontrol", "--oneliner", "show", "job", str(self.id))
        return dict(re.findall(r"(\S+?)=(\S*)", told))

    def ended(self, seconds: float) -> tuple[str, str]:
        """State and exit code (``status:signal``) of a job that ends in time."""
        facts: dict[str, str] = {}

        def over() -> bool:
            facts.update(self.facts())
            return facts["JobState"] not in UNENDED

        assert wait_until(over, seconds), f"job {self.id} is {facts['JobState']} after {seconds:g} s: {self.text()}"
        return facts["JobState"], facts["ExitCode"]

    def says(self, part: str, seconds: float) -> bool:
        """Whether it printed this in time."""
        return wait_until(lambda: part in self.text(), seconds)

    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def cancel(self, *options: str) -> None:
        self.slurm.call("scancel", *options, str(self.id))

    def scheduler_file(self) -> Path:
        return self.folder / f"scheduler-{self.id}.json"

    def assert_gone(self, *, closed: bool = True) -> None:
        """No process and no scheduler file is left, nor, where the workers could close, a worker's folder."""
        assert wait_until(lambda: not processes_of(self.folder), GONE_SECONDS), processes_of(self.folder)
        assert not self.scheduler_file().exists()
        assert not (closed and list(self.folder.glob("dask-scratch-space/*/"))), "workers were killed: " + self.text()


@contextmanager
def slurm(
    folder: Path,
    addresses: tuple[str, str] = ("127.0.0.1", "127.0.0.1"),
    interface: str = "lo",
    on_second: Sequence[str] = (),
) -> Iterator[Slurm]:
    """Start Slurm with all its files in `folder`; whatever becomes of it, it and its jobs are ended.

    `addresses` are those of the nodes, and `on_second` is the command that runs another on the second node.
    """
    one = Slurm(folder, interface)
    write_configuration(folder, addresses)
    with ExitStack() as stack:
        stack.callback(end_all, folder)
        munge = ["--foreground", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key"]
        munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("log", "pid", "seed")]
        # munged asks that all users can reach its socket; the folder is the user's alone, which --force allows
        start(stack, one, "munged", *munge, "--force")
        assert wait_until((folder / "munge.socket").exists, START_SECONDS), logs(folder)
        daemons = [start(stack, one, "slurmctld", "-D", "-i")]
        for node, prefix in zip(NODES, ((), on_second), strict=True):
            daemons.append(start(stack, one, *prefix, "slurmd", "-D", "-N", node))
        wait_for_nodes(one, daemons)
        yield one


def write_configuration(folder: Path, addresses: tuple[str, str]) -> None:
    """All of Slurm's and MUNGE's files."""
    host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.getuid()).pw_name
    # On the loopback interface nothing listens on others; the hosts of `two_hosts` have no others.
    listen = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" if addresses[0] == addresses[1] else ""
    facts = {
        "host": host,
        "listen": listen,
        "user": user,
        "folder": folder,
        "ports": free_ports(3),
        "addresses": addresses,
    }
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts))
    (folder / "gres.conf").write_text(GPUS)
    if version() >= (23, 2):  # older ones know no such setting
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (folder / "munge.key").touch(0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()


def version() -> tuple[int, int]:
    """Slurm's release, such as (22, 5)."""
    told = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True, env={"PATH": PATH}).stdout
    year, month = re.search(r"(\d+)\.(\d+)", told).groups()
    return int(year), int(month)


def free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start(stack: ExitStack, one: Slurm, *command: str) -> subprocess.Popen[bytes]:
    """A daemon in the foreground, ended with the stack."""
    with (one.folder / "daemons.log").open("ab") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, cwd=one.folder, env=one.environment())
    stack.callback(end, daemon)
    return daemon


def end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait(10)


def end_all(folder: Path) -> None:
    """End what the daemons left: job steps, and the processes of jobs that outlived their test."""
    for pid in processes_of(folder):
        send(pid, signal.SIGKILL)
    assert wait_until(lambda: not processes_of(folder), 10), "processes outlived their SIGKILL"


def wait_for_nodes(one: Slurm, daemons: list[subprocess.Popen[bytes]]) -> None:
    """Raise with the daemons' logs where one of them ends, or a node is not idle in time."""
    ended: list[object] = []
    states: list[str] = []

    def settled() -> bool:
        ended[:] = [daemon.args for daemon in daemons if daemon.poll() is not None]
        with suppress(RuntimeError):  # slurmctld does not answer yet
            states[:] = one.call("sinfo", "--noheader", "--Node", "--format=%T").split()
        return bool(ended) or states == ["idle"] * len(NODES)

    if not wait_until(settled, START_SECONDS) or ended:
        raise RuntimeError(f"Slurm did not start: nodes are {states}, ended {ended}\n{logs(one.folder)}")


def logs(folder: Path) -> str:
    return "\n".join((folder / name).read_text() for name in ("daemons.log", "munge.log") if (folder / name).exists())


def processes_of(folder: Path) -> list[int]:
    """Running processes whose environment names a file in `folder`, or `folder` itself."""
    found, name = [], re.compile(re.escape(os.fsencode(folder)) + rb"[/\0]")
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended meanwhile, or another user's; a zombie's is empty
            if name.search(file.read_bytes()):
                found.append(int(file.parent.name))
    return found
