"""From what a user types to the command that plays it."""

from __future__ import annotations

import shlex

import pytest
from support.facts import assert_names
from support.repository import ROOT

from hearth_controller.cli.verbs import VERBS
from hearth_controller.cli.words import read_words

TABLE = read_words(ROOT)
PLAYED = [verb.name for verb in VERBS.values() if verb.name in TABLE]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the user's, outside of the checkout."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "played"),
    [
        (
            "train llama2-7b --epochs 2 --nodes tower,laptop",
            "train.yml -e model=llama2-7b -e epochs=2 -e nodes=tower,laptop",
        ),
        ("train --no-wait llama2-7b", "train.yml -e wait=off -e model=llama2-7b"),
        ("train tiny --wait off --lora=on", "train.yml -e model=tiny -e wait=off -e lora=on"),
        ("train tiny --max_steps 3", "train.yml -e model=tiny -e max_steps=3"),
        ("train --packing auto tiny", "train.yml -e packing=auto -e model=tiny"),
        (
            "train --script-args '--max_steps 1 --a=b_c'",
            """train.yml -e '{"script_args": "--max_steps 1 --a=b_c"}'""",
        ),
        ("resume", "playbooks/resume.yml"),
        ("resume evening --max-steps 90", "playbooks/resume.yml -e run=evening -e max_steps=90"),
        ("stop evening --no-wait", "playbooks/stop.yml -e run=evening -e wait=off"),
        ("logs --lines 5 evening --follow", "logs.yml -e lines=5 -e run=evening -e follow=on"),
        ("attach --run evening", "playbooks/attach.yml -e run=evening"),
        ("runs --compare A,B", "playbooks/runs.yml -e compare=A,B"),
        ("runs --delete A --yes", "playbooks/runs.yml -e delete=A -e yes=on"),
        (
            "lend off --nodes tower --until 07:00",
            "lend.yml -e lend=off -e nodes=tower -e until=07:00",
        ),
        ("eval hellaswag --eval-limit 5", "playbooks/eval.yml -e eval=hellaswag -e eval_limit=5"),
        ("export evening --to gguf", "playbooks/export.yml -e run=evening -e to=gguf"),
        ("share --push me/it --no-private", "share.yml -e push=me/it -e private=off"),
        ("chat --serve", "playbooks/chat.yml -e serve=on"),
        ("dashboard --no-serve", "playbooks/dashboard.yml -e serve=off"),
        ("benchmark tiny --repeat 3", "playbooks/benchmark.yml -e model=tiny -e repeat=3"),
        ("provision -kK --check --diff", "provision.yml -k -K --check --diff"),
        ("provision --tags network -vv -l a", "provision.yml --tags network --limit a -vv"),
        ("doctor -K --fix -e x=1", "playbooks/doctor.yml -e fix=on -K -e x=1"),
        ("-i inventory/local status", "-i inventory/local playbooks/status.yml"),
        ("status -i inventory/local", "-i inventory/local playbooks/status.yml"),
    ],
)
def test_a_verb_is_a_playbook_with_its_words(hearth, folder, typed, played):
    status, line, _ = hearth(*shlex.split(typed), "--show", "--", "--forks", "3")
    assert status == 0
    words = shlex.split(line)
    assert words[0] == "ansible-playbook"
    assert " ".join(words).endswith(" ".join([*shlex.split(played), "--forks", "3"]))


@pytest.mark.parametrize("name", PLAYED)
def test_a_verb_explains_its_words_and_shows_its_playbook(hearth, name):
    status, text, _ = hearth(name, "--help-all")
    assert status == 0
    words = TABLE[name].specs.keys() - {"train", VERBS[name].positional}
    assert_names(text, *("--" + word.replace("_", "-") for word in words))
    needed = {word: spec for word, spec in TABLE[name].specs.items() if spec.get("required")}
    typed = [f"--{word}={spec.get('choices', ['x'])[0]}" for word, spec in needed.items()]
    _, line, _ = hearth(name, *typed, "--show")
    playbook = shlex.split(line)[1]
    assert playbook.endswith(f"{name}.yml")
    assert (ROOT / playbook).exists()


def test_every_verb_of_the_table_can_be_typed():
    """Entries without a verb: stages, their proof, and the options of an inventory."""
    stages = {path.stem for path in (ROOT / "playbooks/provision").glob("*.yml")}
    assert TABLE.keys() - VERBS.keys() == stages | {"inventory", "verify"}
    assert {name for name, verb in VERBS.items() if not verb.about} <= TABLE.keys()


def test_the_help_of_train_shows_a_dozen_flags_first(hearth):
    _, short, _ = hearth("train", "--help")
    _, whole, _ = hearth("train", "--help-all")
    flags = [line for line in short.partition("everywhere")[0].splitlines() if line[2:4] == "--"]
    assert len(flags) == 11  # and MODEL
    assert_names(whole, "--lora-rank", "--elastic", "--ask-become-pass")
    assert "--lora-rank" not in short


def test_paths_are_those_of_the_folder_where_the_user_stands(hearth, folder):
    (folder / "my.jsonl").touch()
    typed = ["--dataset", "my.jsonl", "--config", "new.yml"]
    _, line, _ = hearth("train", "tiny", *typed, "--show")
    assert_names(line, "model=tiny", f"dataset={folder}/my.jsonl", f"config={folder}/new.yml")
    _, line, _ = hearth("train", "--dataset", "my.jsonl=0.7,homelab-qa=0.3", "--show")
    assert f"dataset={folder}/my.jsonl=0.7,homelab-qa=0.3" in line
    (folder / "evening" / "adapter").mkdir(parents=True)
    _, line, _ = hearth("train", "--onto", "evening/adapter", "--show")
    assert f"onto={folder}/evening/adapter" in line
    _, line, _ = hearth("train", "--onto", "evening", "--show")  # a run, not the folder
    assert_names(line, "onto=evening")
    _, line, _ = hearth("eval", "hellaswag,./own.yaml", "--show")
    assert f"eval=hellaswag,{folder}/own.yaml" in line


def test_what_is_only_in_the_checkout_is_found_from_anywhere(hearth, folder):
    shipped = "training/datasets/homelab-qa.jsonl"
    _, line, _ = hearth("train", "tiny", "--dataset", shipped, "--show")
    assert f"dataset={shipped}" in shlex.split(line)


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        (["stats"], ["stats", "'status'"]),
        (["train", "--epoch", "2"], ["--epoch ", "'--epochs'"]),
        (["train", "tiny", "epochs=2"], ["epochs=2", "--epochs 2"]),
        (["logs", "--lines", "few"], ["--lines", "few", "whole number"]),
        (["lend", "maybe"], ["maybe", "off", "on", "auto"]),
        (["export", "evening"], ["--to", "gguf"]),
        (["logs", "evening", "morning"], ["morning"]),
        (["completion", "tcsh"], ["bash", "zsh", "fish"]),
    ],
)
def test_what_is_mistyped_is_answered_at_once_with_the_likely_word(hearth, playing, typed, facts):
    played = playing()
    status, printed, errors = hearth(*typed)
    assert (status, printed) == (2, "")
    assert_names(errors, *facts)
    assert len(errors.splitlines()) <= 3
    assert not played.exists()


@pytest.mark.parametrize("typed", [[], ["--help"], ["-h"], ["help"]])
def test_the_first_screen_has_every_verb_in_eighty_columns(hearth, typed):
    status, screen, _ = hearth(*typed)
    assert status == 0
    assert_names(screen, *VERBS, "inventory/local")
    assert max(map(len, screen.splitlines())) <= 80
