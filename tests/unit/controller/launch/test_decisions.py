"""The decisions of a launch, from the answers of all nodes."""

from __future__ import annotations

import pytest
from support.facts import assert_names, refuses
from support.lines import assert_line
from support.nodes import talk
from support.words import TRAIN

from hearth.base.errors import LaunchError
from hearth.config import run_of
from hearth.supervisor.spec import spec_of
from hearth_controller.launch.decisions import Launch
from hearth_controller.launch.request import requested

ADDRESSES = {"desk": "10.0.0.1", "laptop": "10.0.0.2", "oldbox": "10.0.0.3"}
TIMEOUTS = {"ready_timeout": 60.0, "silence_timeout": 15.0, "return_timeout": 0.0}
GIB = 1 << 10
SPEED = {"sizes": [1, 2], "seconds": [1.0, 1.5]}


def asked(tmp_path, **typed):
    """Return a run as the play has it."""
    names = list(ADDRESSES)
    run = requested({"model": "smollm2-135m", **typed}, tmp_path, TRAIN, [], names, False)
    assert not run["findings"]
    return run


def look(free_mib=64 * GIB, nproc=0, threads=0, gpus=(), lend=None, **facts):
    own = {"python": "/p", "workspace": "/w", "models": "/m", "one_computer": False}
    own |= {"variables": {}}
    memory = {"gpus": list(gpus), "free_mib": free_mib, "cuda": bool(gpus)}
    memory |= {"cards": [], "prime_off": False, "trouble": "no nvidia-smi"}
    places = {
        name: dict.fromkeys(("model", "data"), f"{name}") for name in ("folders", "places", "disks")
    }
    copies = {
        **places,
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
            "own": own | {"nproc": nproc, "threads": threads, "lend": lend or {}},
            "memory": memory,
            "home": {"on_battery": False, "gpus": [], "gpu_trouble": "no nvidia-smi"},
            "copies": copies,
            "port": 2000,
            "generation": 0,
            **facts,
        },
    }


def prepared(nproc=1, **facts):
    rank = {"speed": SPEED, "row_tokens": 100, "exchange_bytes": 1000, "saturated": True}
    return {
        "findings": [],
        "facts": {
            "nproc": nproc,
            "ranks": [rank] * nproc,
            "summary": ["model: here"],
            "model_revision": None,
            "held_out_rows": 0,
            "checkpoint": None,
            "port": 9,
            **facts,
        },
    }


def launch(run, looks, **steps):
    return Launch(run, {name: ADDRESSES[name] for name in looks}, {"look": looks} | steps)


@pytest.mark.parametrize(
    ("typed", "by_speed"),
    [({}, True), ({"split": "equal"}, False), ({"split": "2:1"}, False), ({"replay": "r"}, False)],
)
def test_rows_go_by_speed_unless_something_else_was_typed(tmp_path, typed, by_speed):
    assert asked(tmp_path, **typed)["by_speed"] is by_speed


# -- lending --------------------------------------------------------------------------------------

TERMS = {"when": "idle", "hours": "", "after": 5.0, "command": ""}


def test_each_node_gets_its_own_terms_of_lending_unless_the_run_ignores_them(tmp_path):
    terms = {"desk": TERMS, "laptop": TERMS | {"hours": "23:00-07:00"}}
    looks = {name: look(lend=each) for name, each in terms.items()}
    answers = {"prepared": {name: prepared() for name in looks}, "links": {}}
    chosen = launch(asked(tmp_path), looks, **answers).choose(TIMEOUTS)
    assert {name: spec["lend"] for name, spec in chosen["specs"].items()} == terms
    ignoring = asked(tmp_path, lend="false")
    chosen = launch(ignoring, looks, **answers).choose(TIMEOUTS)
    assert [spec["lend"] for spec in chosen["specs"].values()] == [{}, {}]


@pytest.mark.parametrize(("typed", "kind"), [({"parallel": "fsdp"}, "fsdp"), ({}, "a script")])
def test_ranks_that_cannot_leave_alone_are_refused_where_a_node_has_terms(tmp_path, typed, kind):
    run = asked(tmp_path, **typed) | ({} if typed else {"spec": {}, "resident": False})
    looks = {
        "desk": look(lend=TERMS | {"command": "true"}),
        "laptop": look(lend=TERMS | {"when": ""}),
        "oldbox": look(lend=TERMS | {"when": "", "hours": "23:00-07:00"}),
    }
    plan = launch(run, looks).plan("", 32e6)
    assert not plan["fetch"]
    found = {name: " ".join(said) for name, said in plan["found"].items() if said}
    assert found.keys() == {"desk", "oldbox"}
    assert_names(found["desk"], "lend_when, lend_command", kind, "-e lend=off", "-e nodes=")
    assert_names(found["oldbox"], "lend_hours")
    assert not any(launch(run | {"lend": False}, looks).plan("", 32e6)["found"].values())


def test_a_node_that_is_away_takes_part_without_being_measured(tmp_path):
    why = "game (process 70) draws on the GPU"
    looks = {"desk": look(away=""), "laptop": look(away=why, lend=TERMS), "oldbox": look(away="")}
    unmeasured = prepared()
    unmeasured["facts"] |= {"ranks": []}
    del unmeasured["facts"]["port"]
    ready = {"desk": prepared(), "laptop": unmeasured, "oldbox": prepared()}
    answers = launch(asked(tmp_path), looks, prepared=ready)
    assert answers.agree()["talk"].keys() == {"desk", "oldbox"}
    links = {name: {"facts": {"mbit": {}}} for name in ("desk", "oldbox")}
    chosen = launch(asked(tmp_path), looks, prepared=ready, links=links).choose(TIMEOUTS)
    assert chosen["names"] == ["desk", "laptop", "oldbox"]
    assert_line(chosen["say"], "laptop", "its speed is not known yet")
    assert_line(chosen["say"], f"AWAY NOW: laptop ({why}); it joins when it lends again")


def test_a_node_that_is_away_and_was_measured_before_counts_with_that_speed(tmp_path):
    looks = {"desk": look(away=""), "laptop": look(away="its hours are 23:00-07:00")}
    ready = {name: prepared() for name in looks}
    chosen = launch(asked(tmp_path), looks, prepared=ready, links={}).choose(TIMEOUTS)
    assert chosen["names"] == ["desk", "laptop"]
    assert_line(chosen["say"], "laptop", "tokens/s alone")
    assert_line(chosen["say"], "AWAY NOW: laptop")


def test_a_run_of_which_all_nodes_are_away_says_so_and_begins_later(tmp_path):
    looks = {name: look(away="switched off by hand") for name in ("desk", "laptop")}
    ready = {name: prepared(ranks=[]) for name in looks}
    run = asked(tmp_path)
    chosen = launch(run, looks, prepared=ready, links={}).choose(TIMEOUTS)
    assert chosen["names"] == ["desk", "laptop"]
    assert_line(chosen["say"], "All are away")


@pytest.mark.parametrize("typed", [{"split": "2:1"}, {"split": "equal"}, {"nodes": "laptop"}])
def test_where_speeds_would_not_do_the_run_is_not_predicted(tmp_path, typed):
    looks = {"desk": look(away=""), "laptop": look(away="switched off by hand")}
    ready = {"desk": prepared(), "laptop": prepared(ranks=[])}
    run = asked(tmp_path, **typed)
    chosen = launch(run, looks, prepared=ready, links={}).choose(TIMEOUTS)
    assert chosen["names"] == [name for name in looks if name in run["requested"]]
    assert "tokens/s" not in chosen["say"]


# -- ports ----------------------------------------------------------------------------------------


def test_each_node_asks_the_others_for_the_port_of_the_run_unless_all_are_one_computer(tmp_path):
    looks = {"desk": look(port=2001), "laptop": look(port=2002), "oldbox": {"unreachable": True}}
    ask = launch(asked(tmp_path), looks).ports()
    assert {name: spec["own"] for name, spec in ask.items()} == {"desk": "desk", "laptop": "laptop"}
    named = [(each["name"], each["address"], each["port"]) for each in ask["laptop"]["peers"]]
    assert named == [("desk", ADDRESSES["desk"], 2001), ("laptop", ADDRESSES["laptop"], 2002)]
    assert not launch(asked(tmp_path), {"desk": looks["desk"]}).ports()
    looks["desk"]["facts"]["own"] |= {"one_computer": True}
    assert not launch(asked(tmp_path), looks).ports()


@pytest.mark.parametrize("script", [False, True])
def test_a_port_that_others_cannot_reach_is_a_finding_of_its_node_with_the_rule_to_add(
    tmp_path, script
):
    looks = {"desk": look(port=2001), "laptop": look(), "oldbox": look()}
    deaf = {"findings": [], "facts": {"failed": {"desk": "no answer on TCP (firewall?)"}}}
    ports = {"desk": {"findings": [], "facts": {"failed": {}}}, "laptop": deaf, "oldbox": deaf}
    run = asked(tmp_path) | ({"spec": {}} if script else {})
    plan = launch(run, looks, ports=ports).plan("", 32e6)
    assert not plan["fetch"]
    ((node, (finding,)),) = ((name, said) for name, said in plan["found"].items() if said)
    assert node == "desk"
    assert_names(finding, "laptop, oldbox", "port 2001", ADDRESSES["desk"], "--tags firewall")
    assert_names(finding, f"saddr '{{ {ADDRESSES['laptop']}, {ADDRESSES['oldbox']} }}' accept")


# -- plan ------------------------------------------------------------------------------------------


def test_a_node_too_small_for_the_model_is_found_before_anything_is_fetched(tmp_path):
    looks = {"desk": look(), "laptop": look(free_mib=200)}
    plan = launch(asked(tmp_path), looks).plan("", 32e6)
    assert [name for name, found in plan["found"].items() if found] == ["laptop"]
    assert not plan["fetch"]


def test_nothing_is_fetched_while_a_node_is_silent_or_found_something(tmp_path):
    run = asked(tmp_path)
    good = {"desk": look(), "laptop": look()}
    assert launch(run, good).plan("", 32e6)["fetch"]
    assert not launch(run, good | {"laptop": {"unreachable": True}}).plan("", 32e6)["fetch"]
    assert not launch(run, good | {"laptop": look() | {"findings": ["x"]}}).plan("", 32e6)["fetch"]


def test_nodes_of_one_computer_send_each_other_nothing(tmp_path):
    lacking = look()
    lacking["facts"]["copies"] |= {"holds": {"model": ""}, "places": {"model": "elsewhere"}}
    apart = launch(asked(tmp_path), {"desk": look(), "laptop": lacking}).plan("", 32e6)
    assert list(apart["transfer"]["lacks"]) == ["laptop"]
    assert apart["transfer"]["brings"]
    for each in (one := {"desk": look(), "laptop": lacking}).values():
        each["facts"]["own"]["one_computer"] = True
    assert not launch(asked(tmp_path), one).plan("", 32e6)["transfer"]["brings"]


@pytest.mark.parametrize(("held", "fetched"), [("abc", []), ("", ["model"])])
def test_only_a_model_that_no_node_holds_is_fetched_from_the_hub(tmp_path, held, fetched):
    looks = {"desk": look(), "laptop": look()}
    for each in looks.values():
        each["facts"]["copies"]["holds"] = {"model": held}
    assert launch(asked(tmp_path), looks).plan("", 32e6)["transfer"]["fetches"] == fetched
    alone = launch(asked(tmp_path), {"desk": looks["desk"]})  # it fetches when it is prepared
    assert alone.plan("", 32e6)["transfer"]["fetches"] == []


# -- a GPU that does not answer --------------------------------------------------------------------

RTX = {"name": "NVIDIA GeForce RTX 5070 Ti", "memory_mib": 16303}


@pytest.mark.parametrize(
    ("memory", "facts"),
    [
        ({"cards": ["2c05"]}, ["GeForce RTX 5070 Ti", "no nvidia-smi", "--tags driver"]),
        ({"cards": ["2c05"], "gpus": [RTX]}, ["GeForce RTX 5070 Ti", "CUDA", "--tags python"]),
        ({"prime_off": True}, ["prime-select intel", "prime-select on-demand"]),
        ({"cards": ["2c05"], "gpus": [RTX], "cuda": True}, []),
        ({"cards": ["1b06"]}, []),  # torch has no code for a GTX 1080 Ti
        ({}, []),
    ],
)
def test_a_gpu_that_does_not_answer_is_refused_by_name_unless_that_is_meant(
    tmp_path, memory, facts
):
    looks = {"desk": look(), "laptop": look()}
    looks["laptop"]["facts"]["memory"] |= memory
    run = asked(tmp_path)
    plan = launch(run, looks).plan("", 32e6)
    assert ["laptop"] * bool(facts) == [name for name, found in plan["found"].items() if found]
    assert plan["fetch"] != bool(facts)
    for finding in plan["found"].get("laptop", []):
        assert_names(finding, *facts, "-e cpu=on")
    # Typed, or said by the inventory; what scripts/setup chose for this computer alone is neither.
    assert launch(asked(tmp_path, cpu="true"), looks).idle_gpus() == {}
    addresses = {name: ADDRESSES[name] for name in looks}
    locked = Launch(run, addresses, {"look": looks}, {"laptop": "cpu"})
    assert locked.idle_gpus() == {}
    looks["laptop"]["facts"]["own"]["one_computer"] = True
    assert bool(locked.idle_gpus()) == bool(facts)


def test_a_gpu_that_torch_does_not_see_is_refused_and_its_node_computes_on_the_processor(tmp_path):
    looks = {"desk": look(gpus=[RTX]), "laptop": look(gpus=[RTX])}
    nodes = {"desk": prepared(gpus=1), "laptop": prepared(gpus=0)}
    run = asked(tmp_path)
    found = launch(run, looks, prepared=nodes).idle_gpus()
    assert list(found) == ["laptop"]
    assert_names(found["laptop"][0], "RTX 5070 Ti", "torch", "-e cpu=on")
    said = chosen(asked(tmp_path, cpu=True, nodes="all"), looks, nodes)["say"]
    assert_line(said, "desk", "RTX 5070 Ti", "tokens/s")
    assert_line(said, "laptop", "processor", "RTX 5070 Ti idle", "tokens/s")


# -- agree -----------------------------------------------------------------------------------------


def test_a_stream_is_pinned_to_its_commit_and_its_ranks_may_ask_the_hub(tmp_path):
    run = asked(tmp_path, nodes="all", dataset="owner/words", streaming=True, max_steps=3)
    looks = {name: look(threads=3) for name in ("desk", "laptop")}
    nodes = dict.fromkeys(looks, prepared(data_revision="abc"))
    assert run_of(launch(run, looks, prepared=nodes).agree()["file"], "it").data_revision == "abc"
    for spec in chosen(run, looks, nodes)["specs"].values():
        assert spec["environment"] == {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("revisions", "recorded"),
    [(["abc", "abc"], "abc"), (["abc", "def"], None), ([None, None], None), (["abc", None], None)],
)
def test_a_revision_is_recorded_where_all_nodes_have_the_same(tmp_path, revisions, recorded):
    nodes = {
        name: prepared(model_revision=revision)
        for name, revision in zip(ADDRESSES, revisions, strict=False)
    }
    agreed = launch(asked(tmp_path), {name: look() for name in nodes}, prepared=nodes).agree()
    assert run_of(agreed["file"], "it").source.revision == recorded


def test_the_steps_that_the_nodes_have_resolved_are_those_of_the_run(tmp_path):
    run = asked(tmp_path, nodes="all", epochs=2)
    assert run["global_batch"] == 16  # until the data are known
    steps = {"sequence_length": 256, "packing": False, "global_batch": 4, "warmup_steps": 9}
    looks = {name: look() for name in ADDRESSES}
    nodes = dict.fromkeys(looks, prepared(steps=steps))
    agreed = run_of(launch(run, looks, prepared=nodes).agree()["file"], "it")
    assert steps.items() <= agreed.settings.model_dump().items()
    assert {agreed.origins[name] for name in steps} == {"auto"}
    assert (agreed.settings.epochs, agreed.origins["epochs"]) == (2, "-e")
    # The prediction is of that step, too: four rows go to three nodes as 2, 1 and 1.
    assert "a step takes 1.5" in chosen(run, looks, nodes)["say"]


def test_each_node_tests_its_links_to_the_nodes_that_answer(tmp_path):
    looks = {"desk": look(), "laptop": look()}
    nodes = {"desk": prepared(port=11), "laptop": prepared(port=12)}
    specs = launch(asked(tmp_path), looks, prepared=nodes).agree()["talk"]
    assert [(name, spec["own"]) for name, spec in specs.items()] == [(each, each) for each in looks]
    peers = [(peer["address"], peer["port"]) for peer in specs["desk"]["peers"]]
    assert peers == [("10.0.0.1", 11), ("10.0.0.2", 12)]
    alone = launch(asked(tmp_path), {"desk": look()}, prepared={"desk": prepared()}).agree()
    assert alone["talk"] == {}


def test_a_node_on_battery_is_warned_of_by_name(tmp_path):
    looks = {"desk": look(), "laptop": look()}
    looks["laptop"]["facts"]["home"] |= {"on_battery": True}
    nodes = dict.fromkeys(looks, prepared())
    said = launch(asked(tmp_path), looks, prepared=nodes).agree()["say"]
    assert_line(said, "laptop", "battery")
    assert said.count("battery") == 1


def test_a_node_whose_runs_may_lock_too_little_for_rdma_is_warned_of(tmp_path):
    gpus = [{"name": "GB10", "memory_mib": None, "capability": "12.1"}]
    fine = {"rdma": True, "lockable": None}
    looks = {
        "desk": look(gpus=gpus, **fine),
        "laptop": look(gpus=gpus, **fine | {"lockable": 8 << 20}),
    }
    said = launch(asked(tmp_path), looks, prepared=dict.fromkeys(looks, prepared())).agree()["say"]
    assert_line(said, "laptop", "8 MiB", "LimitMEMLOCK")
    assert "desk" not in said


def test_a_node_whose_power_limit_is_not_in_force_is_warned_of(tmp_path):
    card = {"index": 0, "used_mib": 1, "room_mib": None, "ours_mib": 0, "programs": []}
    home = {"on_battery": None, "gpu_trouble": ""}
    looks = {"desk": look(), "laptop": look()}
    for each, held in (("desk", 220), ("laptop", 300)):
        limits = {"watts_limit": held, "watts_default": 300}
        looks[each]["facts"]["home"] = home | {"gpus": [card | limits]}
        looks[each]["facts"]["own"]["power_limit"] = 220
    said = launch(asked(tmp_path), looks, prepared=dict.fromkeys(looks, prepared())).agree()["say"]
    assert_line(said, "laptop", "300 W, not to power_limit: 220", "--tags power_limit")
    assert "desk" not in said


# -- choose ----------------------------------------------------------------------------------------


def chosen(run, looks, nodes):
    links = {name: {"facts": talk(*ADDRESSES)} for name in looks}
    return launch(run, looks, prepared=nodes, links=links).choose(TIMEOUTS)


def test_each_node_gets_its_own_part_of_the_run(tmp_path):
    cards = [{"name": "NVIDIA GeForce RTX 4070", "memory_mib": 8192, "capability": "8.9"}]
    looks = {"desk": look(port=2001, gpus=cards), "laptop": look(threads=3, generation=4)}
    looks["laptop"]["facts"]["own"]["variables"] = {"NCCL_DEBUG": "INFO"}
    choice = chosen(asked(tmp_path, nodes="all"), looks, dict.fromkeys(looks, prepared(2)))
    desk, laptop = choice["specs"]["desk"], choice["specs"]["laptop"]
    assert choice["names"] == ["desk", "laptop"]
    assert (desk["node"], desk["rank"]) == ("desk", 0)
    assert (laptop["node"], laptop["rank"]) == ("laptop", 1)
    assert desk["addresses"] == laptop["addresses"] == ["10.0.0.1", "10.0.0.2"]
    assert desk["generation"] == laptop["generation"] == 4
    assert desk["environment"] == {}
    assert laptop["environment"] == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"}
    assert (desk["nproc"], desk["unit"], desk["workspace"]) == (2, True, "/w")
    assert (desk["gpus"], laptop["gpus"]) == (1, 0)
    assert TIMEOUTS.items() <= desk.items()
    assert desk["stop_grace"] > 0


def test_every_node_knows_port_and_ranks_of_every_other(tmp_path):
    looks = {"desk": look(port=2001), "laptop": look(port=2002), "oldbox": look(port=2003)}
    nodes = {"desk": prepared(2), "laptop": prepared(), "oldbox": prepared(3)}
    for run, ports in (
        (asked(tmp_path, nodes="all"), [2001, 2002, 2003]),
        (asked(tmp_path, nodes="all", meeting_port=4444), [4444] * 3),
    ):
        for spec in chosen(run, looks, nodes)["specs"].values():
            assert spec["resident"]
            assert (spec["ports"], spec["nprocs"]) == (ports, [2, 1, 3])
            read = spec_of({**spec, "token": "0123456789abcdef"}, "the spec")
            assert read.ports[read.rank] == ports[read.rank]


def test_ranks_that_hold_parts_of_the_model_and_those_of_a_script_are_launched_anew(tmp_path):
    sharded = asked(tmp_path, parallel="fsdp", nodes="all")
    scripted = asked(tmp_path) | {"resident": False, "spec": {}}
    looks = dict.fromkeys(("desk", "laptop"), look())
    nodes = dict.fromkeys(looks, prepared(weight_bytes=1000))
    for run in (sharded, scripted):
        spec = chosen(run, looks, nodes)["specs"]["laptop"]
        assert (spec["resident"], spec["elastic"], spec["min_nodes"]) == (False, False, 1)


@pytest.mark.parametrize(
    ("typed", "return_timeout", "elastic"),
    [
        ({}, 3600.0, True),
        ({}, 0.0, False),  # the first loss ends the run
        ({"elastic": "false"}, 3600.0, False),
        ({"elastic": "true"}, 3600.0, True),
        ({"parallel": "fsdp"}, 3600.0, False),
        ({"parallel": "fsdp", "elastic": "true"}, 3600.0, True),
    ],
)
def test_the_others_go_on_without_a_lost_node_unless_told_otherwise(
    tmp_path, typed, return_timeout, elastic
):
    looks = dict.fromkeys(("desk", "laptop"), look())
    nodes = dict.fromkeys(looks, prepared(weight_bytes=1000))
    links = {name: {"facts": talk(*ADDRESSES)} for name in looks}
    decisions = launch(asked(tmp_path, nodes="all", **typed), looks, prepared=nodes, links=links)
    specs = decisions.choose({**TIMEOUTS, "return_timeout": return_timeout})["specs"]
    assert {spec["elastic"] for spec in specs.values()} == {elastic}


@pytest.mark.parametrize(
    ("least", "count", "in_spec"),
    [(0, 3, 1), (2, 3, 2), (9, 2, 2)],  # the votes decide
)
def test_a_run_needs_as_many_nodes_as_typed(tmp_path, least, count, in_spec):
    looks = {name: look() for name in list(ADDRESSES)[:count]}
    run = asked(tmp_path, nodes="all") | {"min_nodes": least}
    specs = chosen(run, looks, dict.fromkeys(looks, prepared()))["specs"]
    assert specs["desk"]["min_nodes"] == in_spec


def test_a_split_needs_one_share_per_rank(tmp_path):
    looks = {"desk": look(), "laptop": look()}
    run = asked(tmp_path, split="2:1:1", nodes="all")
    with refuses(LaunchError, "2:1:1", "2 ranks"):
        chosen(run, looks, dict.fromkeys(looks, prepared()))
    assert chosen(run, looks, {"desk": prepared(2), "laptop": prepared()})["names"] == list(looks)


def test_a_script_has_one_rank_per_usable_gpu_or_as_many_as_the_inventory_says(tmp_path):
    program = tmp_path / "mine" / "train.py"
    program.parent.mkdir()
    program.write_text("print()\n")
    run = requested({"script": str(program)}, tmp_path, TRAIN, [], list(ADDRESSES), False)
    card = {"name": "RTX", "memory_mib": 8000}
    looks = {"desk": look(gpus=[card, card]), "laptop": look(), "oldbox": look(nproc=3)}
    looks["laptop"]["facts"]["memory"] |= {"gpus": [card], "cuda": False}
    choice = launch(run, looks).choose(TIMEOUTS)
    ranks = {name: spec["nproc"] for name, spec in choice["specs"].items()}
    assert ranks == {"desk": 2, "laptop": 1, "oldbox": 3}
    assert_names(choice["say"], "desk 2 on 2× RTX", "laptop 1 on processor (RTX idle)")
    assert choice["specs"]["desk"]["folder"]


def test_under_slurm_the_run_is_a_job_that_asks_for_the_gpus_that_it_trains_on(tmp_path):
    gpus = [{"name": "RTX", "memory_mib": 1}] * 2
    known = {"desk": 2, "laptop": 0, "oldbox": 4}  # by Slurm
    looks = {
        "desk": look(gpus=gpus, slurm_gpus=known),
        "laptop": look(),
        "oldbox": look(gpus=gpus),
    }
    looks["oldbox"]["facts"]["memory"]["cuda"] = False
    run = asked(tmp_path) | {"spec": {}, "resident": False}
    slurm = {"nodes": {name: f"slurm-{name}" for name in looks}, "options": ["--account=home"]}
    choice = launch(run, looks).choose(TIMEOUTS, slurm)
    options = {"--nodelist=slurm-desk,slurm-laptop,slurm-oldbox", "--gpus=2", "--account=home"}
    assert {f"#SBATCH {each}" for each in options} <= {*choice["job"].splitlines()}
    assert all(spec["slurm"] for spec in choice["specs"].values())
    without = launch(run, looks).choose(TIMEOUTS)
    assert without["job"] == ""
    assert not any(spec["slurm"] for spec in without["specs"].values())


def test_a_job_of_a_run_that_goes_on_without_a_node_keeps_the_others(tmp_path):
    looks = {"desk": look(slurm_gpus={}), "laptop": look()}
    nodes, slurm = dict.fromkeys(looks, prepared()), {"nodes": {n: n for n in looks}, "options": []}
    links = {name: {"facts": talk(*ADDRESSES)} for name in looks}
    steps = {"prepared": nodes, "links": links}
    decisions = launch(asked(tmp_path, nodes="all"), looks, **steps)
    assert "--no-kill" in decisions.choose({**TIMEOUTS, "return_timeout": 60.0}, slurm)["job"]
    assert "--no-kill" not in decisions.choose(TIMEOUTS, slurm)["job"]


def test_a_port_that_was_typed_is_the_one_where_the_supervisors_meet(tmp_path):
    looks = {"desk": look(), "laptop": look()}
    run = asked(tmp_path, meeting_port=4444)
    specs = chosen(run, looks, dict.fromkeys(looks, prepared()))["specs"]
    assert {port for spec in specs.values() for port in spec["ports"]} == {4444}


def test_nodes_prepared_by_an_earlier_run_are_not_prepared_again_unless_one_was_not(tmp_path):
    run, kept = asked(tmp_path), prepared()["facts"]
    both = {"desk": look(prepared=kept), "laptop": look(prepared=kept | {"nproc": 3})}
    assert launch(run, both).plan("", 32e6)["prepared"]
    assert launch(run, both).prepared["laptop"]["nproc"] == 3
    one = both | {"laptop": look()}
    assert not launch(run, one).plan("", 32e6)["prepared"]
    anew = dict.fromkeys(one, prepared(2))
    assert launch(run, one, prepared=anew).prepared["desk"]["nproc"] == 2


# -- the queue ------------------------------------------------------------------------------------


def in_the_queue(tmp_path, **typed):
    """Return a launch behind the run that has laptop, where little memory is free."""
    memory = {"gpus": [], "cuda": False, "free_mib": 100, "total_mib": 64 * GIB}
    memory |= {"cards": [], "prime_off": False, "trouble": "no nvidia-smi"}
    laptop = look(busy="evening", memory=memory, queue_end=5.0)
    looks = {"desk": look(queue_end=7e12), "laptop": laptop}
    run = asked(tmp_path, queue="true", **typed)
    return launch(run, looks, prepared={"desk": prepared(), "laptop": prepared()})


def test_a_run_behind_another_fits_by_all_memory_and_measures_nothing(tmp_path):
    begun = in_the_queue(tmp_path)
    plan = begun.plan("", 32e6)
    assert not any(plan["found"].values())
    assert plan["fetch"]
    assert plan["free"] is False
    assert begun.agree()["talk"] == {}
    assert launch(asked(tmp_path), {"desk": look()}).plan("", 32e6)["free"] is True


def test_a_run_behind_another_takes_all_nodes_and_the_last_place_on_each(tmp_path):
    choice = in_the_queue(tmp_path, at="23:00").choose(TIMEOUTS)
    assert choice["names"] == ["desk", "laptop"]
    assert_line(choice["say"], "not measured", "evening has laptop")
    queues = [spec["queue"] for spec in choice["specs"].values()]
    assert queues[0] == queues[1]
    assert queues[0]["position"] == 7e12 + 1
    for spec in choice["specs"].values():
        assert spec_of(spec | {"token": "x"}, "spec").first_timeout == 60


def test_a_run_that_does_not_wait_has_no_place_in_the_queue(tmp_path):
    begun = launch(asked(tmp_path), {"desk": look()}, prepared={"desk": prepared()})
    assert "queue" not in begun.choose(TIMEOUTS)["specs"]["desk"]
