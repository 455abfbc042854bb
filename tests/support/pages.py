"""The Markdown pages of the documentation: which there are, what they link to, and the examples that they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: the pages that people write; what Sphinx makes and the notebooks that it copies lie in folders of their own
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("cluster/*/README.md"), *DOCS.rglob("*.md")]
    if not {"_build", "notebooks"} & set(path.relative_to(ROOT).parts[:-1])
)
FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,})\s*(\S*).*?$\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
DIRECTIVE = re.compile(r"^\s*`{3,}\{(?:image|include|literalinclude)\} (\S+)", re.MULTILINE)


def name(page: Path) -> str:
    """A page's path within the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return [found[3] for found in FENCE.finditer(page.read_text()) if found[2] == language]


def only(page: Path, language: str) -> str:
    """The page with everything blank but the blocks of a language, so that its lines keep their numbers."""
    text, kept = page.read_text(), []
    for found in FENCE.finditer(text):
        if found[2] == language:
            kept.append(range(text.count("\n", 0, found.start(3)), text.count("\n", 0, found.end(3))))
    lines = text.splitlines()
    return "\n".join(line if any(at in part for part in kept) else "" for at, line in enumerate(lines)) + "\n"


def links(page: Path) -> Iterator[str]:
    """What a page links to within the repository: paths, anchors, pictures and included files."""
    text = page.read_text()
    yield from DIRECTIVE.findall(text)
    for target in LINK.findall(FENCE.sub("", text)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
