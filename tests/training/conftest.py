"""Arguments of short runs, and nodes to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.supervisors import LOOP, Nodes
from support.teams import Team


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Several threads of so small a model wait for each other; ranks have one anyway."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def arguments(tiny_model, tiny_data) -> list[object]:
    """Return the arguments that most runs of these tests share."""
    return [
        *("--model", tiny_model, "--dataset", tiny_data),
        *("--sequence-length", 96, "--learning-rate", 0.01, "--warmup-steps", 2),
        *("--global-batch", 7, "--packing", "--epochs", 1, "--split", "equal", "--micro-batch", 1),
        *("--lora-rank", 4, "--wandb", "off", "--eval-held-out", "off"),
    ]


@pytest.fixture
def nodes(tmp_path) -> Iterator[Callable[..., Nodes]]:
    """Make nodes with supervisors, and end all that they started."""
    made: list[Nodes] = []

    def make(count: int, script: str = LOOP, folder: Path = tmp_path, **settings) -> Nodes:
        made.append(Nodes(folder, count, script, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def team(tmp_path) -> Iterator[Callable[..., Team]]:
    """Make nodes of a run in place, with stand-ins of the ranks, and end all that they started."""
    made: list[Team] = []

    def make(count: int, **settings) -> Team:
        made.append(Team(tmp_path, count, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
