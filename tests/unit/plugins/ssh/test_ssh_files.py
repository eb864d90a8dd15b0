"""Files in a user's .ssh are that user's work, also where root does it: links lead no further."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from functools import partial
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.changes.record import Journal
from ansible.module_utils.testing import patch_module_args
from support.facts import assert_names
from support.plugins import load
from support.programs import tree

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+uem/Rim3DPkNcO5w3JqDgxwPepweGSrsUgljlAANw"
SECRET = "root:$6$salt$hash"
WORKERS = [{"name": "laptop", "address": "10.0.0.2", "keys": [KEY]}]
GIVEN = {
    "hearth_authorized": {"line": KEY, "marker": "controller"},
    "hearth_cluster_ssh": {"workers": WORKERS},
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to act as a user")


@pytest.fixture
def place():
    """A folder of root's that any user may enter; pytest's own is closed to others."""
    umask = os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
    os.umask(umask)


@pytest.fixture
def user(place):
    """A user without rights, with an empty .ssh."""
    nobody = pwd.getpwnam("nobody")
    home = place / "home"
    for folder, mode in ((home, 0o755), (home / ".ssh", 0o700)):
        folder.mkdir(mode)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return pwd.struct_passwd([*nobody[:5], str(home), "/bin/sh"])


@pytest.fixture
def record(place):
    """Return a function that opens the record of this machine."""
    folders = {"folder": str(place / "record"), "originals": str(place / "originals")}
    return partial(Journal, **folders)


@pytest.fixture
def play(user, record, monkeypatch, capsys):
    """Return a function that runs a module, called as root by this user's sudo."""

    def run(name: str, check: bool = False) -> dict:
        module = load("modules", name)
        monkeypatch.setattr(module, "login_user", lambda: user)
        monkeypatch.setattr(module, "Journal", record)
        with (
            patch_module_args(GIVEN[name] | {"_ansible_check_mode": check}),
            pytest.raises(SystemExit),
        ):
            module.main()
        assert os.geteuid() == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def roots(place):
    """Return a function that makes a folder of root's with these files, which hold a secret."""

    def make(mode: int, *names: str) -> Path:
        folder = place / "etc"
        folder.mkdir()
        for name in names:
            (folder / name).write_text(SECRET)
            (folder / name).chmod(mode)
        return folder

    return make


@pytest.mark.parametrize(
    ("module", "name", "mode"),
    [
        ("hearth_authorized", "authorized_keys", 0o600),
        ("hearth_authorized", "authorized_keys", 0o644),
        ("hearth_cluster_ssh", "hearth_cluster", 0o600),
        ("hearth_cluster_ssh", "hearth_cluster.pub", 0o600),
        ("hearth_cluster_ssh", "hearth_known_hosts", 0o600),
        ("hearth_cluster_ssh", "config", 0o644),
    ],
)
def test_a_file_of_roots_behind_a_link_is_neither_changed_nor_read_nor_handed_over(
    place, user, play, roots, module, name, mode
):
    target = roots(mode, name) / name
    link = Path(user.pw_dir) / ".ssh" / name
    link.symlink_to(target)
    if name == "hearth_cluster.pub":
        (link.parent / "hearth_cluster").touch()
    before = tree(target.parent)
    for check in (True, False):
        answer = play(module, check)
        assert SECRET not in json.dumps(answer)
    assert_names(answer["msg"], link, target, user.pw_name)
    assert tree(target.parent) == before


def test_a_folder_of_roots_in_the_place_of_ssh_gets_no_files(user, play, roots):
    folder = roots(0o600)
    (Path(user.pw_dir) / ".ssh").rmdir()
    (Path(user.pw_dir) / ".ssh").symlink_to(folder)
    for module in GIVEN:
        assert play(module)["failed"]
    assert tree(folder) == {}


def test_files_and_folders_are_the_users_and_go_back_to_what_they_were(user, play, record):
    home = Path(user.pw_dir)
    (home / ".ssh").rmdir()
    (home / "dotfiles").mkdir()
    os.chown(home / "dotfiles", user.pw_uid, user.pw_gid)
    before = tree(home)
    for module in GIVEN:
        assert play(module)["changed"]
        assert not play(module)["changed"]
    made = tree(home / ".ssh")
    assert len(made) == 5
    assert {found[1:3] for found in made.values()} == {(user.pw_uid, user.pw_gid)}
    undone = record()
    assert {undone.restore(each.path).state for each in reversed(undone.entries())} == {"removed"}
    assert tree(home) == before


def test_a_reset_does_not_write_through_a_link_either(user, play, record, roots):
    home = Path(user.pw_dir)
    play("hearth_authorized")
    folder = roots(0o644, "authorized_keys")
    before = tree(folder)
    (home / ".ssh").rename(home / "old")
    (home / ".ssh").symlink_to(folder)
    undone = record().restore(str(home / ".ssh" / "authorized_keys"))
    assert undone.state == "left"
    assert tree(folder) == before
