"""What all tests share: which of them run, by GPUs, marks and combinations of parameters; the folder of real graphs."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promise_records
import pytest
from patience import patience

ROOT = Path(__file__).parents[1]

#: Dask's own measurements take a sixth of a core per idle cluster of two workers; without them it takes a thirtieth.
#: And a nanny whose worker is not back within 15 s is closed by the cluster, which a loaded machine makes long.
QUIET_DASK = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
    "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1h",
}
os.environ.update(QUIET_DASK)  # before Dask is imported, and for all processes that tests start


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C, also where a shell started the tests in the background and so had it ignored: tests send it.

    With ``-m gpu``, each of xdist's processes sees one GPU, in turn.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if process is not None and config.option.markexpr == "gpu" and shutil.which("nvidia-smi"):
        from cluster_processes import gpus

        here = gpus()
        os.environ["CUDA_VISIBLE_DEVICES"] = here[int(process.removeprefix("gw")) % len(here)]


def gpus_needed(item: pytest.Item) -> int:
    """How many GPUs a test's marks ask for."""
    needed = 1 if item.get_closest_marker("gpu") else 0
    mark = item.get_closest_marker("multigpu")
    return max(needed, int(mark.args[0]) if mark and mark.args else 2) if mark else needed


@cache
def gpus_here() -> int:
    from mgraph.device import gpu_count

    return gpu_count()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without tests for several GPUs if these alone are wanted: to import all takes a while."""
    if config.option.markexpr != "multigpu" or not collection_path.match("test_*.py"):
        return None
    return True if "multigpu" not in collection_path.read_text() else None


#: marks of tests that run where ``-m`` or a test's own id names them
ON_REQUEST = ("slow", "combination", "slurm")
#: by config: how many tests were left out for want of GPUs
WITHOUT_GPUS = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """Give a test more time on a loaded machine."""
    import pytest_timeout

    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=patience(settings.timeout)))


def by_id(config: pytest.Config) -> bool:
    return any("::" in path for path in config.args)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no parameters of GPUs where there are none: to make these tests and leave them out takes seconds."""
    yield
    config = metafunc.config
    if not (config.option.collectonly or by_id(config) or gpus_here()):
        calls = [call for call in metafunc._calls if not {"gpu", "multigpu"} & {mark.name for mark in call.marks}]
        if calls:
            config.stash[WITHOUT_GPUS] = config.stash.get(WITHOUT_GPUS, 0) + len(metafunc._calls) - len(calls)
            metafunc._calls[:] = calls


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs more GPUs than there are, unless tests are only listed, and what runs on request."""
    few = [] if config.option.collectonly else [item for item in items if gpus_needed(item) > gpus_here()]
    if by_id(config):
        for item in few:
            item.add_marker(pytest.mark.skip(reason=f"needs {gpus_needed(item)} GPU(s), {gpus_here()} here"))
    else:
        leave_out(config, items, set(few))
        config.stash[WITHOUT_GPUS] = config.stash.get(WITHOUT_GPUS, 0) + len(few)
    mark_combinations(items)
    unasked = [name for name in ON_REQUEST if not by_id(config) and name not in config.option.markexpr]
    leave_out(config, items, {item for item in items if any(map(item.get_closest_marker, unasked))})


def leave_out(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def mark_combinations(items: list[pytest.Item]) -> None:
    """Mark the combinations that bring no new value of a parameter."""
    alike = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            alike[item.nodeid.partition("[")[0], gpus_needed(item)].append(item)
    for tests in alike.values():
        left, seen = {item: values_of(item) for item in tests}, set[tuple[str, str]]()
        while any(values - seen for values in left.values()):
            seen |= left.pop(max(left, key=lambda item: len(left[item] - seen)))
        for item in left:
            item.add_marker(pytest.mark.combination)


def values_of(item: pytest.Function) -> set[tuple[str, str]]:
    """The values of a test's parameters; those that one ``parametrize`` lists together are one value."""
    params, values = dict(item.callspec.params), set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
        values.add((",".join(names), repr([params.pop(name, None) for name in names])))
    return values | {(name, repr(value)) for name, value in params.items()}


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of the collections of garbage that tests ask for."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Send the counts of an xdist worker to the terminal's process, which writes the records of a run that passed."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["without_gpus"] = session.config.stash.get(WITHOUT_GPUS, 0)
        session.config.workeroutput["records"] = promise_records.counts()
    elif exitstatus == pytest.ExitCode.OK:
        promise_records.write()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Mix files that wait with files that compute, where each file is run by one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from scheduling import MixedScheduling

    return MixedScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[WITHOUT_GPUS] = output.get("without_gpus", 0)
    promise_records.merge(output.get("records", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(WITHOUT_GPUS, 0):
        terminalreporter.write_line(f"{count} GPU tests left out: {gpus_here()} GPUs here", yellow=True)


def find_data_dir() -> Path | None:
    """The folder of real graphs: MGRAPH_DATA, or the checkout's sibling shared/data; None where neither is there."""
    named = os.environ.get("MGRAPH_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs (.npz); skips the test where it is absent."""
    folder = find_data_dir()
    if folder is None:
        pytest.skip("no real graphs here; MGRAPH_DATA names their folder")
    return folder
