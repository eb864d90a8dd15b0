"""The status: good, degraded or broken; its table, and its JSON."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from support.digests import (
    ALONE,
    KILLED,
    LOST,
    NODES,
    STEP,
    WAITS,
    cause,
    digest,
    ended,
    metrics,
    team,
)
from support.facts import assert_names
from support.metric_lines import slow_links
from support.repository import ROOT

from hearth_controller.base.verdict import EXIT
from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.prometheus import exposition
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import MOST_RUNS, status_lines

SCHEMA = json.loads((ROOT / "docs" / "status.schema.json").read_text())
GPU = {
    "index": 0,
    "name": "stand-in of a card",
    "load_percent": 98,
    "used_mib": 11264,
    "total_mib": 16384,
    "celsius": 71,
    "watts": 284.5,
    "watts_limit": 300,
    "watts_default": 300,
    "limit_cost": None,
    "throttled_by": ["power limit"],
}
HEALTH = {
    "cores": 8,
    "cpu_percent": 97.4,
    "memory": {"used_mib": 3174, "total_mib": 7884},
    "network": {"interface": "enp5s0", "received": 11_200_000, "sent": 800},
    "gpus": [],
    "gpu_trouble": "no nvidia-smi",
}


def status_of(desk=None, laptop=None, health=HEALTH, silent=(), price=0.0):
    """Return the status of two nodes with one digest each, checked against the schema."""
    digests = {"desk": desk and [desk], "laptop": laptop and [laptop]}
    known = {node: None if node in silent else (said or []) for node, said in digests.items()}
    answer = status(
        observed_runs(known),
        {node: None if node in silent else health for node in known},
        dict.fromkeys(silent, "ssh: connect to host laptop port 22: No route to host"),
        "2026-11-20T20:10:00+00:00",
        price,
    )
    jsonschema.validate(json.loads(json.dumps(answer)), SCHEMA)
    return answer


HOT = "GPU 0 (stand-in of a card) is throttled: heat"


IN_PLACE = digest(
    "desk",
    metrics=metrics(teams=[team(1, 12, "desk", laptop="no sign of life for 6 s")]),
    record_more={"generation": 1},
)
"""Of a run that goes on in place without the laptop."""


FULL = {"kind": "disk", "step": 9, "failing": {"laptop": "No space left on device"}}
SLOW = metrics(step=STEP | {"slow_links": slow_links(("laptop", "desk"))})
SLOW_LINK = {"desk": digest("desk", metrics=SLOW), "laptop": digest("laptop")}
OLD = {"step": 31, "seconds": 142, "waits_for": {}, "link": ["laptop", "desk", 0.19]}
OLD_STEP = {"desk": digest("desk", record_more={"open_step": OLD}), "laptop": digest("laptop")}


def gpu(**more):
    return HEALTH | {"gpus": [GPU | more], "gpu_trouble": ""}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"desk": digest("desk"), "laptop": digest("laptop"), "health": gpu()},
        {node: digest(node, "waiting", record_more={"missing": ["laptop"]}) for node in NODES},
        ended("finished"),
        ended("stopped"),
    ],
)
def test_no_run_and_one_that_begins_is_under_way_or_ended_as_it_should_are_good(told):
    answer = status_of(**told)
    assert (answer["verdict"], answer["reasons"]) == ("good", [])
    assert status_lines(answer, 118)[-1].startswith("✓ ")
    assert EXIT["good"] == 0


@pytest.mark.parametrize(
    ("verdict", "told", "facts"),
    [
        (
            "degraded",
            {"desk": digest("desk", "waiting", record_more=WAITS), "silent": ["laptop"]},
            ["evening", "waiting", "laptop: no sign of life for 15 s"],
        ),
        (
            "degraded",
            {"desk": digest("desk", metrics=ALONE), "laptop": digest("laptop", "waiting")},
            ["evening", "without laptop"],
        ),
        (
            "degraded",
            {"desk": IN_PLACE, "laptop": digest("laptop")},
            ["evening", "without laptop, which left after step 12 (no sign of life for 6 s)"],
        ),
        (
            "degraded",
            {"desk": digest("desk", metrics=metrics(disk=FULL)), "laptop": digest("laptop")},
            ["evening", "laptop writes no checkpoints (No space left on device)"],
        ),
        ("degraded", SLOW_LINK, ["evening", "laptop → desk", "5.0 Mbit/s", "sync_every=16", "640"]),
        (
            "degraded",
            OLD_STEP,
            ["evening", "step 31", "2 min 22 s", "laptop → desk", "0.19 Mbit/s"],
        ),
        ("degraded", {"silent": ["laptop"]}, ["laptop", "No route to host"]),
        ("degraded", {"health": gpu(throttled_by=["power limit", "heat"])}, ["desk", HOT]),
        ("degraded", {"health": HEALTH | {"gpu_trouble": "No devices"}}, ["desk", "No devices"]),
        ("broken", ended("failed", KILLED), ["evening", "failed"]),
        ("broken", ended("failed", LOST), ["evening", "lost"]),
        ("broken", {"silent": ["desk", "laptop"]}, ["no node", "No route to host"]),
    ],
)
def test_what_is_degraded_or_broken_says_why(verdict, told, facts):
    answer = status_of(**told)
    assert answer["verdict"] == verdict
    assert_names("\n".join(answer["reasons"]), *facts)
    if verdict == "broken":
        assert len(answer["reasons"]) == 1 + len(told.get("silent", []))
    mark, code = ("!", 1) if verdict == "degraded" else ("✗", 3)
    shown = [f"{mark} {reason}" for reason in answer["reasons"]]
    assert status_lines(answer, 118)[-len(shown) :] == shown
    assert EXIT[verdict] == code


def test_what_became_of_earlier_runs_does_not_count():
    early = digest("desk", "failed", False, name="early", record_more={"since": "2026-11-19T"})
    runs = observed_runs({"desk": [early, digest("desk", "finished", False)]})
    assert status(runs, {"desk": HEALTH}, {}, "now")["verdict"] == "good"


def test_the_table_tells_of_a_run_under_way_and_of_its_nodes():
    text = "\n".join(status_lines(status_of(digest("desk"), digest("laptop"), health=gpu()), 118))
    assert_names(
        text,
        *("evening", "running", "30 of 100", "2.125", "812", "3 min 20 s", "step 25", "40 s"),
        *("97% of 8", "3.1 of 7.7 GB", "enp5s0 ↓ 11.2 MB/s ↑ 800 B/s"),
        *(f"0: {GPU['name']}", "98%", "11.0 of 16.0 GB", "71 °C", "284 of 300 W", "power limit"),
    )


def test_a_step_that_waits_for_a_node_stands_below_its_run_and_is_no_fault():
    step = OLD | {"waits_for": {"laptop": "micro-batch"}, "link": None}
    answer = status_of(digest("desk", record_more={"open_step": step}), digest("laptop"))
    assert answer["verdict"] == "good"
    (line,) = (line for line in status_lines(answer, 118) if "step 31" in line)
    assert_names(line, "2 min 22 s", "laptop", "micro-batch")


@pytest.mark.parametrize(
    ("told", "stopping"),
    [
        (digest("desk", asked="stop\n"), True),
        (digest("desk", asked="now\n"), True),
        (digest("desk", asked="", metrics={}), True),  # it loads the model, or is a script's
        (digest("desk", "waiting", asked="stop\n"), True),
        (digest("desk", asked="pause\n"), False),
        (digest("desk"), False),
        (digest("desk", "failed", False, asked="stop\n"), False),
        (digest("desk", alive=False, asked="stop\n"), False),
    ],
)
def test_that_a_run_under_way_was_asked_to_stop_stands_beside_its_state(told, stopping):
    text = "\n".join(status_lines(status_of(told), 118))
    assert (f" {told['record']['state']}, stopping " in text) == stopping
    assert ("stopping" in text) == stopping


def test_a_node_without_a_driver_says_so_and_one_that_is_off_is_named():
    text = "\n".join(status_lines(status_of(digest("desk"), silent=["laptop"]), 118))
    assert_names(text, HEALTH["gpu_trouble"], "laptop (silent)")
    assert "temperature" not in text


def test_a_node_whose_ranks_are_not_in_the_team_is_away():
    text = "\n".join(status_lines(status_of(IN_PLACE, digest("laptop")), 118))
    assert_names(text, "desk, laptop (away)", "which left after step 12")
    assert "laptop (silent)" in "\n".join(status_lines(status_of(IN_PLACE, silent=["laptop"]), 118))
    assert "away" not in "\n".join(status_lines(status_of(digest("desk"), digest("laptop")), 118))


def test_nodes_that_do_not_reach_each_other_are_named_and_no_good_sign():
    gap = "laptop cannot reach desk at 127.0.0.1 port 40000: no answer on TCP (firewall?)"
    told = {"generation": 1, "unreached": [gap]}
    alone = digest("desk", metrics=metrics(teams=[team(1, 12, "desk")]), record_more=told)
    answer = status_of(alone, digest("laptop", "waiting", record_more=told | {"generation": 0}))
    assert answer["verdict"] == "degraded"
    assert_names(" ".join(answer["reasons"]), gap)
    assert gap in "\n".join(status_lines(answer, 300))


GAME = "steam (process 42) computes on the GPU"
HAD = {"away": GAME, "cause": cause("laptop", "away", f"away: {GAME}"), "generation": 0}


def test_a_node_whose_machine_the_house_has_is_away_with_the_reason_and_no_fault():
    lends = digest(
        "desk",
        metrics=metrics(teams=[team(1, 12, "desk", laptop=f"away: {GAME}")]),
        record_more={"generation": 1},
    )
    answer = status_of(lends, digest("laptop", "waiting", record_more=HAD))
    assert (answer["verdict"], answer["reasons"]) == ("good", [])
    (run,) = answer["runs"]
    assert (run["state"], run["missing"], run["away"]) == ("running", [], ["laptop"])
    assert run["team"] == ["desk"]
    text = "\n".join(status_lines(answer, 118))
    assert_names(text, "desk, laptop (away)", f"the owner has laptop ({GAME})")
    assert exposed(answer)['hearth_run_away_nodes{run="evening"}'] == 1


def test_a_run_of_which_the_house_has_all_machines_waits_and_is_no_fault():
    told = {node: digest(node, "waiting", record_more=HAD) for node in NODES}
    answer = status_of(**told)
    assert (answer["verdict"], answer["runs"][0]["state"]) == ("good", "waiting")
    assert_names(
        "\n".join(status_lines(answer, 118)), f"the owner has desk ({GAME}), laptop ({GAME})"
    )


def test_a_supervisor_that_is_gone_while_the_house_has_the_machine_is_missed():
    gone = digest("laptop", "waiting", alive=False, record_more=HAD)
    answer = status_of(IN_PLACE, gone)
    assert answer["verdict"] == "degraded"
    assert "laptop (gone)" in "\n".join(status_lines(answer, 118))


def test_a_figure_that_the_driver_does_not_have_is_a_dash():
    power = ("watts", "watts_limit", "watts_default")
    unknown = dict.fromkeys(("used_mib", *power, "throttled_by", "celsius"))
    assert "– of – W " in "\n".join(status_lines(status_of(health=gpu(**unknown)), 118))


def test_a_limit_on_power_stands_beside_the_default_one_and_its_cost_below():
    limited = gpu(watts=219.6, watts_limit=220)
    text = "\n".join(status_lines(status_of(health=limited), 118))
    assert "220 of 220 W (default 300)" in text
    assert "slower" not in text
    cost = {"limit_cost": {"slower": 0.078, "measured": "2026-11-20"}}
    text = "\n".join(status_lines(status_of(health=gpu(watts=219.6, watts_limit=220, **cost)), 118))
    told = "GPU 0 is held to 220 of 300 W, 8% slower than at 300 W (measured 2026-11-20)"
    assert f"desk: {told}" in text


def test_why_a_run_failed_stands_below_it():
    lines = status_lines(status_of(**ended("failed", KILLED)), 118)
    assert_names(lines[2], "laptop", KILLED["message"])


def test_old_runs_are_counted_not_shown():
    digests = [digest("desk", "finished", False, name=f"run{i}") for i in range(MOST_RUNS + 3)]
    lines = status_lines(status(observed_runs({"desk": digests}), {"desk": HEALTH}, {}, "now"), 118)
    assert_names("\n".join(lines), "3 older", "hearth runs")
    assert sum("run" in line.split(" ")[0] for line in lines) <= MOST_RUNS + 1


NAME = "[a-z_]+"
VALUE = re.compile(rf'(hearth_{NAME}(?:{{(?:{NAME}="(?:[^"\\\n]|\\[\\"n])*",?)+}})?) (-?[\d.e+-]+)')
ABOUT = re.compile(rf"# (HELP|TYPE) (hearth_{NAME}) (.+)")


def exposed(answer):
    """Return the metrics by name with labels, as text; every line must be of the format."""
    values, described = {}, set()
    for line in exposition(answer):
        if about := ABOUT.fullmatch(line):
            assert about.group(1, 2) not in described  # Prometheus refuses a second description
            described.add(about.group(1, 2))
            continue
        value = VALUE.fullmatch(line)
        assert value, line
        assert ("TYPE", value[1].partition("{")[0]) in described
        assert value[1] not in values
        values[value[1]] = float(value[2])
    return values


def test_prometheus_gets_what_the_tables_show_in_base_units():
    values = exposed(status_of(digest("desk"), digest("laptop"), health=gpu(), price=0.3))
    card = 'node="desk",gpu="0",name="stand-in of a card"'
    expected = {
        "verdict": 0,
        "time_seconds": 1795205400,
        'run_step{run="evening"}': 30,
        'run_steps{run="evening"}': 100,
        'run_loss{run="evening"}': 2.125,
        'run_tokens_per_second{run="evening"}': 812.5,
        'run_eta_seconds{run="evening"}': 200,
        'run_energy_joules_total{run="evening"}': 720_000,
        'run_energy_cost_total{run="evening"}': 0.06,
        'run_missing_nodes{run="evening"}': 0,
        'run_team_nodes{run="evening"}': 2,
        'run_regroups_total{run="evening"}': 0,
        'run_checkpoint_step{run="evening"}': 25,
        'run_state{run="evening",state="running"}': 1,
        'run_state{run="evening",state="failed"}': 0,
        'run_perplexity{run="evening",when="before"}': 48.44,
        'node_up{node="laptop"}': 1,
        'node_busy{node="laptop"}': 1,
        'node_cpu_ratio{node="desk"}': 0.974,
        'node_memory_total_bytes{node="desk"}': 7884 << 20,
        'node_network_received_bytes_per_second{node="desk"}': 11_200_000,
        f"gpu_load_ratio{{{card}}}": 0.98,
        f"gpu_memory_used_bytes{{{card}}}": 11264 << 20,
        f"gpu_power_limit_watts{{{card}}}": 300,
        f"gpu_power_default_limit_watts{{{card}}}": 300,
        f'gpu_throttled{{{card},reason="power limit"}}': 1,
    }
    found = {name: values.get(f"hearth_{name}") for name in expected}
    assert found == pytest.approx(expected)
    assert not any("after" in name for name in values)  # what is not known yet has no line


def test_prometheus_counts_the_nodes_in_the_team_and_its_regroups():
    answer = status_of(IN_PLACE, digest("laptop"))
    values = exposed(answer)
    assert values['hearth_run_team_nodes{run="evening"}'] == 1
    assert values['hearth_run_missing_nodes{run="evening"}'] == 1
    assert values['hearth_run_regroups_total{run="evening"}'] == 1
    kinds = [line for line in exposition(answer) if line.startswith("# TYPE hearth_run_")]
    counters = [line.split()[2] for line in kinds if line.endswith(" counter")]
    assert counters == ["hearth_run_energy_joules_total", "hearth_run_regroups_total"]


def test_prometheus_hears_of_a_node_that_does_not_answer_and_nothing_else_of_it():
    answer = status_of(digest("desk", "waiting", record_more=WAITS), silent=["laptop"])
    values = exposed(answer)
    assert values["hearth_verdict"] == EXIT[answer["verdict"]] == 1
    of_laptop = {name: value for name, value in values.items() if 'node="laptop"' in name}
    assert of_laptop.pop('hearth_node_up{node="laptop"}') == 0
    assert not any("hearth_node_cpu" in name for name in of_laptop)
    assert 'hearth_run_steps{run="evening"}' in values


def test_a_label_of_any_text_is_one_label():
    named = GPU | {"name": 'a "card"\\of\nmine'}
    values = exposed(status_of(health=HEALTH | {"gpus": [named], "gpu_trouble": ""}))
    assert r'hearth_gpu_load_ratio{node="desk",gpu="0",name="a \"card\"\\of\nmine"}' in values
