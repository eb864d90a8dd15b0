"""Finished runs as the tests of this room use them: one of the tiny model, and a recorded one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.finished import make_run
from support.repository import ROOT

from hearth.after.sides import Loading, Side, load_sides
from hearth.config import Run, read_run, write_run
from hearth.config.layout import Layout

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The folder of a run with an adapter."""
    return make_run(tmp_path_factory.mktemp("chat") / "runs", "evening", tiny_model)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The places of a person whose models' checksums are kept in the test's folder."""
    return Layout.from_environment({"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)})


@pytest.fixture
def load(layout: Layout) -> Callable[..., list[Side]]:
    """Return a function that loads the sides of a run, given its folder and how to load it."""

    def act(
        folder: Path, loading: Loading | None = None, said: list[str] | None = None
    ) -> list[Side]:
        tell: Any = [].append if said is None else said.append
        return load_sides(folder, layout, loading or Loading(), tell)

    return act


@pytest.fixture(scope="session")
def sides(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    """The base and the adapter of the run `finished`."""
    home = str(tmp_path_factory.mktemp("home"))
    layout = Layout.from_environment({"XDG_CACHE_HOME": home, "HOME": home})
    return load_sides(finished, layout, Loading(), print)


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
