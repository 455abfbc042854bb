"""What the build of a wheel asks: one that carries compiled CPU kernels is for this machine's kind of system alone."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Carried(BuildHookInterface):
    """Names the system in the wheel's tag, if ``python -m workloads wheel`` has compiled kernels for it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the tag: an x86-64 with this machine's C library, or a newer one."""
        if any(Path(self.root, "mgraph", "kernels", "carried").glob("*/*.so")):
            release = platform.libc_ver()[1].replace(".", "_")
            build_data |= {"pure_python": False, "tag": f"py3-none-manylinux_{release}_x86_64"}
