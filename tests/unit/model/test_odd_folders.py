"""Model folders that came from anybody: each oddity is an error of Hearth's that names the file."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from support.facts import refuses
from support.tiny_model import make_model

from hearth.base.errors import ModelError
from hearth.config.presets import ModelSource, known_shape
from hearth.model.code import code_in
from hearth.model.compatibility import tokenizer_in
from hearth.model.fetch import fetch_model
from hearth.model.folder import check_folder
from hearth.model.weight_files import weight_map


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(tmp_path, tiny):
    return shutil.copytree(tiny, tmp_path / "model")


def changed(path, **values):
    """Change values in a JSON file."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("config.json", {"auto_map": "x", "model_type": "odd"}),
        ("config.json", {"num_hidden_layers": 10**9}),
        ("config.json", {"attn_implementation": "x/kernel"}),
        ("tokenizer_config.json", {"model_max_length": ["x"]}),
        ("tokenizer_config.json", {"auto_map": 5}),
        ("model.safetensors.index.json", {"weight_map": ["x"]}),
        ("model.safetensors.index.json", {"weight_map": {"a": ["x"]}}),
    ],
)
def test_an_odd_value_is_refused_before_a_library_sees_it(folder, tmp_path, name, values):
    changed(folder / name, **values)
    with refuses(ModelError, str(folder / name)):
        check_folder(folder)
    source = ModelSource("odd", str(folder), "folder")
    with refuses(ModelError, str(folder / name)):
        fetch_model(source, tmp_path / "cache", print)
    code_in(folder)
    known_shape(str(folder), source, tmp_path)


def test_the_problems_of_all_files_come_at_once(folder):
    changed(folder / "config.json", auto_map=5, num_hidden_layers=10**9)
    changed(folder / "tokenizer_config.json", model_max_length="x")
    with pytest.raises(ModelError) as caught:
        check_folder(folder)
    assert len(caught.value.findings) == 3


@pytest.mark.parametrize("value", ["x", ["x"], {"a": 5}, {"a": "../tiny/model.safetensors"}])
def test_an_odd_index_is_never_followed(folder, value):
    (folder / "model.safetensors").unlink()
    changed(folder / "model.safetensors.index.json", weight_map=value)
    with refuses(ModelError, str(folder)):
        weight_map(folder)


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"),
        *("chat_template.jinja", "added_tokens.json", "model.safetensors"),
        "model.safetensors.index.json",
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(folder, tmp_path, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with refuses(ModelError, str(folder / name)):
        check_folder(folder)
    known_shape(str(folder), ModelSource("odd", str(folder), "folder"), tmp_path)


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        *(
            "{% include 'x' %}",
            "{% if tools %}{%- import 'x' as y %}{% endif %}",
            "{% extends 'x' %}",
        ),
        "{% from 'x' import y %}",
        "{% if",
        LOOP,
        "{{ (9**9)**(9**9) }}",
        "{{ ('x' * 99999) * 99999 }}",
    ],
)
def test_a_template_that_cannot_be_used_is_named_with_its_folder(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    with refuses(ModelError, str(folder), "chat template"):
        tokenizer_in(folder, own_code=False)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{# {% include 'x' %} #}{{ 'include' }}{{ messages[0].content }}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{{ 2 * 3 }}{{ messages[0].content }}",
    ],
)
def test_a_template_that_refuses_or_only_speaks_of_files_is_left_to_the_data(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    assert tokenizer_in(folder, own_code=False).chat_template == template
