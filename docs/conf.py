"""Sphinx: the site that `make docs` builds. It needs no GPU, and shows the notebooks with their stored outputs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from mgraph import __version__  # noqa: E402

project = "dask-mgraph"
author = "the mgraph authors"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` runs them; the tests do so too
nb_merge_streams = True
default_role = "py:obj"  # docstrings write `name`
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the NumPy docstrings have the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
add_module_names = False
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "mgraph"
html_static_path = ["_static"]
html_css_files = ["mgraph.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "mgraph"},
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,  # more of them take two lines
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {page: [] for page in ("index", "start", "figures", "standard-benchmarks", "changelog")}


def _bring_notebooks() -> None:
    """Copy the notebooks to docs/notebooks, where Sphinx finds them; git ignores that folder."""
    target = HERE / "notebooks"
    target.mkdir(exist_ok=True)
    sources = {path.name: path for path in sorted((HERE.parent / "notebooks").glob("*.ipynb"))}
    for stale in set(target.iterdir()) - {target / name for name in sources}:
        stale.unlink()
    for name, source in sources.items():
        copy = target / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copyfile(source, copy)


_bring_notebooks()
