"""A finished run of the tiny model, and its two sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.finished import make_run

from hearth.chat.sides import Loading, Side, load_sides
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.record.result import find_result


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
        run = read_run(folder / "run.yml")
        tell: Any = [].append if said is None else said.append
        result = find_result(folder, run, folder / "checkpoints", tell)
        how = loading or Loading()
        return load_sides(run, folder, result, how, torch.device("cpu"), layout, tell)

    return act


@pytest.fixture(scope="session")
def sides(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    """The base and the adapter of the run `finished`."""
    home = str(tmp_path_factory.mktemp("home"))
    run = read_run(finished / "run.yml")
    result = find_result(finished, run, finished / "checkpoints", print)
    layout = Layout.from_environment({"XDG_CACHE_HOME": home, "HOME": home})
    return load_sides(run, finished, result, Loading(), torch.device("cpu"), layout, print)
