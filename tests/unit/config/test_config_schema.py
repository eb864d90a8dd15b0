"""The JSON schemas for editors: current, and of one opinion with Hearth."""

from __future__ import annotations

import json

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from support.repository import ROOT
from support.schemas import schemas

from hearth.config import Settings, preset_names
from hearth.config.presets import PRESETS

SETTINGS, PRESET = (
    Draft202012Validator(json.loads((ROOT / "docs" / f"{name}.schema.json").read_text()))
    for name in ("settings", "preset")
)


@pytest.mark.parametrize("name", schemas())
def test_the_shipped_schema_is_current_and_a_schema(name):
    """Otherwise: python -m tests.support.schemas."""
    shipped = json.loads((ROOT / "docs" / name).read_text())
    Draft202012Validator.check_schema(shipped)
    assert shipped == schemas()[name]


@pytest.mark.parametrize("name", preset_names())
def test_each_preset_keeps_to_the_schema_and_names_it(name):
    text = (PRESETS / f"{name}.yml").read_text()
    assert not list(PRESET.iter_errors(yaml.safe_load(text)))
    (line,) = [line for line in text.splitlines() if "yaml-language-server: $schema=" in line]
    schema = (PRESETS / line.partition("=")[2]).resolve()
    assert schema == ROOT / "docs" / "preset.schema.json"


def test_a_preset_with_a_wrong_setting_or_without_its_id_does_not_keep_to_it():
    preset = yaml.safe_load((PRESETS / "tinyllama.yml").read_text())
    assert not PRESET.is_valid(preset | {"settings": {"max_stpes": 5}})
    assert not PRESET.is_valid({"licence": "mit"})


@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        (
            "dataset",
            ["homelab-qa", "a=1,b=2", {"a": 0.7, "b": 1}],
            ["", {"a": 1}, {"a": 0, "b": 1}],
        ),
        ("split", ["auto", "4:2:1", "4,0", [4, 2]], ["many", [-1], 4]),
        ("lora_targets", ["all-linear", "q_proj, v_proj", ["q_proj"]], [7]),
        ("max_steps", [5, None, "none"], [0, "many", 1.5]),
        ("memory_limit", [1.5, None, "none"], [0, "much"]),
        ("run", ["night", None, "none"], [7]),
        ("lora", [True, False, "on", "off"], ["perhaps", 7]),
        ("wandb", ["off", False, "online"], [True, "on"]),
        ("micro_batch", [4, "auto"], [0, "fast"]),
        ("learning_rate", [1e-4], [0, "fast"]),
        ("nothing", [], [1]),
    ],
)
def test_an_editor_and_hearth_accept_and_refuse_the_same(name, values, wrong):
    for value in (*values, *wrong):
        try:
            Settings.model_validate({"model": "any", name: value})
            accepted = True
        except ValidationError:
            accepted = False
        assert accepted == SETTINGS.is_valid({name: value}) == (value in values), value
