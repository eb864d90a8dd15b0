"""The report as a browser shows it: headless Chromium, in light and dark, wide and narrow."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image
from support.browser import CHROMIUM, Browser
from support.repository import ROOT

from hearth_controller.report.page import write_report

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening"
PAPER = {"light": (0xFC, 0xFC, 0xFA), "dark": (0x17, 0x18, 0x1A)}
FIRST_NODE = {"light": (0x2A, 0x78, 0xD6), "dark": (0x4A, 0x93, 0xEA)}

pytestmark = pytest.mark.skipif(
    not CHROMIUM and os.environ.get("CI") != "true",
    reason="there is no Chromium (apt-get install chromium)",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "evening"
    return write_report(Path(shutil.copytree(RECORDED, folder)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_drawn_and_asks_for_nothing(report, browser, width, scheme):
    browser.open(report, width, scheme)
    drawn = "[...document.querySelectorAll('svg')].filter(each => each.clientWidth > 0)"
    assert browser.evaluate(f"{drawn}.length") == 3
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
    colours = {colour: count for count, colour in picture.getcolors(1 << 24)}
    assert max(colours, key=colours.get) == PAPER[scheme]
    assert colours[FIRST_NODE[scheme]] > 1000
    assert browser.complaints == []
    assert set(browser.requests) == {report.as_uri()}


def assert_whole(browser: Browser, width: int) -> None:
    """Assert that neither the page nor one of its tables scrolls sideways."""
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    tables = "[...document.querySelectorAll('.wide-table')].map(each => each"
    inner, outer = (browser.evaluate(f"{tables}.{side}Width)") for side in ("scroll", "client"))
    assert len(inner) == 6
    assert inner == outer


@pytest.mark.parametrize("width", [1280, 390])
def test_a_screen_and_a_phone_show_every_table_whole(report, browser, width):
    browser.open(report, width, "light")
    assert_whole(browser, width)


def test_a_phone_shows_long_names_and_words_whole(tmp_path, browser):
    folder = Path(shutil.copytree(RECORDED, tmp_path / ("a-run-" * 10)[:-1]))
    metrics = (folder / "metrics.jsonl").read_text()
    for short, long in (("desk", "living-room-" * 5), ("laptop", "x" * 63), ("say 1", "W" * 90)):
        metrics = metrics.replace(f'"{short}"', f'"{long}"')
    (folder / "metrics.jsonl").write_text(metrics)
    browser.open(write_report(folder), 390, "light")
    assert_whole(browser, 390)
