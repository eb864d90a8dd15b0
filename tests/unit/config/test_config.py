"""Settings: layers, types, and messages on wrong ones."""

from __future__ import annotations

import re
import resource
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses

import hearth
from hearth.base.errors import DataError
from hearth.base.places import RUN_NAME
from hearth.config import (
    ConfigError,
    Settings,
    describe_settings,
    in_parallel,
    load_preset,
    newest_run,
    pinned,
    preset_names,
    read_run,
    resolve,
    resolve_run,
    shown,
    write_run,
)
from hearth.config.cli import parse_command_line, with_small_model
from hearth.config.layout import staged_name
from hearth.config.presets import preset_behind
from hearth.config.problems import OTHERS
from hearth.config.run import PlannedPipeline
from hearth.config.settings import for_run_name
from hearth.data.locate import locate

PRESET = {"model": "smollm2-135m"}


def night(folder, **given):
    """Write the run file of a run `night` with these settings, and return the run."""
    run = resolve_run(PRESET | {"run": "night"} | given, folder, given_as="-e")
    write_run(run, folder / "night" / "run.yml")
    return run


def findings_of(given, **options):
    with pytest.raises(ConfigError) as caught:
        resolve(given, **options)
    return caught.value.findings


def test_each_layer_overrides_single_settings_of_the_one_below(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("global_batch: 4\nlearning_rate: 0.5\n")
    resolved = resolve(PRESET | {"learning_rate": "0.25"}, given_as="-e", file=file)
    assert resolved.settings.learning_rate == 0.25
    assert resolved.settings.global_batch == 4
    preset = load_preset("smollm2-135m").settings
    assert resolved.settings.sequence_length == preset["sequence_length"]
    assert resolved.origins["learning_rate"] == "-e"
    assert resolved.origins["global_batch"] == f"file {file}"
    assert resolved.origins["sequence_length"] == "preset smollm2-135m"
    assert resolved.origins["seed"] == "default"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("50", "max_steps", 50),
        ("none", "max_steps", None),
        ("1e-3", "learning_rate", 1e-3),
        ("false", "packing", False),
        ("off", "lora", False),
        ("on", "lora", True),
        ("4:2:1", "split", (4, 2, 1)),
        ("4,0", "split", (4, 0)),
        ("q_proj, v_proj", "lora_targets", ("q_proj", "v_proj")),
        ("all-linear", "lora_targets", "all-linear"),
        ("0", "dropout", 0),
        ("none", "dropout", None),
    ],
)
def test_strings_are_parsed_by_the_declared_type(text, name, value):
    assert getattr(resolve(PRESET | {name: text}).settings, name) == value


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"model": "smollm-135m"}, ["model", "'smollm-135m'", "'smollm2-135m'"]),
        ({"model": "./nowhere"}, ["model", "./nowhere"]),
        ({"max_stpes": 5}, ["'max_stpes'", "'max_steps'"]),
        ({"max_steps": "many"}, ["max_steps", "'many'", "integer"]),
        ({"global_batch": 0}, ["global_batch", "0", "equal to 1"]),
        ({"micro_batch": -2}, ["micro_batch", "-2", "equal to 1"]),
        ({"micro_batch": True}, ["micro_batch", "True"]),
        ({"learning_rate": "0"}, ["learning_rate", "'0'", "greater than 0"]),
        ({"epochs": "inf"}, ["epochs", "'inf'", "finite number"]),
        ({"held_out": 1}, ["held_out", "1", "less than 1"]),
        ({"schedule": "triangle"}, ["schedule", "'triangle'", "'linear'", "'cosine'"]),
        ({"split": "0:0"}, ["split", "'0:0'", "above 0"]),
        ({"run": "../x"}, ["run", "'../x'", "letters", "digits"]),
        # Right by themselves, and not together.
        ({"parallel": "fsdp", "load_in_4bit": True}, ["parallel", "load_in_4bit=off"]),
        ({"parallel": "fsdp", "backend": "unsloth"}, ["parallel: fsdp", "backend=transformers"]),
        ({"parallel": "fsdp", "lora": "off"}, ["parallel: fsdp", "parallel=ddp"]),
        ({"parallel": "pipeline", "lora": "off"}, ["parallel: pipeline", "parallel=ddp"]),
        ({"parallel": "pipeline", "backend": "unsloth"}, ["pipeline", "backend=transformers"]),
        ({"parallel": "pipeline", "compile": True}, ["compile=off", "parallel=ddp"]),
        ({"parallel": "pipeline", "trust_remote_code": True}, ["trust_remote_code", "=fsdp"]),
        ({"parallel": "pipeline", "sync_every": 4}, ["parallel=ddp", "sync_every=1"]),
        ({"parallel": "pipeline", "compress": "bf16"}, ["compress=none"]),
        ({"parallel": "pipeline", "replay": "night"}, ["replay", "layers", "parallel=ddp"]),
        ({"compile": True, "backend": "unsloth"}, ["compile=off", "backend=transformers"]),
        ({"compile": True, "parallel": "fsdp"}, ["compile=off", "parallel=ddp"]),
        ({"sync_every": 4, "parallel": "fsdp"}, ["parallel=ddp", "sync_every=1"]),
        ({"sync_every": 4, "optimizer": "adamw_8bit"}, ["optimizer=adamw", "sync_every=1"]),
        (
            {"lora": "off", "sync_every": 4, "optimizer": "muon"},
            ["optimizer=adamw", "sync_every=1"],
        ),
        ({"optimizer": "muon"}, ["LoRA", "optimizer=adamw", "lora=off"]),
        ({"schedule": "wsd", "decay_fraction": 1.5}, ["decay_fraction", "1.5", "equal to 1"]),
        ({"sync_every": 4, "precision": "fp16"}, ["precision=fp32", "bf16", "sync_every=1"]),
        ({"sync_every": 4, "replay": "night"}, ["replay", "sync_every=1"]),
        ({"scratch": "true"}, ["scratch", "lora=off"]),
        ({"streaming": True, "dataset": "owner/words"}, ["streaming", "max_steps"]),
        ({"streaming": True, "max_steps": 5}, ["streaming", "homelab-qa", "streaming=off"]),
        (
            {"streaming": True, "max_steps": 5, "dataset": "owner/a=1,owner/b=2"},
            ["streaming", "streaming=off"],
        ),
        ({"model": "llama2-7b", "lora": "off"}, ["load_in_4bit=off", "lora=on"]),
        ({"lora": "off", "backend": "unsloth"}, ["lora=off", "backend=transformers"]),
        ({"trust_remote_code": "true", "backend": "unsloth"}, ["trust_remote_code", "Unsloth"]),
        ({"load_in_4bit": True, "precision": "fp64"}, ["precision=fp64", "load_in_4bit=off"]),
        ({"dropout": 0, "backend": "unsloth"}, ["dropout", "Unsloth", "backend=transformers"]),
        ({"dropout": 1}, ["dropout", "1", "less than 1"]),
        ({"beta2": 1}, ["beta2", "1", "less than 1"]),
        ({"load_in_8bit": True, "precision": "fp64"}, ["precision=fp64", "load_in_8bit=off"]),
        ({"load_in_8bit": True, "parallel": "fsdp"}, ["parallel: fsdp", "load_in_8bit=off"]),
        ({"load_in_8bit": True, "lora": "off"}, ["load_in_8bit=off", "lora=on"]),
        ({"model": "llama2-7b", "load_in_8bit": "on"}, ["load_in_8bit:", "load_in_4bit=off"]),
        ({"load_in_8bit": True, "dora": True}, ["dora:", "load_in_4bit=on", "dora=off"]),
        ({"lora": "off", "dora": True}, ["dora:", "dora=off", "lora=on"]),
        ({"lora": "off", "rslora": True}, ["rslora:", "rslora=off", "lora=on"]),
        ({"neftune": -1}, ["neftune", "-1", "equal to 0"]),
        ({"early_stop": 3}, ["early_stop:", "eval_every=", "early_stop=none"]),
        ({"early_stop": 0, "eval_every": 5}, ["early_stop", "0", "equal to 1"]),
    ],
)
def test_a_wrong_setting_is_named_with_the_way_out(given, facts):
    (finding,) = findings_of(PRESET | given)
    assert_names(finding, *facts)


@pytest.mark.parametrize(
    "value",
    [
        *("a sentence that was pasted, " * 200, "/" + "a" * 300, "./" + "b/" * 3000, "📦" * 400),
        *(
            "a\0b",
            "~\0",
            "x\ud800",
            "~no-such-user/x",
            "*" * 5000,
            "[" * 300,
            "a=1," * 2000 + "b=1",
        ),
        *("1" * 5000, 10**30, -(10**30), float("nan"), "1e999", b"x", [[1]], {"a": "\ud800"}),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_no_value_whatever_makes_a_traceback_or_a_long_message(value):
    for name in Settings.model_fields:
        try:
            resolve(PRESET | {name: value})
        except (ConfigError, DataError) as error:
            assert len(str(error)) < 1500
            assert name in str(error)


@pytest.mark.parametrize("name", ["model", "dataset"])
def test_a_path_that_is_missing_here_is_said_to_be_wanted_on_this_computer(name, tmp_path):
    missing = str(tmp_path / "on-the-nodes-only")
    with refuses((ConfigError, DataError), missing, "this computer"):
        settings = resolve(PRESET | {name: missing}).settings
        locate(settings.dataset)


def test_without_a_model_the_presets_are_named():
    (finding,) = findings_of({})
    assert_names(finding, "model", *preset_names())


def test_the_play_is_told_which_option_names_a_model():
    (finding,) = findings_of({"dataset": "homelab-qa"}, given_as="-e")
    assert_names(finding, "-e model=smollm2-135m")


@pytest.mark.parametrize("name", preset_names())
def test_a_repository_of_a_preset_is_that_preset(name):
    preset = load_preset(name)
    for repository in {preset.id, *preset.also.same}:
        resolved = resolve({"model": repository.swapcase()})
        if preset.settings.get("scratch"):  # the name means the published weights
            assert (resolved.settings.model, resolved.notice) == (repository.swapcase(), "")
            continue
        by_name = resolve({"model": name})
        assert resolved.settings == by_name.settings
        assert {**resolved.origins, "model": ""} == {**by_name.origins, "model": ""}
        assert resolved.source.id == repository
        given = [f"{key}={shown(getattr(by_name.settings, key))}" for key in preset.settings]
        assert_names(resolved.notice, repository, name, *given)
    assert resolve({"model": name}).notice == ""


@pytest.mark.parametrize("name", preset_names())
def test_a_repository_in_4_bits_is_that_preset_in_4_bits(name):
    preset = load_preset(name)
    for repository in preset.also.in_4bit:
        resolved = resolve({"model": repository})
        assert resolved.settings.model == name
        assert resolved.settings.load_in_4bit
        experts = preset.shape.num_experts
        assert resolved.source.id == (preset.id if experts else repository)
        assert resolved.source.in_4bit is not bool(experts)


def test_no_repository_is_that_of_two_presets():
    known = [each.lower() for name in preset_names() for each in load_preset(name).repositories]
    assert len(known) == len(set(known))
    assert preset_behind("someone/llama-2-7b-hf") is None


def test_weights_in_4_bits_that_a_run_cannot_use_come_from_the_presets_own_repository(tmp_path):
    quantised = {"model": "unsloth/llama-2-7b-bnb-4bit"}
    own = load_preset("llama2-7b").source("llama2-7b")
    for unsuited in ({"load_in_4bit": "false"}, {"parallel": "pipeline"}):
        resolved = resolve(quantised | unsuited)
        assert resolved.source == own
        assert_names(resolved.notice, quantised["model"], "llama2-7b", own.id)
    run = resolve_run(quantised | {"run": "night"}, tmp_path)
    assert in_parallel(run, "ddp").source == run.source
    assert in_parallel(run, "pipeline").source == own


def test_what_a_person_sets_overrides_the_recognised_preset_and_a_folder_is_no_preset(
    tmp_path, monkeypatch
):
    given = {"model": "meta-llama/Llama-2-7b-hf", "load_in_4bit": "false"}
    resolved = resolve(given)
    assert not resolved.settings.load_in_4bit
    assert resolved.settings.gradient_checkpointing
    assert "load_in_4bit" not in resolved.notice
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meta-llama" / "Llama-2-7b-hf").mkdir(parents=True)
    assert resolve(given).source.kind == "folder"


def test_a_run_of_a_recognised_repository_resumes_by_any_of_its_names(tmp_path):
    said = []
    given = {"model": "NousResearch/Llama-2-7b-hf", "run": "night"}
    run = resolve_run(given, tmp_path, say=said.append)
    assert_names(*said, "NousResearch/Llama-2-7b-hf", "llama2-7b", "load_in_4bit=on")
    write_run(run, tmp_path / "night" / "run.yml")
    for model in (None, "llama2-7b", given["model"]):
        named = {"model": model} if model else {}
        assert resolve_run({"resume": "night"} | named, tmp_path).source == run.source
    with refuses(ConfigError, "model", "llama2-7b"):
        resolve_run({"resume": "night", "model": "unsloth/llama-2-7b-bnb-4bit"}, tmp_path)
    # Hearth's earlier versions did not know the repository.
    known = run.settings.model_copy(update={"model": given["model"], "load_in_4bit": False})
    write_run(replace(run, settings=known), tmp_path / "night" / "run.yml")
    for named in ({}, {"model": given["model"]}):
        resumed = resolve_run({"resume": "night"} | named, tmp_path)
        assert (resumed.settings.model, resumed.settings.load_in_4bit) == (given["model"], False)


@pytest.mark.parametrize(
    ("words", "dataset"),
    [((), "homelab-qa"), (("--dataset", "owner/chats"), "owner/chats")],
)
def test_a_run_by_hand_without_a_model_takes_the_small_preset_and_says_so(words, dataset):
    given, notice = with_small_model(parse_command_line(words))
    resolved = resolve(given)
    assert (resolved.settings.model, resolved.settings.dataset) == ("smollm2-135m", dataset)
    assert_names(notice, "smollm2-135m", dataset, "--model")


def test_a_model_that_is_named_anywhere_stays(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("model: tinyllama\n")
    for words in (("--model", "tinyllama"), ("--config", str(file)), ("--resume", "night")):
        typed = parse_command_line(words)
        assert with_small_model(typed) == (typed.given, "")
    file.write_text("dataset: gpl.txt\n")
    assert "gpl.txt" in with_small_model(parse_command_line(("--config", str(file))))[1]


def test_all_problems_are_reported_at_once():
    wrong = PRESET | {"max_stpes": 5, "global_batch": 0, "precision": "int3"}
    assert len(findings_of(wrong)) == 3


def test_a_wrong_line_in_a_settings_file_names_the_file(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("max_step: 5\n")
    (finding,) = findings_of(PRESET, file=file)
    assert_names(finding, f"{file}:", "'max_step'", "'max_steps'")
    file.write_text("a: [\n")
    assert_names(findings_of(PRESET, file=file)[0], file, "YAML")
    assert_names(findings_of(PRESET, file=tmp_path / "other.yml")[0], tmp_path / "other.yml")


def test_a_model_is_a_preset_a_hub_id_or_a_folder(tmp_path):
    assert resolve(PRESET).source.id == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert resolve({"model": "owner/name"}).source.kind == "hub"
    folder = resolve({"model": str(tmp_path)})
    assert (folder.source.kind, folder.settings.model) == ("folder", str(tmp_path))


def test_from_scratch_no_weights_are_wanted_of_the_hub(tmp_path):
    run = resolve_run({"model": "gpt2-124m", "run": "night"}, tmp_path)
    write_run(run, tmp_path / "run.yml")
    assert read_run(tmp_path / "run.yml").source.weights is False
    assert resolve({"model": "gpt2-124m", "scratch": False}).source.weights is True


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_resolves(name):
    assert resolve({"model": name}).source.name == name


def test_a_planned_pipeline_is_kept_in_the_run_file_until_the_run_is_resumed(tmp_path):
    planned = PlannedPipeline(((1, 20), (0, 10)), micro_batch=2, step_seconds=1.5)
    run = replace(night(tmp_path), pipeline=planned)
    write_run(run, tmp_path / "night" / "run.yml")
    assert read_run(tmp_path / "night" / "run.yml") == run
    resumed = resolve_run({"resume": "night"}, tmp_path)
    assert resumed.pipeline is None


def test_a_resumed_run_keeps_how_it_was_launched_and_the_revision_of_its_model(tmp_path):
    run = night(tmp_path, split="2:1")
    assert pinned(run, None) == run
    launched = replace(pinned(run, "0123abcd"), launch={"nodes": "desk"})
    write_run(launched, tmp_path / "night" / "run.yml")
    assert read_run(tmp_path / "night" / "run.yml") == launched
    resumed = resolve_run({"resume": "night"}, tmp_path)
    assert (resumed.launch, resumed.source.revision) == ({"nodes": "desk"}, "0123abcd")


def test_a_run_file_that_a_full_disk_refuses_stays_as_it_was(tmp_path):
    run, path = night(tmp_path), tmp_path / "night" / "run.yml"
    before = path.read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(OSError):
            write_run(run, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == before


def test_data_given_by_a_link_keep_the_name_that_says_what_they_are(tmp_path):
    (tmp_path / "9f86d0").write_text('{"text": "a"}\n')
    (tmp_path / "chats.jsonl").symlink_to("9f86d0")
    run = resolve_run(PRESET | {"dataset": str(tmp_path / "chats.jsonl")}, tmp_path)
    assert run.settings.dataset == str(tmp_path / "chats.jsonl")
    assert staged_name("0" * 64, run.settings.dataset) == "000000000000-chats.jsonl"


@pytest.mark.parametrize(
    ("folder", "name"),
    [("My Model", "my-model"), ("v1+lora", "v1-lora"), ("m" * 120, "m" * 60), ("日本", "model")],
)
def test_a_run_is_named_after_model_and_time(tmp_path, folder, name):
    (tmp_path / folder).mkdir()
    at = datetime(2026, 11, 20, 3, 0, 5, tzinfo=UTC)
    run = resolve_run({"model": str(tmp_path / folder)}, tmp_path / "runs", now=at)
    assert run.name == f"{name}-20261120-030005"


@given(st.text(min_size=1))
def test_any_text_can_begin_the_name_of_a_run(text):
    assert RUN_NAME.fullmatch(f"{for_run_name(text, 'model')}-20261120-030005")


def test_the_name_of_an_earlier_run_is_refused(tmp_path):
    night(tmp_path)
    with refuses(ConfigError, "run: 'night'", tmp_path, "resume=night"):
        night(tmp_path)


def test_a_resumed_run_keeps_what_matters_and_takes_what_may_change(tmp_path):
    night(tmp_path, learning_rate=0.5)
    resumed = resolve_run({"resume": "night", "max_steps": "7"}, tmp_path)
    assert (resumed.name, resumed.resumes) == ("night", True)
    assert (resumed.settings.learning_rate, resumed.settings.max_steps) == (0.5, 7)
    assert resumed.origins["learning_rate"] == "-e"
    with refuses(ConfigError, "learning_rate", "0.5, not 0.1"):
        resolve_run({"resume": "night", "learning_rate": "0.1"}, tmp_path)
    with refuses(ConfigError, "lora", "True, not False"):
        resolve_run({"resume": "night", "lora": "off"}, tmp_path)
    with refuses(ConfigError, "resume", "'day'", tmp_path, "night"):
        resolve_run({"resume": "day"}, tmp_path)


def test_a_settings_file_counts_for_a_resumed_run_too(tmp_path):
    night(tmp_path)
    file = tmp_path / "more.yml"
    file.write_text("resume: night\nmax_steps: 77\nlog_every: 3\n")
    resumed = resolve_run({"log_every": 2}, tmp_path, file=file)
    settings = resumed.settings
    assert (resumed.name, settings.max_steps, settings.log_every) == ("night", 77, 2)
    assert resumed.origins["max_steps"] == f"file {file}"


def test_the_run_that_was_asked_for_last_is_the_newest(tmp_path):
    with refuses(ConfigError, "resume", tmp_path):
        newest_run(tmp_path)
    for name, day in (("monday", 16), ("friday", 20), ("tuesday", 17)):
        run = resolve_run(PRESET | {"run": name}, tmp_path, now=datetime(2026, 11, day, tzinfo=UTC))
        write_run(run, tmp_path / name / "run.yml")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.yml").write_text("created: 2027-01-01\n")
    assert newest_run(tmp_path) == "friday"


def test_resume_none_is_a_new_run(tmp_path):
    assert not resolve_run(PRESET | {"resume": "none"}, tmp_path).resumes


def test_a_settings_file_may_say_off_and_counts_together_with_what_is_typed(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("wandb: off\nlora: off\n")
    settings = resolve(PRESET | {"scratch": "true"}, file=file).settings
    assert (settings.wandb, settings.lora, settings.scratch) == ("off", False, True)


def test_a_resumed_run_refuses_a_data_file_that_has_changed(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "a"}\n')
    night(tmp_path, dataset=str(data))
    data.write_text('{"text": "b"}\n')
    with refuses(ConfigError, "dataset", data, "'night'"):
        resolve_run({"resume": "night"}, tmp_path)


def test_something_else_than_a_run_file_is_refused_without_a_traceback(tmp_path):
    path = tmp_path / "run.yml"
    for content in ("", "just text", "run: x\n", yaml.safe_dump({"run": "x", "source": {}})):
        path.write_text(content)
        with refuses(ConfigError, path, "run file"):
            read_run(path)
    with refuses(ConfigError, tmp_path / "none.yml"):
        read_run(tmp_path / "none.yml")


def test_a_run_file_runs_nothing(tmp_path):
    file = tmp_path / "run.yml"
    file.write_text(f"run: !!python/object/apply:os.mkdir [{tmp_path / 'ran'}]\n")
    with refuses(ConfigError, file):
        read_run(file)
    assert not (tmp_path / "ran").exists()


def test_the_table_shows_every_setting_with_its_origin(tmp_path):
    table = describe_settings(resolve_run(PRESET | {"seed": 9}, tmp_path))
    assert "command line" in next(line for line in table.splitlines() if line.startswith("seed"))
    assert len(table.splitlines()) == len(Settings.model_fields)


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=4))
def test_whatever_is_given_the_answer_is_settings_or_findings(given):
    try:
        resolve(PRESET | given)
    except ConfigError as error:
        assert all(error.findings)


def test_the_command_line_gives_what_was_typed_and_nothing_else():
    typed = parse_command_line(
        ["--model", "x/y", "--packing", "off", "--max-steps", "5", "--dry-run"]
    )
    assert typed.given == {"model": "x/y", "packing": "off", "max_steps": "5"}
    assert typed.dry_run


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        (["--max-stpes", "5"], ["--max-stpes", "'--max-steps'"]),
        (["max_steps=5"], ["max_steps=5", "--max-steps 5"]),
        (["--no-lora"], ["--no-lora", "--lora off"]),
        (["--no-evaluate", "--push-private"], ["--eval-held-out off", "--private now"]),
        (["--save-every", "5"], ["--save-every", "--checkpoint-every"]),
        (["--bf16", "--lora_r=8"], ["--precision bf16", "--lora-rank"]),
        (["--dataset", "a.bin", "b.bin"], ["b.bin", "quotes"]),
        (["--run-file", "run.yml", "--seed", "2"], ["--run-file"]),
    ],
)
def test_an_option_that_is_unknown_or_out_of_place_is_refused(typed, facts):
    with refuses(ConfigError, *facts):
        parse_command_line(typed)


def test_a_switch_without_a_value_is_on():
    given = parse_command_line(["--streaming", "--lora", "off", "--packing", "auto"]).given
    assert given == {"streaming": "on", "lora": "off", "packing": "auto"}


@pytest.mark.parametrize("off", ["off", "false", "no", "0", "OFF", False, 0])
def test_every_form_of_off_is_off(off):
    assert resolve(PRESET | {"lora": off, "packing": off}).settings.lora is False


def test_a_switch_is_shown_as_on_or_off_and_a_wrong_word_names_them(tmp_path):
    shown = describe_settings(resolve_run(PRESET, tmp_path))
    assert re.search(r"^lora +on +default$", shown, re.MULTILINE)
    assert re.search(r"^streaming +off +default$", shown, re.MULTILINE)
    with refuses(ConfigError, "lora: 'maybe'", "on or off", "packing: 'some'", "'auto'"):
        resolve(PRESET | {"lora": "maybe", "packing": "some"})


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_of_another_trainer_is_refused_with_that_of_the_setting(name):
    setting = OTHERS[name].partition("=")[0]
    assert setting in Settings.model_fields
    assert name not in Settings.model_fields
    (finding,) = findings_of(PRESET | {name: "1"})
    assert_names(finding, f"'{name}'", OTHERS[name])


def test_old_names_are_refused_with_the_present_ones_wherever_they_stand(tmp_path):
    file = tmp_path / "my.yml"
    file.write_text("evaluate: off\nseed: 2\n")
    with refuses(ConfigError, file, "'evaluate'", "eval_held_out now", "private now"):
        resolve(PRESET | {"push_private": "off"}, file=file)


def test_the_run_file_of_an_earlier_version_is_read_and_resumed_with_the_present_names(tmp_path):
    run = resolve_run(PRESET | {"run": "night", "eval_held_out": "off"}, tmp_path)
    path = tmp_path / "night" / "run.yml"
    write_run(run, path)
    old = (
        path.read_text().replace("eval_held_out:", "evaluate:").replace("private:", "push_private:")
    )
    assert old.count("evaluate:") == old.count("push_private:") == 2  # settings and origins
    path.write_text(old)
    assert read_run(path) == run
    resumed = resolve_run({"resume": "night", "private": "off"}, tmp_path)
    assert (resumed.settings.eval_held_out, resumed.settings.private) == (False, False)
    assert resumed.origins["eval_held_out"] == "command line"


def test_every_setting_is_read():
    paths = Path(hearth.__file__).parents[1].rglob("*.py")
    code = "\n".join(path.read_text() for path in paths if path.name != "settings.py")
    read = set(re.findall(r"settings\.(\w+)", code))
    assert sorted(Settings.model_fields.keys() - read) == []


def test_help_explains_every_setting_with_its_default(capsys):
    with pytest.raises(SystemExit) as stopped:
        parse_command_line(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0
    for name, field in Settings.model_fields.items():
        assert "--" + name.replace("_", "-") in text
        assert field.description in text
