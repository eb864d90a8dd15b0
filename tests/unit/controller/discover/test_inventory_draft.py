"""The inventory that `hearth init` writes: made from the example, read as the plays read it."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.machines import KEY, UBUNTU, at, link, machine, report
from support.repository import ROOT

from hearth_controller.discover.draft import draft
from hearth_controller.discover.machine import Route
from hearth_controller.discover.render import (
    HOSTS,
    KEYS,
    MACHINES,
    example_files,
    filled,
    rendered,
    write,
)
from hearth_controller.discover.show import draft_lines

EXAMPLE = example_files(ROOT)
SPARE = "GeForce GTX, 8192, 570.1, 8.6\n"


def written(machines, mode="verify", routes=None, network=None):
    made = draft(machines, mode, network, routes or {})
    files = rendered(made, EXAMPLE, "Written by a test.")
    hosts = yaml.safe_load(files[HOSTS])["cluster"]["hosts"]
    return made, files, hosts


def test_nodes_stand_in_order_with_address_and_what_was_found():
    _, files, hosts = written([at(41, "tower", cards=["2c05"]), at(40, "laptop")])
    assert hosts == {
        "tower": {"cluster_address": "192.168.1.41"},
        "laptop": {"cluster_address": "192.168.1.40"},
    }
    assert_names(files[HOSTS], "RTX 5070 Ti", "Debian 12")


def test_the_example_is_the_only_source_of_comments():
    _, files, _ = written([at(40), at(41)], "static")
    known = {line.strip() for text in EXAMPLE.values() for line in text.splitlines()}
    comments = [line.strip() for line in files[HOSTS].splitlines() if line.strip().startswith("#")]
    new = [line for line in comments if line not in known]
    assert len(new) == 3  # the first line, and one for each machine
    for option in ("first_address", "node_rank", "ansible_connection"):
        assert sum(f"# {option}:" in line for line in comments) == 1


def test_only_the_options_of_the_draft_differ_from_the_example():
    _, files, _ = written([at(40, cards=["2c05"])], "static")
    before, after = EXAMPLE[MACHINES].splitlines(), files[MACHINES].splitlines()
    changed = [line for line, old in zip(after, before, strict=True) if line != old]
    assert changed == ["ansible_user: lab", "network_mode: static", "driver_repo: nvidia"]
    assert (
        files["group_vars/cluster/connection.yml"] == EXAMPLE["group_vars/cluster/connection.yml"]
    )


@pytest.mark.parametrize(
    ("facts", "needs"),
    [
        ({"cards": ["2c05"]}, True),
        ({"cards": ["2c05"], "gpus": SPARE}, True),
        ({"cards": ["2c05"], "gpus": SPARE.replace("570", "580")}, False),
        ({"cards": ["2c05"], "release": UBUNTU}, False),
        ({}, False),
    ],
)
def test_nvidia_s_repository_is_set_where_debian_lacks_a_driver(facts, needs):
    made, _, _ = written([at(40, **facts)])
    assert ("driver_repo" in made.variables) is needs


def test_this_computer_is_reached_without_ssh_and_keeps_its_user():
    here = machine("localhost", login="local", user="me", facts=report(user="me"))
    _, files, hosts = written([at(41), here])
    assert yaml.safe_load(files[MACHINES])["ansible_user"] == "lab"
    assert hosts["tower"] == {
        "cluster_address": "192.168.1.40",
        "ansible_connection": "local",
        "ansible_user": "me",
    }
    assert draft([here], "verify", None, {}).variables["ansible_user"] == "me"


def test_what_only_ssh_s_configuration_knows_goes_into_the_inventory():
    options = {
        "identityfile": "~/.ssh/lab key",
        "proxyjump": "gate",
        "proxycommand": "none",
        "user": "other",
    }
    far = machine("far", address="192.168.1.42", user="other", port=2222, options=options,
                  login="password")  # fmt: skip
    defaults = Route("192.168.1.42", "192.168.1.42", "me", 22, {"identityfile": "~/.ssh/id_rsa"})
    _, _, hosts = written([at(40), at(41), far], routes={"192.168.1.42": defaults})
    assert hosts["far"] == {
        "cluster_address": "192.168.1.42",
        "ansible_user": "other",
        "ansible_port": 2222,
        "ansible_ssh_private_key_file": "~/.ssh/lab key",
        "ansible_ssh_extra_args": "-o ProxyJump=gate",
    }
    same = Route("192.168.1.42", "192.168.1.42", "other", 2222, options)
    _, _, hosts = written([at(40), at(41), far], routes={"192.168.1.42": same})
    assert hosts["far"] == {"cluster_address": "192.168.1.42", "ansible_user": "other"}


def test_ssh_keeps_its_network_where_training_takes_another():
    links = [link("enp1s0", "10.9.0.1/24"), link("enp2s0", "192.168.1.50/24")]
    spark = machine("spark", facts=report("spark", links, came_in="192.168.1.50"))
    _, _, hosts = written([spark], network=IPv4Network("10.9.0.0/24"))
    assert hosts["spark"] == {"cluster_address": "10.9.0.1", "ansible_host": "192.168.1.50"}


def test_the_keys_that_were_seen_are_pinned_under_the_names():
    new = machine("box", login="password", address="192.168.1.42", keys=(KEY,), new_key=True)
    made, files, _ = written([at(40), new])
    assert files[KEYS] == f"box {KEY.type} {KEY.text}\n"
    assert_names("\n".join(draft_lines(made, 200)), "box", KEY.fingerprint)
    assert KEYS not in written([at(40)])[1]


@pytest.mark.parametrize(
    ("machines", "passwords"),
    [
        ([at(40)], "-K"),
        ([machine("box", login="password", address="192.168.1.42")], "-kK"),
        ([machine("localhost", login="local", facts=report())], "-K"),
        ([machine("root", user="root", facts=report(user="root", root=True))], ""),
    ],
)
def test_the_passwords_to_ask_for_follow_the_logins(machines, passwords):
    assert draft(machines, "verify", None, {}).passwords == passwords


def test_remarks_name_what_stands_in_the_way():
    facts = report("arch", release='ID=arch\nPRETTY_NAME="Arch Linux"\n', arch="riscv64",
                   groups=[], battery=True, wireless=["enp5s0"])  # fmt: skip
    node = draft([machine("arch", facts=facts, name="old", asked=True)], "verify", None, {}).nodes[
        0
    ]
    for fact in ("Arch Linux", "riscv64", "sudo", "Wi-Fi", "laptop", "old"):
        assert any(fact in remark for remark in node.remarks), fact


def test_two_machines_at_one_address_are_found_before_anything_is_written():
    twins = [machine(name, login="password", address="192.168.1.42") for name in ("a", "b")]
    assert_names(" ".join(draft(twins, "verify", None, {}).findings()), "a", "b", "192.168.1.42")


words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)


@given(words.filter(str.strip), st.integers(1, 65535), words)
def test_any_text_stays_the_value_that_it_is(user, port, hostname):
    """YAML must not take a login such as `on` or `1e3` for another type, nor end a comment."""
    odd = machine("box", login="password", address="192.168.1.42", user=user, port=port)
    _, _, hosts = written([at(40, hostname or "x"), at(41), odd])
    value = {"cluster_address": "192.168.1.42", "ansible_user": user}
    assert list(hosts.values())[2] == value | ({"ansible_port": port} if port != 22 else {})


def test_an_option_that_the_example_does_not_show_is_an_error():
    with pytest.raises(KeyError, match="nowhere"):
        filled(["# network_mode: verify"], {"nowhere": 1})


# -- the files -------------------------------------------------------------------------------------


def test_the_one_before_is_kept_and_a_failure_leaves_it_in_place(tmp_path):
    folder = tmp_path / "home"
    assert write(folder, {"hosts.yml": "one", "group_vars/x.yml": "x"}) is None
    kept = write(folder, {"hosts.yml": "two"})
    assert (folder / "hosts.yml").read_text() == "two"
    assert (kept / "hosts.yml").read_text() == "one"
    with pytest.raises(OSError, match="name"):
        write(folder, {"n" * 300: "too long a name"})
    assert (folder / "hosts.yml").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["home", kept.name])
