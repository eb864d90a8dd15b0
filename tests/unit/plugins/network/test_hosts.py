"""/etc/hosts of a node: every name means the cluster address, and all else stays as it is."""

from __future__ import annotations

import socket

import pytest
from ansible.module_utils.hearth_node.network.hosts import (
    before_files,
    elsewhere,
    restored,
    rewritten,
    wrong_names,
)
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.modules import call

NODES = {"tower": "192.168.1.40", "laptop": "192.168.1.41"}
BLOCK = """\
# hearth: nodes begin
192.168.1.40 {tower}
192.168.1.41 laptop
# hearth: nodes end
"""


@pytest.mark.parametrize(
    "before, after, own_line",
    [
        # As the installer writes it.
        (
            "127.0.0.1 localhost\n127.0.1.1 tower\n\n::1 ip6-localhost\n",
            "127.0.0.1 localhost\n# hearth: was 127.0.1.1 tower\n\n::1 ip6-localhost\n",
            "tower",
        ),
        # The full name moves along and stays first.
        (
            "127.0.1.1\ttower.lan tower # mine\n",
            "# hearth: was 127.0.1.1\ttower.lan tower # mine\n",
            "tower.lan tower",
        ),
        # Other names stay on loopback; without a last newline, in capitals and over IPv6 too.
        (
            "127.0.0.1 localhost TOWER\n::1 tower",
            "# hearth: was 127.0.0.1 localhost TOWER\n127.0.0.1 localhost  # hearth: rest\n"
            "# hearth: was ::1 tower\n",
            "tower",
        ),
        # Names that only begin alike, and lines that are right, stay.
        (
            "127.0.0.1 towerblock laptop.docker.internal\n192.168.1.40 tower\n",
            "127.0.0.1 towerblock laptop.docker.internal\n192.168.1.40 tower\n",
            "tower",
        ),
        ("", "", "tower"),
    ],
)
def test_the_node_itself_is_no_longer_on_loopback(before, after, own_line):
    assert rewritten(before, NODES, "tower") == after + BLOCK.format(tower=own_line)


def test_a_host_name_that_is_kept_means_the_cluster_address_too():
    text = rewritten("127.0.1.1 oldname\n", NODES, "tower", also="oldname")
    assert text == "# hearth: was 127.0.1.1 oldname\n" + BLOCK.format(tower="tower oldname")


NAMES = ["tower", "tower.lan", "Tower", "laptop", "localhost", "printer", "tower.a.b", "# tower"]
LINES = st.one_of(
    st.builds(
        "{}\t{}".format,
        st.sampled_from(["127.0.0.1", "127.0.1.1", "::1", "10.0.0.9", "fe80::1%eth0", "x"]),
        st.lists(st.sampled_from([*NAMES, "#"]), max_size=4).map("  ".join),
    ),
    st.sampled_from(["", "# a comment", "  # another", "127.0.1.1"]),
)


@given(st.lists(LINES).map("\n".join))
def test_it_is_idempotent_and_can_be_taken_back_to_the_byte(text):
    once = rewritten(text, NODES, "tower")
    assert rewritten(once, NODES, "tower") == once
    assert restored(once) in (text, text + "\n")  # the block ends an unfinished line


@pytest.mark.parametrize(
    "names, said",
    [
        (["tower", "laptop"], []),
        (["tower.lan", "LAPTOP"], []),
        (["my_box"], ["my_box cannot be a host name"]),
        (["-box"], ["-box cannot be a host name"]),
        (["localhost"], ["localhost cannot be a host name"]),
        (["x" * 64], ["cannot be a host name"]),
        (["192.168.1.40"], ["192.168.1.40 is an address"]),
        (["Tower", "tower"], ["Tower and tower would both get the host name tower"]),
        (["a.lan", "a.home", "b_c"], ["a.lan and a.home would both", "b_c cannot be"]),
    ],
)
def test_names_that_cannot_be_host_names_are_found(names, said):
    findings = wrong_names(names)
    assert len(findings) == len(said)
    for finding, part in zip(findings, said, strict=True):
        assert part in finding


@pytest.mark.parametrize(
    "line, said",
    [
        ("192.168.1.41 laptop nas", ""),
        ("127.0.1.1 laptop", ""),
        ("192.168.1.99 nas", ""),
        ("192.168.1.99 nas Laptop # old", "laptop is 192.168.1.99"),
        ("fd00::5 tower", "tower is fd00::5"),
    ],
)
def test_a_line_that_gives_a_node_another_address_is_found(line, said):
    findings = elsewhere(rewritten(line + "\n", NODES, "tower"), NODES)
    assert len(findings) == bool(said)
    assert said.lower() in "".join(findings).lower()


@pytest.mark.parametrize(
    "line, first",
    [
        ("hosts: files dns", []),
        ("hosts:\tfiles mdns4_minimal [NOTFOUND=return] dns myhostname", []),
        ("hosts: mymachines resolve [!UNAVAIL=return] files", ["mymachines", "resolve"]),
        ("hosts: dns", ["dns"]),
        ("# hosts: dns files", []),
    ],
)
def test_what_is_asked_before_the_file_is_named(line, first):
    assert before_files(f"passwd: files systemd\n{line}\n") == first


def test_a_host_name_is_said_before_it_changes():
    def lookup(name: str, **more: bool) -> dict:
        return call("hearth_names", check=True, node=name, nodes={name: "192.0.2.7"}, **more)

    present = socket.gethostname()
    assert_names(lookup("tower-7")["note"], present, "tower-7", "names_set_hostname")
    assert "note" not in lookup("tower-7", set_hostname=False)
