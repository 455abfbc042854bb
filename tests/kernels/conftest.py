"""Kernels of the tests' own: written into a file of their own each, so that nothing remembered is met."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgraph.device import Device
from mgraph.kernels import Library, load


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Put a kernel file's text somewhere; returns its path."""

    def write(text: str, name: str = "test_kernel") -> str:
        path = tmp_path / f"{name}.cuh"
        path.write_text("#pragma once\n" + text)
        return str(path)

    return write


#: under a sanitizer or with tiles of 32 lanes, the chosen build alone: "lanes" would be what that one shows
HOSTS = ["chosen", "lanes"] if os.environ.get("MGRAPH_HOST_BUILD", "plain") in ("plain", "quick") else ["chosen"]


@pytest.fixture(params=[*HOSTS, pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compile a text for a machine: the CPU in the chosen build, the CPU with 32-lane tiles, a GPU."""
    if request.param == "lanes":
        monkeypatch.setenv("MGRAPH_HOST_BUILD", "lanes")
    device = Device("cuda") if request.param == "cuda" else Device("cpu", threads=3)

    def compiled(text: str, **defines: int) -> tuple[Device, Library]:
        return device, load(device, write(text), **defines)

    return compiled
