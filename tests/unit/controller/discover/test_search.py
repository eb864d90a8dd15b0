"""The search: candidates are tried by ssh, and each answer is told apart."""

from __future__ import annotations

import asyncio
import getpass
import socket

import pytest
from support.facts import assert_names
from support.machines import KEY, link, machine, report
from support.stand_in_ssh import StandInSsh

from hearth_controller.discover import connection, search, sources
from hearth_controller.discover.machine import Route, SshTarget
from hearth_controller.inventory.hostkeys import PublicKey

CONFIG = """
Host tower
  HostName 192.168.1.40
  User lab
Host laptop
  HostName 192.168.1.41
Host oldbox
  HostName 192.168.1.42
  Port 2222
Host github.com
  HostName 140.82.121.4
Host vps
  HostName 1.1.1.1
Host forge
  HostName 192.168.1.9
  User git
"""
HERE = machine(
    "localhost",
    login="local",
    user=getpass.getuser(),
    facts=report("desk", [link("enp1s0", "192.168.1.2/24", mac="02:aa:00:00:00:01")]),
)


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    stand_in = StandInSsh(tmp_path / ".ssh", monkeypatch, CONFIG)
    monkeypatch.setattr(sources, "listen", lambda: ([], ""))
    return stand_in


def tried(*candidates, user=""):
    shown = []
    found = asyncio.run(
        search.try_all(
            [SshTarget(each, "test") if isinstance(each, str) else each for each in candidates],
            user or getpass.getuser(),
            HERE,
            lambda *progress: shown.append(progress),
        )
    )
    assert shown == [(number, len(shown)) for number in range(1, len(shown) + 1)]
    return found


def facts_of(host, number, **more):
    mac = f"02:bb:00:00:00:{number:02x}"
    return report(host, [link("eno1", f"192.168.1.{number}/24", mac=mac)], **more)


def reasons(found):
    return {each.entry: each.why for each in found.left_out}


# -- sources ---------------------------------------------------------------------------------------


def test_candidates_come_from_the_user_s_files_each_once(ssh):
    (ssh.folder / "known_hosts").write_text(
        f"tower,192.168.1.40 {KEY.type} {KEY.text}\n|1|abc=|def= {KEY.type} {KEY.text}\n"
    )
    candidates, left_out = search.from_ssh()
    hosts = [each.host for each in candidates]
    assert hosts == ["tower", "laptop", "oldbox", "github.com", "vps", "forge", "192.168.1.40"]
    assert_names(f"{left_out[0].entry} {left_out[0].why}", 1, "known_hosts")


def test_no_files_are_no_candidates(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert search.from_ssh() == ([], [])


def test_machines_heard_by_mdns_are_candidates_by_their_address(monkeypatch):
    heard = [sources.Announcement("tower", "192.168.1.40", 2222)]
    monkeypatch.setattr(sources, "listen", lambda: (heard, ""))
    assert search.from_mdns() == (
        [SshTarget("192.168.1.40", "mDNS", "tower", port=2222)],
        [],
    )
    monkeypatch.setattr(sources, "listen", lambda: ([], "no network"))
    assert search.from_mdns() == ([], [search.LeftOut("mDNS", "no network")])


# -- who is tried ----------------------------------------------------------------------------------


def test_strangers_are_never_contacted(ssh):
    strangers = ["github.com", "vps", "forge", "nowhere.invalid"]
    found = tried(*strangers)
    assert found.machines == []
    assert set(reasons(found)) == set(strangers)
    assert not any(ssh.call(host) for host in strangers)


def test_a_machine_that_a_person_names_is_tried_wherever_it_is(ssh):
    ssh.denies("vps")
    assert tried(SshTarget("vps", "--machine", asked=True)).machines[0].login == "password"


def test_a_machine_of_several_names_counts_once(ssh):
    ssh.answers("tower", report=facts_of("tower", 40))
    ssh.answers("laptop", report=facts_of("tower", 40))
    found = tried("tower", "tower", "laptop")
    assert [each.candidate.host for each in found.machines] == ["tower"]


def test_this_computer_is_no_other_machine(ssh):
    own = [link("enp1s0", "192.168.1.2/24", mac="02:aa:00:00:00:01")]
    ssh.answers("tower", report=report("desk", own))
    assert tried("tower", "127.0.0.1") == search.SearchResult()
    named = tried(SshTarget("tower", "--machine", asked=True))
    assert_names(reasons(named)["tower"], "--here")


def test_the_login_counts_only_where_nothing_else_names_one(ssh):
    for host in ("tower", "laptop", "oldbox"):
        ssh.denies(host)
    found = tried("tower", "laptop", SshTarget("oldbox", "--machine", user="own"), user="someone")
    assert [each.route.user for each in found.machines] == ["lab", "someone", "own"]
    assert ssh.call("laptop")["words"].count("someone") == 1
    assert "someone" not in ssh.call("tower")["words"] + ssh.call("oldbox")["words"]


def test_without_ssh_every_machine_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_names(reasons(tried("tower"))["tower"], "openssh-client")
    assert asyncio.run(connection.routes_to(["192.168.1.40"])) == {}


# -- answers ---------------------------------------------------------------------------------------


def test_facts_come_through_a_connection_that_asks_and_writes_nothing(ssh):
    ssh.answers("tower", report=facts_of("tower", 40, came_in="192.168.1.40"))
    tower = tried("tower").machines[0]
    assert (tower.login, tower.facts.hostname, tower.reached_at) == ("key", "tower", "192.168.1.40")
    call = ssh.call("tower")
    options = dict(word[2:].split("=", 1) for word in call["words"] if word.startswith("-o"))
    assert options["BatchMode"] == "yes"
    assert options["StrictHostKeyChecking"] == "accept-new"
    assert options["ForwardAgent"] == "no"
    own, users = options["UserKnownHostsFile"].split()
    assert users == str(ssh.folder / "known_hosts")
    assert not own.startswith(str(ssh.folder))
    assert "def facts(" in call["given"]


def test_a_key_that_is_new_to_the_user_is_told_from_one_that_was_accepted(ssh):
    line = f"192.168.1.40 {KEY.type} {KEY.text}"
    ssh.answers("tower", report=facts_of("tower", 40), key=line)
    tower = tried("tower").machines[0]
    assert (tower.keys, tower.new_key) == ((KEY,), True)
    ssh.answers("tower", report=facts_of("tower", 40))
    (ssh.folder / "known_hosts").write_text(f"{line}\n")
    tower = tried("tower").machines[0]
    assert (tower.keys, tower.new_key) == ((KEY,), False)


def test_a_key_is_known_under_the_name_with_the_port(ssh):
    other = PublicKey("ssh-ed25519", KEY.text.replace("Oe", "Of"))
    ssh.denies("oldbox", key=f"[192.168.1.42]:2222 {other.type} {other.text}")
    assert tried("oldbox").machines[0].keys == (other,)


@pytest.mark.parametrize(
    ("answer", "login", "names"),
    [
        ({"errors": "me@h: Permission denied (publickey,password).", "status": 255}, "password",
         [getpass.getuser()]),
        ({"errors": "me@h: Permission denied (publickey).", "status": 255}, "refused",
         ["no password"]),
        ({"errors": "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification "
          "failed.", "status": 255}, "refused", ["ssh-keygen -R 192.168.1.41"]),
        ({"errors": "sh: 1: python3: not found", "status": 127}, "refused", ["Python"]),
        ({"output": "Welcome to RouterOS", "status": 0}, "refused", ["Linux"]),
    ],
)  # fmt: skip
def test_a_machine_without_facts_says_why(ssh, answer, login, names):
    ssh.answers("laptop", **answer)
    laptop = tried("laptop").machines[0]
    assert (laptop.login, laptop.facts) == (login, None)
    assert_names(laptop.trouble, *names)


def test_a_changed_key_is_never_pinned(ssh):
    (ssh.folder / "known_hosts").write_text(f"192.168.1.41 {KEY.type} {KEY.text}\n")
    ssh.answers("laptop", errors="REMOTE HOST IDENTIFICATION HAS CHANGED!", status=255)
    assert tried("laptop").machines[0].keys == ()


def test_a_silent_machine_is_left_out_unless_a_person_named_it(ssh):
    gone = {"errors": "ssh: connect to host x port 22: No route to host", "status": 255}
    ssh.answers("laptop", **gone)
    found = tried("laptop")
    assert found.machines == []
    assert_names(reasons(found)["laptop"], "No route to host")
    assert tried(SshTarget("laptop", "--machine", asked=True)).machines[0].login == "silent"


def test_only_a_port_that_listens_is_tried():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert asyncio.run(connection.silence(Route("box", "127.0.0.1", "me", port))) == ""
    why = asyncio.run(connection.silence(Route("box", "127.0.0.1", "me", port)))
    assert_names(why, port)


def test_a_name_that_could_be_an_option_of_ssh_is_none(ssh):
    found = tried(SshTarget("-oProxyCommand=touch", "~/.ssh/known_hosts"))
    assert found.machines == []
    assert len(found.left_out) == 1
