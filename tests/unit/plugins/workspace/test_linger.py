"""The systemd of a node's user runs from boot to shutdown, until a reset."""

from __future__ import annotations

import json
import os
import pwd
from functools import partial

import pytest
from ansible.module_utils.hearth_node.changes.record import Journal
from ansible.module_utils.hearth_node.system import user
from ansible.module_utils.testing import patch_module_args
from support.facts import assert_names
from support.plugins import load

USER = pwd.getpwuid(os.geteuid())


@pytest.fixture
def machine(tmp_path, monkeypatch, program, capsys):
    """A machine's folders, and `run` to call the module there; stand-ins note the commands."""
    monkeypatch.setattr(user, "LINGER", tmp_path / "linger")
    monkeypatch.setattr(user, "_DROP_INS", str(tmp_path / "etc/multi-user.target.d"))
    for folder in ("linger", "etc"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "linger" / USER.pw_name
    note = f'echo "${{0##*/}} $*" >>{tmp_path}/commands'
    program("systemctl", note)
    program("loginctl", f"{note}\ncase $1 in enable*) touch {file};; *) rm {file};; esac")
    folders = {"folder": str(tmp_path / "record"), "originals": str(tmp_path / "originals")}
    module = load("modules", "hearth_linger")
    monkeypatch.setattr(module, "Journal", partial(Journal, **folders))

    def run(check: bool = False) -> bool:
        given = {"user": USER.pw_name, "_ansible_check_mode": check}
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)["changed"]

    def undo() -> None:
        record = module.Journal()
        for entry in reversed(record.entries()):
            record.restore(entry.path)
        record.settle()

    def foretold(path) -> list[str]:
        done = [module.Journal(check=True).restore(str(path))]
        return load("modules", "hearth_reset").predicted(done, [], [])

    def commands() -> list[str]:
        noted = tmp_path / "commands"
        said = noted.read_text().splitlines() if noted.exists() else []
        noted.unlink(missing_ok=True)
        return said

    run.undo, run.foretold, run.commands, run.file = undo, foretold, commands, file
    return run


def test_it_is_set_once_and_taken_back(machine, tmp_path):
    assert machine(check=True)
    assert (machine.commands(), list((tmp_path / "etc").iterdir())) == ([], [])
    assert not user.lingers(USER.pw_name)
    assert machine()
    enable = f"loginctl enable-linger {USER.pw_name}"
    assert machine.commands() == [enable, "systemctl daemon-reload"]
    (drop_in,) = (tmp_path / "etc/multi-user.target.d").iterdir()
    assert_names(drop_in.read_text(), f"user@{USER.pw_uid}.service")
    assert user.lingers(USER.pw_name)
    assert not machine()
    assert machine.commands() == []
    machine.undo()
    # The system lets go of the user's systemd before logind ends it.
    assert machine.commands() == [
        "systemctl daemon-reload",
        f"loginctl disable-linger {USER.pw_name}",
    ]
    assert list((tmp_path / "etc").iterdir()) == []


def test_what_the_user_switched_off_is_not_said_to_be_put_back(machine):
    assert machine()
    machine.file.unlink(missing_ok=True)
    assert machine.foretold(machine.file)[0].startswith(f"leave {machine.file} (it is as it was")


def test_a_user_who_lingered_before_still_does_after_a_reset(machine):
    machine.file.touch()
    assert machine()
    assert machine.commands() == ["systemctl daemon-reload"]
    machine.undo()
    assert machine.file.exists()
