"""Write the report of a run to the run's folder."""

from __future__ import annotations

from pathlib import Path

from hearth.base.files import write_whole
from hearth_controller.report.page import page
from hearth_controller.report.read import read

FILE = "report.html"
"""The report's name in the run's folder."""


def write_report(folder: Path) -> Path:
    """Write the report of the run in `folder` and return its path.

    Raises `ConfigError` if the folder holds no run, `OSError` if writing fails.
    """
    path = folder / FILE
    write_whole(path, page(read(folder)))
    return path
