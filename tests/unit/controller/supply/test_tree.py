"""Files of the controller in a node's workspace: compared by checksum, laid down whole."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest
from support.facts import assert_names, refuses
from support.modules import call
from support.plugins import load

from hearth_controller.supply.archive import pack

FILES = {"train.py": "print(1)\n", "parts/model.py": "WIDTH = 3\n"}


def sums() -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in FILES.items()}


def archive(folder: Path, files: dict[str, str] = FILES) -> str:
    """Pack these files, as the action plugin does."""
    source = folder / "source"
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    with (folder / "files.tar").open("wb") as into:
        pack(source, files, into)
    return str(folder / "files.tar")


@pytest.fixture
def place(tmp_path) -> Path:
    """The place `code/evening` of a workspace."""
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws" / "code" / "evening"


@pytest.fixture
def lay(place, tmp_path):
    """Call the module for this place."""
    given = {"workspace": f"{tmp_path}/ws", "place": "code/evening", "files": sums(), "size": 19}
    return lambda **more: call("hearth_tree", **{**given, **more})


def test_files_are_wanted_sent_and_then_left_alone(tmp_path, place, lay):
    assert lay()["wanted"]
    assert not place.parent.exists()
    laid = lay(archive=archive(tmp_path))
    assert (laid["changed"], laid["findings"]) == (True, [])
    assert {path: (place / path).read_text() for path in FILES} == FILES
    again = lay()
    assert (again["changed"], again["wanted"], again["findings"]) == (False, False, [])


@pytest.mark.parametrize("change", ["other", "missing", "more"])
def test_a_place_that_differs_is_replaced_whole(tmp_path, place, lay, change):
    packed = archive(tmp_path)
    lay(archive=packed)
    if change == "missing":
        (place / "train.py").unlink()
    else:
        (place / ("train.py" if change == "other" else "old.py")).write_text("left over")
    assert lay()["wanted"]
    lay(archive=packed)
    assert sorted(path.name for path in place.rglob("*.py")) == ["model.py", "train.py"]
    assert (place / "train.py").read_text() == FILES["train.py"]


def test_a_copy_that_was_worked_in_keeps_what_the_run_has_left(tmp_path, place, lay):
    lay(archive=archive(tmp_path))
    (place / "lightning_logs").write_text("mine")
    kept = lay(keep=True)
    assert (kept["wanted"], kept["findings"]) == (False, [])
    (place / "train.py").write_text("edited")
    edited = lay(keep=True)
    assert not edited["wanted"]
    assert_names(edited["findings"][0], "train.py")


def test_what_a_script_has_put_beside_its_data_is_let_be(tmp_path, place, lay):
    lay(archive=archive(tmp_path))
    (place / "labels.cache").write_text("mine")
    assert not lay(more=True)["wanted"]
    (place / "train.py").unlink()
    assert lay(more=True)["wanted"]


def test_an_archive_that_breaks_off_leaves_nothing_behind(tmp_path, place, monkeypatch):
    def full(archive: str, folder: str) -> None:
        half = Path(folder)
        half.mkdir()
        (half / "half").write_text("half a file")
        raise OSError(errno.ENOSPC, "No space left on device")

    module = load("modules", "hearth_tree")
    monkeypatch.setattr(module, "unpack", full)
    with refuses(OSError, "Errno 28"):
        module.replace(archive(tmp_path), str(place), sums(), str(tmp_path))
    assert not list(place.parent.iterdir())


def test_files_that_changed_on_the_way_are_not_laid_down(tmp_path, lay):
    said = lay(archive=archive(tmp_path, FILES | {"train.py": "print(2)\n"}))
    (finding,) = said["findings"]
    assert_names(finding, "train.py")
    assert not said["changed"]
    assert not list((tmp_path / "ws").rglob("*.py"))


def test_a_disk_that_is_too_small_is_found_before_anything_is_sent(lay):
    said = lay(size=10**18)
    assert_names(said["findings"][0], "1000000000.0 GB")
    assert not said["wanted"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("sends", [True, False])
def test_a_folder_that_hearth_did_not_make_stays_and_is_a_finding(
    tmp_path, place, lay, check, sends
):
    place.mkdir(parents=True)
    (place / "train.py").write_text("mine")
    said = lay(**{"archive": archive(tmp_path)} if sends else {}, check=check)
    assert_names(said["findings"][0], place)
    assert (said["changed"], said["wanted"]) == (False, False)
    assert (place / "train.py").read_text() == "mine"


def test_the_code_of_a_run_of_a_like_name_stays(tmp_path, place, lay):
    packed = archive(tmp_path)
    lay(archive=packed, place="code/evening.new")
    lay(archive=packed)
    assert sorted(path.name for path in place.parent.iterdir()) == ["evening", "evening.new"]


def test_a_place_that_cannot_be_is_a_finding(tmp_path, place, lay):
    place.parent.write_text("in the way")
    assert len(lay(archive=archive(tmp_path))["findings"]) == 1
