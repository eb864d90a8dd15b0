"""The pages for readers: relative links lead to files and headings, and the README stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.repository import ROOT, tracked

LINES = {"README.md": 120, "CONTRIBUTING.md": 150}
"""Lines that the pages which everybody reads may have."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of a page."""
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", tracked("*.md"), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    assert not broken_links(page)


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page: one\n[a](#a-page-one) [b](page.md) [c](#two) [d](none.md) [e](https://x)"
    )
    assert broken_links(page) == ["#two", "none.md"]


@pytest.mark.parametrize(("page", "most"), LINES.items(), ids=LINES)
def test_pages_that_everybody_reads_stay_short(page, most):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most
