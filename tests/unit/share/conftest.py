"""A finished run in a folder, as the tests of this room share it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.repository import ROOT

from hearth.config import Run, read_run, write_run

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of a real run, and an adapter of two small files."""
    place = tmp_path / "evening"
    adapter = place / "adapter"
    adapter.mkdir(parents=True)
    for name in ("run.yml", "metrics.jsonl"):
        (place / name).write_text((RECORDED / name).read_text(encoding="utf-8"))
    config = {"base_model_name_or_path": "/home/ada/models/tiny", "r": 4}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    return place


@pytest.fixture
def changed(folder: Path) -> Callable[..., Run]:
    """Return a function that changes settings of the run, and returns it."""

    def change(source: dict[str, object] | None = None, **settings: object) -> Run:
        path = folder / "run.yml"
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["settings"] |= settings
        content["source"] |= source or {}
        path.write_text(yaml.safe_dump(content))
        run = read_run(path)
        write_run(run, path)
        return run

    return change
