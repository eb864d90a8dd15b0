"""A supervisor that goes back to the queue; one that finds its port or its GPU gone later."""

from __future__ import annotations

import asyncio

import pytest

from hearth.base.errors import LaunchError
from hearth.supervisor import launches, member
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.launches import RankLaunches
from hearth.supervisor.record import RunRecord
from hearth.supervisor.requests import Interrupted, StopRequests
from hearth.supervisor.spec import spec_of


@pytest.fixture
def context(tmp_path):
    """Return a function that makes the context of a node whose spec has these facts, too."""

    def make(**facts: object) -> SupervisorContext:
        given = {"run": "first", "node": "laptop", "rank": 0, "nodes": ["laptop"], "nproc": 1}
        given |= {"addresses": ["127.0.0.1"], "ports": [1], "nprocs": [1], "python": "python"}
        given |= {"workspace": str(tmp_path), "token": "secret"}
        spec = spec_of(given | facts, "the spec")
        spec.results.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(exist_ok=True)
        return SupervisorContext(spec, RunRecord.from_spec(spec))

    return make


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_goes_back_to_the_queue_only_if_it_has_not_begun_meanwhile(context, begun):
    """It may have been told to begin after it was asked to let another one go first."""
    requests = StopRequests(context())
    assert requests.heeds(Interrupted("moved comes first", yields=True), begun) != begun
    assert requests.yields != begun
    assert requests.heeds(Interrupted("the machine shuts down"), begun)


class Taken:
    """A stand-in of the mesh whose port is free from the third time on."""

    def __init__(self):
        self.tried = 0

    async def open(self):
        self.tried += 1
        if self.tried < 3:
            raise LaunchError("the port is taken")


def test_a_port_that_is_taken_is_an_error_at_the_start_and_waited_for_after_a_restart(monkeypatch):
    monkeypatch.setattr(member, "RETRY", 0.01)
    mesh = Taken()
    with pytest.raises(LaunchError):
        asyncio.run(member.listen_at(mesh.open, 0))
    assert mesh.tried == 1
    mesh = Taken()
    asyncio.run(member.listen_at(mesh.open, 20))
    assert mesh.tried == 3


@pytest.mark.parametrize(
    ("began_with", "answers", "patience", "there"),
    [
        (0, [], 20.0, True),
        (1, [1], 20.0, True),
        (2, [0, 1, 2], 20.0, True),
        (2, [1, 1], 0.001, False),
    ],
)
def test_a_node_takes_part_again_once_its_gpus_answer(
    context, monkeypatch, began_with, answers, patience, there
):
    """Without, the ranks would go on with the processor, in silence."""
    given = iter(answers)
    monkeypatch.setattr(launches, "gpus", lambda: [{}] * next(given))
    monkeypatch.setattr(launches, "GPU_RETRY", 0.01)
    its = context(gpus=began_with, return_timeout=patience, ready_timeout=patience)

    async def scene() -> bool:
        return await RankLaunches(its, returning=True).make_ready(1)

    assert asyncio.run(scene()) == there
    if not there:
        outcome = its.events.get_nowait()
        assert (outcome.state, outcome.cause.node) == ("failed", "laptop")
        assert outcome.cause.kind == "not_ready"
    assert its.events.empty()
