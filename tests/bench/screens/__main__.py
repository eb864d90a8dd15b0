"""Take the pictures of the pages from a real run on this computer: its report, and `hearth watch`.

Needs Chromium, and a run in runs/ that `hearth status` knows, such as the one of quickstart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from support.browser import CHROMIUM, Browser

from hearth_controller.cli.place import find_place
from hearth_controller.watch.app import WatchApp
from tests.bench.lab import ROOT

PICTURES = ROOT / "docs"
_WIDTH = 1000
"""Pixels of the report: of a page that is shown on a page."""
_SIZE = (100, 30)
"""Columns and lines of the terminal."""
_PATIENCE = 120
"""Seconds until the steps of the run must be on the screen."""
_EMPTY = "no&#160;step&#160;is&#160;on&#160;record"
"""Text on the screen, as SVG has it, before the first step of the run is known."""


def report(run: Path) -> bytes:
    """Return the top of a run's report as a picture (PNG)."""
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        try:
            browser.open(run / "report.html", _WIDTH, "light")
            return browser.screenshot(height=_WIDTH)
        finally:
            browser.close()


async def screen(run: str) -> str:
    """Return the live screen of a run as a picture (SVG).

    Raises `TimeoutError` if its steps do not appear.
    """
    app = WatchApp(find_place(), run)
    async with app.run_test(size=_SIZE) as pilot:
        async with asyncio.timeout(_PATIENCE):
            while _EMPTY in (picture := app.export_screenshot(title="hearth watch")):
                await pilot.pause(1)
        return picture


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.screens", description=__doc__)
    parser.add_argument("run", help="name of the run")
    parser.add_argument("--dry", action="store_true", help="take the pictures, and write nothing")
    given = parser.parse_args()
    folder = ROOT / "runs" / given.run
    if not CHROMIUM:
        parser.error("there is no Chromium")
    if not (folder / "report.html").is_file():
        parser.error(f"{folder} has no report.html; `hearth attach {given.run}` writes it")
    taken = {"report.png": report(folder), "watch.svg": asyncio.run(screen(given.run)).encode()}
    for name, picture in taken.items():
        print(f"{name}: {len(picture) / 1e3:.0f} kB", file=sys.stderr)
        if not given.dry:
            (PICTURES / name).write_bytes(picture)


if __name__ == "__main__":
    main()
