"""The prediction train.yml prints before it starts, and the nodes it picks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.facts import assert_line, assert_names, refuses
from support.launches import launch_request

from hearth.base.errors import ConfigError
from hearth.plan.prediction import fetch_seconds
from hearth_controller.launch.answers import LinkSpeeds, Preparation
from hearth_controller.launch.prediction import NodeFacts, choose_nodes


def home(**nodes: tuple[float, float]) -> dict[str, NodeFacts]:
    """Return the reports of nodes by name: seconds a row, and the speed of their links."""
    reports = {}
    for name, (seconds, mbit) in nodes.items():
        speed = {"sizes": [1], "seconds": [seconds]}
        rank = {"speed": speed, "row_tokens": 256, "exchange_bytes": 20_000_000}
        slower = {peer: min(mbit, its) for peer, (_, its) in nodes.items() if peer != name}
        links = LinkSpeeds(slower, dict.fromkeys(slower, 0.3))
        reports[name] = NodeFacts(Preparation(held_out_rows=12, ranks=[rank]), links, "RTX")
    return reports


HOME = home(tower=(0.1, 940), laptop=(0.2, 940), oldbox=(0.4, 940))
SLOW_CABLE = home(tower=(0.1, 940), laptop=(0.2, 940), oldbox=(0.4, 94))


@pytest.fixture
def answered(tmp_path):
    """Choose among nodes for a run with these settings, and of these nodes."""

    def choose(facts, nodes="auto", **settings):
        typed = {"model": "smollm2-135m", "global_batch": 70, "parallel": "ddp", **settings}
        request = launch_request(tmp_path, list(facts), typed)
        options = replace(request.options, nodes=tuple(nodes.split(",")))
        return choose_nodes(replace(request, options=options), facts)

    return choose


def test_each_node_and_all_together_are_told(answered):
    answer = answered(HOME)
    assert answer.names == ["tower", "laptop", "oldbox"]
    *alone, together = answer.say.splitlines()
    speeds = {"tower": 2560, "laptop": 1280, "oldbox": 640}
    for line, (name, speed) in zip(alone, speeds.items(), strict=True):
        assert line.split()[0] == name
        assert_names(line, "RTX", f"{speed} tokens/s", "940 Mbit/s")
    assert_names(together, "4239 tokens/s", "1.66 times tower", "takes 4.23 s", "20.0 MB")
    assert_names(together, "0.23 s of it")
    assert "every" not in together


def test_an_exchange_every_so_many_steps_is_told_as_such(answered):
    together = answered(HOME, sync_every=16).say.splitlines()[-1]
    assert_names(together, "0.04 s", "60.0 MB", "16 steps")


def test_links_that_cost_a_third_of_a_step_get_the_advice_to_exchange_seldom(answered):
    wifi = home(tower=(0.1, 50), laptop=(0.2, 50), oldbox=(0.4, 50))
    said = answered(wifi, nodes="all", global_batch=14).say
    assert_names(said.splitlines()[-1], "sync_every=16", "2240 tokens/s", "approximate")
    assert "sync_every" not in answered(wifi, nodes="all", global_batch=14, sync_every=2).say
    assert "sync_every" not in answered(HOME).say
    muon = answered(wifi, nodes="all", global_batch=14, optimizer="muon", lora="off")
    assert_names(muon.say.splitlines()[-1], "40.0 MB")  # the gradients and the updates
    assert "sync_every" not in muon.say


def test_a_node_on_a_bad_cable_is_left_out_by_name_with_the_way_to_take_it(answered):
    answer = answered(SLOW_CABLE)
    assert answer.names == ["tower", "laptop"]
    assert_line(answer.say, "LEFT OUT", "oldbox", "take 6.27 s", "-e nodes=all")


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ({"nodes": "all"}, ["tower", "laptop", "oldbox"]),
        ({"split": "equal"}, ["tower", "laptop", "oldbox"]),
        ({"nodes": "oldbox,tower"}, ["tower", "oldbox"]),
    ],
)
def test_a_person_can_take_all_or_some(answered, choices, names):
    answer = answered(SLOW_CABLE, **choices)
    assert answer.names == names
    assert "LEFT OUT" not in answer.say


def test_a_step_of_too_few_rows_gets_advice(answered):
    assert_names(answered(HOME, global_batch=8).say, "global_batch=7")
    assert "global_batch" not in answered(HOME, global_batch=8, split="equal").say


def test_a_node_with_nothing_to_measure_links_to_has_none(answered):
    answer = answered(home(tower=(0.1, 940)))
    assert answer.names == ["tower"]
    (line,) = answer.say.splitlines()
    assert_names(line, "tower", "2560 tokens/s")
    assert "link" not in line


def test_shares_that_were_given_are_what_is_predicted(answered):
    equal = answered(HOME, split="equal")  # 24, 23 and 23 rows: the oldbox has 9.2 s to compute
    assert_names(equal.say, "1901 tokens/s", "0.74 times tower", "9.43 s")
    assert "global_batch" not in equal.say
    halves = answered(HOME, split="1:1:0")
    assert_names(halves.say, "7.23 s")


def test_shares_for_other_ranks_are_refused_where_each_has_a_part(answered):
    nodes = sharded(tower=940.0, laptop=940.0)
    with refuses(ConfigError, "split: 4:2:1", "3 shares", "2 ranks"):
        answered(nodes, parallel="fsdp", split="4:2:1")


def test_half_the_bytes_leave_a_node_in_that_all_of_them_would_not(answered):
    facts = home(tower=(0.1, 940), laptop=(0.2, 940), oldbox=(0.4, 180))
    all_, half = (answered(facts, compress=compress) for compress in ("none", "bf16"))
    assert all_.names == ["tower", "laptop"]
    assert "LEFT OUT: oldbox" in all_.say
    assert half.names == ["tower", "laptop", "oldbox"]
    assert_names(half.say, "10.0 MB")


def test_micro_batches_are_predicted_no_larger_than_they_will_be(answered):
    facts = home(tower=(0.1, 940))
    (rank,) = facts["tower"].prepared.ranks
    rank["speed"] = {"sizes": [1, 2, 4], "seconds": [0.1, 0.15, 0.2]}
    small = answered(facts, micro_batch=2)
    assert small.stop_grace == max(60, 3 * 35 * 0.15 + 30)
    slow = answered(home(oldbox=(4.0, 940)))
    assert slow.stop_grace == pytest.approx(3 * 70 * 4 + 30 + 2 + 12 * 4)


def test_a_stop_waits_for_a_large_checkpoint_and_for_an_evaluation_if_there_is_one(answered):
    facts = home(oldbox=(4.0, 940))
    step = 3 * 70 * 4 + 30
    (rank,) = facts["oldbox"].prepared.ranks
    rank["exchange_bytes"] = 4 * 10**9
    with_judging = answered(facts).stop_grace
    assert with_judging == pytest.approx(step + 400 + 12 * 4)
    for evaluate, eval_every, judging in ((False, None, 0), (False, 5, 12 * 4)):
        grace = answered(facts, eval_held_out=evaluate, eval_every=eval_every).stop_grace
        assert grace == pytest.approx(step + 400 + judging)


GIB = 1 << 30


def sharded(**mbit: float) -> dict[str, NodeFacts]:
    """Return the reports of nodes by name, each with how fast every other one hears it."""
    return {
        name: NodeFacts(
            Preparation(weight_bytes=12 * GIB),
            LinkSpeeds({peer: fast for peer in mbit if peer != name}),
            "RTX",
        )
        for name, fast in mbit.items()
    }


def test_where_each_rank_has_a_part_the_network_is_warned_of_and_nobody_left_out(answered):
    nodes = sharded(tower=940.0, laptop=94.0, oldbox=10.0)
    answer = answered(nodes, parallel="fsdp")
    assert answer.names == ["tower", "laptop", "oldbox"]
    assert_names(answer.say, "3 ranks", "12.9 GB", "10 Mbit/s", "micro_batch")
    some = answered(nodes, parallel="fsdp", nodes="tower,laptop")
    assert some.names == ["tower", "laptop"]
    assert_names(some.say, "2 ranks", "94 Mbit/s")


def test_a_part_each_needs_two_ranks(answered):
    alone = sharded(tower=940.0)
    with refuses(ConfigError, "parallel: fsdp", "tower"):
        answered(alone, parallel="fsdp")
    two_cards = {"tower": NodeFacts(Preparation(nproc=2))}
    answer = answered(two_cards, parallel="fsdp")
    assert (answer.names, answer.stop_grace) == (["tower"], 900)


@pytest.mark.parametrize(
    ("settings", "turns"),
    [
        ({}, 24),  # of one row each: the rank with the most has 24 of 70
        ({"micro_batch": 8}, 3),
        ({"micro_batch": 8, "split": "4:2:1"}, 5),
        ({"micro_batch": 8, "replay": "night"}, 70),  # as many as that run can have had
    ],
)
def test_a_stop_waits_for_all_that_a_sharded_step_fetches(answered, settings, turns):
    nodes = sharded(tower=940.0, laptop=94.0, oldbox=94.0)
    fetch = fetch_seconds(12 * GIB, 3, 94.0)
    answer = answered(nodes, parallel="fsdp", **settings)
    assert answer.stop_grace == pytest.approx(3 * turns * fetch + 30)
    assert answer.stop_grace > turns * fetch + 900


def test_without_a_measurement_all_or_the_named_nodes_train(answered):
    unmeasured = {"tower": NodeFacts(device="RTX"), "laptop": NodeFacts(device="processor")}
    assert answered(unmeasured).names == ["tower", "laptop"]
    assert answered(unmeasured, nodes="laptop").names == ["laptop"]
    everyone = answered(unmeasured, nodes="all")
    assert (everyone.names, everyone.stop_grace) == (["tower", "laptop"], 900)
    assert_line(everyone.say, "tower", "RTX")
    assert_line(everyone.say, "laptop", "processor")
