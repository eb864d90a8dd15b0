"""The words after -e: values, defaults, findings, and old names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.repository import ROOT
from support.words import VERBS

from hearth.base.text import on_off
from hearth.config import Settings
from hearth_controller.inventory.variables import OF_INVENTORY, role_options
from hearth_controller.inventory.words import complete, parsed, strangers, unknown

SPECS = {
    "run": {"type": "str", "description": "Name."},
    "lines": {"type": "int", "default": 20},
    "follow": {"type": "bool", "default": False},
    "serve": {"type": "bool"},
    "nodes": {"type": "list", "default": []},
    "remove": {"type": "list", "choices": ["environment", "workspace"], "default": []},
    "lend": {"type": "str", "choices": ["off", "on", "auto"]},
    "to": {"type": "str", "choices": ["gguf", "merged"], "required": True},
    "train": {"type": "dict", "default": {}},
}
DECLARED = (
    {word for each in VERBS.values() for word in each}
    | Settings.model_fields.keys()
    | role_options([ROOT / "roles"]).keys()
)


@pytest.mark.parametrize("word", ["on", "true", "yes", "1", "On", " YES ", True, 1])
def test_every_form_of_on_is_on(word):
    assert parsed({"follow": word, "lend": word}, SPECS) == ({"follow": True, "lend": "on"}, [])


@pytest.mark.parametrize("word", ["off", "false", "no", "0", "OFF", False, 0])
def test_every_form_of_off_is_off(word):
    assert parsed({"follow": word, "lend": word}, SPECS) == ({"follow": False, "lend": "off"}, [])


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ({"nodes": "a, b,"}, ["a", "b"]),
        ({"nodes": ["a", "b"]}, ["a", "b"]),
        ({"remove": "workspace"}, ["workspace"]),
        ({"lines": "7"}, 7),
        ({"lend": "auto"}, "auto"),
        ({"run": 7}, "7"),
        ({"train": {"seed": 2}}, {"seed": 2}),
    ],
)
def test_a_word_becomes_a_value_of_its_type(typed, value):
    assert parsed(typed, SPECS) == (dict.fromkeys(typed, value), [])


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ({"follow": "maybe"}, ["-e follow", "'maybe'", "on or off"]),
        ({"lend": "maybe"}, ["-e lend", "'maybe'", "off, on or auto"]),
        ({"lines": "many"}, ["-e lines", "whole number"]),
        ({"lines": "-1"}, ["-e lines", "'-1'", "0 or more"]),
        ({"remove": "environment,runs"}, ["-e remove", "'runs'", "environment or workspace"]),
        ({"run": ["a"]}, ["-e run", "text", "list"]),
        ({"train": "seed=2"}, ["-e train", "mapping"]),
    ],
)
def test_a_word_that_cannot_be_is_refused_with_those_that_can(typed, facts):
    values, findings = parsed(typed, SPECS)
    assert (values, len(findings)) == ({}, 1)
    assert_names(findings[0], *facts)


def test_words_have_their_defaults_and_a_missing_one_is_named():
    words, lacking = complete({"lines": 3}, SPECS)
    assert words == {
        **{"run": "", "lines": 3, "follow": False, "serve": None, "nodes": [], "remove": []},
        **{"lend": "", "to": "", "train": {}},
    }
    (finding,) = lacking
    assert_names(finding, "-e to=", "gguf or merged")
    assert complete({"to": "gguf"}, SPECS)[1] == []


@given(st.dictionaries(st.sampled_from([*SPECS]), st.text() | st.booleans() | st.integers()))
def test_whatever_is_typed_is_a_value_or_a_finding(typed):
    values, findings = parsed(typed, SPECS)
    assert len(values) + len(findings) == len(typed)


def test_a_mistyped_word_is_refused_and_ansibles_own_and_internal_ones_are_not():
    typed = ["rnu", "run", "hearth_python", "ansible_user", "room", "zzz", "_plan_runs"]
    misspelt, stray_word = unknown(typed, ["run", "wait"], {"hearth_python", "room"})
    assert_names(misspelt, "-e rnu", "'run'?")
    assert_names(stray_word, "-e zzz")
    assert "?" not in stray_word


def test_a_name_of_another_trainer_leads_to_the_setting_where_there_are_settings():
    of_train, of_status = (
        unknown(["save_steps", "fp16"], words, [])
        for words in (["checkpoint_every", "precision", "run"], ["run"])
    )
    assert_names(of_train[0], "-e save_steps", "-e checkpoint_every=")
    assert_names(of_train[1], "-e fp16", "-e precision=fp16")
    assert "checkpoint_every" not in of_status[0]


@pytest.mark.parametrize("verb", ["status", "attach", "logs", "stop", "runs"])
def test_what_names_the_launcher_of_train_names_it_for_verbs_about_a_run(verb):
    assert unknown(["launcher"], VERBS[verb], []) == []
    assert parsed({"launcher": "slurm"}, VERBS[verb]) == ({"launcher": "slurm"}, [])


def test_a_node_that_is_none_is_refused_with_the_likely_one():
    (finding,) = strangers(["tover", "laptop"], ["tower", "laptop"])
    assert_names(finding, "-e nodes", "tover", "'tower'?", "tower, laptop")
    for wanted in ([], "", "tower", ["tower"]):
        assert strangers(wanted, ["tower"]) == []
    (finding,) = strangers("tower,laptop", ["tower", "laptop"])
    assert_names(finding, "-e nodes", "tower,laptop", "one is wanted")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_word_is_described_in_a_line_and_its_default_is_one_that_it_may_have(verb):
    for name, spec in VERBS[verb].items():
        description = spec["description"]
        assert description.endswith(".") and len(description) <= 200, name
        if "default" in spec and verb != OF_INVENTORY:
            default = spec["default"]
            typed = on_off(default) if isinstance(default, bool) else default
            assert parsed({name: typed}, VERBS[verb]) == ({name: default}, []), name


def test_every_playbook_of_a_person_has_its_words():
    folders = (ROOT, ROOT / "playbooks", ROOT / "playbooks" / "provision")
    playbooks = {path.stem for folder in folders for path in folder.glob("*.yml")}
    assert playbooks - {"inventory", "launch"} == VERBS.keys() - {OF_INVENTORY}
