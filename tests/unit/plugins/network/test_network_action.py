"""Decisions and messages of the network stage's controller side."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace

import pytest
from ansible.module_utils.hearth_node.network import armed, change, history
from ansible.module_utils.hearth_node.network.change import Candidate, fingerprint
from support.facts import assert_names
from support.plugins import load
from support.programs import run

action = load("action", "hearth_network")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no such host", ""])
def test_where_a_node_is_reached_is_never_loopback(host):
    assert action.addresses_of(host) == []


def test_peers_are_known_by_both_addresses_and_a_local_one_only_by_the_clusters():
    here = {"ansible_host": "127.0.0.1", "ansible_connection": "local"}
    variables = {
        "a": {"cluster_address": "192.168.1.40", "ansible_host": "192.168.1.9"},
        "b": {"cluster_address": "192.168.1.41", "ansible_host": "192.168.1.41"},
        "c": {"cluster_address": "192.168.1.42", **here},
        "d": {},
    }
    assert action.peers_of("b", variables, variables) == {
        "a": ["192.168.1.40", "192.168.1.9"],
        "c": ["192.168.1.42"],
    }


ARMED = {
    "nic": "enp5s0",
    "wanted": {"address": "192.168.1.40", "prefix": 24, "gateway": "192.168.1.1"},
    "addresses": ["192.168.1.9"],
    "target": "/etc/netplan/a.yaml",
}
AFTER = {"restarted": False, "as_before": True, "addresses": ["192.168.1.9"], "said": ""}


@pytest.mark.parametrize(
    ("aftermath", "facts"),
    [
        (AFTER, ["taken the change back", "at 192.168.1.9", "/etc/netplan/a.yaml is as it was"]),
        (AFTER | {"restarted": True}, ["restarted", "at 192.168.1.9"]),
        (AFTER | {"as_before": False}, ["/etc/netplan/a.yaml is NOT"]),
        (AFTER | {"said": "Error: device"}, ["Error: device"]),
        (None, ["does not answer at 192.168.1.9"]),
    ],
)
def test_one_message_says_what_was_tried_why_not_and_how_it_is_now(aftermath, facts):
    text = action.story(ARMED, "no answer at 192.168.1.40", aftermath)
    assert_names(text, "192.168.1.40/24", "gateway 192.168.1.1", "enp5s0")
    assert_names(text, "no answer at 192.168.1.40", *facts)


CANDIDATE = Candidate(
    nic="enp5s0",
    target="/etc/N/Wired connection 1.nmconnection",
    shadow="/run/N/it's.nmconnection",
    content="[ipv4]\nmethod=manual\naddress1=192.168.1.40/24\n",
    folder="/etc/N",
    apply=[["nmcli", "connection", "up", "uuid", "a b"]],
    undo=[["netplan", "generate"]],
    before="",
    after="",
)


@pytest.mark.parametrize("script", [armed.undo_script(CANDIDATE), armed.apply_script(CANDIDATE)])
def test_the_scripts_of_the_node_are_shell(script):
    subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=10)
    assert """'/run/N/it'"'"'s.nmconnection'""" in script


def test_the_undo_takes_the_candidate_away_before_it_asks_for_the_original():
    lines = armed.undo_script(CANDIDATE).splitlines()
    order = [lines.index(line) for line in lines if line.startswith(("rm -f", "netplan", "touch"))]
    assert len(order) == 3
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("addressed", "restarts"), [("true", []), ("test $tries -eq 5", []), ("false", ["networkd"])]
)
def test_networkd_starts_afresh_where_it_leaves_a_card_without_address(
    addressed, restarts, tmp_path, program
):
    # `ip` shows an address from some look on.
    program("ip", f"echo >>tries; tries=$(wc -l <tries); {addressed} && echo inet; :")
    program("sleep", ":")
    program("systemctl", 'test "$*" = "restart systemd-networkd" && echo networkd >>restarts')
    (tmp_path / "restarts").touch()
    assert run("sh", "-c", change.ADDRESSED, "", "enp5s0", cwd=tmp_path).returncode == 0
    assert (tmp_path / "restarts").read_text().split() == restarts


@pytest.mark.parametrize("over", [True, False])
def test_an_undo_that_has_run_is_not_armed_again(over, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(armed, "FOLDER", str(tmp_path))
    monkeypatch.setattr(armed, "_systemctl", lambda *_: 5)  # stand-in: the unit is not loaded
    monkeypatch.setattr(armed, "_start", lambda *words: started.append(words))
    if over:
        (tmp_path / "undone").touch()
    armed.undo_now(armed.Armed("token", CANDIDATE, {}), ["no answer from tower"])
    assert bool(started) is not over
    assert armed.load("token").why == ["no answer from tower"]


def test_the_undo_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(armed, "FOLDER", str(tmp_path))
    assert not armed.wait_undone(0.1)
    undo = threading.Timer(0.3, (tmp_path / "undone").touch)
    undo.start()
    assert armed.wait_undone(20)
    undo.join()


def test_the_way_back_swaps_what_is_done_and_undone():
    back = history.backwards(CANDIDATE, "[ipv4]\nmethod=auto\n")
    assert (back.apply, back.undo) == (CANDIDATE.undo, CANDIDATE.apply)
    assert back.content == "[ipv4]\nmethod=auto\n"
    leased = history.backwards(CANDIDATE, None)  # there was no file: NetworkManager's own profile
    assert leased.content == "[ipv4]\nmethod=auto\n"
    assert leased.apply == CANDIDATE.apply


def test_the_first_past_of_a_file_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "FOLDER", str(tmp_path))
    monkeypatch.setattr(history, "_FILE", str(tmp_path / "network.json"))
    assert history.load() is None
    history.keep(CANDIDATE, ["192.168.1.9"])
    history.keep(replace(CANDIDATE, content="new", undo=[["x"]]), ["192.168.1.40"])
    past = history.load()
    assert past == history.Past(replace(CANDIDATE, content="new"), ["192.168.1.9"])
    assert (tmp_path / "network.json").stat().st_mode & 0o777 == 0o600
    history.forget()
    assert history.load() is None


def test_bytes_and_modes_of_a_folder_tell_whether_it_is_as_before(tmp_path):
    file = tmp_path / "a.yaml"
    file.touch()
    seen = []
    for mode, text in ((0o600, "a"), (0o600, "a"), (0o644, "a"), (0o600, "b")):
        file.chmod(mode)
        file.write_text(text)
        seen.append(fingerprint(str(tmp_path)))
    assert [each == seen[0] for each in seen] == [True, True, False, False]
