"""`parallel=auto` and `parallel=pipeline`: what fits where, which layers on which node, and why."""

from __future__ import annotations

import pytest
from support.facts import assert_names, refuses
from support.lines import assert_line
from support.words import TRAIN

from hearth.base.errors import LaunchError
from hearth.config import load_preset, run_of
from hearth.fit.estimate import adapter_parameters
from hearth.fit.misfits import misfits
from hearth_controller.launch.decisions import Launch
from hearth_controller.launch.fit import candidates_of
from hearth_controller.launch.request import requested
from hearth_controller.transfer.distribution import Distribution

ADDRESSES = {"desk": "10.0.0.1", "attic": "10.0.0.2", "shed": "10.0.0.3"}
GIB = 1 << 10
SHAPE = load_preset("llama2-7b").shape
LAYERS = SHAPE.num_hidden_layers


def asked(tmp_path, **typed):
    """Return a run as the play has it: a model of 13 GiB, too large for any node."""
    typed = {"model": "llama2-7b", "load_in_4bit": False, "gradient_checkpointing": True} | typed
    run = requested(typed, tmp_path, TRAIN, [], list(ADDRESSES), False)
    assert not run["findings"]
    return run


def resumed(tmp_path):
    """Return the same run as the play has it when it goes on."""
    first, runs = asked(tmp_path), tmp_path / "runs"
    (runs / first["name"]).mkdir(parents=True)
    (runs / first["name"] / "run.yml").write_text(first["file"])
    run = requested({"resume": first["name"]}, runs, TRAIN, [], list(ADDRESSES), False)
    assert not run["findings"]
    assert run["resumes"]
    return run


def look(gib, nproc=0, **facts):
    gpus = [{"name": "RTX", "memory_mib": gib * GIB}] * (nproc or 1)
    own = {"one_computer": False, "nproc": nproc, "lend": {}, "variables": {}, "threads": 0}
    own |= {"python": "/p", "workspace": "/w", "models": "/m"}
    memory = {"gpus": gpus, "free_mib": 64 * GIB, "cuda": True, "cards": [], "prime_off": False}
    copies = {
        **{
            name: dict.fromkeys(("model", "data"), f"{name}")
            for name in ("folders", "places", "disks")
        },
        "holds": {"model": "abc"},
        "free": {"model": 1 << 40},
        "arrived": {"model": 0},
        "downloaded": {"model": 0},
        "pieces": {},
        "mbit": 1000,
        "wireless": False,
        "port": 7,
    }
    return {
        "findings": [],
        "facts": {
            **{"own": own, "memory": memory, "copies": copies, "port": 2000, "generation": 0},
            **facts,
        },
    }


def looks(*gib):
    return {name: look(each) for name, each in zip(ADDRESSES, gib, strict=False)}


def layers(seconds, nproc=1, port=9, checkpoint=None):
    """Return the answer of a node that computes a layer in these seconds."""

    def part(factor):
        return {"sizes": [1], "seconds": [seconds * factor]}

    speed = {"layer": part(1), "embedding": part(0.1), "head": part(2)}
    rank = {"speed": speed, "saturated": True}
    facts = {"nproc": nproc, "layers": [rank] * nproc, "port": port, "checkpoint": checkpoint}
    return {"findings": [], "facts": facts}


def launch(run, inspected, seconds=(), mbit=1000.0, linked=None, reached=(), nproc=()):
    names = list(inspected)
    nproc = dict(zip(names, nproc, strict=False))
    reached = dict(zip(names, reached, strict=False))
    measured = {
        name: layers(each, nproc.get(name, 1), checkpoint=reached.get(name))
        for name, each in zip(names, seconds, strict=False)
    }
    links = {
        name: {"facts": {"mbit": dict.fromkeys(set(names) - {name}, mbit), "milliseconds": {}}}
        for name in (names if linked is None else linked)
    }
    answers = {"look": inspected, "layers": measured, "links": links}
    return Launch(run, {name: ADDRESSES[name] for name in names}, answers)


def planned(run, inspected, seconds, **more):
    """Return the answer about a run after its plan, with these seconds a layer by node."""
    plan = launch(run, inspected).plan("", 32e6)
    assert plan["places"], plan["found"]
    return launch(plan["run"], inspected, seconds, **more).place("", 32e6)


@pytest.mark.parametrize(
    ("gib", "parallel", "whole_on"),
    [
        ((24, 24, 24), "ddp", []),
        ((10, 8, 8), "pipeline", []),
        ((24, 8, 8), "pipeline", ["desk"]),
    ],
)
def test_auto_is_resolved_by_what_fits(tmp_path, gib, parallel, whole_on):
    plan = launch(asked(tmp_path), looks(*gib)).plan("", 32e6)
    assert not any(plan["found"].values())
    assert plan["run"]["parallel"] == parallel
    assert plan["run"]["whole_on"] == whole_on
    assert plan["run"]["resident"] is (parallel == "ddp")
    assert "parallel=" not in plan["say"]  # what is measured is said where layers are placed
    run = run_of(plan["run"]["file"], "it")
    assert (run.settings.parallel, run.origins["parallel"]) == (parallel, "auto")


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
    plan = launch(asked(tmp_path, fit="warn"), inspected).plan("", 32e6)
    assert plan["run"]["parallel"] == "pipeline"
    assert run_of(plan["run"]["file"], "it").settings.precision == precision
    typed = launch(asked(tmp_path, fit="warn", precision="fp32"), inspected).plan("", 32e6)
    assert typed["run"]["settings"]["precision"] == "fp32"


def with_capability(inspected, *capabilities):
    """Give the nodes GPUs of these compute capabilities; '' is a node with its processor alone."""
    for answer, capability in zip(inspected.values(), capabilities, strict=True):
        memory = answer["facts"]["memory"]
        memory["gpus"] = [gpu | {"capability": capability} for gpu in memory["gpus"] if capability]
    return inspected


def test_a_node_that_holds_the_whole_model_in_its_own_precision_trains_alone_in_that(tmp_path):
    inspected = with_capability(looks(24, 8), "7.5", "")
    inspected["attic"]["facts"]["memory"]["free_mib"] = 8 * GIB
    run = asked(tmp_path)
    plan = launch(run, inspected).plan("", 32e6)
    assert (plan["run"]["parallel"], plan["run"]["whole_on"]) == ("pipeline", ["desk"])
    assert plan["run"]["settings"]["precision"] == "fp32"
    placed = planned(run, inspected, (0.1, 4.0))["run"]
    assert (placed["parallel"], placed["requested"]) == ("ddp", ["desk"])
    settings = run_of(placed["file"], "it").settings
    assert settings.precision == "auto"
    assert not misfits("m", settings, SHAPE, candidates_of({"desk": inspected["desk"]}))


def test_a_pipeline_is_judged_in_the_precision_that_it_is_placed_in(tmp_path):
    inspected = with_capability(looks(12, 8), "7.5", "")
    inspected["attic"]["facts"]["memory"]["free_mib"] = 8 * GIB
    assert any(launch(asked(tmp_path), inspected).plan("", 32e6)["found"].values())
    inspected = with_capability(looks(12, 8), "7.5", "7.5")
    assert launch(asked(tmp_path), inspected).plan("", 32e6)["places"]


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
    inspected["desk"] = look(gib[0], nproc=2)
    plan = launch(asked(tmp_path, **typed), inspected).plan("", 32e6)
    if "parallel" not in typed:
        assert_line(plan["say"], "parallel=auto: ddp", *why)
    *_, (said,) = (found for found in plan["found"].values() if found)
    assert advised in said
    assert not plan["places"]


def test_a_model_that_all_nodes_together_cannot_hold_is_refused_by_how_much(tmp_path):
    plan = launch(asked(tmp_path, parallel="pipeline"), looks(5, 4, 4)).plan("", 32e6)
    (said,) = (found for found in plan["found"].values() if found)
    assert_names(said[0], "GiB more", f"of its {LAYERS} layers", "desk", "attic", "shed")
    assert not plan["fetch"]


@pytest.mark.parametrize("parallel", ["auto", "pipeline"])
def test_where_fit_only_warns_what_is_lacking_is_said_and_layers_go_by_memory(tmp_path, parallel):
    run, inspected = asked(tmp_path, parallel=parallel, fit="warn"), looks(6, 4, 4)
    plan = launch(run, inspected).plan("", 32e6)
    assert_line(plan["say"], "WARNING", "GiB more", f"of its {LAYERS} layers")
    placed = planned(run, inspected, (0.1, 0.1, 0.1))
    assert_line(placed["say"], "WARNING", "times its memory")
    counts = dict(run_of(placed["run"]["file"], "it").pipeline.stages)
    assert counts[0] > max(counts[1], counts[2])


def test_unlike_cards_of_a_node_have_layers_by_their_own_memory(tmp_path):
    desk = look(8, nproc=2)
    small, large = ({"name": "RTX", "memory_mib": gib * GIB} for gib in (6, 16))
    desk["facts"]["memory"]["gpus"] = [small, large]
    inspected = {"desk": desk, "attic": look(6)}
    placed = planned(asked(tmp_path), inspected, (0.1, 0.1), nproc=(2, 1))
    counts = dict(run_of(placed["run"]["file"], "it").pipeline.stages)
    assert counts[1] > max(counts[0], counts[2])


def test_layers_go_by_speed_and_memory_and_the_run_file_says_where(tmp_path):
    placed = planned(asked(tmp_path), looks(12, 8, 8), (0.1, 0.2, 0.4))
    run = run_of(placed["run"]["file"], "it")
    counts = dict(run.pipeline.stages)
    assert sum(counts.values()) == LAYERS
    assert counts[0] > counts[1] > counts[2]
    assert placed["run"]["requested"] == list(ADDRESSES)
    assert_line(placed["say"], "parallel=auto: pipeline", "parallel=fsdp", "at most")
    assert_line(placed["say"], "tokens/s", f"{run.pipeline.step_seconds:.2f} s")
    for name, rank in zip(ADDRESSES, range(3), strict=True):
        assert_line(placed["say"], name, f"of {LAYERS}", "a micro-batch")
        assert rank in counts


def test_each_node_is_sent_the_weights_of_its_layers_only(tmp_path):
    inspected = looks(12, 8, 8)
    for name, inspection in inspected.items():
        copies = inspection["facts"]["copies"]
        copies["places"] = dict.fromkeys(("model", "data"), name)
        copies["holds"] = {"model": "abc" if name == "desk" else "", "data": ""}
    placed = planned(asked(tmp_path), inspected, (0.1, 0.2, 0.4))
    run, transfer = placed["run"], placed["transfer"]
    assert (transfer["source"], set(transfer["lacks"])) == ("desk", {"attic", "shed"})
    parts = [layers for each in run["parts"].values() for layers in each]
    assert [start for start, _ in sorted(parts)] == [0, *(stop for _, stop in sorted(parts)[:-1])]
    counts = dict(run_of(run["file"], "it").pipeline.stages)
    sizes = [stop - start for ((start, stop),) in (run["parts"][name] for name in ADDRESSES)]
    assert sizes == [counts[rank] for rank in range(3)]
    offer = {"facts": {"digest": "abc", "sizes": {"model": 1000}}}
    distribution = Distribution(run, ADDRESSES, "", 0, inspected, transfer, offer, "secret")
    for name in transfer["lacks"]:
        spec = distribution.spec("take", name)
        assert [giver["name"] for giver in spec["givers"]] == ["desk"]
        assert (spec["layers"], spec["count"]) == (run["parts"][name], LAYERS)
    assert "layers" not in distribution.spec("offer", "desk")


def test_a_node_that_makes_it_slower_is_left_out_by_name_unless_all_were_asked_for(tmp_path):
    speeds = (0.1, 0.1, 9.0)
    placed = planned(asked(tmp_path), looks(12, 12, 8), speeds)
    assert placed["run"]["requested"] == ["desk", "attic"]
    assert_line(placed["say"], "LEFT OUT: shed", "-e nodes=all")
    ranks = {rank for rank, _ in run_of(placed["run"]["file"], "it").pipeline.stages}
    assert ranks == {0, 1}
    going_on = planned(resumed(tmp_path), looks(12, 12, 8), speeds, reached=(4, 4, 4))
    assert going_on["run"]["requested"] == ["desk", "attic"]
    everyone = planned(asked(tmp_path, nodes="all"), looks(12, 12, 8), speeds)
    assert everyone["run"]["requested"] == list(ADDRESSES)


@pytest.mark.parametrize("reached", [(2, None, 4), (None, None, 4)])
def test_a_slow_node_is_not_left_out_if_it_alone_has_the_newest_checkpoint(tmp_path, reached):
    speeds = (0.1, 0.1, 9.0)
    run = resumed(tmp_path)
    with refuses(LaunchError, "step 4", "shed", "-e nodes=desk,attic,shed"):
        planned(run, looks(12, 12, 8), speeds, reached=reached)
    taken = planned(run | {"nodes": list(ADDRESSES)}, looks(12, 12, 8), speeds, reached=reached)
    assert taken["run"]["requested"] == list(ADDRESSES)


def test_a_node_for_which_no_layer_is_left_is_not_said_to_lack_room(tmp_path):
    run = asked(tmp_path, parallel="pipeline", fit="warn")
    run["shape"] |= {"num_hidden_layers": 2}
    placed = planned(run, looks(24, 24, 24), (0.1, 0.1, 0.2))
    assert placed["run"]["requested"] == ["desk", "attic"]
    assert_line(placed["say"], "LEFT OUT: shed", "2 layers", "3 ranks")
    assert "no room" not in placed["say"]


def test_ranks_are_numbered_without_the_nodes_that_are_left_out(tmp_path):
    placed = planned(asked(tmp_path), looks(8, 12, 12), (9.0, 0.1, 0.1))
    assert placed["run"]["requested"] == ["attic", "shed"]
    assert {rank for rank, _ in run_of(placed["run"]["file"], "it").pipeline.stages} == {0, 1}


@pytest.mark.parametrize(("seconds", "parallel"), [((0.1, 4, 4), "ddp"), ((1, 1, 1), "pipeline")])
def test_nodes_that_hold_the_whole_model_train_alone_where_that_is_faster(
    tmp_path, seconds, parallel
):
    placed = planned(asked(tmp_path), looks(24, 8, 8), seconds)
    assert placed["run"]["parallel"] == parallel
    assert_line(placed["say"], f"parallel=auto: {parallel}", "ddp on desk", "tokens/s")
    if parallel == "ddp":
        assert placed["run"]["requested"] == ["desk"]
        assert run_of(placed["run"]["file"], "it").pipeline is None
        assert_line(placed["say"], "LEFT OUT: attic, shed")


def test_a_node_that_holds_the_whole_model_trains_alone_where_no_pipeline_fits(tmp_path):
    typed = {"model": "qwen3-32b", "load_in_4bit": True}
    placed = planned(asked(tmp_path, **typed), looks(32, 4), (0.1, 0.1))
    assert placed["run"]["parallel"] == "ddp"
    assert placed["run"]["requested"] == ["desk"]
    assert_line(placed["say"], "parallel=auto: ddp on desk", "tokens/s", "pipeline")
    assert_line(placed["say"], "LEFT OUT: attic")
    with refuses(LaunchError, "64 layers", "2 ranks"):
        planned(asked(tmp_path, **typed, nodes="all"), looks(32, 4), (0.1, 0.1))


def test_links_that_were_not_measured_are_told_with_what_they_count_as(tmp_path):
    what = asked(tmp_path, nodes="all")
    silent = planned(what, looks(12, 8, 8), (0.1, 0.2, 0.4))
    assert "not measured" not in silent["say"]
    said = planned(what, looks(12, 8, 8), (0.1, 0.2, 0.4), linked=[])["say"]
    assert_line(said, "links", "not measured", "desk", "attic", "shed")
    # Hidden states go one way, their gradients the other.
    for linked in (["desk"], ["attic"]):
        said = planned(what, looks(12, 8), (0.1, 0.2), linked=linked)["say"]
        (other,) = {"desk", "attic"} - {*linked}
        assert_line(said, "not measured", f"{other} to {linked[0]}")


@pytest.mark.parametrize(
    ("shares", "stages"),
    [("2:1:1", ((0, 16), (1, 8), (2, 8))), ("1:0:1", ((0, 16), (1, 16)))],
)
def test_typed_shares_are_kept(tmp_path, shares, stages):
    run = asked(tmp_path, parallel="pipeline", split=shares, fit="warn")
    placed = planned(run, looks(8, 8, 8), (1, 0.1, 0.1))
    assert run_of(placed["run"]["file"], "it").pipeline.stages == stages
    assert len(begun(placed, looks(8, 8, 8))["names"]) == len(stages)


def test_a_node_without_a_share_is_left_out_for_that_whatever_nodes_are_asked_for(tmp_path):
    run = asked(tmp_path, parallel="pipeline", split="2:0:1", nodes="all", fit="warn")
    placed = planned(run, looks(8, 8, 8), (1, 0.1, 0.1))
    assert placed["run"]["requested"] == ["desk", "shed"]
    assert_line(placed["say"], "LEFT OUT: attic", "split=2:0:1")
    assert "nodes=all" not in placed["say"]


def test_shares_that_do_not_fit_are_refused_before_and_after_the_layers_are_timed(tmp_path):
    inspected = looks(8, 24, 24)
    auto = launch(asked(tmp_path, split="30:1:1"), inspected).plan("", 32e6)
    run = asked(tmp_path, parallel="pipeline", split="30:1:1")
    plan = launch(run, inspected).plan("", 32e6)
    assert plan["found"] == auto["found"]
    (said,) = filter(None, plan["found"].values())
    assert_names(said[0], "split", "desk", "30 layers", "GiB", "8.0 GiB")
    with refuses(LaunchError, "split", "desk", "30 layers", "GiB"):
        launch(run, inspected, (0.1, 0.1, 0.1)).place("", 32e6)
    warned = planned(
        asked(tmp_path, parallel="pipeline", split="30:1:1", fit="warn"), inspected, (0.1, 0.1, 0.1)
    )
    assert_line(warned["say"], "WARNING", "desk", "30 layers")
    assert dict(run_of(warned["run"]["file"], "it").pipeline.stages) == {0: 30, 1: 1, 2: 1}


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
    inspected = dict(zip(ADDRESSES, (look(48, each) for each in ranks), strict=False))
    run = asked(tmp_path, parallel="pipeline", split=shares)
    with refuses(LaunchError, *facts):
        planned(run, inspected, (0.1, 0.1), nproc=ranks)


@pytest.mark.parametrize(("listed", "timed"), [(1, 2), (2, 1)])
def test_speeds_of_other_ranks_than_the_driver_has_are_refused_by_name(tmp_path, listed, timed):
    inspected = looks(12, 12)
    memory = inspected["attic"]["facts"]["memory"]
    memory["gpus"] = memory["gpus"] * listed
    with refuses(LaunchError, "attic", "1 rank", "2 ranks", "doctor"):
        planned(asked(tmp_path), inspected, (0.1, 0.1), nproc=(1, timed))


def test_a_wrong_number_of_shares_is_refused(tmp_path):
    run = asked(tmp_path, parallel="pipeline", split="2:1", fit="warn")
    with refuses(LaunchError, "split", "2 shares", "3 ranks"):
        planned(run, looks(8, 8, 8), (1, 0.1, 0.1))


def test_without_the_speed_of_every_node_nothing_is_placed(tmp_path):
    plan = launch(asked(tmp_path), looks(10, 8, 8)).plan("", 32e6)
    placed = launch(plan["run"], looks(10, 8, 8), (0.1, 0.2)).place("", 32e6)
    assert not placed["placed"]
    assert run_of(placed["run"]["file"], "it").pipeline is None


def test_a_model_of_unknown_sizes_is_not_placed(tmp_path):
    run = asked(tmp_path, parallel="pipeline") | {"shape": {}}
    with refuses(LaunchError, "sizes of llama2-7b"):
        launch(run, looks(10, 8, 8), (0.1, 0.2, 0.4)).place("", 32e6)


def test_links_are_measured_between_the_nodes_that_measured_a_layer(tmp_path):
    measured = launch(asked(tmp_path), looks(10, 8, 8), (0.1, 0.2, 0.4))
    assert measured.pair()["talk"].keys() == ADDRESSES.keys()
    assert launch(asked(tmp_path), looks(10, 8, 8)).pair()["talk"] == {}


def begun(placed, inspected):
    """Return the choice of a placed run."""
    facts = {"nproc": 1, "gpus": 1, "held_out_rows": 16, "checkpoint": None, "summary": []}
    names = placed["run"]["requested"]
    prepared = {name: {"findings": [], "facts": facts} for name in names}
    answers = {"look": {name: inspected[name] for name in names}, "prepared": prepared}
    launched = Launch(placed["run"], {name: ADDRESSES[name] for name in names}, answers)
    timeouts = {"ready_timeout": 60.0, "silence_timeout": 15.0, "return_timeout": 60.0}
    return launched.choose(timeouts)


@pytest.mark.parametrize("mbit", [5.0, 50.0])
def test_a_stop_waits_until_every_node_has_the_state_of_all_stages(tmp_path, mbit):
    inspected = looks(12, 8, 8)
    placed = planned(asked(tmp_path), inspected, (0.1, 0.2, 0.4), mbit=mbit)
    run = run_of(placed["run"]["file"], "it")
    weights = 4 * adapter_parameters(SHAPE, run.settings.lora_rank, run.settings.lora_targets)
    travels = 3 * weights * 8 / (mbit * 1e6)  # with AdamW's two moments
    (grace,) = {spec["stop_grace"] for spec in begun(placed, inspected)["specs"].values()}
    assert grace > 3 * run.pipeline.step_seconds + 30 + travels


def test_a_placed_run_begins_on_its_nodes_and_is_launched_as_one(tmp_path):
    inspected = looks(12, 12, 8)
    placed = planned(asked(tmp_path), inspected, (0.1, 0.1, 9.0))
    chosen = begun(placed, inspected)
    assert chosen["names"] == ["desk", "attic"]
    specs = list(chosen["specs"].values())
    assert [spec["rank"] for spec in specs] == [0, 1]
    assert not any(spec["resident"] or spec["elastic"] for spec in specs)
    seconds = run_of(placed["run"]["file"], "it").pipeline.step_seconds
    assert specs[0]["stop_grace"] > 3 * seconds
