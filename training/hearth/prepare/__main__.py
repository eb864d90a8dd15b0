"""Inspect this node for a run, or look at its data. Prints one line of JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hearth.base.command import run_verb
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.prepare.look import look
from hearth.prepare.preview import answer as preview


def config(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the content of config.json of the run's model, {} if it is not known yet.

    The spec says whether to ask the `hub` for one that is not here.
    """
    from hearth.fit.published import config_beforehand  # with the Hub's library: 0.3 s

    run, layout = read_run(run_file), Layout.from_environment()
    return {"facts": {"config": config_beforehand(run, layout, wanted["hub"])}}


if __name__ == "__main__":
    sys.exit(run_verb({"look": look, "config": config, "preview": preview}))
