"""The option ``--for``. It stands at the root because pytest reads options there before it takes paths for tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--for mgraph/log/head.py``, which runs the tests that cover a module, a kernel or a folder."""
    parser.addoption("--for", dest="covered", metavar="PATH", action="append", help="run the tests that cover a module")


def pytest_configure(config: pytest.Config) -> None:
    """Replace the paths to collect by the files that cover the named modules."""
    if config.option.covered:
        from coverage_by_name import files_that_cover

        config.args[:] = sorted({file for path in config.option.covered for file in files_that_cover(path)})


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print these files."""
    return [f"covered by {file}" for file in config.args] if config.option.covered else []
