"""Fetching a model: from the cache, a folder, the Hub (a stand-in on loopback)."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import LocalEntryNotFoundError
from support.facts import assert_names
from support.own_code import CODE, make_hermit
from support.stand_in_hub import COMMIT, stand_in_hub
from support.tiny_model import make_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from hearth.base.errors import ModelError
from hearth.base.hub import is_unreachable, scrub
from hearth.config.presets import ModelSource
from hearth.fit.published import published_config
from hearth.model.cache import unfinished_of
from hearth.model.fetch import fetch_model

ID = "owner/tiny"
SOURCE = ModelSource(name="tiny", id=ID, kind="hub")
SECRET = "hf_thisisasecretofmine"
NOBODY = "http://127.0.0.1:9"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path):
    """No token, no cache and no Hub of the person who runs the tests."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_ENDPOINT", NOBODY)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(monkeypatch, tiny):
    with stand_in_hub() as running:
        running.models[ID] = tiny
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "mine"))


def fetch(source: ModelSource, tmp_path: Path, **more: object):
    said: list[str] = []
    return fetch_model(source, tmp_path / "models", said.append, **more), said


def refused(source: ModelSource, tmp_path: Path, *facts: object, **more: object) -> str:
    """Require a refusal that names these facts, and return it."""
    with pytest.raises(ModelError) as caught:
        fetch(source, tmp_path, **more)
    assert_names(str(caught.value), *facts)
    return str(caught.value)


def local(folder: Path) -> ModelSource:
    return ModelSource(name="mine", id=str(folder), kind="folder")


# From the Hub


def test_the_hub_gives_the_model_and_its_revision(hub, tmp_path):
    model, said = fetch(SOURCE, tmp_path)
    assert (model.origin, model.revision) == ("hub", COMMIT)
    assert model.path == tmp_path / "models" / "tiny"
    AutoModelForCausalLM.from_pretrained(model.path, local_files_only=True)
    AutoTokenizer.from_pretrained(model.path, local_files_only=True)
    assert_names(said[0], ID, "Hub", "MiB")
    assert sorted(path.name for path in model.path.parent.iterdir()) == [".tiny.lock", "tiny"]


def test_the_hub_is_asked_for_the_sizes_of_a_model_and_for_nothing_large(hub):
    config = published_config(SOURCE)
    assert config is not None and config["model_type"] == "llama"
    assert [path for path in hub.asked if "/resolve/" in path and "config.json" not in path] == []


def test_where_the_hub_does_not_say_a_models_sizes_nothing_is_known(hub, monkeypatch):
    hub.models["meta/gated"] = None
    assert published_config(ModelSource("gated", "meta/gated", "hub")) is None
    assert published_config(ModelSource("none", "owner/none", "hub")) is None
    monkeypatch.setenv("HF_ENDPOINT", NOBODY)
    assert published_config(SOURCE) is None


def test_only_the_files_that_make_the_model_are_fetched(hub, folder, tmp_path):
    (folder / "original").mkdir()
    others = {"pytorch_model.bin", "modeling_tiny.py", "README.md", "consolidated.safetensors"}
    for name in (*others, "original/model.safetensors"):
        (folder / name).write_bytes(b"x")
    hub.models[ID] = folder
    model, _ = fetch(SOURCE, tmp_path)
    assert not {path.name for path in model.path.rglob("*")} & {*others, "original"}


def test_code_comes_along_where_the_model_does_not_run_without(hub, tmp_path):
    hub.models[ID] = make_hermit(tmp_path / "hermit")
    (tmp_path / "hermit" / "vocabulary.tiktoken").touch()
    model, _ = fetch(SOURCE, tmp_path)
    assert {*CODE, "vocabulary.tiktoken"} < {path.name for path in model.path.iterdir()}


def test_from_scratch_everything_comes_but_the_weights_also_beside_the_whole_model(
    hub, folder, tmp_path
):
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")  # in a form that is not read
    hub.models[ID] = folder
    bare, _ = fetch(replace(SOURCE, weights=False), tmp_path)
    assert not any("resolve" in asked and asked.endswith((".bin", WEIGHTS)) for asked in hub.asked)
    AutoConfig.from_pretrained(bare.path, local_files_only=True)
    AutoTokenizer.from_pretrained(bare.path, local_files_only=True)
    (folder / "pytorch_model.bin").rename(folder / WEIGHTS)
    whole, _ = fetch(SOURCE, tmp_path)
    assert (whole.path / WEIGHTS).is_file()
    assert not list(bare.path.glob("*.safetensors"))
    assert fetch(replace(SOURCE, weights=False), tmp_path) == (bare, [])


def test_a_cached_model_is_used_without_asking(hub, tmp_path):
    first, _ = fetch(SOURCE, tmp_path)
    hub.asked.clear()
    second, said = fetch(SOURCE, tmp_path)
    assert first == second
    assert hub.asked == said == []


def test_touched_files_are_read_and_changed_ones_fetched_again(hub, tmp_path):
    model, _ = fetch(SOURCE, tmp_path)
    weights = model.path / "model.safetensors"
    os.utime(weights, (1, 1))
    assert fetch(SOURCE, tmp_path) == (model, [])
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    again, said = fetch(SOURCE, tmp_path)
    assert_names(said[0], "damaged", "model.safetensors", "changed")
    assert again == model
    weights.unlink()
    assert_names(fetch(SOURCE, tmp_path)[1][0], "damaged", "model.safetensors", "gone")


def test_an_unfinished_download_is_not_taken_for_a_model(hub, tmp_path, tiny):
    unfinished = tmp_path / "models" / ".tiny.unfinished"
    shutil.copytree(tiny, unfinished)
    (unfinished / "model.safetensors").write_bytes(b"half")
    (tmp_path / "models" / "tiny").mkdir()
    model, _ = fetch(SOURCE, tmp_path)
    AutoModelForCausalLM.from_pretrained(model.path, local_files_only=True)


def test_another_pinned_revision_is_fetched(hub, tmp_path):
    fetch(SOURCE, tmp_path)
    refused(replace(SOURCE, revision="v2"), tmp_path, ID, "no revision v2")
    assert fetch(replace(SOURCE, revision=COMMIT), tmp_path)[1] == []


def test_another_model_under_the_same_name_is_fetched(hub, tmp_path, tiny):
    fetch(SOURCE, tmp_path)
    hub.models["owner/other"] = tiny
    assert fetch(replace(SOURCE, id="owner/other"), tmp_path)[1]


def test_a_folder_of_the_models_name_that_hearth_did_not_make_stays(hub, folder, tmp_path):
    own = tmp_path / "models" / SOURCE.folder
    own.parent.mkdir()
    shutil.move(folder, own)
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    refused(SOURCE, tmp_path, own, "HEARTH_MODELS")
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    assert not unfinished_of(own).exists()


def test_a_model_without_safe_weights_is_refused_before_the_download(hub, folder, tmp_path):
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    hub.models[ID] = folder
    refused(SOURCE, tmp_path, ID, "no *.safetensors")
    assert not any("resolve" in path for path in hub.asked)


def test_an_incomplete_model_on_the_hub_is_named_and_not_kept(hub, folder, tmp_path):
    (folder / "tokenizer.json").unlink()
    hub.models[ID] = folder
    refused(SOURCE, tmp_path, ID, "tokenizer", "missing")
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".tiny.lock"]


def test_an_unknown_model_is_named_with_the_one_that_was_meant(hub, tmp_path):
    source = replace(SOURCE, id="owner/tny")
    refused(source, tmp_path, "owner/tny", "Hub", "'owner/tiny'", known=[ID, "llama2-7b"])


@pytest.mark.parametrize("token", [None, SECRET])
def test_a_gated_model_says_where_its_licence_is_and_never_the_token(
    hub, tmp_path, monkeypatch, token, capfd
):
    hub.models["meta/gated"] = None
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    source = ModelSource("gated", "meta/gated", "hub", gated=True)
    told = refused(source, tmp_path, "gated", "https://huggingface.co/meta/gated", "HF_TOKEN")
    assert SECRET not in "".join((told, *capfd.readouterr()))
    assert not (tmp_path / "models" / "gated").exists()


def test_a_refused_token_is_told_and_not_shown(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert SECRET not in refused(SOURCE, tmp_path, ID, "your token")


def test_tokens_are_scrubbed_from_any_text(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a-token-of-another-kind")
    told = scrub(f"Bearer {SECRET}, a-token-of-another-kind, https://me:word@host/x")
    assert told == "Bearer ***, ***, https://***@host/x"


def test_an_unreachable_hub_is_told_with_the_way_round(tmp_path):
    refused(SOURCE, tmp_path, ID, "local cache", "its folder")


@pytest.mark.parametrize("place", ["__cause__", "__context__"])
def test_a_silent_hub_is_found_behind_the_error_that_hides_it(place):
    error = LocalEntryNotFoundError("not in the cache")
    assert not is_unreachable(error)
    setattr(error, place, httpx.ConnectError("refused"))
    assert is_unreachable(error)


def test_offline_is_honoured_and_named(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(SOURCE, tmp_path, ID, "HF_HUB_OFFLINE")
    assert hub.asked == []


def test_what_huggingface_hub_has_cached_is_used_offline(hub, tmp_path, monkeypatch):
    HfApi(endpoint=hub.url).snapshot_download(ID)
    monkeypatch.setenv("HF_ENDPOINT", NOBODY)
    model, said = fetch(SOURCE, tmp_path)
    assert (model.origin, model.revision) == ("hub", COMMIT)
    assert_names(said[0], "tiny", "local cache")
    assert not any(path.is_symlink() for path in model.path.iterdir())


def make_read_only(monkeypatch) -> None:
    """From now on the cache is on a read-only disk."""

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "touch", refuse)


def test_a_cache_that_others_keep_is_read_where_it_holds_the_model_whole(
    hub, tmp_path, monkeypatch
):
    fetched, _ = fetch(SOURCE, tmp_path)
    make_read_only(monkeypatch)
    os.utime(fetched.path / "config.json")  # so that its times would be written down anew
    manifest = (fetched.path / "hearth.json").read_bytes()
    assert fetch(SOURCE, tmp_path)[0].path == fetched.path
    assert (fetched.path / "hearth.json").read_bytes() == manifest
    (fetched.path / "config.json").write_text("{}")
    refused(SOURCE, tmp_path, tmp_path / "models", "Read-only", "HEARTH_MODELS")


def test_a_disk_too_small_for_what_is_missing_is_named_before_the_download(
    hub, tmp_path, monkeypatch
):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    refused(SOURCE, tmp_path, "1.0 kB are free")
    assert not any("resolve" in path for path in hub.asked)
    left = unfinished_of(tmp_path / "models" / SOURCE.folder) / ".cache" / "model.incomplete"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(10 << 20))  # the whole model has less
    assert fetch(SOURCE, tmp_path)[0].origin == "hub"


# From a folder


def test_a_model_folder_is_used_where_it_lies_and_left_alone(folder, tmp_path, monkeypatch):
    before = sorted(path.name for path in folder.iterdir())
    model, _ = fetch(local(folder), tmp_path)
    assert (model.path, model.origin, model.revision) == (folder, "folder", None)
    assert sorted(path.name for path in folder.iterdir()) == before
    make_read_only(monkeypatch)
    shutil.rmtree(tmp_path / "models")
    assert fetch(local(folder), tmp_path) == (model, [])
    assert not list((tmp_path / "models").iterdir())


def test_the_fingerprint_is_of_the_content_wherever_it_comes_from(hub, folder, tmp_path):
    first, _ = fetch(local(folder), tmp_path)
    assert fetch(SOURCE, tmp_path)[0].fingerprint == first.fingerprint
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"rope_theta": 5.0}))
    assert fetch(local(folder), tmp_path)[0].fingerprint != first.fingerprint


def test_everything_that_a_folder_lacks_is_told_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    told = refused(local(tmp_path / "empty"), tmp_path).splitlines()
    for line, what in zip(told, ("config.json", "tokenizer", "weights"), strict=True):
        assert_names(line, what, "missing")


def test_a_folder_without_weights_will_do_where_they_are_drawn(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    refused(local(folder), tmp_path, folder, "weights", "missing")
    assert fetch(local(folder), tmp_path, weights=False)[0].path == folder
    (folder / "tokenizer.json").unlink()
    refused(local(folder), tmp_path, folder, "tokenizer", "missing", weights=False)


INDEX = {"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (lambda at: (at / WEIGHTS).rename(at / "pytorch_model.bin"), ["pickle"]),
        (lambda at: (at / CONFIG).rename(at / "adapter_config.json"), ["an adapter"]),
        (lambda at: os.truncate(at / WEIGHTS, 1000), [WEIGHTS, "safetensors file"]),
        (
            lambda at: (at / WEIGHTS).write_text("version https://git-lfs"),
            [WEIGHTS, "git lfs pull"],
        ),
        (
            lambda at: (at / f"{WEIGHTS}.index.json").write_text(json.dumps(INDEX)),
            ["model-1.safetensors", "missing"],
        ),
        (lambda at: (at / CONFIG).write_text("[]"), [CONFIG, "configuration"]),
        (shutil.rmtree, ["no such"]),
    ],
    ids=["pickle", "adapter", "torn", "pointer", "part missing", "no configuration", "no folder"],
)
def test_a_folder_that_is_not_a_whole_model_is_refused_with_the_reason(
    folder, tmp_path, spoil, facts
):
    spoil(folder)
    refused(local(folder), tmp_path, folder, *facts)
