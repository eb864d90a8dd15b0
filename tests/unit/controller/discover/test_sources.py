"""Sources of machines: announcements by mDNS on the loopback alone, and names in SSH files."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import ServiceInfo, Zeroconf

from hearth_controller.discover.sources import Announcement, config_hosts, known_hosts, listen

LOOPBACK = "127.0.0.1"


def announcement(kind: str, name: str, address: str, port: int) -> ServiceInfo:
    packed = [socket.inet_aton(address)]
    return ServiceInfo(kind, f"{name}.{kind}", port, addresses=packed, server=f"{name}.local.")


def test_a_machine_is_heard_with_the_port_of_its_ssh():
    with Zeroconf(interfaces=[LOOPBACK]) as home:
        home.register_service(announcement("_ssh._tcp.local.", "tower", "192.168.1.40", 2222))
        home.register_service(announcement("_workstation._tcp.local.", "desk", "192.168.1.41", 9))
        home.register_service(announcement("_http._tcp.local.", "printer", "192.168.1.42", 80))
        found, why = listen(1.5, [LOOPBACK])
    assert why == ""
    assert set(found) == {
        Announcement("tower", "192.168.1.40", 2222),
        Announcement("desk", "192.168.1.41", 22),
    }


@pytest.mark.parametrize("interfaces", [["203.0.113.1"]])
def test_no_network_is_said_and_no_error(interfaces):
    found, why = listen(0, interfaces)
    assert found == []
    assert "mDNS" in why


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    found, why = listen()
    assert found == []
    assert "zeroconf" in why


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z]{2,4})?", fullmatch=True)
TEXT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOeN47uM9"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def config(home, text, name="config"):
    file = home / ".ssh" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_hosts_are_names_and_no_patterns(home):
    text = """
# Host none
Host tower "old box"   # the one below the desk
  HostName 192.168.1.40
host=laptop
HOST *.lan !gate *
Match host other exec "true"
HostName nothing
"""
    assert config_hosts(config(home, text)) == ["tower", "old box", "laptop"]


def test_included_files_are_read_where_ssh_looks_for_them(home):
    config(home, "Host deep\nInclude config\n", "more/a.conf")
    config(home, "Host second\n", "more/b.conf")
    file = config(home, "Include more/*.conf ~/.ssh/none\nHost first second\n")
    assert config_hosts(file) == ["deep", "second", "first"]


def test_a_file_that_is_missing_or_broken_hides_no_other(home):
    assert config_hosts(home / ".ssh" / "config") == []
    assert config_hosts(config(home, 'Host "half\nHost whole\n'))[-1] == "whole"


@given(st.lists(NAMES, unique=True))
def test_every_name_is_found_once_in_its_order(tmp_path_factory, names):
    file = tmp_path_factory.mktemp("ssh") / "config"
    file.write_text("".join(f"Host {name} {name}\n  User me\n" for name in names))
    assert config_hosts(file) == names


def test_known_hosts_have_names_ports_and_secrets():
    text = f"""
# a comment
tower,192.168.1.40 {TEXT}
[oldbox]:2222 {TEXT}
tower {TEXT}
@revoked gone {TEXT}
*.lan,!gate.lan {TEXT}
|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= {TEXT}
half
"""
    found = known_hosts(text)
    assert found.names == (("tower", 0), ("192.168.1.40", 0), ("oldbox", 2222))
    assert found.hashed == 1


@given(st.lists(st.tuples(NAMES, st.integers(1, 65535)), unique=True), st.text())
def test_whatever_else_stands_there_names_are_found(names, noise):
    lines = [f"[{name}]:{port} {TEXT}" for name, port in names]
    noisy = "\n".join(["#" + noise.replace("\n", " ").replace("\r", " "), *lines])
    assert set(names) <= set(known_hosts(noisy).names)


def test_what_ssh_keygen_hashes_is_counted(home):
    file = config(home, f"tower {TEXT}\nlaptop {TEXT}\n", "known_hosts")
    command = ["ssh-keygen", "-H", "-f", file]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert known_hosts(file.read_text()).hashed == 2
