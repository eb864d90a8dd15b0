"""Commands and programs on a node whose login shell has a .bashrc of its own."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from support.facts import refuses
from support.programs import NOISE, login, run

from hearth_controller.base.node_program import (
    SHELL_ENDS,
    NodeProgram,
    after_mark,
    command,
    marked,
)

HELLO = "import sys; print(sys.stdin.readline(), end='')"


@pytest.mark.parametrize("bashrc", NOISE)
def test_what_the_login_shell_prints_is_no_output_of_the_program(tmp_path, bashrc):
    program = NodeProgram(login(tmp_path, bashrc), sys.executable, HELLO, {"run": "r1"})
    output = b"".join(iter(lambda: program.read(3), b""))
    assert output == b'{"run": "r1"}\n'
    assert program.close() == []


@pytest.mark.parametrize("bashrc", ["exit", "exit 3", "echo welcome; exit 1"])
def test_a_login_shell_that_ends_is_named(tmp_path, bashrc):
    program = NodeProgram(login(tmp_path, bashrc), sys.executable, HELLO, {})
    assert program.read(9) == b""
    assert program.close() == [SHELL_ENDS]


def test_without_a_connection_it_is_ssh_that_says_why(tmp_path):
    program = NodeProgram(
        login(tmp_path, "echo No route to host >&2; exit 255"), sys.executable, HELLO, {}
    )
    assert program.read_once() is None
    assert program.close() == ["No route to host"]


@pytest.mark.parametrize("bashrc", NOISE)
def test_the_output_of_a_command_is_told_from_that_of_the_login_shell(bashrc):
    shown = run("sh", "-c", f"{bashrc}\n{marked('echo alive; echo {}')}").stdout
    assert after_mark(shown) == "alive\n{}\n"
    with refuses(ConnectionError, ".bashrc"):
        after_mark("welcome\n")


def test_ssh_is_called_as_ansible_calls_it_and_never_asks_for_a_password():
    options = {"password": "secret", "ssh_executable": "ssh", "host": "desk.local"}
    entered = []
    connection = SimpleNamespace(
        transport="ssh",
        get_option=options.get,
        exec_command=lambda command, sudoable: entered.append(command),
        _build_command=lambda *words: [b"sshpass", b"-d5", b"ssh", b"-o", b"X=y", *words[2:]],
    )
    words = command(connection, "~/my env/bin/python")
    assert entered == ["true"]
    assert words[:4] == [b"ssh", b"-o", b"X=y", "desk.local"]
    assert "~/'my env/bin/python'" not in words[4]  # quoted once more for the login shell
    assert words[4].startswith("/bin/sh -c ")


def test_a_login_shell_that_prints_without_end_is_named(tmp_path):
    program = NodeProgram(login(tmp_path, "yes welcome"), sys.executable, HELLO, {})
    with refuses(ConnectionError, "login shell", ".bashrc"):
        program.read(100)
    program.close()


def test_errors_without_end_fill_no_disk(tmp_path):
    program = NodeProgram(login(tmp_path, "yes welcome >&2"), sys.executable, HELLO, {})
    program.read(100)
    assert sum(map(len, program.close())) < 1 << 25
