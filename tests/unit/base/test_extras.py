"""Optional packages: installed aside once, by hashes, whole or not at all."""

from __future__ import annotations

import hashlib
import sys
import zipfile

import pytest
from support.facts import assert_names

from hearth.base import extras
from hearth.base.errors import SupplyError
from hearth.base.extras import ensure_extra, extra_folder, use_extra


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder with one package and its lock, and a cache of the test's own; no index."""
    wheel = tmp_path / "hearth_toy-1.0-py3-none-any.whl"
    about = "hearth_toy-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("hearth_toy.py", "WORD = 'installed'\n")
        file.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: hearth-toy\nVersion: 1.0\n"
        )
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "toy.lock").write_text(f"hearth-toy==1.0 --hash=sha256:{digest}\n")
    monkeypatch.setattr(extras, "LOCKS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_a_set_is_installed_once_and_importable_beside_the_environment(shelf, monkeypatch):
    said = []
    folder = ensure_extra("toy", "eval", said.append)
    assert ensure_extra("toy", "eval", said.append) == folder
    assert len(said) == 1
    monkeypatch.setattr(sys, "path", [*sys.path])
    use_extra(folder)
    assert __import__("hearth_toy").WORD == "installed"
    assert sys.path[-1] == str(folder)
    lock = shelf / "toy.lock"
    lock.write_text(lock.read_text() + "# newer\n")
    newer = ensure_extra("toy", "eval", said.append)
    assert newer != folder
    assert not folder.exists()


def test_a_set_for_another_python_in_a_shared_home_stays(shelf, monkeypatch):
    folder = ensure_extra("toy", "eval", print)
    with monkeypatch.context() as there:
        there.setattr(extras.platform, "machine", lambda: "aarch64")
        assert ensure_extra("toy", "eval", print) != folder
    assert folder.is_dir()


def test_what_is_not_as_locked_is_refused_and_leaves_nothing(shelf):
    (shelf / "toy.lock").write_text(f"hearth-toy==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(SupplyError) as caught:
        ensure_extra("toy", "eval (lm-eval)", print)
    assert_names(str(caught.value), "eval (lm-eval)", "hashes", "leave the setting out")
    folder = extra_folder("toy")
    assert [path.name for path in folder.parent.iterdir()] == [".toy.lock"]
