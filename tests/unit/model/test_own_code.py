"""Code that comes with a model: it runs where it is needed and allowed, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.facts import assert_names, refuses
from support.own_code import CODE, make_hermit
from support.stand_in_hub import stand_in_hub
from support.tiny_model import make_dataset, make_model

from hearth.base.errors import HearthError, ModelError
from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.fit.published import shape_beforehand
from hearth.model.code import code_in, code_of, code_problems
from hearth.model.fetch import fetch_model
from hearth.node.prepare import prepare

pytestmark = pytest.mark.usefixtures("code_cache")
MAP = {"AutoConfig": "configuration_x.X", "AutoModelForCausalLM": "modeling_x.Xs"}


@pytest.fixture
def hermit(tmp_path) -> Path:
    return make_hermit(tmp_path / "hermit")


@pytest.fixture
def layout(tmp_path) -> Layout:
    return Layout(*(tmp_path / name for name in ("runs", "runs", "data", "cache")), False)


def asked_for(model: Path | str, layout: Layout, tmp_path: Path, **settings: object):
    data = make_dataset(tmp_path / "words.jsonl")
    given = {"model": str(model), "dataset": str(data), "sequence_length": 96, **settings}
    return resolve_run(given, layout.results)


def test_the_files_are_those_that_a_model_of_an_unknown_kind_and_its_tokenizer_name():
    tokenizer = {"auto_map": {"AutoTokenizer": ["tokenization_x.Slow", None]}}
    files = ["configuration_x.py", "modeling_x.py", "tokenization_x.py"]
    assert code_of({"model_type": "unheard-of", "auto_map": MAP}, tokenizer) == files
    assert code_of({"model_type": "unheard-of"}) == []
    assert code_of({"model_type": "phi3", "auto_map": MAP}) == []


def test_code_of_another_repository_and_a_file_that_is_missing_are_refused(hermit):
    config = {"model_type": "unheard-of", "auto_map": {"AutoModel": "a/b--modeling_x.X"}}
    (problem,) = code_problems(code_of(config), "me/x", True, None)
    assert_names(problem, "me/x", "another repository", "a/b--modeling_x.py", "auto_map")
    (hermit / CODE[1]).unlink()
    (problem,) = code_problems(code_in(hermit), "hermit", True, hermit)
    assert_names(problem, f"{hermit / CODE[1]}:", "missing")


def test_a_model_of_a_folder_counts_as_another_once_its_code_has_changed(hermit, tmp_path, layout):
    plain = make_model(tmp_path / "plain")

    def print_of(folder: Path) -> str:
        source = asked_for(folder, layout, tmp_path).source
        return fetch_model(source, layout.models, lambda _: None).fingerprint

    before = print_of(hermit), print_of(plain)
    (hermit / "helper.py").write_text("pass\n")
    (plain / "train.py").write_text("pass\n")
    assert print_of(hermit) != before[0]
    assert print_of(plain) == before[1]  # a script of the user's, which is no part of the model


def test_it_is_refused_and_not_run_until_somebody_allows_it(hermit, tmp_path, layout):
    for name in CODE:
        (hermit / name).write_text("raise SystemExit('this code was run')\n")
    with refuses(HearthError, f"{hermit}:", ", ".join(CODE), "trust_remote_code=on"):
        prepare(asked_for(hermit, layout, tmp_path), layout, say=lambda _: None)


@pytest.mark.parametrize("more", [{}, {"lora": False}])
def test_where_it_is_allowed_the_run_is_prepared_and_says_what_runs(hermit, tmp_path, layout, more):
    said: list[str] = []
    run = asked_for(hermit, layout, tmp_path, trust_remote_code=True, **more)
    prepare(run, layout, say=said.append)
    (warning,) = [line for line in said if line.startswith("WARNING: ")]
    assert_names(warning, "Python code", ", ".join(CODE), hermit)


def test_code_that_is_not_needed_does_not_run_where_it_is_allowed(tmp_path, layout):
    plain = make_model(tmp_path / "plain")
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps(config | {"auto_map": MAP}))
    for name in ("configuration_x.py", "modeling_x.py"):
        (plain / name).write_text("raise SystemExit('this code was run')\n")
    said: list[str] = []
    run = asked_for(plain, layout, tmp_path, trust_remote_code=True)
    prepare(run, layout, say=said.append)
    assert not any("WARNING" in line for line in said)


def test_the_hub_says_that_a_model_needs_code_before_it_is_downloaded(
    hermit, tmp_path, layout, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with stand_in_hub() as hub:
        hub.models["owner/hermit"] = hermit
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with refuses(ModelError, "owner/hermit", *CODE, "trust_remote_code=on"):
            shape_beforehand(asked_for("owner/hermit", layout, tmp_path), layout)
        allowed = asked_for("owner/hermit", layout, tmp_path, trust_remote_code=True)
        assert shape_beforehand(allowed, layout) is None
    assert not any("safetensors" in path for path in hub.asked)
