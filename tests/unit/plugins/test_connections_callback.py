"""The callback that drops the kept connection to a node after a failed task."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from support.plugins import PLUGINS
from support.programs import stand_in
from support.waiting import HANG

SSH = """\
case "$*" in
*"-O check"*) exit 0;;
*"-O stop"*) echo stopped >>{log}; exit 0;;
esac
exit {status}
"""


@pytest.fixture
def stopped(tmp_path):
    """Return a function: are connections dropped by a play through an ssh that ends like this?"""

    def play(status: int, connection: str = "ssh") -> bool:
        ssh = tmp_path / "bin" / "ssh"
        stand_in(ssh, SSH.format(log=tmp_path / "log", status=status))
        node = {"ansible_connection": connection, "ansible_ssh_executable": str(ssh)}
        (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"desk": node}}}))
        task = {"ansible.builtin.raw": "false" if connection == "local" else "true"}
        book = [{"hosts": "desk", "gather_facts": False, "tasks": [task]}]
        (tmp_path / "play.yml").write_text(json.dumps(book))
        places = {
            "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS / "callback"),
            "ANSIBLE_HOME": str(tmp_path / "home"),
        }
        done = subprocess.run(
            ["ansible-playbook", "-i", "hosts.yml", "play.yml"],
            cwd=tmp_path,
            env=os.environ | places,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        print(done.stdout, done.stderr)
        assert bool(done.returncode) == bool(status)
        return (tmp_path / "log").exists()

    return play


@pytest.mark.parametrize(("status", "dropped"), [(255, True), (1, True), (0, False)])
def test_a_connection_to_a_node_that_failed_or_was_unreachable_is_dropped(stopped, status, dropped):
    assert stopped(status) is dropped


def test_this_computer_has_no_connection_to_drop(stopped):
    assert not stopped(1, "local")
