"""The commands of the export playbook on a node: check the request, and export a run."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hearth.base.command import run_verb
from hearth.base.extras import extra_folder, packages_of
from hearth.base.imports import loading
from hearth.config.find import find_run
from hearth.config.layout import Layout
from hearth.export.llama_cpp import SET
from hearth.export.request import ExportRequest, check


def requested(spec: dict[str, Any], layout: Layout) -> ExportRequest:
    """Return the request of a spec."""
    return ExportRequest(
        run=find_run(spec["run"], layout.results),
        to=spec["to"],
        precision=spec["precision"] or None,
        best=spec["best"],
        onto=spec["onto"] or None,
        trust_remote_code=spec["trust_remote_code"],
    )


def look(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Check the request; return the packages of llama.cpp's tools that this node lacks.

    They come as M(hearth_supplies) reads them.
    """
    layout = Layout.from_environment()
    check(requested(spec, layout), layout, print)
    there = spec["to"] == "merged" or extra_folder(SET).is_dir()
    glibc = platform.libc_ver()[1].rpartition(".")[2]
    return {
        "facts": {
            "kind": SET,
            "differing": [] if there else [{"name": name} for name in packages_of(SET)],
            "target": {
                "python": sys.version_info[:2],
                "machine": platform.machine(),
                "glibc": int(glibc or 0),
            },
        }
    }


def export(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Export a run; return the new folder, relative to the run's, and its files."""
    # Imported late, so that a wrong request is answered soon.
    with loading():
        from hearth.base.quiet import hush

        hush()
        from hearth.export.export import export_run

    layout = Layout.from_environment()
    request = requested(spec, layout)
    wheels = Path(spec["wheels"]).expanduser() if spec["wheels"] else None
    target = export_run(request, layout, print, wheels)
    return {
        "facts": {
            "changed": True,
            "folder": str(target.relative_to(request.run)),
            "files": sorted(path.name for path in target.iterdir()),
        }
    }


if __name__ == "__main__":
    sys.exit(run_verb({"look": look, "export": export}))
