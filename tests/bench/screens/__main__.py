"""Make the pictures of the pages from a real run: docs/watch.svg, docs/live.png, docs/report.png.

Trains SmolLM2 on three nodes of this computer, the owner uses one for a while, in
the way that a person would: by the keys of `hearth watch`. It takes ten minutes on two cores, and
needs Chromium. A run of the same name from an earlier call is removed first.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.browser import Browser
from textual.pilot import Pilot
from textual.widgets import DataTable

from hearth_controller.cli.place import Place
from hearth_controller.watch.app import WatchApp
from hearth_controller.watch.child import describe, play
from hearth_controller.watch.server import serve
from tests.bench.lab import ROOT, CommandFailed

RUN = "evening"
NODES = ("desk", "laptop", "tower")
SIZE = (120, 34)
OTHER_SIZES = ((80, 24), (200, 60))
"""Sizes of the pictures that are only looked at."""

_WIDTH = 1000
"""Pixels of a picture of a page that is shown on a page, and its height."""

_PATIENCE = 1800
"""A play that takes these seconds has hung."""

_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""The fonts of another site in the pictures of Textual."""


def inventory(folder: Path) -> Path:
    """Write an inventory of this computer as three nodes, in a folder of their own."""
    target = folder / "inventory"
    shutil.copytree(ROOT / "inventory" / "local", target)
    lines = [f"    {node}: {{cluster_address: 127.0.0.{n}}}" for n, node in enumerate(NODES, 1)]
    hosts = ["cluster:", "  hosts:", *lines]
    (target / "hosts.yml").write_text("\n".join([*hosts, ""]), encoding="utf-8")
    with (target / "group_vars" / "cluster.yml").open("a", encoding="utf-8") as more:
        more.write(f'\nhearth_workspace: "{folder}/{{{{ inventory_hostname }}}}"\n')
    return target


async def until(pilot: Pilot[object], reached: Callable[[], object]) -> None:
    """Wait until something holds. Raises `CommandFailed` if it never does."""
    deadline = time.monotonic() + _PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise CommandFailed("the run did not come so far")
        await pilot.pause(0.5)


async def evening(place: Place, steps: int, out: Path, pages: Callable[[str, str], None]) -> None:
    """Watch a run to its end, and make the pictures on the way."""
    words = {"model": "smollm2-135m", "run": RUN, "max_steps": str(steps), "cpu": "on"}
    started = await play(place, "train", {**words, "wait": "off"}, print)
    if started.errors:
        raise CommandFailed(describe(started))
    said: list[str] = []
    serving = asyncio.create_task(serve(place, "127.0.0.1", 0, said.append))
    app = WatchApp(place, RUN)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        view = app.feed.view
        await until(pilot, lambda: view.leader.story.step >= steps // 4)
        app.query_one(DataTable).focus()
        await pilot.press("down", "down", "o", "n")
        await until(pilot, lambda: view.story.teams)
        left = view.leader.story.step
        await until(pilot, lambda: view.leader.story.step >= left + steps // 6)
        await pilot.press("o", "a")
        await until(pilot, lambda: len(view.story.teams) > 1)
        back = view.leader.story.step
        await until(pilot, lambda: view.leader.story.step >= back + steps // 6)
        app.clear_notifications()
        for size in (SIZE, *OTHER_SIZES):
            await pilot.resize_terminal(*size)
            await pilot.pause(2)
            picture = _FONTS.sub("", app.export_screenshot(title="hearth watch"))
            name = "watch.svg" if size == SIZE else f"watch-{size[0]}.svg"
            (out / name).write_text(picture.replace("Fira Code, ", ""), encoding="utf-8")
        address = f"{said[0].split()[0]}runs/{RUN}"
        await asyncio.to_thread(pages, address, "live")
        await until(pilot, lambda: app.feed.answer)
        await pilot.press("q")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.screens", description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="of the run")
    parser.add_argument(
        "--also", type=Path, metavar="FOLDER", help="for pictures of other sizes and colours"
    )
    parser.add_argument("--dry", action="store_true", help="write nothing into docs/")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hearth-screens-", dir="/var/tmp") as name:
        folder = Path(name)
        others = given.also or folder / "others"
        others.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(ROOT / "runs" / RUN, ignore_errors=True)
        with closing(Browser(folder / "profile")) as browser:

            def pages(address: str, kind: str) -> None:
                """Make the pictures of a page; the top of it is for docs/."""
                for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
                    browser.open(address, width, scheme)
                    if not browser.evaluate("document.querySelectorAll('svg').length"):
                        raise CommandFailed(f"{address} has no curve")
                    (others / f"{kind}-{width}-{scheme}.png").write_bytes(browser.screenshot())
                browser.open(address, _WIDTH, "light")
                (others / f"{kind}.png").write_bytes(browser.screenshot(height=_WIDTH))

            try:
                place = Place(ROOT, str(inventory(folder)))
                asyncio.run(evening(place, given.steps, others, pages))
            except CommandFailed as error:
                sys.exit(f"screens: no picture was changed: {error}")
            pages((ROOT / "runs" / RUN / "report.html").as_uri(), "report")
        for picture in ("watch.svg", "live.png", "report.png"):
            print(f"{picture}: {(others / picture).stat().st_size / 1e3:.0f} kB")
            if not given.dry:
                shutil.copy(others / picture, ROOT / "docs" / picture)


if __name__ == "__main__":
    main()
