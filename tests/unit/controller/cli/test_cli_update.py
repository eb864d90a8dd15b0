"""`hearth update` on checkouts of real git, with a stand-in of scripts/setup."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys

import pytest
from support.facts import assert_names
from support.programs import stand_in

from hearth.base.errors import HearthError
from hearth_controller.cli.place import Place
from hearth_controller.cli.update import run, stale

LOCK = "requirements/control.lock"


def git(folder, *words):
    known = ["-c", "user.name=Hearth", "-c", "user.email=h@example.org", "-c", "commit.gpgsign=no"]
    subprocess.run(["git", *known, "-C", folder, *words], check=True, capture_output=True)


def commit(folder, files, subject):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-m", subject)


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    stand_in(folder / "scripts" / "setup", 'echo "setup $*" >was-set-up')
    commit(folder, {LOCK: "one==1", ".gitignore": ".venv\nwas-set-up\n"}, "Begin")
    return folder


@pytest.fixture
def checkout(origin, tmp_path):
    """A checkout whose packages are those of its lock file."""
    folder = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", origin, folder], check=True)
    (folder / ".venv" / "bin").mkdir(parents=True)
    checksum = hashlib.sha256(b"one==1").hexdigest()
    stamp = f"# Python 3.11.7 for control in {folder}\n{checksum}  {LOCK}\n"
    (folder / ".venv" / "installed.sha256").write_text(stamp)
    return folder


def update(folder):
    return run(argparse.Namespace(), Place(folder))


def test_what_changed_is_named_and_what_it_means_for_the_nodes(origin, checkout, capsys):
    assert update(checkout) == 0
    assert "up to date" in capsys.readouterr().out
    commit(origin, {"training/new.py": ""}, "Train faster")
    assert update(checkout) == 0
    assert_names(capsys.readouterr().out, "1 change", "Train faster", "Nodes need nothing")
    for number in range(22):
        commit(origin, {"roles/new": str(number)}, f"Set up machine {number}")
    assert update(checkout) == 0
    screen = capsys.readouterr().out
    assert_names(screen, "22 changes", "machine 21", "and 2 more", "hearth provision")
    assert "machine 1\n" not in screen
    assert not (checkout / "was-set-up").exists()


def test_new_packages_are_installed_as_the_old_ones_were(origin, checkout):
    commit(origin, {LOCK: "one==2"}, "Lock a newer version")
    assert stale(checkout) == ""
    assert update(checkout) == 0
    assert_names(stale(checkout), LOCK, "hearth update", "scripts/setup")
    assert (checkout / "was-set-up").read_text() == "setup --control\n"


def test_packages_that_a_run_is_using_stay(origin, checkout, capsys):
    commit(origin, {LOCK: "one==2"}, "Lock a newer version")
    python = checkout / ".venv" / "bin" / "python"
    python.symlink_to(sys.executable)
    words = [python, "-c", "import time; time.sleep(60)", "hearth.supervisor"]
    with subprocess.Popen(words) as supervisor:
        try:
            assert update(checkout) == 1
        finally:
            supervisor.kill()
    assert_names(capsys.readouterr().out, "run", "under way", "./scripts/setup")
    assert not (checkout / "was-set-up").exists()


def test_a_checkout_with_changes_is_refused_and_stays(origin, checkout):
    commit(origin, {"new": ""}, "Go on")
    (checkout / "notes.txt").write_text("of no interest to git")
    (checkout / LOCK).write_text("mine==1")
    with pytest.raises(HearthError) as refused:
        update(checkout)
    assert_names(str(refused.value), checkout, LOCK, "git stash")
    assert "notes" not in str(refused.value)
    assert not (checkout / "new").exists()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(HearthError) as refused:
        update(tmp_path)
    assert_names(str(refused.value), tmp_path, "no git checkout", "scripts/setup")


def test_what_git_cannot_pull_is_said_by_git(origin, checkout, capsys):
    commit(checkout, {"mine": ""}, "Diverge")
    commit(origin, {"new": ""}, "Go on")
    assert update(checkout) == 3
    assert "fast-forward" in capsys.readouterr().err
    os.rename(origin, origin.with_name("gone"))
    assert update(checkout) == 3
    assert str(origin) in capsys.readouterr().err
