"""Decisions and messages of the network stage's controller side."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace

import pytest
from ansible.module_utils.hearth.base.nics import Held, Nic
from ansible.module_utils.hearth_node.network import armed, change, inspect
from ansible.module_utils.hearth_node.network.change import NetworkChange, fingerprint
from support.facts import assert_names
from support.plugins import load
from support.programs import run

action = load("action", "hearth_network")
module = load("modules", "hearth_network")


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
    "digest": "d",
}
AFTER = {"restarted": False, "digest": "d", "addresses": ["192.168.1.9"], "said": ""}


@pytest.mark.parametrize(
    ("aftermath", "facts"),
    [
        (AFTER, ["taken the change back", "at 192.168.1.9", "/etc/netplan/a.yaml is as it was"]),
        (AFTER | {"restarted": True}, ["restarted", "at 192.168.1.9"]),
        (AFTER | {"digest": "e"}, ["/etc/netplan/a.yaml is NOT"]),
        (AFTER | {"said": "Error: device"}, ["Error: device"]),
        (None, ["does not answer at 192.168.1.9"]),
    ],
)
def test_one_message_says_what_was_tried_why_not_and_how_it_is_now(aftermath, facts):
    text = action.story(ARMED, "no answer at 192.168.1.40", aftermath)
    assert_names(text, "192.168.1.40/24", "gateway 192.168.1.1", "enp5s0")
    assert_names(text, "no answer at 192.168.1.40", *facts)


class Home:
    """Stands in for the clock and for what answers at each address, second by second."""

    def __init__(self, **answers):
        self.now, self.at, self._answers = 0.0, "", answers

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def go_to(self, address):
        self.at = address

    def answer(self, arguments):
        """Return a machine's answer, which takes 5 s, or None."""
        self.now += 5
        return self._answers[arguments["state"]](self.at, self.now)


NOT_MINE = {"confirmed": False, "stranger": True, "why": ["this machine knows of no change"]}
BACK = AFTER | {"undone": True, "restarted": True, "why": []}


@pytest.mark.parametrize("goal", ["192.168.1.40", "192.168.1.9"])
def test_a_machine_that_a_power_cut_brought_back_is_found_at_the_address_it_had(monkeypatch, goal):
    """The inventory names the new address alone; from second 30 on it is at its old one again."""

    def is_back(address, now):
        return address == "192.168.1.9" and now >= 30

    home = Home(
        confirm=lambda address, now: NOT_MINE if is_back(address, now) else None,
        after=lambda address, now: BACK if is_back(address, now) else None,
    )
    monkeypatch.setattr(action, "time", home)
    plugin = action.ActionModule.__new__(action.ActionModule)
    plugin._old, plugin._go_to, plugin._try = "192.168.1.40", home.go_to, home.answer
    armed = ARMED | {"token": "t", "goals": [goal], "diff": {}}
    plugin._call = lambda _: armed
    result = plugin._apply({"seconds": 120})
    assert result["failed"]
    assert_names(result["msg"], "restarted", "at 192.168.1.9", "/etc/netplan/a.yaml is as it was")
    assert home.now < 60


@pytest.mark.parametrize("unproved", [False, True])
def test_a_gateway_that_could_not_be_proved_is_said_to_be_so(monkeypatch, unproved):
    home = Home(confirm=lambda *_: {"confirmed": True, "why": []})
    monkeypatch.setattr(action, "time", home)
    plugin = action.ActionModule.__new__(action.ActionModule)
    plugin._old, plugin._go_to, plugin._try = "192.168.1.9", home.go_to, home.answer
    more = {"token": "t", "goals": ["192.168.1.40"], "diff": {}}
    plugin._call = lambda _: ARMED | more | {"unproved": unproved}
    result = plugin._apply({})
    assert (result["changed"], result["address"]) == (True, "192.168.1.40")
    assert ("192.168.1.1" in result.get("note", "")) is unproved


def options(**changed):
    names = ("address", "interface", "mac", "gateway", "busy")
    return dict.fromkeys(names, "") | {
        **{
            "mode": "static",
            "mtu": 0,
            "dns": [],
            "reached": [],
            "peers": {},
            "force": False,
        },
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "moves", "refused"),
    [
        ({"busy": "night"}, True, True),
        ({}, True, False),
        ({"busy": "night"}, False, False),
        ({"busy": "night", "force": True}, True, False),
    ],
)
def test_a_node_is_not_moved_away_under_a_run(monkeypatch, changed, moves, refused):
    verdict = inspect.NetworkVerdict([], candidate=CANDIDATE if moves else None)
    monkeypatch.setattr(module.inspect, "static", lambda *_, **__: verdict)
    findings = module.verdict_of(options(**changed), []).findings
    assert ["'night'" in each for each in findings] == [True] * refused


@pytest.mark.parametrize(
    ("answering", "why"), [([], ["203.0.113.7", "deb.example"]), (["deb.example"], [])]
)
def test_a_gateway_through_which_nobody_answers_any_more_is_no_gateway(monkeypatch, answering, why):
    held = Held("192.168.1.40", 24, False)
    nic = Nic("enp5s0", 2, "02:00:00:00:00:01", True, (held,), gateway="192.168.1.7")
    monkeypatch.setattr(module, "see", lambda: [nic])
    monkeypatch.setattr(
        module.neighbours, "listen", lambda *_: {"192.168.1.7": "02:00:00:00:00:07"}
    )
    monkeypatch.setattr(module.neighbours, "reached_through", lambda *_: answering)
    wanted = {"address": held.address, "prefix": 24, "gateway": "192.168.1.7"}
    asked = {"203.0.113.7": ["203.0.113.7", 53], "deb.example": ["203.0.113.8", 80]}
    facts = {"nic": "enp5s0", "wanted": wanted, "outside": asked, "peers": {}}
    findings = module.missing(facts)
    assert len(findings) == bool(why)
    assert_names("".join(findings), *why, *(["gateway 192.168.1.7"] if why else []))


CANDIDATE = NetworkChange(
    nic="enp5s0",
    target="/etc/N/Wired connection 1.nmconnection",
    shadow="/run/N/it's.nmconnection",
    content="[ipv4]\nmethod=manual\naddress1=192.168.1.40/24\n",
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


def test_a_change_that_is_kept_leaves_no_shadow_and_may_be_kept_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(armed, "FOLDER", str(tmp_path))
    shadow = tmp_path / "shadow.yaml"
    shadow.touch()
    generated = tmp_path / "generated"
    then = [["touch", str(generated)]]
    confirmed = armed.Armed("token", replace(CANDIDATE, shadow=str(shadow), then=then), {})
    for _ in range(2):
        armed.finish(confirmed)
        assert not shadow.exists()
        assert generated.exists()
        assert armed.kept()


def test_the_undo_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(armed, "FOLDER", str(tmp_path))
    assert not armed.wait_undone(0.1)
    undo = threading.Timer(0.3, (tmp_path / "undone").touch)
    undo.start()
    assert armed.wait_undone(20)
    undo.join()


def test_the_way_back_swaps_what_is_done_and_undone():
    back = change.backwards(CANDIDATE, "[ipv4]\nmethod=auto\n")
    assert (back.apply, back.undo) == (CANDIDATE.undo, CANDIDATE.apply)
    assert back.content == "[ipv4]\nmethod=auto\n"
    leased = change.backwards(CANDIDATE, None)  # there was no file: NetworkManager's own profile
    assert leased.content == "[ipv4]\nmethod=auto\n"
    assert leased.apply == CANDIDATE.apply


def test_the_first_past_of_a_file_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(change, "FOLDER", str(tmp_path))
    monkeypatch.setattr(change, "_FILE", str(tmp_path / "network.json"))
    assert change.load_past() is None
    change.keep_past(CANDIDATE, ["192.168.1.9"])
    change.keep_past(replace(CANDIDATE, content="new", undo=[["x"]]), ["192.168.1.40"])
    past = change.load_past()
    assert past == change.Past(replace(CANDIDATE, content="new"), ["192.168.1.9"])
    assert (tmp_path / "network.json").stat().st_mode & 0o777 == 0o600
    change.forget_past()
    assert change.load_past() is None


def test_bytes_and_modes_of_a_folder_tell_whether_it_is_as_before(tmp_path):
    file = tmp_path / "a.yaml"
    file.touch()
    seen = []
    for mode, text in ((0o600, "a"), (0o600, "a"), (0o644, "a"), (0o600, "b")):
        file.chmod(mode)
        file.write_text(text)
        seen.append(fingerprint(str(tmp_path)))
    assert [each == seen[0] for each in seen] == [True, True, False, False]
