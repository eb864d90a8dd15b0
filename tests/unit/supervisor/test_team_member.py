"""The supervisor of a node in place, without its ranks and its peers."""

from __future__ import annotations

import asyncio

from hearth.ranks.orders import EVALUATION, FOR_OTHERS, Alive, Doing, Waiting
from hearth.supervisor import keeper
from hearth.supervisor.decisions.voting import Attempt, Config
from hearth.supervisor.life import Interrupted
from hearth.supervisor.member import Member
from hearth.supervisor.messages import FormTeam, encode
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
    return Member(spec, None, last)


def start(own: Member, *nodes: str) -> None:
    """Have the node start a team whose voters have all promised."""

    async def scene() -> None:
        config = Config(3, nodes)
        assert await own._vote_store.propose(
            Attempt(config, tuple({*NODES} - {*nodes}), (), None), True
        )
        await own._start_team(config, True)

    asyncio.run(scene())


def test_a_node_whose_network_took_its_address_along_goes_on_alone(tmp_path):
    own = member(tmp_path)
    start(own, "desk")
    assert own._teams.now == Config(3, ("desk",))


def test_a_team_whose_ranks_cannot_meet_is_not_started_and_the_run_goes_on(tmp_path):
    own = member(tmp_path)
    start(own, *NODES)
    assert own._teams.now is None
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
        own._hear_rank(0, message)
        seen.append(own._view().evaluates)
    assert seen == [False, True, True, True, False]


def test_a_machine_that_slept_for_less_than_the_silence_timeout_has_no_rank_that_hangs(
    tmp_path, monkeypatch
):
    own, now = member(tmp_path, silence_timeout=60), 1000.0
    monkeypatch.setattr(keeper, "boot_clock", lambda: now)
    asyncio.run(own._end_hanging_ranks())
    own._hear_rank(0, Doing(FOR_OTHERS, 1, 0, 20.0))
    now += 40
    asyncio.run(own._end_hanging_ranks())
    assert own._ranks.failure is None
    for _ in range(30):
        now += 1
        asyncio.run(own._end_hanging_ranks())
    assert own._ranks.failure is not None


def test_a_node_is_either_in_a_team_or_on_its_way_back_to_the_queue(tmp_path):
    """The others may begin just when it is asked to let another run go first."""
    asked = Interrupted("moved comes first", yields=True)
    early, late = member(tmp_path / "early"), member(tmp_path / "late")

    asyncio.run(early._handle(asked))
    start(early, "desk")
    assert (early._leaving, early._teams.now) == ("moved comes first", None)
    assert not early._has_begun()

    start(late, "desk")
    asyncio.run(late._handle(asked))
    assert (late._leaving, late._has_begun()) == ("", True)


def test_ranks_get_a_key_that_every_supervisor_derives_and_none_sends(tmp_path):
    def key_of(name: str, token: str, generation: int) -> str:
        own, orders = member(tmp_path / name, token=token), []
        own._tell_ranks = orders.append
        own._ranks.said(0, Waiting("new", 0, 0, loaded=False))
        order = FormTeam(generation, tuple(NODES), "192.0.2.1", 1, (), True, {})

        async def scene() -> None:
            attempt = Attempt(Config(generation, order.nodes), (), (), None)
            assert await own._vote_store.propose(attempt, True)
            await own._form(order)

        asyncio.run(scene())
        (form,) = orders
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
