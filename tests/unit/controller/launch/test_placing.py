"""`parallel=auto` and `parallel=pipeline`: what fits where, which layers on which node, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import launches
from support.facts import assert_line, assert_names, refuses
from support.launches import GIB, finish, inspected_node, inspections

from hearth.base.errors import LaunchError
from hearth.config import load_preset, run_of
from hearth.fit.estimate import adapter_parameters
from hearth.fit.misfits import misfits
from hearth_controller.launch.bring import bring
from hearth_controller.launch.fit import candidates_of
from hearth_controller.launch.planning import place_layers
from hearth_controller.launch.ready import prepare

ADDRESSES = {"desk": "10.0.0.1", "attic": "10.0.0.2", "shed": "10.0.0.3"}
SHAPE = load_preset("llama2-7b").shape
LAYERS = SHAPE.num_hidden_layers
MODEL = {"model": "llama2-7b", "load_in_4bit": False, "gradient_checkpointing": True}


def launch_request(tmp_path, count=3, **typed):
    """Return the request for a model of 13 GiB, too large for any node."""
    return launches.launch_request(tmp_path, list(ADDRESSES)[:count], MODEL | typed)


def resumed(tmp_path, **typed):
    """Return the same run as it goes on."""
    first, runs = launch_request(tmp_path), tmp_path / "runs"
    (runs / first.name).mkdir(parents=True)
    (runs / first.name / "run.yml").write_text(first.text)
    return launches.launch_request(runs, list(ADDRESSES), {"resume": first.name, **typed})


def card(gib, count=1):
    """Return the answer of a node with cards of `gib` GiB."""
    return inspected_node(memory={"gpus": [{"name": "RTX", "memory_mib": gib * GIB}] * count})


def looks(*gib):
    return {name: card(each) for name, each in zip(ADDRESSES, gib, strict=False)}


def layers(seconds, nproc=1, checkpoint=None):
    """Return the answer of a node that computes a layer in these seconds."""

    def part(factor):
        return {"sizes": [1], "seconds": [seconds * factor]}

    speed = {"layer": part(1), "embedding": part(0.1), "head": part(2)}
    rank = {"speed": speed, "saturated": True}
    facts = {"layers": [rank] * nproc, "port": 9, "checkpoint": checkpoint}
    return {"findings": [], "facts": facts}


def plan_of(request, inspected):
    return launches.planned(request, ADDRESSES, inspected)


def placed(request, inspected, seconds, mbit=1000.0, linked=None, reached=(), nproc=()):
    """Return the plan with its layers placed by these seconds a layer, and the text about it."""
    plan = plan_of(request, inspected)
    assert plan.request.divided
    names = list(inspected)
    nproc = dict(zip(names, nproc, strict=False))
    reached = dict(zip(names, reached, strict=False))
    times = {
        name: layers(each, nproc.get(name, 1), reached.get(name))
        for name, each in zip(names, seconds, strict=False)
    }
    links = {
        name: {"facts": {"mbit": dict.fromkeys(set(names) - {name}, mbit), "milliseconds": {}}}
        for name in (names if linked is None else linked)
    }
    course = launches.course_of(plan.request, ADDRESSES, inspected)
    config = {"facts": {"config": {"model_type": "llama"}}}
    answers = {"sizes": dict.fromkeys(names, config), "layers": times, "layer links": links}
    answered, stages = finish(place_layers(course, plan), answers)
    return answered, stages[-1].say


@pytest.mark.parametrize(
    ("gib", "parallel", "whole_on"),
    [
        ((24, 24, 24), "ddp", []),
        ((10, 8, 8), "pipeline", []),
        ((24, 8, 8), "pipeline", ["desk"]),
    ],
)
def test_auto_is_resolved_by_what_fits(tmp_path, gib, parallel, whole_on):
    plan = plan_of(launch_request(tmp_path), looks(*gib))
    assert not plan.found
    assert plan.request.settings.parallel == parallel
    assert list(plan.request.whole_on) == whole_on
    assert plan.request.resident is (parallel == "ddp")
    assert "parallel=" not in plan.say  # what is measured is said where layers are placed
    assert plan.request.was_auto("parallel")


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        (("8.6", "8.9", "12.0"), "auto"),
        (("8.6", "7.5", "8.6"), "fp16"),
        (("8.6", "", "8.6"), "bf16"),
        (("7.5", "", "6.1"), "fp32"),
        (("8.6", "[N/A]", "8.6"), "fp16"),
    ],
)
def test_unlike_devices_are_measured_in_the_precision_that_all_have(
    tmp_path, capabilities, precision
):
    inspected = with_capability(looks(10, 8, 8), *capabilities)
    settings = plan_of(launch_request(tmp_path, fit="warn"), inspected).request.settings
    assert (settings.parallel, settings.precision) == ("pipeline", precision)
    typed = plan_of(launch_request(tmp_path, fit="warn", precision="fp32"), inspected)
    assert typed.request.settings.precision == "fp32"


def test_a_resumed_run_keeps_the_precision_that_it_began_with_on_other_nodes(tmp_path):
    inspected = with_capability(looks(10, 8, 8), "8.6", "7.5", "8.6")
    plan = plan_of(resumed(tmp_path, fit="warn"), inspected)
    assert (plan.request.settings.parallel, plan.request.settings.precision) == ("pipeline", "auto")


def with_capability(inspected, *capabilities):
    """Give the nodes GPUs of these compute capabilities; '' is a node with its processor alone."""
    for answer, capability in zip(inspected.values(), capabilities, strict=True):
        memory = answer["facts"]["memory"]
        memory["gpus"] = [gpu | {"capability": capability} for gpu in memory["gpus"] if capability]
    return inspected


def test_a_node_that_holds_the_whole_model_in_its_own_precision_trains_alone_in_that(tmp_path):
    inspected = with_capability(looks(24, 8), "7.5", "")
    inspected["attic"]["facts"]["memory"]["free_mib"] = 8 * GIB
    planned = plan_of(launch_request(tmp_path, 2), inspected).request
    assert (planned.settings.parallel, planned.whole_on) == ("pipeline", ("desk",))
    assert planned.settings.precision == "fp32"
    alone = placed(launch_request(tmp_path, 2), inspected, (0.1, 4.0))[0].request
    assert (alone.settings.parallel, alone.requested) == ("ddp", ("desk",))
    assert alone.settings.precision == "auto"
    desk = candidates_of(inspections({"desk": inspected["desk"]}))
    assert not misfits("m", alone.settings, SHAPE, desk)


def test_a_pipeline_is_judged_in_the_precision_that_it_is_placed_in(tmp_path):
    inspected = with_capability(looks(12, 8), "7.5", "")
    inspected["attic"]["facts"]["memory"]["free_mib"] = 8 * GIB
    assert plan_of(launch_request(tmp_path, 2), inspected).found
    inspected = with_capability(looks(12, 8), "7.5", "7.5")
    assert not plan_of(launch_request(tmp_path, 2), inspected).found


@pytest.mark.parametrize(
    ("typed", "gib", "advised", "why"),
    [
        ({}, (24, 24, 1), "-e nodes=desk,attic", ["shed", "layer"]),
        ({}, (5, 4, 4), "hearth models", ["GiB more"]),
        ({"elastic": "true"}, (10, 8, 8), "load_in_4bit=on", ["elastic"]),
        ({"compress": "bf16"}, (10, 8, 8), "load_in_4bit=on", ["compress"]),
        ({"parallel": "ddp"}, (10, 8, 8), "parallel=pipeline", []),
        ({"parallel": "ddp", "nodes": "desk"}, (8,), "parallel=pipeline", []),  # over its two cards
    ],
)
def test_where_layers_cannot_be_divided_it_is_refused_and_said_why(
    tmp_path, typed, gib, advised, why
):
    inspected = looks(*gib)
    inspected["desk"] = card(gib[0], 2)
    plan = plan_of(launch_request(tmp_path, len(gib), **typed), inspected)
    if "parallel" not in typed:
        assert_line(plan.say, "parallel=auto: ddp", *why)
    *_, (said,) = plan.found.values()
    assert advised in said
    assert not plan.request.divided


def test_a_model_that_all_nodes_together_cannot_hold_is_refused_by_how_much(tmp_path):
    (said,) = plan_of(launch_request(tmp_path, parallel="pipeline"), looks(5, 4, 4)).found.values()
    assert_names(said[0], "GiB more", f"of its {LAYERS} layers", "desk", "attic", "shed")


@pytest.mark.parametrize("parallel", ["auto", "pipeline"])
def test_where_fit_only_warns_what_is_lacking_is_said_and_layers_go_by_memory(tmp_path, parallel):
    request, inspected = launch_request(tmp_path, parallel=parallel, fit="warn"), looks(6, 4, 4)
    said = plan_of(request, inspected).say
    assert_line(said, "WARNING", "GiB more", f"of its {LAYERS} layers")
    plan, said = placed(request, inspected, (0.1, 0.1, 0.1))
    assert_line(said, "WARNING", "times its memory")
    counts = dict(plan.request.training.pipeline.stages)
    assert counts[0] > max(counts[1], counts[2])


def test_unlike_cards_of_a_node_have_layers_by_their_own_memory(tmp_path):
    desk = inspected_node(
        memory={"gpus": [{"name": "RTX", "memory_mib": gib * GIB} for gib in (6, 16)]}
    )
    inspected = {"desk": desk, "attic": card(6)}
    plan, _ = placed(launch_request(tmp_path, 2), inspected, (0.1, 0.1), nproc=(2, 1))
    counts = dict(plan.request.training.pipeline.stages)
    assert counts[1] > max(counts[0], counts[2])


def test_layers_go_by_speed_and_memory_and_the_run_file_says_where(tmp_path):
    plan, said = placed(launch_request(tmp_path), looks(12, 8, 8), (0.1, 0.2, 0.4))
    run = run_of(plan.request.text, "it")
    counts = dict(run.pipeline.stages)
    assert sum(counts.values()) == LAYERS
    assert counts[0] > counts[1] > counts[2]
    assert list(plan.request.requested) == list(ADDRESSES)
    assert_line(said, "parallel=auto: pipeline", "parallel=fsdp", "at most")
    assert_line(said, "tokens/s", f"{run.pipeline.step_seconds:.2f} s")
    for name, rank in zip(ADDRESSES, range(3), strict=True):
        assert_line(said, name, f"of {LAYERS}", "a micro-batch")
        assert rank in counts


def test_each_node_is_sent_the_weights_of_its_layers_only(tmp_path):
    inspected = looks(12, 8, 8)
    for name, inspection in inspected.items():
        copies = inspection["facts"]["copies"]
        copies["places"] = dict.fromkeys(("model", "data"), name)
        copies["holds"] = {"model": "abc" if name == "desk" else "", "data": ""}
    plan, _ = placed(launch_request(tmp_path), inspected, (0.1, 0.2, 0.4))
    transfer, parts = plan.transfer, plan.request.placed.parts
    assert (transfer.order.source, set(transfer.order.lacks)) == ("desk", {"attic", "shed"})
    ranges = sorted(layers for each in parts.values() for layers in each)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    counts = dict(plan.request.training.pipeline.stages)
    sizes = [stop - start for ((start, stop),) in (parts[name] for name in ADDRESSES)]
    assert sizes == [counts[rank] for rank in range(3)]
    course = launches.course_of(plan.request, ADDRESSES, inspected)
    offered = {"desk": {"findings": [], "facts": {"digest": "d", "sizes": {"model": 1000}}}}
    _, stages = finish(bring(course, plan.request, transfer), {"offer": offered})
    specs = {
        stage.name: {n: c.arguments["spec"] for n, (c,) in stage.calls.items()} for stage in stages
    }
    for name in transfer.order.lacks:
        spec = specs["take"][name]
        assert [giver["name"] for giver in spec["givers"]] == ["desk"]
        assert (spec["layers"], spec["count"]) == (parts[name], LAYERS)
    assert "layers" not in specs["offer"]["desk"]


def test_a_node_that_makes_it_slower_is_left_out_by_name_unless_all_were_asked_for(tmp_path):
    speeds = (0.1, 0.1, 9.0)
    plan, said = placed(launch_request(tmp_path), looks(12, 12, 8), speeds)
    assert plan.request.requested == ("desk", "attic")
    assert_line(said, "LEFT OUT: shed", "-e nodes=all")
    assert {rank for rank, _ in plan.request.training.pipeline.stages} == {0, 1}
    going_on, _ = placed(resumed(tmp_path), looks(12, 12, 8), speeds, reached=(4, 4, 4))
    assert going_on.request.requested == ("desk", "attic")
    everyone, _ = placed(launch_request(tmp_path, nodes="all"), looks(12, 12, 8), speeds)
    assert everyone.request.requested == tuple(ADDRESSES)


@pytest.mark.parametrize("reached", [(2, None, 4), (None, None, 4)])
def test_a_slow_node_is_not_left_out_if_it_alone_has_the_newest_checkpoint(tmp_path, reached):
    speeds = (0.1, 0.1, 9.0)
    request = resumed(tmp_path)
    with refuses(LaunchError, "step 4", "shed", "-e nodes=desk,attic,shed"):
        placed(request, looks(12, 12, 8), speeds, reached=reached)
    request = replace(request, options=replace(request.options, nodes=tuple(ADDRESSES)))
    taken, _ = placed(request, looks(12, 12, 8), speeds, reached=reached)
    assert taken.request.requested == tuple(ADDRESSES)


def test_a_node_for_which_no_layer_is_left_is_not_said_to_lack_room(tmp_path):
    request = launch_request(tmp_path, parallel="pipeline", fit="warn")
    request = replace(request, shape=replace(SHAPE, num_hidden_layers=2))
    plan, said = placed(request, looks(24, 24, 24), (0.1, 0.1, 0.2))
    assert plan.request.requested == ("desk", "attic")
    assert_line(said, "LEFT OUT: shed", "2 layers", "3 ranks")
    assert "no room" not in said


def test_ranks_are_numbered_without_the_nodes_that_are_left_out(tmp_path):
    plan, _ = placed(launch_request(tmp_path), looks(8, 12, 12), (9.0, 0.1, 0.1))
    assert plan.request.requested == ("attic", "shed")
    assert {rank for rank, _ in plan.request.training.pipeline.stages} == {0, 1}


@pytest.mark.parametrize(("seconds", "parallel"), [((0.1, 4, 4), "ddp"), ((1, 1, 1), "pipeline")])
def test_nodes_that_hold_the_whole_model_train_alone_where_that_is_faster(
    tmp_path, seconds, parallel
):
    plan, said = placed(launch_request(tmp_path), looks(24, 8, 8), seconds)
    assert plan.request.settings.parallel == parallel
    assert_line(said, f"parallel=auto: {parallel}", "ddp on desk", "tokens/s")
    if parallel == "ddp":
        assert plan.request.requested == ("desk",)
        assert plan.request.training.pipeline is None
        assert_line(said, "LEFT OUT: attic, shed")


def test_a_node_that_holds_the_whole_model_trains_alone_where_no_pipeline_fits(tmp_path):
    typed = {"model": "qwen3-32b", "load_in_4bit": True}
    plan, said = placed(launch_request(tmp_path, 2, **typed), looks(32, 4), (0.1, 0.1))
    assert plan.request.settings.parallel == "ddp"
    assert plan.request.requested == ("desk",)
    assert_line(said, "parallel=auto: ddp on desk", "tokens/s", "pipeline")
    assert_line(said, "LEFT OUT: attic")
    with refuses(LaunchError, "64 layers", "2 ranks"):
        placed(launch_request(tmp_path, 2, **typed, nodes="all"), looks(32, 4), (0.1, 0.1))


def test_links_that_were_not_measured_are_told_with_what_they_count_as(tmp_path):
    request = launch_request(tmp_path, nodes="all")
    assert "not measured" not in placed(request, looks(12, 8, 8), (0.1, 0.2, 0.4))[1]
    _, said = placed(request, looks(12, 8, 8), (0.1, 0.2, 0.4), linked=[])
    assert_line(said, "links", "not measured", "desk", "attic", "shed")
    # Hidden states go one way, their gradients the other.
    for linked in (["desk"], ["attic"]):
        request = launch_request(tmp_path, 2, nodes="all")
        _, said = placed(request, looks(12, 8), (0.1, 0.2), linked=linked)
        (other,) = {"desk", "attic"} - {*linked}
        assert_line(said, "not measured", f"{other} to {linked[0]}")


@pytest.mark.parametrize(
    ("shares", "stages"),
    [("2:1:1", ((0, 16), (1, 8), (2, 8))), ("1:0:1", ((0, 16), (1, 16)))],
)
def test_typed_shares_are_kept(tmp_path, shares, stages):
    request = launch_request(tmp_path, parallel="pipeline", split=shares, fit="warn")
    plan, _ = placed(request, looks(8, 8, 8), (1, 0.1, 0.1))
    assert plan.request.training.pipeline.stages == stages
    assert len(begun(plan).specs) == len(stages)


def test_a_node_without_a_share_is_left_out_for_that_whatever_nodes_are_asked_for(tmp_path):
    request = launch_request(tmp_path, parallel="pipeline", split="2:0:1", nodes="all", fit="warn")
    plan, said = placed(request, looks(8, 8, 8), (1, 0.1, 0.1))
    assert plan.request.requested == ("desk", "shed")
    assert_line(said, "LEFT OUT: attic", "split=2:0:1")
    assert "nodes=all" not in said


def test_shares_that_do_not_fit_are_refused_before_and_after_the_layers_are_timed(tmp_path):
    inspected = looks(8, 24, 24)
    request = launch_request(tmp_path, parallel="pipeline", split="30:1:1")
    found = plan_of(request, inspected).found
    assert found == plan_of(launch_request(tmp_path, split="30:1:1"), inspected).found
    (said,) = found.values()
    assert_names(said[0], "split", "desk", "30 layers", "GiB", "8.0 GiB")
    with refuses(LaunchError, "split", "desk", "30 layers", "GiB"):
        placed(request, inspected, (0.1, 0.1, 0.1))
    request = launch_request(tmp_path, parallel="pipeline", split="30:1:1", fit="warn")
    warned, said = placed(request, inspected, (0.1, 0.1, 0.1))
    assert_line(said, "WARNING", "desk", "30 layers")
    assert dict(warned.request.training.pipeline.stages) == {0: 30, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("shares", "ranks", "facts"),
    [
        ("2:0:1", (2, 1), ["split", "2:0:1", "desk rank 1"]),
        ("1:0", (1, 1), ["split", "1:0", "desk", "two ranks"]),
    ],
)
def test_shares_that_make_no_pipeline_are_refused_before_anything_is_brought(
    tmp_path, shares, ranks, facts
):
    inspected = dict(zip(ADDRESSES, (card(48, each) for each in ranks), strict=False))
    request = launch_request(tmp_path, 2, parallel="pipeline", split=shares)
    with refuses(LaunchError, *facts):
        placed(request, inspected, (0.1, 0.1), nproc=ranks)


@pytest.mark.parametrize(("listed", "timed"), [(1, 2), (2, 1)])
def test_speeds_of_other_ranks_than_the_driver_has_are_refused_by_name(tmp_path, listed, timed):
    inspected = looks(12, 12)
    memory = inspected["attic"]["facts"]["memory"]
    memory["gpus"] = memory["gpus"] * listed
    with refuses(LaunchError, "attic", "1 rank", "2 ranks", "doctor"):
        placed(launch_request(tmp_path, 2), inspected, (0.1, 0.1), nproc=(1, timed))


def test_a_wrong_number_of_shares_is_refused(tmp_path):
    request = launch_request(tmp_path, parallel="pipeline", split="2:1", fit="warn")
    with refuses(LaunchError, "split", "2 shares", "3 ranks"):
        placed(request, looks(8, 8, 8), (1, 0.1, 0.1))


def test_without_the_speed_of_every_node_nothing_is_placed(tmp_path):
    plan, said = placed(launch_request(tmp_path), looks(10, 8, 8), (0.1, 0.2))
    assert not plan.placed
    assert plan.request.training.pipeline is None
    assert_line(said, "not every node can be measured now")


def test_a_model_of_unknown_sizes_is_not_placed(tmp_path):
    request = replace(launch_request(tmp_path, parallel="pipeline"), shape=None)
    with refuses(LaunchError, "sizes of llama2-7b"):
        placed(request, looks(10, 8, 8), (0.1, 0.2, 0.4))


def begun(plan):
    """Return a placed run that is ready to start."""
    facts = {"nproc": 1, "gpus": 1, "held_out_rows": 16, "checkpoint": None, "summary": []}
    nodes = {name: {"findings": [], "facts": facts} for name in plan.request.requested}
    course = launches.course_of(plan.request, ADDRESSES, {})
    return finish(prepare(course, plan), {"prepare": nodes})[0]


@pytest.mark.parametrize("mbit", [5.0, 50.0])
def test_a_stop_waits_until_every_node_has_the_state_of_all_stages(tmp_path, mbit):
    plan, _ = placed(launch_request(tmp_path), looks(12, 8, 8), (0.1, 0.2, 0.4), mbit=mbit)
    run = plan.request.training
    weights = 4 * adapter_parameters(SHAPE, run.settings.lora_rank, run.settings.lora_targets)
    travels = 3 * weights * 8 / (mbit * 1e6)  # with AdamW's two moments
    (grace,) = {spec["stop_grace"] for spec in begun(plan).specs.values()}
    assert grace > 3 * run.pipeline.step_seconds + 30 + travels


def test_a_placed_run_begins_on_its_nodes_and_is_launched_as_one(tmp_path):
    plan, _ = placed(launch_request(tmp_path), looks(12, 12, 8), (0.1, 0.1, 9.0))
    run = begun(plan)
    assert list(run.specs) == ["desk", "attic"]
    specs = list(run.specs.values())
    assert [spec["rank"] for spec in specs] == [0, 1]
    assert not any(spec["resident"] or spec["elastic"] for spec in specs)
    seconds = plan.request.training.pipeline.step_seconds
    assert specs[0]["stop_grace"] > 3 * seconds
