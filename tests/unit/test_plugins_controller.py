"""What the plugins decide on the controller: inventory, `-e`, findings, progress, closing words."""

from __future__ import annotations

import json
import sys
import tarfile
from importlib import util
from io import BytesIO
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from hypothesis import given
from hypothesis import strategies as st

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def load(kind: str, name: str):
    """Return a plugin as a module; Ansible loads them by path, too."""
    spec = util.spec_from_file_location(f"plugins_{kind}_{name}", PLUGINS / kind / f"{name}.py")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


inventory = load("action", "hearth_inventory")
run = load("action", "hearth_run")
verdict = load("action", "hearth_verdict")
follow = load("action", "hearth_follow")
collect = load("action", "hearth_collect")
summary = load("action", "hearth_summary")
outcome = load("action", "hearth_outcome")
workspace = load("action", "hearth_workspace")
callback = load("callback", "hearth")


# -- the inventory ---------------------------------------------------------------------------------


def members(**hosts):
    return {
        name: {"cluster_address": f"10.0.0.{i}"} | more
        for i, (name, more) in enumerate(hosts.items(), 1)
    }


def test_rank_is_the_position_in_the_group():
    nodes, findings = inventory.read_nodes(members(b={}, a={}, c={}))
    assert [(node.name, node.rank) for node in nodes] == [("b", 0), ("a", 1), ("c", 2)]
    assert not findings


def test_node_rank_overrides_the_position():
    given = members(b={"node_rank": 1}, a={"node_rank": "0"})
    nodes, findings = inventory.read_nodes(given)
    assert [node.name for node in nodes] == ["a", "b"]
    assert not findings


@given(st.permutations(range(5)))
def test_any_order_of_ranks_is_taken(order):
    hosts = {f"n{i}": {"node_rank": rank} for i, rank in enumerate(order)}
    nodes, findings = inventory.read_nodes(members(**hosts))
    assert [node.rank for node in nodes] == list(range(5))
    assert not findings


@pytest.mark.parametrize(
    ("hosts", "finding"),
    [
        ({}, "no hosts in the group 'cluster'"),
        (members(a={"node_rank": 1}, b={}), "a and b have the same rank 1"),
        (members(a={"node_rank": 3}), "ranks are 3; 1 nodes need the ranks 0 to 0"),
        (members(a={"node_rank": True}), "a: node_rank is True"),
        (members(a={"node_rank": "first"}), "a: node_rank is 'first'"),
        ({"a": {}}, "a: cluster_address is missing"),
        ({"a": {"cluster_address": "10.0.0.1/24"}}, "'10.0.0.1/24' is not an IP address"),
        (
            {"a": {"cluster_address": "fe80::1"}, "b": {"cluster_address": "fe80:0::1"}},
            "a and b have the same cluster_address fe80::1",
        ),
    ],
)
def test_what_is_wrong_with_an_inventory_is_said(hosts, finding):
    _, findings = inventory.read_nodes(hosts)
    assert any(finding in said for said in findings)


# -- what is typed after -e ------------------------------------------------------------------------


def test_typed_variables_are_plain_and_train_adds_up(tmp_path):
    file = tmp_path / "more.yml"
    file.write_text("train: {seed: 3}\nwait: false\n")
    typed = run.typed_variables(
        [
            "model=tiny max_steps=5",
            '{"train": {"lora_rank": 4, "seed": 1}}',
            f"@{file}",
        ],
        DataLoader(),
    )
    assert typed == {
        "model": "tiny",
        "max_steps": "5",
        "train": {"lora_rank": 4, "seed": 3},
        "wait": False,
    }
    assert all(type(value) in (str, dict, bool) for value in typed.values())


def test_settings_launch_words_and_options_are_told_apart():
    settings, launch, findings = run.sort_out(
        {
            "model": "m",
            "wait": "no",
            "hearth_python": "x",
            "ansible_user": "u",
            "train": {"seed": 1},
        },
        {"hearth_python"},
    )
    assert settings == {"model": "m", "seed": 1}
    assert launch == {"wait": "no", "meeting_port": 0}
    assert not findings


def test_unknown_words_are_refused_with_the_nearest_known():
    _, _, findings = run.sort_out({"modle": 1, "hearth_pyton": 2}, {"hearth_python"})
    assert findings == [
        "-e modle: there is no such setting or option (did you mean 'model'?)",
        "-e hearth_pyton: there is no such setting or option (did you mean 'hearth_python'?)",
    ]


def test_an_unknown_setting_inside_train_is_left_to_the_resolver():
    settings, _, findings = run.sort_out({"train": {"sed": 1}}, ())
    assert settings == {"sed": 1}
    assert not findings


@pytest.mark.parametrize("port", [0, "0", 1024, "65535"])
def test_ports_that_can_be_used(port):
    assert run.sort_out({"meeting_port": port}, ())[1:] == ({"meeting_port": int(port)}, [])


@pytest.mark.parametrize("port", [80, "65536", "-1", "ssh", 1.5])
def test_ports_that_cannot(port):
    assert "meeting_port" in run.sort_out({"meeting_port": port}, ())[2][0]


def test_every_role_declares_its_options():
    options = run.role_options([str(PLUGINS.parent / "roles")])
    assert {"hearth_workspace", "cluster_address", "launch_ready_timeout"} <= options


# -- findings --------------------------------------------------------------------------------------


def test_nodes_with_the_same_finding_are_named_together():
    text = verdict.as_message(
        {"a": ["full"], "b": ["full"], "c": ["no port"]}, [], "Nothing began."
    )
    assert text.splitlines() == ["a, b: full", "c: no port", "Nothing began."]


def test_an_unreachable_node_is_a_finding():
    found = verdict.findings_of(
        [{"unreachable": True, "msg": "Task failed: Failed to connect"}, {"skipped": True}]
    )
    assert found == ["cannot be reached: Failed to connect"]


def test_facts_must_be_the_same_everywhere():
    facts = {"a": {"torch": "2.13", "data": 1}, "b": {"torch": "2.12", "data": 1}, "c": {}}
    assert verdict.differing(facts, ["torch", "data"]) == [
        "torch is not the same on all nodes: a 2.13, b 2.12"
    ]


# -- progress --------------------------------------------------------------------------------------


def progress_after(*lines):
    progress = follow.Progress()
    for line in lines:
        progress.take(line)
    return progress


START = {
    "kind": "start",
    "steps": 60,
    "ranks": [{"node": "desk"}, {"node": "desk"}, {"node": "lap"}],
}
STEP = {
    "kind": "step",
    "step": 12,
    "steps": 60,
    "loss": 1.23456,
    "tokens_per_second": 310.4,
    "tokens_per_second_by_rank": [80, 80, 150],
    "eta_seconds": 125,
}


def test_a_step_is_one_line_with_the_share_of_each_node():
    assert progress_after(START, STEP).text() == (
        "step 12/60 · loss 1.235 · 310 tokens/s (desk 160, lap 150) · 2 min 5 s left"
    )


def test_progress_before_and_after_the_steps():
    assert progress_after().text() == "the ranks load the model"
    assert "before the first step" in progress_after(START).text()
    assert "saving" in progress_after(START, STEP | {"step": 60}).text()


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (None, "starts"),
        ({"state": "waiting", "missing": ["lap"]}, "waiting until lap is ready"),
        ({"state": "waiting", "missing": []}, "all nodes are ready"),
        ({"state": "running"}, "load the model"),
    ],
)
def test_the_state_before_the_ranks_speak(record, text):
    assert text in follow.state_text(record, follow.Progress())


class Page:
    """Stands in for Ansible's Display."""

    def __init__(self):
        self.text = ""

    def display(self, text, newline=True, **_):
        self.text += text + ("\n" if newline else "")


def test_without_a_terminal_a_line_comes_at_each_tenth():
    page = Page()
    screen = follow.Screen(page, live=False)
    for step in range(1, 101):
        screen.progress(f"step {step}", step // 10)
    lines = page.text.split("\n")
    assert [line.strip() for line in lines[:3]] == ["step 1", "step 10", "step 20"]
    assert "\r" not in page.text


def test_on_a_terminal_one_line_is_drawn_over():
    page = Page()
    screen = follow.Screen(page, live=True)
    screen.progress("step 1", 0)
    screen.progress("step 2", 0)
    screen.end()
    assert "\n" not in page.text
    assert page.text.count("\r") == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds, text):
    assert follow.duration(seconds) == text


# -- the closing words -----------------------------------------------------------------------------

TOLD = [
    {"kind": "start", "steps": 60},
    {"kind": "evaluate", "when": "before", "perplexity": 40.0},
    {"kind": "sample", "when": "before", "question": "Why =eth0?", "answer": "I\n\x1b[31m dunno"},
    {"kind": "step", "step": 60, "steps": 60},
    {"kind": "checkpoint", "step": 50},
    {"kind": "evaluate", "when": "after", "perplexity": 10.0},
    {"kind": "sample", "when": "after", "question": "Why =eth0?", "answer": "It is a prefix."},
    {"kind": "end", "step": 60, "seconds": 125.0},
]
FINISHED = {"desk": {"state": "finished"}, "lap": {"state": "finished"}}
FAILED = {
    "desk": {"state": "failed", "cause": {"node": "lap", "message": "out of memory"}},
    "lap": {"state": "failed", "cause": {"node": "lap", "message": "out of memory"}},
}


def closing(lines, ends, files=("adapter", "metrics.jsonl", "logs"), playbook="ansible-playbook"):
    return summary.summary("r1", "tiny", summary.Story.of(lines), ends, "runs/r1", files, playbook)


def test_the_summary_of_a_finished_run():
    text = closing(TOLD, FINISHED)
    lines = text.splitlines()
    assert lines[0] == "r1 finished: 60 of 60 steps on desk, lap in 2 min 5 s"
    assert "held-out perplexity  40.00 → 10.00  (-75%)" in text
    assert "I [31m dunno" in text
    assert "\x1b" not in text
    assert "It is a prefix." in text
    for name in ("adapter", "metrics.jsonl", "logs"):
        assert f"runs/r1/{name}" in text
    assert "train.yml -e resume=r1 -e max_steps=120" in text
    assert "train.yml -e model=tiny -e dataset=" in text


def test_the_summary_of_a_failed_run_names_the_log_and_how_to_go_on():
    text = closing(TOLD[:5], FAILED, files=("logs",), playbook="ansible-playbook -i x")
    assert text.startswith("r1 failed: 60 of 60 steps")
    assert "less runs/r1/logs/lap.log" in text
    assert "ansible-playbook -i x train.yml -e resume=r1" in text
    assert "adapter" not in text


def test_a_run_that_never_began_has_a_summary_too():
    text = closing([], {"desk": {"state": "lost"}}, files=())
    assert text.startswith("r1 failed: before its first step")


def test_a_node_that_left_at_the_end_does_not_make_a_run_fail():
    ends = {"desk": {"state": "finished"}, "lap": {"state": "lost", "message": "no answer"}}
    assert closing(TOLD, ends).startswith("r1 finished")


def test_a_run_that_was_stopped_did_not_fail():
    assert closing(TOLD[:5], {"desk": {"state": "stopped"}}).startswith("r1 was stopped: 60 of 60")


@given(st.text(max_size=800))
def test_whatever_a_model_says_it_is_a_few_printable_lines(text):
    lines = summary.paragraph(text)
    assert 1 <= len(lines) <= 4
    assert all(len(line) <= 76 and line.isprintable() for line in lines)


def test_a_long_answer_is_set_below_itself():
    assert summary.table([("after", ["The cure is", "to wait."]), ("adapter", "runs/a")]) == [
        "  after    The cure is",
        "           to wait.",
        "  adapter  runs/a",
    ]


# -- who failed ------------------------------------------------------------------------------------


def test_only_the_node_that_failed_is_blamed():
    assert outcome.culprits(FAILED) == {"lap": "out of memory"}


def test_a_node_out_of_reach_is_blamed_by_its_peers():
    lost = {"cause": {"node": "lap", "message": "no sign of life for 15 s"}, "state": "failed"}
    ends = {"desk": lost, "lap": {"state": "lost", "message": "no answer"}}
    assert outcome.culprits(ends) == {"lap": "no sign of life for 15 s"}


def test_a_node_that_alone_knows_nothing_speaks_for_itself():
    ends = {"desk": {"state": "finished"}, "lap": {"state": "lost", "message": "no answer"}}
    assert outcome.culprits(ends) == {"lap": "no answer"}


def test_nobody_is_blamed_for_a_good_end():
    assert outcome.culprits(FINISHED | {"x": {"state": "stopped"}}) == {}


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", ""])
def test_a_node_cannot_write_outside_the_folder(name):
    assert not collect.safe(name)


def test_an_equal_folder_is_left_as_it_is(tmp_path):
    for side in ("one", "two"):
        (tmp_path / side / "deep").mkdir(parents=True)
        (tmp_path / side / "deep" / "file").write_text("same")
    assert not collect.put(tmp_path / "one", tmp_path / "two")
    (tmp_path / "one" / "deep" / "file").write_text("other")
    assert collect.put(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "deep" / "file").read_text() == "other"


def test_the_archive_is_the_same_bytes_each_time_and_leaves_out_what_tools_make(tmp_path):
    (tmp_path / "hearth" / "__pycache__").mkdir(parents=True)
    (tmp_path / "hearth" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (tmp_path / "hearth" / "a.py").write_text("a")
    (tmp_path / "go.sh").write_text("#!")
    (tmp_path / "go.sh").chmod(0o755)
    files = workspace.code_files(tmp_path)
    assert [str(name) for name in files] == ["go.sh", "hearth/a.py"]
    packed = workspace.archive(tmp_path, files)
    (tmp_path / "hearth" / "a.py").touch()
    assert workspace.archive(tmp_path, files) == packed
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        assert {member.name: member.mode for member in tar} == {
            "go.sh": 0o755,
            "hearth/a.py": 0o644,
        }


# -- the screen ------------------------------------------------------------------------------------


def test_failures_are_text_and_nodes_that_say_the_same_share_it():
    said = [("b", "no space\nleft"), ("a", "no space\nleft"), ("c", "other")]
    texts = [callback.paragraph(*each) for each in callback.grouped(said)]
    assert texts == ["a, b: no space\n    left", "c: other"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"msg": "Task failed: no such file"}, "no such file"),
        ({"msg": "MODULE FAILURE", "module_stderr": "boom"}, "MODULE FAILURE\nboom"),
        ({"censored": "the output has been hidden"}, "hidden because it may hold secrets"),
        ({}, "without saying why"),
    ],
)
def test_the_message_of_a_result(result, text):
    assert text in callback.message_of(result)


def test_the_example_in_the_help_is_json():
    _, _, findings = run.sort_out({"train": "max_steps=3"}, ())
    assert json.loads(findings[0].split("'")[1]) == {"train": {"max_steps": 50}}
