"""Is it faster? The order of a benchmark's measurements, and its verdict."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.utils.display import Display
from hypothesis import example, given
from hypothesis import strategies as st
from support.facts import assert_names, refuses
from support.metric_lines import records_in, story_of
from support.repository import ROOT
from support.waiting import HANG

from hearth.base.errors import LaunchError
from hearth.base.places import RUN_NAME
from hearth.config import resolve_run
from hearth_controller.benchmark.configure import objections, request_from, run_name, variables
from hearth_controller.benchmark.nested import (
    connection_options,
    error_message,
    forwarded,
    prompting_options,
)
from hearth_controller.benchmark.plays import OPTIONS, Plays, temporary_file
from hearth_controller.benchmark.results import (
    Benchmark,
    BenchmarkRequest,
    Circumstances,
    Configuration,
    MeasuredRun,
    Ranks,
    Timing,
)
from hearth_controller.benchmark.session import RECORD, circumstances, new_benchmark, unfinished
from hearth_controller.benchmark.speedup import rows, together
from hearth_controller.benchmark.text import (
    advice,
    announcement,
    conclusion,
    run_line,
    table,
)
from hearth_controller.benchmark.turns import configurations, remaining, seconds_left

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening" / "metrics.jsonl"
NODES = ("tower", "laptop", "oldbox")
SPEEDS = {("tower",): 1000, ("laptop",): 600, ("oldbox",): 400, NODES: 1800}
TOWER_HAS_TWO = {"tower": Ranks(2, "GPU"), "laptop": Ranks(1, "GPU"), "oldbox": Ranks(1, "rank")}
SETTINGS = {"global_batch": 16, "learning_rate": 2e-4, "sequence_length": 512}


def alone(node: str) -> Configuration:
    return Configuration((node,))


def one_of(node: str) -> Configuration:
    return Configuration((node,), "GPU")


def request(nodes=NODES, **more) -> BenchmarkRequest:
    return replace(BenchmarkRequest("tiny", tuple(nodes), SETTINGS, 2, 10, 1), **more)


def of(speed: float, tokens: float = 6000.0) -> Timing:
    """Return the timing of a run at this speed."""
    return Timing(10, tokens, tokens / speed, 20.0, {"torch": "2.13.0"})


def measured(speeds=SPEEDS, failures=(), name="20261101-200000-tiny", **more) -> Benchmark:
    """Return a benchmark with these speeds; several runs where a speed is a list of them."""
    began = f"{name[:4]}-{name[4:6]}-{name[6:8]}T20:00:00+00:00"
    circumstances = Circumstances("0.1.0 abc", {"tower": {"kernel": "6.1", "driver": "580.1"}})
    repeat = max(len(each) if isinstance(each, list) else 1 for each in speeds.values())
    benchmark = Benchmark(name, began, request(repeat=repeat, **more), circumstances)
    for nodes, several in speeds.items():
        for turn, speed in enumerate(several if isinstance(several, list) else [several]):
            benchmark.runs.append(MeasuredRun(nodes, turn, of(speed)))
    for nodes, why in dict(failures).items():
        benchmark.runs.append(MeasuredRun(nodes, 0, failure=why))
    return benchmark


def with_two_ranks(speeds, one=(), repeat=1) -> Benchmark:
    """Return a benchmark of tower, which has two GPUs, and laptop; `one` are a GPU's speeds."""
    benchmark = measured(speeds, nodes=("tower", "laptop"))
    benchmark.request = replace(benchmark.request, repeat=repeat)
    benchmark.circumstances = replace(benchmark.circumstances, ranks=TOWER_HAS_TWO)
    benchmark.runs[:0] = [MeasuredRun(("tower",), 0, of(speed), one="GPU") for speed in one]
    return benchmark


# -- what is measured, in which order --------------------------------------------------------------


def test_each_node_trains_alone_then_all_together():
    single = [*map(alone, NODES)]
    assert configurations(NODES, {}) == [*single, Configuration(NODES)]
    assert configurations(["desk"], {}) == [alone("desk")]


def test_one_rank_of_a_node_that_has_several_comes_first():
    single = [*map(alone, NODES)]
    planned = configurations(NODES, TOWER_HAS_TWO)
    assert planned == [one_of("tower"), *single, Configuration(NODES)]
    assert planned == configurations(NODES, TOWER_HAS_TWO, {"desk"})
    assert configurations(["tower"], TOWER_HAS_TWO) == [one_of("tower"), alone("tower")]
    assert configurations(["tower", "laptop"], TOWER_HAS_TWO, {"tower"}) == [alone("laptop")]


def test_a_node_whose_single_rank_failed_goes_on_and_one_that_failed_alone_has_no_rank_either():
    benchmark = with_two_ranks({("tower",): 1000}, repeat=2)
    benchmark.runs.insert(0, MeasuredRun(("tower",), 0, failure="no memory", one="GPU"))
    both = Configuration(("tower", "laptop"))
    turn = [alone("tower"), alone("laptop"), both]
    assert remaining(benchmark) == [*((0, each) for each in turn[1:]), *((1, e) for e in turn)]
    benchmark.runs = [
        MeasuredRun(("tower",), 0, of(600), one="GPU"),
        MeasuredRun(("tower",), 0, failure="lost"),
    ]
    assert remaining(benchmark) == [(0, alone("laptop")), (1, alone("laptop"))]


def test_a_node_that_failed_alone_takes_part_in_nothing_further():
    benchmark = measured({("tower",): 1000, ("laptop",): 600}, {("oldbox",): "no memory"})
    benchmark.request = replace(benchmark.request, repeat=2)
    both = Configuration(("tower", "laptop"))
    rest = [(0, both), (1, alone("tower")), (1, alone("laptop")), (1, both)]
    assert remaining(benchmark) == rest


def test_turns_that_were_made_with_a_node_that_fails_later_are_whole():
    benchmark = measured({each: [100] for each in (("tower",), ("laptop",), ("oldbox",), NODES)})
    benchmark.request = replace(benchmark.request, repeat=2)
    benchmark.runs.append(MeasuredRun(("tower",), 1, failure="no memory"))
    both = Configuration(("laptop", "oldbox"))
    rest = [(1, alone("laptop")), (1, alone("oldbox")), (1, both)]
    assert remaining(benchmark) == rest


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True),
    st.integers(1, 3),
    st.sets(st.integers(0, 30)),
    st.dictionaries(st.sampled_from("abcdef"), st.builds(Ranks, st.integers(1, 2), st.just("GPU"))),
)
def test_a_benchmark_ends_whatever_fails_and_runs_nothing_twice(nodes, repeat, failing, ranks):
    benchmark = Benchmark("x", "", request(nodes, repeat=repeat), Circumstances("", {}, ranks))
    for number in range(len(remaining(benchmark)) + 1):  # as many as were said in the beginning
        ahead = remaining(benchmark)
        if not ahead:
            break
        turn, each = ahead[0]
        failed = number in failing
        came = None if failed else of(100)
        why = "broken" if failed else None
        benchmark.runs.append(MeasuredRun(each.nodes, turn, came, why, each.one))
    assert not remaining(benchmark)
    done = [(each.turn, each.configuration) for each in benchmark.runs]
    assert len(set(done)) == len(done)
    assert {each for _, each in done} >= {*map(alone, nodes)}
    if not failing:
        assert len(done) == repeat * len(configurations(nodes, ranks))


def test_the_time_that_is_left_goes_by_the_runs_of_the_same_nodes():
    new_benchmark = Benchmark("y", "", request(), Circumstances("", {}))
    assert seconds_left(new_benchmark) is None
    new_benchmark.runs.append(MeasuredRun(("tower",), 0, replace(of(1), whole_seconds=50.0)))
    assert seconds_left(new_benchmark) == pytest.approx(3 * 50)


# -- the record ------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path):
    benchmark = with_two_ranks({("tower",): 1000}, [600])
    benchmark.runs.append(MeasuredRun(("tower", "laptop"), 0, failure="lost"))
    benchmark.last_run, benchmark.attempts = "benchmark-x-3", 3
    benchmark.write(tmp_path / "one.json")
    assert Benchmark.read(tmp_path / "one.json") == benchmark


def test_a_record_from_before_there_were_single_ranks_is_read(tmp_path):
    benchmark = measured()
    benchmark.write(tmp_path / "one.json")
    record = json.loads((tmp_path / "one.json").read_text())
    del record["circumstances"]["ranks"]
    for run in record["runs"]:
        del run["one"], run["timing"]["joules"]
    (tmp_path / "one.json").write_text(json.dumps(record))
    assert Benchmark.read(tmp_path / "one.json") == benchmark


@pytest.mark.parametrize("text", ["", "{", "[]", '{"asked": 3}', '{"name": "x"}'])
def test_what_is_no_record_is_none(tmp_path, text):
    (tmp_path / "one.json").write_text(text)
    assert Benchmark.read(tmp_path / "one.json") is None


def test_what_was_interrupted_is_found_by_its_nodes(tmp_path):
    for name, nodes in (("one", NODES), ("other", ("den",))):
        (tmp_path / name).mkdir()
        replace(measured(), name=name, request=request(nodes)).write(tmp_path / name / RECORD)
    assert [each.name for each in unfinished(tmp_path, ["laptop"]).values()] == ["one"]


# -- figures ---------------------------------------------------------------------------------------


def test_speed_and_time_are_those_of_the_steps_after_the_warm_up():
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    steps = [line | {"steps": 12} for line in lines if line["kind"] == "step"][:12]
    first = [line | {"steps": 12} for line in lines if line["kind"] == "start"][:1]
    came = Timing.from_story(story_of(*first, *steps), 2, 33.0)
    assert came.steps == 10
    counted = steps[2:]
    assert came.tokens == pytest.approx(sum(line["tokens"] for line in counted), rel=1e-3)
    seconds = sum(line["tokens"] / line["tokens_per_second"] for line in counted)
    assert came.seconds == pytest.approx(seconds)
    assert came.versions["torch"] == "2.13.0+cpu"


def test_a_run_without_a_counted_step_or_that_ended_early_is_not_counted():
    lines = records_in(RECORDED.read_text())
    with refuses(LaunchError, "first 200"):
        Timing.from_story(story_of(*lines), 200, 1.0)
    steps = [line for line in lines if line["kind"] in ("start", "step")][:9]
    with refuses(LaunchError, "8 of 80 steps"):
        Timing.from_story(story_of(*steps), 2, 1.0)


def test_a_run_that_was_without_a_node_for_a_while_is_not_counted():
    lines = records_in(RECORDED.read_text())
    nodes = [rank["node"] for rank in lines[0]["ranks"]]
    team = {"kind": "team", "step": 3, "nodes": nodes[1:], "left": {nodes[0]: "silent for 6 s"}}
    whole = [{**team, "step": 5, "nodes": nodes, "left": {}, "joined": nodes[:1]}]
    with refuses(LaunchError, f"{nodes[0]} left after step 3", "silent for 6 s"):
        Timing.from_story(story_of(lines[0], team, *whole, *lines[1:]), 2, 1.0)


def test_the_cluster_is_compared_with_the_sum_and_with_the_fastest():
    found = {row.configuration.nodes: row for row in rows(measured())}
    whole = found[NODES]
    assert whole.sum_alone == pytest.approx(2000)
    assert whole.of_sum == pytest.approx(0.9)
    assert whole.speed_up == pytest.approx(1.8)
    assert whole.of_fastest == pytest.approx(0.6)
    assert found["laptop",].speed_up == pytest.approx(0.6)
    assert found["laptop",].of_sum is None
    assert together(list(found.values())) == whole


def test_where_a_node_failed_alone_the_sum_is_that_of_the_others():
    speeds = {("tower",): 1000, ("laptop",): 600}
    benchmark = measured(speeds, {("oldbox",): "no memory"})
    both = ("tower", "laptop")
    benchmark.runs.append(MeasuredRun(both, 0, of(1500)))
    found = {row.configuration.nodes: row for row in rows(benchmark)}
    assert found["tower", "laptop"].of_sum == pytest.approx(1500 / 1600)
    assert found["oldbox",].speed is None
    text = "\n".join(table(benchmark))
    assert re.search(r"oldbox .* 0 +failed", text)
    assert re.search(r"but oldbox +1 .* 0\.94", text)


def test_one_rank_is_the_base_of_speed_up_and_of_the_efficiency():
    speeds = {("tower",): 1800, ("laptop",): 500, ("tower", "laptop"): 2000}
    benchmark = with_two_ranks(speeds, [1000])
    one, tower, laptop, whole = rows(benchmark)
    assert [row.configuration for row in (one, tower)] == [one_of("tower"), alone("tower")]
    found = [(row.speed_up, row.of_sum, row.of_fastest) for row in (one, tower, laptop, whole)]
    assert found == [
        (1.0, None, None),
        (1.8, 0.9, 0.9),
        (0.5, None, None),
        (2.0, 2000 / 2500, pytest.approx(2000 / 3000)),
    ]
    assert together([one, tower]) == tower
    lines = table(benchmark)
    assert lines[1].startswith("one GPU of tower ")
    assert_names("\n".join(lines[5:]), "one GPU of tower", "ranks")
    benchmark.runs[0] = replace(benchmark.runs[0], one="rank")
    assert table(benchmark)[1].startswith("one rank of tower ")


def test_where_a_single_rank_failed_its_node_is_the_base():
    benchmark = with_two_ranks({("tower",): 1800, ("tower", "laptop"): 2000, ("laptop",): 500})
    benchmark.runs.append(MeasuredRun(("tower",), 0, failure="no memory", one="GPU"))
    one, *_, whole = rows(benchmark)
    assert (one.speed, one.failure) == (None, "no memory")
    assert whole.of_sum == pytest.approx(2000 / 2300)
    assert whole.speed_up == pytest.approx(2000 / 1800)
    assert_names("\n".join(table(benchmark)[5:]), "tower alone")


# -- words -----------------------------------------------------------------------------------------


def test_the_table_has_a_line_a_configuration():
    lines = table(measured({**SPEEDS, NODES: [1790, 1800, 1830]}))
    assert [line.split()[0] for line in lines[1:5]] == ["tower", "laptop", "oldbox", "all"]
    assert_names(lines[1], 1, "6.0 s", 1000)
    assert_names(lines[4], 3, 1800, "1790 to 1830", "1.80", "0.90", "0.60")


def test_the_table_tells_energy_and_its_cost_where_it_is_measured():
    benchmark = measured({("tower",): 1000, ("laptop",): 600, ("tower", "laptop"): 1500})
    benchmark.request = replace(benchmark.request, nodes=("tower", "laptop"))
    assert "Wh" not in "\n".join(table(benchmark, 0.3))
    for number, joules in ((0, 10_800.0), (2, 16_200.0)):
        run = benchmark.runs[number]
        benchmark.runs[number] = replace(run, timing=replace(run.timing, joules=joules))
    titles, *lines = table(benchmark, 0.3)
    assert titles.endswith("Wh per M tokens  cost per M tokens")
    assert [line.split()[-2:] for line in lines[:3]] == [
        ["500", "0.150"],
        ["–", "–"],
        ["750", "0.225"],
    ]
    assert "at 0.3 a kWh" in "\n".join(lines)
    assert "cost" not in "\n".join(table(benchmark))


def test_energy_of_a_benchmark_is_that_of_its_counted_steps_on_all_nodes():
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    steps = [line | {"steps": 12} for line in lines if line["kind"] == "step"][:12]
    first = [line | {"steps": 12} for line in lines if line["kind"] == "start"][:1]
    whole = [line | {"energy_joules_by_rank": [300.0, 200.0, 100.0]} for line in steps]
    assert Timing.from_story(story_of(*first, *whole), 2, 33.0).joules == 10 * 600.0
    whole[5]["energy_joules_by_rank"] = [300.0, 200.0, None]
    assert Timing.from_story(story_of(*first, *whole), 2, 33.0).joules is None


def test_one_node_only_is_said_and_is_one_row():
    benchmark = measured({("tower",): 1000})
    benchmark.request = replace(benchmark.request, nodes=("tower",))
    alone, several = table(benchmark), table(measured())
    assert len(alone[0].split()) < len(several[0].split())  # no column compares it
    assert_names(alone[3], "tower")
    assert_names(announcement(benchmark)[0], benchmark.name)
    benchmark.runs.clear()
    assert "all" not in "\n".join(announcement(benchmark)).split()
    benchmark.circumstances = replace(benchmark.circumstances, ranks=TOWER_HAS_TWO)
    planned = announcement(benchmark)
    assert_names("\n".join(planned), "one GPU of tower; tower alone", "2 runs")
    assert len(planned) < len(announcement(replace(benchmark, circumstances=Circumstances("", {}))))


def test_what_comes_is_said_with_its_time_where_that_is_known():
    new_benchmark = replace(measured(), runs=[], name="20261122-060000-tiny")
    said = "\n".join(announcement(new_benchmark))
    assert_names(said, "2 steps", 10, "16 rows", "tower alone; laptop alone", "4 runs")
    assert " min " not in said
    new_benchmark.runs.append(MeasuredRun(("tower",), 0, of(1000)))
    assert_names("\n".join(announcement(new_benchmark)), "1 of 4")


def test_each_run_is_one_line():
    benchmark = measured({("tower",): 1000})
    line = run_line(benchmark)
    assert line.startswith("tower ")
    assert_names(line, "1000 tokens/s", "10 steps", "6.0 s", "1 of 4", "1 min 0 s")
    benchmark.runs.append(MeasuredRun(("laptop",), 0, failure="no route\nat all"))
    line = run_line(benchmark)
    assert line.startswith("laptop ")
    assert_names(line, "FAILED: no route", "2 of 4")
    assert "\n" not in line


def test_the_whole_says_table_and_learning_rate():
    text = "\n".join(conclusion(measured()))
    assert_names(text, "tower", "global_batch=29", "arXiv:1706.02677")  # 1.8 times 16


def test_a_larger_step_scales_the_rate_by_its_rows():
    _, larger = advice(SETTINGS, 1.8)
    assert_names(larger, "global_batch=29", "learning_rate=0.00027", "0.00036")
    _, least = advice(SETTINGS | {"global_batch": 10}, 1.1)
    assert_names(least, "global_batch=11")
    for speed_up in (None, 1.05):
        (only,) = advice(SETTINGS, speed_up)
        assert_names(only, "learning_rate=0.0002")


# -- the plays behind it ---------------------------------------------------------------------------


def test_a_benchmark_measures_steps_and_nothing_between_them(tmp_path):
    asked = {"model": "smollm2-135m", "eval_every": 5, "wandb": "online"}
    wanted = request_from(resolve_run(asked, tmp_path), NODES, 2, 10, 1)
    benchmark = Benchmark("20261122-060000-x", "", wanted, Circumstances("", {}), attempts=3)
    typed = {"hearth_threads": 1, "_plan_runs": "elsewhere"}
    given = variables(benchmark, alone("tower"), typed, "here")
    train = given.pop("train")
    assert given == {
        "hearth_threads": 1,
        "nodes": "tower",
        "_plan_runs": "here",
        "launch_return_timeout": 0,
        "lend": False,
        "hearth_notify": "",
    }
    one = variables(benchmark, one_of("tower"), typed | {"hearth_nproc": "2"}, "here")
    assert (one["hearth_nproc"], one["nodes"]) == (1, "tower")
    assert (train["eval_held_out"], train["eval_every"], train["wandb"]) == (False, None, "off")
    assert (train["max_steps"], train["run"]) == (12, "benchmark-20261122-060000-x-3")
    again = resolve_run(train, Path("none"))  # what train.yml makes of it
    assert request_from(again, NODES, 2, 10, 1) == wanted


@given(st.text(min_size=1))
@example("m" * 90)
def test_a_benchmark_and_its_runs_have_names_that_fit_whatever_the_model_is_called(model):
    now = Circumstances("0.1.0", {})
    benchmark = new_benchmark(model, request(), now)
    benchmark.attempts = 12
    assert RUN_NAME.fullmatch(benchmark.name)
    assert RUN_NAME.fullmatch(run_name(benchmark))


def test_what_is_no_business_of_a_benchmark_is_refused_by_name(tmp_path):
    given = {"model": "smollm2-135m", "run": "x", "max_steps": 5, "split": "2:1"}
    findings = objections(resolve_run(given, tmp_path), warm_up=2, steps=10)
    words = [finding.partition(":")[0] for finding in findings]
    assert words == ["run", "max_steps", "split"]


def test_where_nodes_exchange_seldom_whole_rounds_are_measured(tmp_path):
    seldom = resolve_run({"model": "smollm2-135m", "sync_every": 4}, tmp_path)
    assert objections(seldom, warm_up=4, steps=8) == []
    (finding,) = objections(seldom, warm_up=2, steps=8)
    assert_names(finding, "sync_every", 4)


def test_options_of_roles_and_ways_to_the_nodes_are_handed_on():
    typed = {"model": "m", "train": {}, "nodes": "a", "steps": 3, "hearth_threads": 1}
    assert forwarded(typed) == {"hearth_threads": 1}
    options = {"inventory": ("/a", "/b"), "private_key_file": "/k", "vault_ids": []}
    assert connection_options(options) == ["-i", "/a", "-i", "/b", "--private-key", "/k"]
    (finding,) = prompting_options({"ask_pass": True, "ask_vault_pass": False})
    assert finding.startswith("-k: ")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("\nFollow\n  step 1/3\nlaptop: no memory\n    9 GB\n", "laptop: no memory\n    9 GB"),
        ("\nCheck\n  tiny (laptop)\nlaptop: no\ndesk: no\n\n", "laptop: no\ndesk: no"),
    ],
)
def test_why_a_play_failed_is_what_stands_at_its_end(log, said):
    assert error_message(log) == said
    assert error_message("\nCheck\n  tiny\n") == error_message("")  # it said nothing


def test_driver_and_kernel_are_known_of_nodes_that_answer():
    driver = {"content": "NTgwLjEyNi4wOQo="}
    known = {
        "tower": {"ansible_facts": {"kernel": "6.1.0"}, "benchmark_driver": driver},
        "laptop": {"ansible_facts": {}, "benchmark_driver": {"skipped": True}},
    }
    found = circumstances(["tower", "laptop"], known, "0.1.0")
    assert found.nodes == {"tower": {"kernel": "6.1.0", "driver": "580.126.09"}, "laptop": {}}
    assert found.ranks == {}


@pytest.mark.parametrize(
    ("nproc", "gpus", "cuda", "ranks"),
    [
        (0, 4, True, Ranks(4, "GPU")),
        (2, 4, True, Ranks(2, "GPU")),
        (2, 1, True, Ranks(2, "rank")),
        (0, 4, False, Ranks(1, "rank")),
        (2, 0, False, Ranks(2, "rank")),
    ],
)
def test_the_ranks_of_a_node_are_those_of_the_inventory_or_its_gpus(nproc, gpus, cuda, ranks):
    memory = {"gpus": [{"name": "RTX 4090"}] * gpus, "cuda": cuda}
    look = {"facts": {"own": {"nproc": nproc}, "memory": memory}}
    assert circumstances(["tower"], {"tower": {"benchmark_look": look}}, "").ranks == {
        "tower": ranks
    }


def test_what_was_left_under_way_is_ended_with_the_roles_options_that_were_typed(tmp_path):
    (tmp_path / "playbooks").mkdir()
    words = "{{ [run, _stop_now, _plan_runs, hearth_workspace, cpu | default(0)] | to_json }}"
    (tmp_path / "playbooks" / "stop.yml").write_text(
        "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
        f"    - ansible.builtin.copy: {{content: '{words}', dest: '{tmp_path}/told.json'}}\n"
    )
    typed = {"hearth_workspace": "/w", "model": "m", "run": "mine", "cpu": "on"}
    typed["ansible_python_interpreter"] = sys.executable
    plays = Plays(tmp_path, tmp_path, ["-i", "localhost,"], forwarded(typed), Display())
    plays.stop("benchmark-1")
    told = json.loads((tmp_path / "told.json").read_text())
    assert told == ["benchmark-1", True, f"{tmp_path}/runs", "/w", 0]
    assert not (tmp_path / OPTIONS).exists()


def test_what_was_typed_lies_in_no_file_after_the_play(tmp_path):
    file = tmp_path / OPTIONS
    before = signal.getsignal(signal.SIGINT)
    with temporary_file(file, "{}"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_play_is_ended_also_where_it_has_lost_the_signal(tmp_path, start):
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True)"
    play = start(f"{deaf}; time.sleep(600)")
    handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        play.stdout.readline()  # from here on it hears nothing
        with temporary_file(tmp_path / OPTIONS, "{}") as plays:
            plays.append(play)
            os.kill(os.getpid(), signal.SIGINT)
            assert play.returncode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nor_where_ansible_ends_its_worker_meanwhile(tmp_path, start, number):
    """As Ansible does: its handler ends the process, and no `finally` is reached."""
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        f"signal.signal({int(number)}, lambda number, frame: os._exit(7))\n"
        "from hearth_controller.benchmark.plays import temporary_file as kept\n"
        "with kept(Path(sys.argv[1]), 'secret'):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
    )
    file = tmp_path / OPTIONS
    assert start(program, file).wait(HANG) == 7
    assert not file.exists()
