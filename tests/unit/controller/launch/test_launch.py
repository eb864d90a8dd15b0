"""The launch of a run, from the answers of its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import launches
from support.facts import assert_line, assert_names, refuses
from support.launches import GIB, TIMEOUTS, finish, inspected_node, inspections, prepared
from support.nodes import talk

from hearth.base.errors import LaunchError
from hearth.config import run_of
from hearth.supervisor.spec import spec_of
from hearth_controller.launch.bring import distribute
from hearth_controller.launch.checks import closed_ports, idle_gpus
from hearth_controller.launch.course import Course, Site
from hearth_controller.launch.inspecting import try_ports
from hearth_controller.launch.launch import launch

ADDRESSES = {"desk": "10.0.0.1", "laptop": "10.0.0.2", "oldbox": "10.0.0.3"}
LINKS = {name: {"findings": [], "facts": talk(*ADDRESSES)} for name in ADDRESSES}
RTX = {"name": "NVIDIA GeForce RTX 5070 Ti", "memory_mib": 16303}


def launch_request(tmp_path, count=3, **typed):
    """Return the request for a run on the first nodes."""
    names = list(ADDRESSES)[:count]
    return launches.launch_request(tmp_path, names, {"model": "smollm2-135m", **typed})


def scripted(tmp_path, **typed):
    """Return the request for a script of one line."""
    program = tmp_path / "mine" / "train.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text("print()\n")
    return launches.launch_request(tmp_path, list(ADDRESSES), {"script": str(program), **typed})


def planned(request, looks, closed=None):
    return launches.planned(request, ADDRESSES, looks, closed)


def ready(request, looks, nodes, links=LINKS, **site):
    return launches.readied(request, ADDRESSES, looks, nodes, links, **site)


def ready_script(request, looks, **site):
    """Return a script's run that is ready to start."""
    slurm = {"slurm_nodes": {name: f"slurm-{name}" for name in ADDRESSES}} if site else {}
    stages = launch(request, Site(ADDRESSES, timeouts=TIMEOUTS, **slurm, **site))
    _, played = finish(stages, {"inspect": looks, "start": dict.fromkeys(looks, STARTED)})
    (start,) = (stage for stage in played if stage.name == "start")
    specs = {name: call.arguments["spec"] for name, (call,) in start.calls.items()}
    return start, specs


STARTED = {"findings": [], "changed": True, "record": {"started": True}}


@pytest.mark.parametrize(
    ("typed", "by_speed"),
    [({}, True), ({"split": "equal"}, False), ({"split": "2:1"}, False), ({"replay": "r"}, False)],
)
def test_rows_go_by_speed_unless_something_else_was_typed(tmp_path, typed, by_speed):
    assert launch_request(tmp_path, **typed).by_speed is by_speed


def test_a_request_is_the_same_after_a_play_has_handed_it_on(tmp_path):
    whole = launch_request(tmp_path, elastic="true", at="23:00", nodes="desk,laptop", cpu="true")
    for request in (whole, scripted(tmp_path, script_args="--epochs 3")):
        again = type(request).from_facts(request.facts)
        assert again == request
        assert again.text == request.text


# -- lending --------------------------------------------------------------------------------------

TERMS = {"when": "idle", "hours": "", "after": 5.0, "command": ""}


def test_each_node_gets_its_own_terms_of_lending_unless_the_run_ignores_them(tmp_path):
    terms = {"desk": TERMS, "laptop": TERMS | {"hours": "23:00-07:00"}}
    looks = {name: inspected_node(own={"lend": each}) for name, each in terms.items()}
    nodes = dict.fromkeys(looks, prepared())
    specs = ready(launch_request(tmp_path, 2), looks, nodes).specs
    assert {name: spec["lend"] for name, spec in specs.items()} == terms
    ignoring = ready(launch_request(tmp_path, 2, lend="false"), looks, nodes).specs
    assert [spec["lend"] for spec in ignoring.values()] == [{}, {}]


@pytest.mark.parametrize("kind", ["fsdp", "a script"])
def test_ranks_that_cannot_leave_alone_are_refused_where_a_node_has_terms(tmp_path, kind):
    def request(**typed):
        own = {"parallel": "fsdp"}
        return (
            launch_request(tmp_path, **own, **typed)
            if kind == "fsdp"
            else scripted(tmp_path, **typed)
        )

    looks = {
        "desk": inspected_node(own={"lend": TERMS | {"command": "true"}}),
        "laptop": inspected_node(own={"lend": TERMS | {"when": ""}}),
        "oldbox": inspected_node(own={"lend": TERMS | {"when": "", "hours": "23:00-07:00"}}),
    }
    found = {name: " ".join(said) for name, said in planned(request(), looks).found.items()}
    assert found.keys() == {"desk", "oldbox"}
    assert_names(found["desk"], "lend_when, lend_command", kind, "-e lend=off", "-e nodes=")
    assert_names(found["oldbox"], "lend_hours")
    assert not planned(request(lend="off"), looks).found


def test_a_node_that_is_away_takes_part_without_being_measured(tmp_path):
    why = "game (process 70) draws on the GPU"
    looks = {
        "desk": inspected_node(),
        "laptop": inspected_node(away=why, own={"lend": TERMS}),
        "oldbox": inspected_node(),
    }
    unmeasured = prepared(ranks=[], port=None)
    nodes = {"desk": prepared(), "laptop": unmeasured, "oldbox": prepared()}
    plan = planned(launch_request(tmp_path), looks)
    assert [plan.measures(name) for name in looks] == [True, False, True]
    run = ready(launch_request(tmp_path), looks, nodes)
    assert list(run.specs) == ["desk", "laptop", "oldbox"]
    assert_line(run.say, "laptop", "its speed is not known yet")
    assert_line(run.say, f"AWAY NOW: laptop ({why}); it joins when it lends again")
    measured_before = ready(launch_request(tmp_path), looks, dict.fromkeys(looks, prepared()))
    assert_line(measured_before.say, "laptop", "tokens/s alone")
    assert_line(measured_before.say, "AWAY NOW: laptop")


def test_a_run_of_which_all_nodes_are_away_says_so_and_begins_later(tmp_path):
    looks = dict.fromkeys(("desk", "laptop"), inspected_node(away="switched off by hand"))
    run = ready(launch_request(tmp_path, 2), looks, dict.fromkeys(looks, prepared(ranks=[])))
    assert list(run.specs) == ["desk", "laptop"]
    assert_line(run.say, "All are away")


@pytest.mark.parametrize("typed", [{"split": "2:1"}, {"split": "equal"}, {"nodes": "laptop"}])
def test_where_speeds_would_not_do_the_run_is_not_predicted(tmp_path, typed):
    request = launch_request(tmp_path, 2, **typed)
    looks = {"desk": inspected_node(), "laptop": inspected_node(away="switched off by hand")}
    looks = {name: looks[name] for name in request.requested}
    nodes = {"desk": prepared(), "laptop": prepared(ranks=[])}
    run = ready(request, looks, nodes, {})
    assert list(run.specs) == list(looks)
    assert "tokens/s" not in run.say


# -- ports ----------------------------------------------------------------------------------------


def test_each_node_asks_the_others_for_the_port_of_the_run_unless_all_are_one_computer(tmp_path):
    looks = {
        "desk": inspected_node(port=2001),
        "laptop": inspected_node(port=2002),
        "oldbox": {"unreachable": True},
    }
    course = Course(launch_request(tmp_path), Site(ADDRESSES))
    ((stage,), one, alone) = (
        finish(try_ports(course, launch_request(tmp_path), inspections(those)), {})[1]
        for those in (
            looks,
            looks | {"desk": inspected_node(own={"one_computer": True})},
            {"desk": inspected_node()},
        )
    )
    specs = {name: call.arguments["spec"] for name, (call,) in stage.calls.items()}
    assert {name: spec["own"] for name, spec in specs.items()} == {
        "desk": "desk",
        "laptop": "laptop",
    }
    named = [(each["name"], each["address"], each["port"]) for each in specs["laptop"]["peers"]]
    assert named == [("desk", ADDRESSES["desk"], 2001), ("laptop", ADDRESSES["laptop"], 2002)]
    assert not one
    assert not alone


def test_a_port_that_others_cannot_reach_is_a_finding_of_its_node_with_the_rule_to_add():
    nodes = inspections(
        {"desk": inspected_node(port=2001), "laptop": inspected_node(), "oldbox": inspected_node()}
    )
    deaf = {"failed": {"desk": "no answer on TCP (firewall?)"}}
    asks = {"desk": {"failed": {}}, "laptop": deaf, "oldbox": deaf}
    ((node, (finding,)),) = closed_ports(ADDRESSES, nodes, asks).items()
    assert node == "desk"
    assert_names(finding, "laptop, oldbox", "port 2001", ADDRESSES["desk"], "--tags firewall")
    assert_names(finding, f"saddr '{{ {ADDRESSES['laptop']}, {ADDRESSES['oldbox']} }}' accept")


# -- plan ------------------------------------------------------------------------------------------


def test_all_that_stands_against_a_run_is_said_at_once_before_anything_is_brought(tmp_path):
    looks = {
        "desk": inspected_node(memory={"free_mib": 200}),
        "laptop": {"unreachable": True, "msg": "no route"},
        "oldbox": inspected_node() | {"findings": ["results/x is a file"]},
    }
    closed = {"laptop": {"findings": [], "facts": {"failed": {"desk": "no answer"}}}}
    stages = launch(launch_request(tmp_path), Site(ADDRESSES, timeouts=TIMEOUTS))
    with refuses(LaunchError, "desk: ", "laptop: cannot be reached: no route", "oldbox: results/x"):
        finish(stages, {"inspect": looks, "ports": closed})
    stages = launch(launch_request(tmp_path), Site(ADDRESSES, timeouts=TIMEOUTS))
    with refuses(LaunchError, "Nothing was started", "-e nodes=desk,oldbox"):
        finish(stages, {"inspect": looks | {"desk": inspected_node(), "oldbox": inspected_node()}})


def test_a_finding_stops_a_distribution_before_anything_is_downloaded(tmp_path):
    empty = inspected_node(copies={"holds": {"model": ""}})

    def inspected(laptop):
        stages = distribute(launch_request(tmp_path, 2), Site(ADDRESSES))
        assert next(stages).name == "inspect"
        return stages.send({"desk": [empty], "laptop": [laptop]})

    with refuses(LaunchError, "laptop: /nas is not shared", "Nothing was brought to any node"):
        inspected(empty | {"findings": ["/nas is not shared"]})
    # The others get theirs without a node that is off.
    for other in (empty, {"unreachable": True, "msg": "no route"}):
        plan = inspected(other)
        assert (plan.name, plan.result) == ("plan", {"brings": True})


def test_nodes_of_one_computer_send_each_other_nothing(tmp_path):
    lacking = inspected_node(copies={"holds": {"model": ""}, "places": {"model": "elsewhere"}})
    apart = planned(launch_request(tmp_path, 2), {"desk": inspected_node(), "laptop": lacking})
    assert list(apart.transfer.order.lacks) == ["laptop"]
    assert apart.transfer.brings
    for each in (one := {"desk": inspected_node(), "laptop": lacking}).values():
        each["facts"]["own"]["one_computer"] = True
    assert not planned(launch_request(tmp_path, 2), one).transfer.brings


@pytest.mark.parametrize(("held", "fetched"), [("abc", []), ("", ["model"])])
def test_only_a_model_that_no_node_holds_is_fetched_from_the_hub(tmp_path, held, fetched):
    looks = dict.fromkeys(("desk", "laptop"), inspected_node(copies={"holds": {"model": held}}))
    assert planned(launch_request(tmp_path, 2), looks).transfer.fetches == fetched
    alone = planned(
        launch_request(tmp_path, 1), {"desk": looks["desk"]}
    )  # it fetches when it is prepared
    assert not alone.transfer.fetches


@pytest.mark.parametrize(
    ("typed", "slurm", "facts"),
    [
        ({"partition": "gpu"}, {}, ["--partition=gpu", "-e launcher=slurm"]),
        ({"queue": "true"}, {"desk": "desk"}, ["-e queue", "--begin"]),
    ],
)
def test_words_of_slurms_jobs_and_those_of_the_queue_are_for_one_of_them(
    tmp_path, typed, slurm, facts
):
    stages = launch(launch_request(tmp_path, 1, **typed), Site(ADDRESSES, slurm))
    with refuses(LaunchError, *facts, "Nothing was started"):
        finish(stages, {})


def test_nodes_prepared_by_an_earlier_run_are_not_prepared_again_unless_one_was_not(tmp_path):
    request, kept = launch_request(tmp_path, 2), prepared()["facts"]
    both = {
        "desk": inspected_node(prepared=kept),
        "laptop": inspected_node(prepared=kept | {"nproc": 3}),
    }
    assert planned(request, both).kept
    assert ready(request, both, {}).specs["laptop"]["nproc"] == 3
    one = both | {"laptop": inspected_node()}
    assert not planned(request, one).kept
    assert ready(request, one, dict.fromkeys(one, prepared(2))).specs["desk"]["nproc"] == 2


# -- a GPU that does not answer --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "facts"),
    [
        ({"cards": ["2c05"]}, ["GeForce RTX 5070 Ti", "no nvidia-smi", "--tags driver"]),
        (
            {"cards": ["2c05"], "gpus": [RTX], "cuda": False},
            ["GeForce RTX 5070 Ti", "CUDA", "--tags python"],
        ),
        ({"prime_off": True}, ["prime-select intel", "prime-select on-demand"]),
        ({"cards": ["2c05"], "gpus": [RTX], "cuda": True}, []),
        ({"cards": ["1b06"]}, []),  # torch has no code for a GTX 1080 Ti
    ],
)
def test_a_gpu_that_does_not_answer_is_refused_by_name_unless_that_is_meant(
    tmp_path, memory, facts
):
    looks = {"desk": inspected_node(), "laptop": inspected_node(memory=memory)}
    found = planned(launch_request(tmp_path, 2), looks).found
    assert list(found) == ["laptop"] * bool(facts)
    for (finding,) in found.values():
        assert_names(finding, *facts, "-e cpu=on")
    # Typed, or said by the inventory; what scripts/setup chose for this computer alone is neither.
    assert idle_gpus(launch_request(tmp_path, cpu="true"), inspections(looks)) == {}
    looks["laptop"]["facts"]["own"]["lock"] = "cpu"
    assert idle_gpus(launch_request(tmp_path), inspections(looks)) == {}
    looks["laptop"]["facts"]["own"]["one_computer"] = True
    assert bool(idle_gpus(launch_request(tmp_path), inspections(looks))) == bool(facts)


def test_a_gpu_that_torch_does_not_see_is_refused_and_its_node_computes_on_the_processor(tmp_path):
    looks = dict.fromkeys(("desk", "laptop"), inspected_node(memory={"gpus": [RTX]}))
    nodes = {"desk": prepared(gpus=1), "laptop": prepared(gpus=0)}
    with refuses(LaunchError, "laptop: ", "RTX 5070 Ti", "torch", "-e cpu=on"):
        ready(launch_request(tmp_path, 2), looks, nodes)
    said = ready(launch_request(tmp_path, 2, cpu="true", nodes="all"), looks, nodes).say
    assert_line(said, "desk", "RTX 5070 Ti", "tokens/s")
    assert_line(said, "laptop", "processor", "RTX 5070 Ti idle", "tokens/s")


# -- what the nodes agree on -----------------------------------------------------------------------


def test_a_stream_is_pinned_to_its_commit_and_its_ranks_may_ask_the_hub(tmp_path):
    request = launch_request(
        tmp_path, 2, nodes="all", dataset="owner/words", streaming=True, max_steps=3
    )
    looks = dict.fromkeys(("desk", "laptop"), inspected_node(own={"threads": 3}))
    run = ready(request, looks, dict.fromkeys(looks, prepared(data_revision="abc")))
    assert run_of(run.text, "it").data_revision == "abc"
    for spec in run.specs.values():
        assert spec["environment"] == {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("revisions", "recorded"),
    [(["abc", "abc"], "abc"), (["abc", "def"], None), ([None, None], None), (["abc", None], None)],
)
def test_a_revision_is_recorded_where_all_nodes_have_the_same(tmp_path, revisions, recorded):
    pairs = zip(ADDRESSES, revisions, strict=False)
    nodes = {name: prepared(model_revision=revision) for name, revision in pairs}
    run = ready(launch_request(tmp_path, 2), {name: inspected_node() for name in nodes}, nodes)
    assert run_of(run.text, "it").source.revision == recorded


def test_the_steps_that_the_nodes_have_resolved_are_those_of_the_run(tmp_path):
    request = launch_request(tmp_path, nodes="all", epochs=2)
    assert request.at_most.global_batch == 16  # until the data are known
    steps = {"sequence_length": 256, "packing": False, "global_batch": 4, "warmup_steps": 9}
    looks = {name: inspected_node() for name in ADDRESSES}
    run = ready(request, looks, dict.fromkeys(looks, prepared(steps=steps)))
    agreed = run_of(run.text, "it")
    assert steps.items() <= agreed.settings.model_dump().items()
    assert {agreed.origins[name] for name in steps} == {"auto"}
    assert (agreed.settings.epochs, agreed.origins["epochs"]) == (2, "-e")
    # The prediction is of that step, too: four rows go to three nodes as 2, 1 and 1.
    assert "a step takes 1.5" in run.say


def test_each_node_tests_its_links_to_the_nodes_that_answer(tmp_path):
    looks = {"desk": inspected_node(), "laptop": inspected_node()}
    nodes = {"desk": prepared(port=11), "laptop": prepared(port=12)}
    request = launch_request(tmp_path, 2)
    stages = launch(request, Site(ADDRESSES, timeouts=TIMEOUTS))
    started = dict.fromkeys(looks, STARTED)
    _, played = finish(stages, {"inspect": looks, "prepare": nodes, "start": started})
    (links,) = (stage for stage in played if stage.name == "links")
    specs = {name: call.arguments["spec"] for name, (call,) in links.calls.items()}
    assert {name: spec["own"] for name, spec in specs.items()} == {each: each for each in looks}
    peers = [(peer["address"], peer["port"]) for peer in specs["desk"]["peers"]]
    assert peers == [("10.0.0.1", 11), ("10.0.0.2", 12)]


def test_data_that_differ_between_nodes_stop_the_launch(tmp_path):
    looks = dict.fromkeys(("desk", "laptop"), inspected_node())
    nodes = {"desk": prepared(data="a"), "laptop": prepared(data="b")}
    with refuses(LaunchError, "data is not the same", "desk a", "laptop b", "Nothing was started"):
        ready(launch_request(tmp_path, 2), looks, nodes)


GB10 = {"name": "GB10", "memory_mib": None, "capability": "12.1"}
_CARD = {"index": 0, "used_mib": 1, "room_mib": None, "ours_mib": 0, "programs": []}


def _limited(watts):
    limits = {"watts_limit": watts, "watts_default": 300}
    return {
        "home": {"on_battery": None, "gpu_trouble": "", "gpus": [_CARD | limits]},
        "own": {"power_limit": 220},
    }


@pytest.mark.parametrize(
    ("fine", "wrong", "facts"),
    [
        ({}, {"home": {"on_battery": True, "gpus": [], "gpu_trouble": "none"}}, ["battery"]),
        (
            {"memory": {"gpus": [GB10]}, "rdma": True, "lockable": None},
            {"memory": {"gpus": [GB10]}, "rdma": True, "lockable": 8 << 20},
            ["8 MiB", "LimitMEMLOCK"],
        ),
        (_limited(220), _limited(300), ["300 W, not to power_limit: 220", "--tags power_limit"]),
    ],
)
def test_a_node_with_something_that_stops_no_run_is_warned_of_by_name(tmp_path, fine, wrong, facts):
    looks = {"desk": inspected_node(**fine), "laptop": inspected_node(**wrong)}
    said = ready(launch_request(tmp_path, 2), looks, dict.fromkeys(looks, prepared())).say
    assert_line(said, "laptop:", *facts)
    assert "desk:" not in said


# -- the specs -------------------------------------------------------------------------------------


def test_each_node_gets_its_own_part_of_the_run(tmp_path):
    cards = [{"name": "NVIDIA GeForce RTX 4070", "memory_mib": 8192, "capability": "8.9"}]
    own = {"threads": 3, "variables": {"NCCL_DEBUG": "INFO"}}
    looks = {
        "desk": inspected_node(port=2001, memory={"gpus": cards}),
        "laptop": inspected_node(own=own, generation=4),
    }
    nodes = dict.fromkeys(looks, prepared(2))
    specs = ready(launch_request(tmp_path, 2, nodes="all"), looks, nodes, hearth="hearth").specs
    desk, laptop = specs["desk"], specs["laptop"]
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


@pytest.mark.parametrize(
    ("typed", "ports"), [({}, [2001, 2002, 2003]), ({"meeting_port": 4444}, [4444] * 3)]
)
def test_every_node_knows_port_and_ranks_of_every_other(tmp_path, typed, ports):
    looks = {
        "desk": inspected_node(port=2001),
        "laptop": inspected_node(port=2002),
        "oldbox": inspected_node(port=2003),
    }
    nodes = {"desk": prepared(2), "laptop": prepared(), "oldbox": prepared(3)}
    for spec in ready(launch_request(tmp_path, nodes="all", **typed), looks, nodes).specs.values():
        assert spec["resident"]
        assert (spec["ports"], spec["nprocs"]) == (ports, [2, 1, 3])
        read = spec_of({**spec, "token": "0123456789abcdef"}, "the spec")
        assert read.ports[read.rank] == ports[read.rank]


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
    looks = dict.fromkeys(("desk", "laptop"), inspected_node())
    nodes = dict.fromkeys(looks, prepared(weight_bytes=1000))
    timeouts = {**TIMEOUTS, "return_timeout": return_timeout}
    request = launch_request(tmp_path, 2, nodes="all", **typed)
    specs = ready(request, looks, nodes, timeouts=timeouts).specs
    assert {spec["elastic"] for spec in specs.values()} == {elastic}
    assert {spec["resident"] for spec in specs.values()} == {"parallel" not in typed}


@pytest.mark.parametrize(
    ("least", "count", "in_spec"),
    [(0, 3, 1), (2, 3, 2), (9, 2, 2)],  # the votes decide
)
def test_a_run_needs_as_many_nodes_as_typed(tmp_path, least, count, in_spec):
    looks = {name: inspected_node() for name in list(ADDRESSES)[:count]}
    typed = {"min_nodes": least} if least else {}
    request = launch_request(tmp_path, count, nodes="all", **typed)
    specs = ready(request, looks, dict.fromkeys(looks, prepared())).specs
    assert specs["desk"]["min_nodes"] == in_spec


def test_a_split_needs_one_share_per_rank(tmp_path):
    looks = {"desk": inspected_node(), "laptop": inspected_node()}
    request = launch_request(tmp_path, 2, split="2:1:1", nodes="all")
    with refuses(LaunchError, "2:1:1", "2 ranks"):
        ready(request, looks, dict.fromkeys(looks, prepared()))
    assert list(ready(request, looks, {"desk": prepared(2), "laptop": prepared()}).specs) == [
        *looks
    ]


def test_a_script_has_one_rank_per_usable_gpu_or_as_many_as_the_inventory_says(tmp_path):
    card = {"name": "RTX", "memory_mib": 8000}
    looks = {
        "desk": inspected_node(memory={"gpus": [card, card]}),
        "laptop": inspected_node(memory={"gpus": [card], "cuda": False}),
        "oldbox": inspected_node(own={"nproc": 3}),
    }
    start, specs = ready_script(scripted(tmp_path, cpu="true"), looks)
    ranks = {name: spec["nproc"] for name, spec in specs.items()}
    assert ranks == {"desk": 2, "laptop": 1, "oldbox": 3}
    assert_names(start.say, "desk 2 on 2× RTX", "laptop 1 on processor (RTX idle)")
    assert specs["desk"]["folder"]
    laptop = specs["laptop"]
    assert (laptop["resident"], laptop["elastic"], laptop["min_nodes"]) == (False, False, 1)


def test_under_slurm_the_run_is_a_job_that_asks_for_the_gpus_that_it_trains_on(tmp_path):
    gpus = [{"name": "RTX", "memory_mib": 1}] * 2
    known = {"desk": 2, "laptop": 0, "oldbox": 4}  # by Slurm
    looks = {
        "desk": inspected_node(memory={"gpus": gpus}, slurm_gpus=known),
        "laptop": inspected_node(),
        "oldbox": inspected_node(memory={"gpus": gpus, "cuda": False}),
    }
    request = scripted(tmp_path, cpu="true")
    options = {"--nodelist=slurm-desk,slurm-laptop,slurm-oldbox", "--gpus=2", "--account=home"}
    slurm = {"slurm_nodes": {name: f"slurm-{name}" for name in ADDRESSES}}
    site = Site(ADDRESSES, slurm_options=("--account=home",), timeouts=TIMEOUTS, **slurm)
    submitted = {"desk": {"findings": [], "record": {"job": 7}}}
    answers = {"inspect": looks, "start": dict.fromkeys(looks, STARTED), "submit": submitted}
    _, played = finish(launch(request, site), answers)
    stages = {stage.name: stage for stage in played}
    (submit,) = stages["submit"].calls["desk"]
    assert {f"#SBATCH {each}" for each in options} <= {*submit.arguments["job"].splitlines()}
    assert all(call.arguments["spec"]["slurm"] for (call,) in stages["start"].calls.values())
    assert_names(stages["done"].say, "job 7 of Slurm", "hearth attach")
    _, specs = ready_script(request, looks)
    assert not any(spec["slurm"] for spec in specs.values())


def test_a_job_of_a_run_that_goes_on_without_a_node_keeps_the_others(tmp_path):
    looks, nodes = (
        dict.fromkeys(("desk", "laptop"), inspected_node()),
        {"desk": prepared(), "laptop": prepared()},
    )
    for return_timeout in (0.0, 60.0):
        timeouts = {**TIMEOUTS, "return_timeout": return_timeout}
        slurm = {name: name for name in looks}
        run = ready(
            launch_request(tmp_path, 2, nodes="all"),
            looks,
            nodes,
            timeouts=timeouts,
            slurm_nodes=slurm,
        )
        assert ("--no-kill" in run.job) == bool(return_timeout)


# -- the queue ------------------------------------------------------------------------------------


def in_the_queue(tmp_path, **typed):
    """Return a request, and the answers of nodes behind the run that has laptop."""
    memory = {"free_mib": 100, "total_mib": 64 * GIB}
    laptop = inspected_node(busy="evening", memory=memory, queue_end=5.0)
    return launch_request(tmp_path, 2, queue="true", **typed), {
        "desk": inspected_node(queue_end=7e12),
        "laptop": laptop,
    }


def test_a_run_behind_another_fits_by_all_memory_and_measures_nothing(tmp_path):
    plan = planned(*in_the_queue(tmp_path))
    assert not plan.found
    assert not plan.measures("desk")
    assert planned(launch_request(tmp_path, 1), {"desk": inspected_node()}).measures("desk")


def test_a_run_behind_another_takes_all_nodes_and_the_last_place_on_each(tmp_path):
    request, looks = in_the_queue(tmp_path, at="23:00")
    run = ready(request, looks, dict.fromkeys(looks, prepared()))
    assert list(run.specs) == ["desk", "laptop"]
    assert_line(run.say, "not measured", "evening has laptop")
    queues = [spec["queue"] for spec in run.specs.values()]
    assert queues[0] == queues[1]
    assert queues[0]["position"] == 7e12 + 1
    for spec in run.specs.values():
        assert spec_of(spec | {"token": "x"}, "spec").first_timeout == 60
    at_once = ready(
        replace(request, options=replace(request.options, queue={})),
        looks,
        dict.fromkeys(looks, prepared()),
    )
    assert "queue" not in at_once.specs["desk"]


# -- start -----------------------------------------------------------------------------------------


def started(tmp_path, answers, **typed):
    """Play a launch on two nodes whose starts are answered so; return its stages and the error."""
    looks = dict.fromkeys(("desk", "laptop"), inspected_node())
    site = Site(ADDRESSES, runs=str(tmp_path / "kept"), timeouts=TIMEOUTS)
    request = launch_request(tmp_path, 2, **typed)
    played, stages = [], launch(request, site)
    known = {"inspect": looks, "prepare": dict.fromkeys(looks, prepared()), "start": answers}
    try:
        stage = next(stages)
        while True:
            played.append(stage)
            if stage.local:
                stage.local()
            good = {"findings": [], "facts": {}}
            its = known.get(stage.name, {})
            stage = stages.send({name: [its.get(name, good)] for name in stage.calls})
    except StopIteration:
        return request, played, ""
    except LaunchError as error:
        return request, played, str(error)


def test_a_run_that_has_started_is_kept_here_with_the_way_back_to_it(tmp_path):
    request, played, _ = started(tmp_path, dict.fromkeys(("desk", "laptop"), STARTED))
    assert (tmp_path / "kept" / request.name / "run.yml").exists()
    assert_names(played[-1].say, "is under way", f"hearth attach {request.name}")


@pytest.mark.parametrize(
    ("other", "called_back", "kept"),
    [
        ({"findings": ["no room"]}, ["desk"], True),
        ({"unreachable": True, "msg": "no route"}, ["desk", "laptop"], True),
        ({"failed": True, "msg": "killed"}, ["desk"], True),
    ],
)
def test_a_run_that_did_not_start_on_every_node_is_called_back(tmp_path, other, called_back, kept):
    request, played, error = started(tmp_path, {"desk": STARTED, "laptop": other})
    assert list(played[-1].calls) == called_back
    assert {call.arguments["verb"] for (call,) in played[-1].calls.values()} == {"stop"}
    assert_names(error, "laptop: ", "called back", "60 s")
    assert (tmp_path / "kept" / request.name).exists() is kept


def test_a_run_that_no_node_has_begun_is_forgotten(tmp_path):
    busy = {name: {"findings": ["busy"]} for name in ("desk", "laptop")}
    request, played, error = started(tmp_path, busy)
    assert not played[-1].calls
    assert not (tmp_path / "kept" / request.name).exists()
    assert_names(error, "desk, laptop: busy")


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ({}, set()),
        ({"push": "ada/x"}, {"HEARTH_PUSH_TOKEN"}),
        ({"dataset": "owner/words", "streaming": True, "max_steps": 3}, {"HF_TOKEN"}),
        ({"script": True}, {"HF_TOKEN"}),
    ],
)
def test_only_what_needs_the_token_of_the_shell_gets_it(tmp_path, typed, given):
    if "script" in typed:
        start, _ = ready_script(scripted(tmp_path), dict.fromkeys(ADDRESSES, inspected_node()))
    else:
        answers = dict.fromkeys(("desk", "laptop"), STARTED)
        (start,) = (s for s in started(tmp_path, answers, **typed)[1] if s.name == "start")
    (call,) = start.calls["desk"]
    secrets = {name.removeprefix("secrets."): its for name, its in call.secrets.items()}
    assert {name for name, its in secrets.items() if its == "hub"} == given
    assert secrets["WANDB_API_KEY"] == "wandb"
    assert "secrets" not in call.arguments
