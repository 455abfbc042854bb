"""A graph on the workers of two hosts, which are namespaces: groups that map their memory, and TCP between them."""

from __future__ import annotations

import pytest
from slurm import missing as missing_slurm
from two_hosts import SCENARIOS, missing, run_scenario

pytestmark = pytest.mark.skipif(bool(why := missing()), reason=f"no namespaces: {why}")


@pytest.mark.parametrize(
    "scenario",
    ["two_and_two", *(pytest.param(name, marks=pytest.mark.slow) for name in ("three_and_one", "lost_host"))],
)
def test_scenario(scenario: str, tmp_path) -> None:
    assert scenario in SCENARIOS
    run_scenario(scenario, tmp_path)


@pytest.mark.slurm
@pytest.mark.skipif(bool(missing_slurm()), reason=f"no {', '.join(missing_slurm())} here")
@pytest.mark.timeout(240)
def test_a_batch_job_on_two_nodes(tmp_path) -> None:
    run_scenario("batch_job", tmp_path, 200)
