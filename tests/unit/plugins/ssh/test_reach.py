"""Which machine answers, and the message when it is another one."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.programs import run

from hearth.base.nics import is_own
from hearth_controller.inventory import reach
from hearth_controller.inventory.hostkeys import (
    HostKeyAnswer,
    PublicKey,
    algorithms,
    choose,
    keys_in,
    owners_in,
)
from hearth_controller.inventory.unreachable import describe_failure, explain

A = PublicKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIA+uem/Rim3DPkNcO5w3JqDgxwPepweGSrsUgljlAANw")
B = PublicKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIFE7oAujqR2TTWEwuf8WjXSZSGTFXYOJIgJh9e1opygr")
OFF = HostKeyAnswer(reason="Connection timed out")
WANTED, FIRST = "10.0.0.1", "tower.lan"


def test_a_fingerprint_is_the_one_that_openssh_shows(tmp_path):
    (tmp_path / "key.pub").write_text(f"{A.type} {A.text} me@here\n")
    shown = run("ssh-keygen", "-lf", tmp_path / "key.pub").stdout.split()
    assert str(A) == f"{shown[1]} {shown[-1]}"


def test_keys_are_found_under_the_name_also_if_it_is_hashed(tmp_path):
    file = tmp_path / "known"
    file.write_text(f"# mine\ntower,tower.lan {A.type} {A.text}\nlaptop {B.type} {B.text} note\n")
    assert keys_in(file, "tower") == [A]
    assert keys_in(file, "laptop") == [B]
    assert keys_in(file, "tow") == []
    run("ssh-keygen", "-q", "-H", "-f", file)
    assert "tower" not in file.read_text()
    assert keys_in(file, "tower") == [A]


@pytest.mark.parametrize("line", ["", "tower", "tower ssh-ed25519", "@revoked tower x AAAA"])
def test_a_line_that_pins_nothing_is_passed_over(tmp_path, line):
    (tmp_path / "known").write_text(line)
    assert keys_in(tmp_path / "known", "tower") == []


def test_the_pinned_types_are_asked_for_first():
    assert algorithms([]) == ""
    assert algorithms([A, B]) == "^ssh-ed25519"
    assert algorithms([PublicKey("ssh-rsa", "AAAA")]) == "^rsa-sha2-512,rsa-sha2-256"


@pytest.mark.parametrize(
    ("answers", "pinned", "address", "stranger"),
    [
        ({WANTED: HostKeyAnswer(A)}, [], WANTED, False),
        ({WANTED: HostKeyAnswer(A), FIRST: HostKeyAnswer(A)}, [A], WANTED, False),
        ({WANTED: OFF, FIRST: HostKeyAnswer(A)}, [A], FIRST, False),
        ({WANTED: OFF, FIRST: HostKeyAnswer(A)}, [], FIRST, False),
        ({WANTED: HostKeyAnswer(A), FIRST: HostKeyAnswer(A)}, [], WANTED, False),
        # Somebody else has the address: the machine is where the inventory says that it is today.
        ({WANTED: HostKeyAnswer(B), FIRST: HostKeyAnswer(A)}, [A], FIRST, True),
        ({WANTED: HostKeyAnswer(B), FIRST: HostKeyAnswer(A)}, [], FIRST, True),
        # The old address went to somebody else since.
        ({WANTED: HostKeyAnswer(A), FIRST: HostKeyAnswer(B)}, [A], WANTED, False),
    ],
)
def test_where_a_machine_is_reached(answers, pinned, address, stranger):
    choice = choose("tower", answers, pinned, "known_hosts", {})
    assert choice.address == address
    assert choice.trouble == ""
    assert bool(choice.stranger) == stranger
    if stranger:
        assert_names(choice.stranger, WANTED, B.fingerprint)


def test_an_address_that_another_node_has_is_no_changed_host_key(tmp_path):
    file = tmp_path / "known"
    file.write_text(f"# mine\ntower {A.type} {A.text}\nlaptop {B.type} {B.text} note\n\n@x y\n")
    choice = choose("tower", {WANTED: HostKeyAnswer(B)}, [A], "known_hosts", owners_in(file))
    assert not choice.address
    assert_names(choice.trouble, "laptop", WANTED, "first_address", "third")
    assert "ssh-keygen" not in choice.trouble
    by_address = choose("tower", {WANTED: HostKeyAnswer(B)}, [A], "known_hosts", {B.text: WANTED})
    assert_names(by_address.trouble, "ssh-keygen -R tower")
    assert owners_in(tmp_path / "none") == {}


def test_a_machine_that_is_off_or_has_another_key_is_explained():
    choice = choose("tower", {WANTED: OFF, FIRST: OFF}, [A], "known_hosts", {})
    assert not choice.address
    assert_names(choice.trouble, WANTED, FIRST, OFF.reason)
    choice = choose("tower", {WANTED: HostKeyAnswer(B)}, [A], "inventory/home/known_hosts", {})
    assert not choice.address
    assert_names(choice.trouble, "ssh-keygen -R tower -f inventory/home/known_hosts")
    pinned, present = (line for line in choice.trouble.splitlines() if "SHA256:" in line)
    assert_names(pinned, "pinned", A)
    assert_names(present, "present", B)


def test_pinning_adds_a_line_once_and_keeps_what_is_there(tmp_path):
    file = tmp_path / "deep" / "known_hosts"
    reach.pin(file, "tower", A)
    file.write_text(file.read_text() + "other ssh-rsa AAAA")  # without an end of line
    reach.pin(file, "laptop", B)
    reach.pin(file, "laptop", B)
    assert file.read_text().splitlines() == [
        f"tower {A.type} {A.text}",
        "other ssh-rsa AAAA",
        f"laptop {B.type} {B.text}",
    ]


def test_this_computers_own_host_keys_are_read(tmp_path):
    assert reach.own_keys(tmp_path) == []
    (tmp_path / "ssh_host_ed25519_key.pub").write_text(f"{A.type} {A.text} root@here\n")
    assert reach.own_keys(tmp_path) == [A]


def test_an_address_is_here_or_not():
    addresses = ("127.0.0.1", "198.51.100.250", "no address")
    assert [is_own(address) for address in addresses] == [True, False, False]


def test_ssh_is_called_as_the_connection_calls_it():
    options = {
        "ssh_executable": "ssh",
        "ssh_args": "-C",
        "ssh_common_args": '-o ProxyCommand="nc %h %p" -o StrictHostKeyChecking=yes',
        "port": 2222,
        "remote_user": "me",
    }
    words = reach.command(options.get, {"StrictHostKeyChecking": "accept-new"})
    assert words[0] == "ssh"
    assert words[-4:] == ["-p", "2222", "-l", "me"]
    assert "ProxyCommand=nc %h %p" in words
    strict = [word for word in words if word.startswith("Strict")]
    assert strict[0] == "StrictHostKeyChecking=accept-new"  # ssh takes what is said first


def test_why_ssh_failed_is_its_last_line(program):
    program("ssh", "echo first >&2\necho why >&2\nexit 255")
    assert reach.attempt(["ssh"], 5) == "why"
    assert reach.attempt(["true"], 5) == ""
    assert reach.attempt(["false"], 5) == "status 1"
    assert reach.attempt(["sleep", "5"], 0.1).endswith("0.1 s")


# -- what others say -------------------------------------------------------------------------------

CHANGED = """\
Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/inventory/home/known_hosts:3
Host key for laptop has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            CHANGED,
            ["host key of laptop", "/home/me/inventory/home/known_hosts;", "hearth provision"],
        ),
        ("Host key verification failed.", ["pinned", "hearth provision"]),
        (
            "is not possible because Host Key checking is enabled.",
            ["not the pinned one", "hearth provision"],
        ),
        (
            "ssh: me@10.0.0.1: Permission denied (publickey,password).",
            ["as me", "publickey,password", "-k", "chmod go-w ~ ~/.ssh"],
        ),
        ("Incorrect sudo password", ["sudo", "-K"]),
        ("Missing sudo password", ["sudo", "-K"]),
        ("x\nother is not in the sudoers file.", ["other", "adduser other sudo"]),
        ("Sorry, user other is not allowed to execute '/bin/sh'", ["other", "sudo"]),
        ("/bin/sh: 1: sudo: not found", ["sudo"]),
        ("The module interpreter '/usr/bin/python3' was not found.", ["/usr/bin/python3"]),
        ("failed to resolve remote temporary directory from x: `y` returned", [".bashrc"]),
        (
            "Failed to create temporary directory. In some cases, you may have been able to "
            "authenticate. Failed command was: ( umask 77 ), exited with result 1",
            ["status 1", "disk is full", ".bashrc"],
        ),
        ("WARNING: Your password has expired.\nPassword change required but no TTY", ["passwd"]),
        ("You are required to change your password immediately (root enforced)", ["passwd"]),
        (
            "Timeout (32s) waiting for privilege escalation prompt: Changing password for lab.",
            ["passwd"],
        ),
        ("Your account has expired; please contact your system administrator", ["chage -E"]),
        ("the printer is on fire", ["the printer is on fire"]),
    ],
)
def test_what_others_say_is_said_in_a_line(message, words):
    said = explain(message)
    assert "\n" not in said
    assert_names(said, *words)
    # A verdict on all nodes holds what was said of each; none of it may be lost.
    verdict = f"laptop: {said}\noldbox: {said}\nNothing was changed."
    assert explain(verdict) == verdict


NO_RESULT = "Task failed: Module result deserialization failed"


@pytest.mark.parametrize(
    ("printed", "status", "words"),
    [
        ("", 0, ["exit", ".bashrc"]),
        ("welcome", 3, ["exit", ".bashrc"]),
        ("You must change your password now and login again!", 1, ["expired", "`passwd`"]),
        ('{welcome}\n\n{"changed": false}', 0, ["'{welcome}'", ".bashrc"]),
        ("", 137, ["Module result"]),
    ],
)
def test_a_login_shell_that_ends_or_prints_into_a_result_is_named(printed, status, words):
    result = {"msg": NO_RESULT, "module_stdout": printed, "module_stderr": "", "rc": status}
    assert_names(describe_failure(result), *words)


def test_errors_beside_the_message_count():
    result = {"msg": NO_RESULT}
    result["module_stderr"] = "me is not in the sudoers file."
    assert "may not use sudo" in describe_failure(result)
    crash = {"msg": "MODULE FAILURE", "module_stderr": "boom"}
    assert describe_failure(crash) == "MODULE FAILURE\nboom"
    assert describe_failure({}) == ""


@pytest.mark.parametrize(
    ("answers", "pinned", "expected"),
    [
        ({FIRST: HostKeyAnswer(A)}, [], {"address": FIRST, "present": False}),
        ({WANTED: HostKeyAnswer(A), FIRST: OFF}, [A], {"address": WANTED, "present": True}),
        ({WANTED: OFF, FIRST: OFF}, [A], {"unreachable": True}),
        ({WANTED: HostKeyAnswer(B)}, [A], {"failed": True}),
    ],
)
def test_a_machine_is_pinned_at_its_first_answer_and_unreachable_only_if_all_are_silent(
    tmp_path, monkeypatch, answers, pinned, expected
):
    known_hosts = tmp_path / "known_hosts"
    for key in pinned:
        reach.pin(known_hosts, "tower", key)
    # Stands in for machines on the network.
    monkeypatch.setattr(reach, "greet", lambda _, address, *__: answers.get(address, OFF))
    found = reach.reach("tower", [WANTED, FIRST], known_hosts, None, 5)
    assert expected.items() <= found.items()
    assert keys_in(known_hosts, "tower") == (pinned or [A])
    assert ("note" in found) == (not pinned)
