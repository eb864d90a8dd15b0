"""The supervisor of a node in place, without its ranks and its peers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hearth.ranks.control_protocol import (
    EVALUATION,
    FOR_OTHERS,
    Alive,
    Doing,
    Form,
    Formed,
    Waiting,
)
from hearth.supervisor import ranks, resident
from hearth.supervisor.channel import Said
from hearth.supervisor.decisions.actions import StartTeam
from hearth.supervisor.decisions.events import PeerSaid, RanksFailed
from hearth.supervisor.decisions.voting import Config, Votes
from hearth.supervisor.life import NodeSupervisor
from hearth.supervisor.member import Member
from hearth.supervisor.messages import encode
from hearth.supervisor.requests import Interrupted
from hearth.supervisor.spec import spec_of

NODES = ["desk", "laptop"]
ELSEWHERE = ["192.0.2.1", "192.0.2.2"]
"""Addresses that no machine has."""


def member(folder, last: dict | None = None, **changes: object) -> Member:
    given = {
        "run": "first",
        "node": "desk",
        "rank": 0,
        "nodes": NODES,
        "addresses": ELSEWHERE,
        "nproc": 1,
        "python": "python",
        "workspace": str(folder),
        "token": "secret",
        "resident": True,
        "ports": [1, 2],
        "nprocs": [1, 1],
    }
    spec = spec_of(given | changes, "the spec")
    spec.results.mkdir(parents=True)
    spec.log.parent.mkdir()
    return NodeSupervisor(spec, None, last)._member


def promised(own: Member, *nodes: str, generation: int = 3) -> Config:
    """Have the node promise a team, as all its voters have; return it."""
    config = Config(generation, nodes)
    own._state = replace(own._state, votes=Votes(None, (config,)))
    return config


def start(own: Member, *nodes: str) -> None:
    """Have the node start a team whose voters have all promised."""
    config = promised(own, *nodes)

    async def scene() -> None:
        if order := own._start_team(StartTeam(config, True)):
            for event in await own._news_of(order):
                assert await own._happen(event) is None

    asyncio.run(scene())


def heard(own: Member, event: object) -> None:
    """Have the supervisor hear of an event."""

    async def scene() -> None:
        for each in await own._news_of(event):
            await own._happen(each)

    asyncio.run(scene())


def test_a_node_whose_network_took_its_address_along_goes_on_alone(tmp_path):
    own = member(tmp_path)
    start(own, "desk")
    assert own._state.team == Config(3, ("desk",))


def test_a_team_whose_ranks_cannot_meet_is_not_started_and_the_run_goes_on(tmp_path):
    own = member(tmp_path)
    start(own, *NODES)
    assert own._state.team is None
    assert "no new team yet" in own._spec.log.read_text()


def test_an_evaluation_lasts_until_its_rank_does_something_else(tmp_path):
    own = member(tmp_path)
    seen = []
    for message in (
        Doing("micro-batch", 1, 0, 20.0),
        Doing(EVALUATION[0], 1, 0, 20.0),
        Alive(),
        Doing(FOR_OTHERS, 1, 0, 20.0),
        Doing("micro-batch", 2, 0, 20.0),
    ):
        heard(own, Said(0, 0, message))
        seen.append(own._state.evaluates)
    assert seen == [False, True, True, True, False]


def test_a_machine_that_slept_for_less_than_the_silence_timeout_has_no_rank_that_hangs(
    tmp_path, monkeypatch
):
    own, now = member(tmp_path, silence_timeout=60), 1000.0
    for module in (ranks, resident):
        monkeypatch.setattr(module, "boot_clock", lambda: now)
    assert own._keeper.hanging() == []
    own._ranks.heard(0, Doing(FOR_OTHERS, 1, 0, 20.0))
    now += 40
    assert own._keeper.hanging() == []
    found = []
    for _ in range(30):
        now += 1
        found += own._keeper.hanging()
    assert isinstance(found[0], RanksFailed)


def test_steps_of_ranks_that_were_started_again_since_count_for_nothing(tmp_path):
    own = member(tmp_path)
    own._ranks.heard(0, Formed(3, 7, {}))
    own._ranks.heard(0, Doing("micro-batch", 12, 0, 20.0))
    assert own._ranks.gained == 4
    own._launches.watch.clear()
    assert own._ranks.gained == 0


def test_a_node_is_either_in_a_team_or_on_its_way_back_to_the_queue(tmp_path):
    """The others may begin just when it is asked to let another run go first."""
    asked = Interrupted("moved comes first", yields=True)
    early, late = member(tmp_path / "early"), member(tmp_path / "late")

    heard(early, asked)
    start(early, "desk")
    assert (early._state.leaving, early._state.team) == ("moved comes first", None)
    assert not early.has_begun()

    start(late, "desk")
    heard(late, asked)
    assert (late._state.leaving, late.has_begun()) == ("", True)


def test_ranks_get_a_key_that_every_supervisor_derives_and_none_sends(tmp_path):
    def key_of(name: str, token: str, generation: int) -> str:
        own, orders = member(tmp_path / name, token=token), []
        own._ranks.obey = orders.append
        heard(own, Said(0, 0, Waiting("new", 0, 0, loaded=False)))
        promised(own, *NODES, generation=generation)
        order = Form(generation, tuple(NODES), "192.0.2.1", 1, (), True, {})
        heard(own, PeerSaid("desk", order))
        (form,) = [order for order in orders if isinstance(order, Form)]
        assert form.key and form.key not in encode(order).decode() + repr(form)
        return form.key

    key = key_of("first", "secret", 3)
    assert key_of("second", "secret", 3) == key
    assert len({key, key_of("third", "secret", 4), key_of("fourth", "another", 3)}) == 3


def test_a_run_began_when_its_first_supervisor_did_whose_machine_lost_power_since(tmp_path):
    began = "2026-11-20T10:00:00Z"
    last = {"generation": 3, "launches": [], "heartbeat": began, "began": began}
    own = member(tmp_path, last)
    assert (own._record.began, own._record.generation) == (began, 3)
