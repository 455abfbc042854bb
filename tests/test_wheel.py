"""What the wheel ships: the package with its kernel sources, and neither of the repository's applications."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_wheel_ships_the_package_alone(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("dask_mgraph-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name and "/carried/" not in name}
    suffixes = {".py", ".cuh", ".h", ".cu", ".typed"}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "mgraph").rglob("*")
        if path.suffix in suffixes and "__pycache__" not in path.parts
    }
    assert shipped == package
    assert any(name.endswith(".cuh") for name in shipped)
    assert any(name.endswith(".h") for name in shipped)
