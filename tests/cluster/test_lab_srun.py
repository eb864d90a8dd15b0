"""Programs by hand under plain srun, on three machines of the lab with Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.lab import machines, on, row

pytestmark = [pytest.mark.lab, pytest.mark.rotated("srun")]

NODES = ("tower", "laptop", "oldbox")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with machines(3, "--slurm"):
        yield


def test_slurm_has_three_idle_nodes_and_starts_a_task_on_each():
    assert {row(node)[-2] for node in NODES} == {"idle"}
    assert set(on("tower", "cd / && srun -N3 hostname").split()) == {*NODES}
