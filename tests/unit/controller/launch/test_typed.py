"""Variables typed after `-e`: settings, launch words, findings, and the run that goes on."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.words import TRAIN

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth_controller.inventory.words import strangers
from hearth_controller.launch.resolve import newest_to_go_on, requested
from hearth_controller.launch.typed import launch_words, sort_out, without_all
from hearth_controller.runs.outcome import Outcome


def test_settings_launch_words_and_options_are_told_apart():
    typed = {"model": "m", "wait": "no", "hearth_python": "x", "ansible_user": "u"}
    # A setting inside `train` that does not exist is left to the resolver.
    settings, launch, findings = sort_out(typed | {"train": {"sed": 1}}, TRAIN, {"hearth_python"})
    assert settings == {"model": "m", "sed": 1}
    assert launch == {"wait": False}
    assert not findings


@pytest.mark.parametrize("value", ["0", "-1", "all", "1.5", "99999999"])
def test_a_preview_is_of_a_number_of_examples(value):
    assert_names(*sort_out({"preview": value}, TRAIN, ())[2], "preview", value)
    assert sort_out({"preview": "5"}, TRAIN, ())[1]["preview"] == 5


def test_a_preview_is_of_one_node_and_of_a_new_run_of_hearths_own_trainer(tmp_path):
    typed = {"model": "smollm2-135m", "preview": 3}
    found = requested(typed, tmp_path, TRAIN, [], ["desk", "laptop"], resume=False)
    assert not found.findings
    assert (found.request.requested, found.request.options.preview) == (("desk",), 3)
    for other in ({"script": "x.py"}, {"resume": "evening"}):
        refused = requested(typed | other, tmp_path, TRAIN, [], ["desk"], resume=False)
        assert any("-e preview" in finding for finding in refused.findings)


def test_a_bad_line_of_data_is_found_before_a_node_is_asked(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "good"}\n{"messages": 3}\n')
    typed = {"model": "smollm2-135m", "dataset": str(data), "min_nodes": 9, "elastic": False}
    said = "\n".join(requested(typed, tmp_path, TRAIN, [], ["desk"], False).findings)
    assert_names(said, "data.jsonl:2", "messages")
    data.write_text('{"text": "good"}\n')
    said = str(requested(typed, tmp_path, TRAIN, [], ["desk"], False).findings)
    assert "data.jsonl" not in said


def test_what_launches_a_run_again_is_kept_of_what_was_typed():
    other = {"model": "m", "wait": "no", "lend_after": "80", "ansible_user": "me"}
    words = {"elastic": "yes", "nodes": "desk", "min_nodes": "1"}
    options = {"launch_return_timeout": "90", "hearth_nproc": "2"}
    typed = other | words | options
    _, launch, _ = sort_out(typed, TRAIN, typed)
    assert launch_words(typed, launch) == words | options | {"elastic": True, "min_nodes": 1}
    assert launch_words({"model": "m"}, sort_out({"model": "m"}, TRAIN, ())[1]) == {}


def test_addresses_of_messages_get_into_no_record_of_a_run():
    keys = {"hearth_environment": {"AWS_SECRET_ACCESS_KEY": "planted"}}
    typed = {"hearth_notify": "ntfy://planted", "hearth_nproc": "2", **keys}
    assert launch_words(typed, sort_out(typed, TRAIN, typed)[1]) == {"hearth_nproc": "2"}


def test_unknown_words_are_refused_with_the_nearest_known():
    _, _, findings = sort_out({"modle": 1, "hearth_pyton": 2}, TRAIN, {"hearth_python"})
    setting, option = findings
    assert_names(setting, "-e modle", "'model'?")
    assert_names(option, "-e hearth_pyton", "'hearth_python'?")


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ({"elastic": "true", "min_nodes": "2"}, []),
        ({"elastic": "yes"}, []),
        ({"elastic": "maybe"}, ["-e elastic", "'maybe'", "on or off"]),
        ({"lend": "no"}, []),
        ({"lend": "idle"}, ["-e lend", "'idle'", "on or off"]),
        ({"elastic": "true", "min_nodes": "0"}, ["-e min_nodes", "0", "number"]),
        ({"min_nodes": "2"}, []),
        ({"elastic": "false", "min_nodes": "2"}, ["-e min_nodes", "-e elastic=off"]),
    ],
)
def test_what_may_be_said_about_going_on_without_a_node(typed, facts):
    findings = sort_out(typed, TRAIN, ())[2]
    assert len(findings) == bool(facts)
    assert_names("\n".join(findings), *facts)


@pytest.mark.parametrize(
    ("settings", "elastic", "least", "findings"),
    [
        ({}, True, 1, []),
        ({}, None, 1, []),
        # Survivors divide any plan among them.
        ({"split": "4:2", "replay": "evening"}, True, 2, []),
        ({"parallel": "pipeline"}, None, 0, []),
        ({"parallel": "pipeline"}, False, 0, []),
        ({"parallel": "pipeline"}, True, 2, ["-e elastic", "-e min_nodes"]),
        ({"parallel": "fsdp"}, True, 2, []),
        ({"parallel": "fsdp"}, True, 0, []),  # more than half of the nodes
        ({"parallel": "fsdp"}, True, 1, ["-e min_nodes"]),
        ({"parallel": "fsdp"}, None, 0, []),
        ({"parallel": "fsdp"}, None, 2, ["-e min_nodes"]),
        ({"parallel": "fsdp", "split": "4:2"}, None, 0, []),
        ({"parallel": "fsdp", "split": "4:2"}, True, 2, ["-e elastic"]),
        ({"parallel": "fsdp", "replay": "evening"}, True, 2, ["-e elastic"]),
    ],
)
def test_what_does_not_fit_fewer_nodes_is_refused(settings, elastic, least, findings):
    found = without_all(Settings(model="any", **settings), elastic, least)
    assert [finding.partition(":")[0] for finding in found] == findings


def test_a_node_that_is_none_is_refused_with_the_likely_one():
    (finding,) = strangers(["tover", "laptop"], ["tower", "laptop"])
    assert_names(finding, "-e nodes", "tover", "'tower'?", "tower, laptop")


@pytest.mark.parametrize(
    ("wanted", "requested_nodes"),
    [
        ("all", ["tower", "laptop"]),
        ("auto", ["tower", "laptop"]),
        ("laptop", ["laptop"]),
        ("laptop, tower", ["tower", "laptop"]),
    ],
)
def test_all_the_best_or_some_nodes_can_be_asked_for(tmp_path, wanted, requested_nodes):
    typed = {"model": "smollm2-135m", "nodes": wanted}
    run = requested(typed, tmp_path, TRAIN, [], ["tower", "laptop"], False)
    assert (run.findings, list(run.request.requested)) == ([], requested_nodes)


@pytest.mark.parametrize(
    ("port", "usable"),
    [
        *((port, True) for port in (0, "0", 1024, "65535")),
        *((port, False) for port in (80, "65536", "-1", "ssh", 1.5)),
    ],
)
def test_a_port_is_taken_or_refused_by_name(port, usable):
    _, launch, findings = sort_out({"meeting_port": port}, TRAIN, ())
    if usable:
        assert (launch, findings) == ({"meeting_port": int(port)}, [])
    else:
        assert_names(findings[0], "meeting_port", port)


def test_what_has_finished_goes_on_only_by_its_name_or_as_something_else(tmp_path):
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "run.yml").write_text("run: night\ncreated: 2026-11-20\n")
    assert newest_to_go_on(tmp_path, altered=False) == "night"  # nobody saw its end
    for state in ("stopped", "failed"):
        Outcome({"tower": {"state": state}}).write(tmp_path / "night")
        assert newest_to_go_on(tmp_path, altered=False) == "night"
    Outcome({"tower": {"state": "finished"}}).write(tmp_path / "night")
    with pytest.raises(ConfigError, match=r"\bnight\b.* finished"):
        newest_to_go_on(tmp_path, altered=False)
    assert newest_to_go_on(tmp_path, altered=True) == "night"


@pytest.mark.parametrize("launcher", ["hearth", "slurm", "slrum"])
def test_a_launcher_is_one_that_there_is_and_its_words_become_options_of_the_job(
    tmp_path, launcher
):
    typed = {
        "model": "smollm2-135m",
        "launcher": launcher,
        "partition": "gpu",
        "time_limit": "2:00",
    }
    run = requested(typed, tmp_path, TRAIN, [], ["desk"], False)
    if launcher == "slrum":
        assert_names(run.findings[0], "-e launcher", "slrum", "hearth", "slurm")
        return
    assert (run.findings, run.request.options.launcher) == ([], launcher)
    assert run.request.options.job_options == ("--partition=gpu", "--time=2:00")


@pytest.mark.parametrize("word", ["config", "script"])
def test_a_file_without_a_name_is_refused(word):
    (finding,) = sort_out({word: ""}, TRAIN, ())[2]
    assert_names(finding, f"-e {word}=")
