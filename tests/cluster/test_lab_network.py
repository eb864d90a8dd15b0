"""The network stage on machines: addresses are set, and no fault locks anyone out."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.facts import assert_line
from support.lab import (
    STATE,
    Controller,
    Play,
    answers,
    at_once,
    computer_before,
    inside,
    inventory,
    is_on,
    lab,
    machines,
    on,
    packed,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = pytest.mark.lab

# One of each renderer, and who is already where another wants to be.
TRIED = ("tower", "laptop", "node4")
NAMES = ",".join(TRIED)
PEER = "oldbox"
NODES = {node.name: node for node in plan.nodes(4)}
CONFIRM_WITHIN = 15  # in the tests where something goes wrong
QUICK = ("-e", f"_network_confirm_timeout={CONFIRM_WITHIN}")

FILES = "/etc/netplan /etc/NetworkManager/system-connections"
FINGERPRINT = (
    f"find {FILES} -printf '%p %y %m %U %G\\n' | sort; "
    f"find {FILES} -type f -exec sha256sum {{}} + | sort"
)
ARMED = "systemctl is-active hearth-network-undo.timer"


def elsewhere(node: str) -> str:
    """Return a free address for a machine."""
    return NODES[node].address.replace("100.1", "100.6")


def address_of(node: str) -> dict[str, object]:
    """Return the IPv4 address that a machine's card has."""
    said = inside(node, f"ip -j -4 address show {NODES[node].card}")
    found = json.loads(said) if said.startswith("[") else []
    return next((each for link in found for each in link.get("addr_info", [])), {})


def leased(node: str) -> bool:
    """Return whether the machine has the router's address, and answers at it."""
    its = address_of(node)
    return its.get("local") == NODES[node].address and bool(its.get("dynamic")) and answers(node)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Four machines; what tells whether the files of each are still the installer's."""
    computer_before()
    with machines(4):
        yield {node: inside(node, FINGERPRINT) for node in NODES}


@pytest.fixture
def bare(home) -> dict[str, str]:
    """The machines as their installer left them; the controller knows the host key of each."""
    spoilt = [
        node
        for node in NODES
        if not (is_on(node) and inside(node, FINGERPRINT) == home[node] and leased(node))
    ]
    if spoilt:
        lab("reset", *spoilt)
    for node in spoilt:
        home[node] = inside(node, FINGERPRINT)
        for address in (NODES[node].address, elsewhere(node)):
            forget = ["ssh-keygen", "-q", "-R", address, "-f", STATE / "known_hosts"]
            subprocess.run(forget, capture_output=True, timeout=10)
    for node in NODES:
        on(node, "true")
        inside(node, "rm -rf /run/hearth")
    return home


@pytest.fixture
def undo(tmp_path) -> Path:
    """A playbook that goes back to what set up the network before Hearth did."""
    path = tmp_path / "undo.yml"
    path.write_text(
        "- hosts: cluster\n  gather_facts: false\n  become: true\n  tasks:\n"
        "    - ansible.builtin.import_role: {name: network, tasks_from: undo}\n"
    )
    return path


def hosts(folder: Path, **changed: dict[str, object]) -> Path:
    """Return an inventory of the four, at the router's addresses unless `changed` by name."""
    return inventory(
        folder,
        {
            name: {"cluster_address": node.address, "first_address": node.address}
            | {"ansible_host": node.address}
            | changed.get(name, {})
            for name, node in NODES.items()
        },
    )


def play(folder: Path, only: str, *arguments: str, **changed: dict[str, object]) -> Play:
    """Begin the network stage on some machines, for fixed addresses."""
    return Play(
        hosts(folder, **changed),
        "playbooks/provision/network.yml",
        *("-e", f"nodes={only}", "-e", "network_mode=static"),
        *arguments,
    )


def is_as_before(node: str, before: dict[str, str]) -> None:
    """Check that a machine is reachable where it was, and nothing is left of the attempt."""
    until(lambda: leased(node))
    assert inside(node, FINGERPRINT) == before[node]
    # The address is back before what brought it back has ended.
    until(lambda: inside(node, ARMED) == "inactive")
    assert inside(node, "ls -A /run/netplan 2>/dev/null") == ""
    assert "hearth" not in inside(node, "ls /run/NetworkManager/system-connections 2>/dev/null")


# ---- it works -----------------------------------------------------------------------------------


@pytest.mark.rotated("addresses are set or kept")
def test_static_addresses_are_set_once_and_last(bare, tmp_path):
    screen = play(tmp_path, NAMES).end()
    for node in TRIED:
        assert f"{node} changed=1" in screen
    screen = play(tmp_path, NAMES).end()
    for node in TRIED:
        assert f"{node} changed=0" in screen
    lab("power-off", *TRIED)
    lab("power-on", *TRIED)
    for node in TRIED:
        its = address_of(node)
        assert (its["local"], its["prefixlen"]) == (NODES[node].address, 24)
        assert "dynamic" not in its
        routes = inside(node, "ip -4 route show default").splitlines()
        assert len(routes) == 1
        assert "via 198.51.100.1 " in routes[0]


@pytest.mark.rotated("addresses are set or kept")
def test_machines_move_to_other_addresses_and_back(bare, tmp_path, undo):
    there = {node: {"cluster_address": elsewhere(node)} for node in TRIED}
    play(tmp_path, NAMES, **there).end()
    for node in TRIED:
        assert address_of(node).get("local") == elsewhere(node)
        assert "dynamic" not in address_of(node)
        there[node]["ansible_host"] = elsewhere(node)
    Play(hosts(tmp_path, **there), undo, "--limit", NAMES).end()
    for node in TRIED:
        is_as_before(node, bare)


@pytest.mark.rotated("addresses are set or kept")
def test_check_mode_shows_the_change_and_makes_none(bare, tmp_path):
    screen = play(tmp_path, NAMES, "--check", "--diff").end()
    for node in TRIED:
        assert f"+      - {NODES[node].address}/24" in screen or (
            f"+address1={NODES[node].address}/24,198.51.100.1" in screen
        )
        untouched(node, bare)


def glob(node: str, renderer: str = "") -> str:
    """Return the command that has netplan define a machine's card by a pattern."""
    text = (
        rf"network:\n  version: 2\n{renderer}  ethernets:\n    all:\n"
        rf"      match: {{name: {NODES[node].card[0]}*}}\n      dhcp4: true\n"
    )
    return f"printf '{text}' >/etc/netplan/00-installer-config.yaml && netplan generate"


# Definitions that fit more than one card, and a profile that NetworkManager keeps in memory.
OTHERS = {
    "tower": f"{glob('tower')}; networkctl reload",
    "laptop": glob("laptop", r"  renderer: NetworkManager\n") + "; nmcli connection reload; "
    "nmcli connection up netplan-all",
    "node4": "rm /etc/NetworkManager/system-connections/*; nmcli connection reload; "
    "nmcli connection add save no type ethernet ifname enp3s0 con-name 'Wired connection 1'; "
    "nmcli connection up 'Wired connection 1'",
}


@pytest.mark.rotated("addresses are set or kept")
def test_a_definition_that_is_not_for_one_card_alone_is_kept(bare, tmp_path, undo):
    for node, command in OTHERS.items():
        inside(node, command)
        until(lambda node=node: leased(node))
    before = {node: inside(node, FINGERPRINT) for node in TRIED}
    for changed in (1, 0):
        screen = play(tmp_path, NAMES).end()
        for node in TRIED:
            assert f"{node} changed={changed}" in screen
    for node in TRIED:
        assert address_of(node).get("local") == NODES[node].address
        assert "dynamic" not in address_of(node)
    assert "name: e*" in inside("tower", "cat /etc/netplan/*")
    Play(hosts(tmp_path), undo, "--limit", NAMES).end()
    for node in TRIED:
        is_as_before(node, before)


OUTSIDE, SECOND_ROUTER = "203.0.113.80", "198.51.100.2"


@pytest.fixture
def outside(bare) -> Iterator[None]:
    """A package server that only the router leads to, and a second address of the router."""

    def router(verb: str) -> None:
        for address, card in ((f"{OUTSIDE}/32", "lo"), (f"{SECOND_ROUTER}/24", "lan")):
            command = [*("nsenter", f"--net={STATE / 'net'}", "ip", "address"), verb, address]
            subprocess.run([*command, "dev", card], check=True, timeout=10)

    source = f"echo 'deb http://{OUTSIDE}/debian x main' >/etc/apt/sources.list.d/outside.list"
    for node in BY_PROFILE:
        inside(node, source, status=0)
    router("add")
    yield
    router("delete")
    for node in BY_PROFILE:
        inside(node, "rm /etc/apt/sources.list.d/outside.list")


@pytest.mark.rotated("addresses are set or kept")
def test_a_gateway_is_proved_to_lead_out_or_said_not_to_be_proved(bare, outside, tmp_path):
    inside(PEER, "sysctl -w net.ipv4.ip_forward=0", status=0)
    mistaken = {"network_gateway": NODES[PEER].address}  # a living machine, and no router

    def try_it(node: str) -> str:
        screen = play(tmp_path / node, node, **{node: mistaken}).end(status=2)
        is_as_before(node, bare)
        return screen

    for node, screen in at_once(try_it, BY_PROFILE).items():
        assert_line(screen, node, f"gateway {NODES[PEER].address}", OUTSIDE)
    led = {node: {"network_gateway": SECOND_ROUTER} for node in TRIED}
    screen = play(tmp_path / "all", NAMES, **led).end()
    for node in TRIED:
        assert f"{node} changed=1" in screen
    assert [
        line.split(":")[0].strip() for line in screen.splitlines() if SECOND_ROUTER in line
    ] == [
        "laptop"  # which knows of no server outside
    ]


# ---- it goes wrong ------------------------------------------------------------------------------

TAKEN = "198.51.100.77"  # a second one of the peer's: it would give up a lease that is claimed
MISTAKES = {
    "wrong gateway": ({"network_gateway": "198.51.100.250"}, "gateway 198.51.100.250"),
    "address of a peer": ({"cluster_address": TAKEN}, f"tried {TAKEN}/24"),
    "unknown NIC": ({"network_interface": "enp99s0"}, "on enp99s0"),
}
# Everything that goes wrong does so with networkd and with NetworkManager, whose two ways of
# keeping a definition take turns.
THROUGH_NETPLAN, BY_PROFILE = ("tower", "laptop"), ("tower", "node4")


@pytest.mark.rotated("a change of addresses fails")
@pytest.mark.parametrize(
    ("mistake", "nodes"),
    list(zip(MISTAKES, (THROUGH_NETPLAN, BY_PROFILE, THROUGH_NETPLAN), strict=True)),
    ids=MISTAKES,
)
def test_a_mistake_forced_past_the_refusals_is_taken_back(bare, tmp_path, mistake, nodes):
    settings, said = MISTAKES[mistake]
    inside(PEER, f"ip address replace {TAKEN}/24 dev {NODES[PEER].card}")

    def try_it(node: str) -> str:
        forced = (*QUICK, "-e", "_network_force=on")
        screen = play(tmp_path / node, node, *forced, **{node: settings}).end(status=2)
        is_as_before(node, bare)
        return screen

    for node, screen in at_once(try_it, nodes).items():
        assert screen.count(f"{node}: tried ") == 1
        assert said in screen
        assert_line(screen, "change back", NODES[node].address, "/etc/")
    inside(PEER, f"ip address delete {TAKEN}/24 dev {NODES[PEER].card}")
    assert answers(PEER)


def begun(folder: Path, node: str) -> Play:
    """Begin to move a machine to a free address; return once its undo is armed."""
    started = play(folder / node, node, *QUICK, **{node: {"cluster_address": elsewhere(node)}})
    until(lambda: inside(node, ARMED) == "active")
    return started


@contextmanager
def frozen(folder: Path, node: str) -> Iterator[Play]:
    """Have the move of a machine stand still between the change and its confirmation."""
    started = begun(folder, node)
    started.freeze()
    try:
        until(lambda: address_of(node).get("local") == elsewhere(node))
        yield started
    finally:
        started.thaw()


@pytest.mark.rotated("a change of addresses fails")
def test_a_cable_cut_during_the_change_is_survived(bare, tmp_path):
    def try_it(node: str) -> str:
        started = begun(tmp_path, node)
        lab("cut", node)
        try:
            until(lambda: inside(node, ARMED) == "inactive")
        finally:
            lab("join", node)
        is_as_before(node, bare)
        return started.end(status=2)

    for node, screen in at_once(try_it, BY_PROFILE).items():
        assert f"{node}: tried {elsewhere(node)}/24" in screen
        assert_line(screen, f"no answer at {elsewhere(node)}")
        assert_line(screen, "change back", f"at {NODES[node].address}")


@pytest.mark.rotated("a change of addresses fails")
def test_a_controller_that_dies_before_it_confirms_leaves_nothing_behind(bare, tmp_path):
    def try_it(node: str) -> str:
        with frozen(tmp_path, node) as started:
            started.kill()
        is_as_before(node, bare)
        check = ("--check",) if node == TRIED[0] else ()
        return play(tmp_path / node, node, *check, "-e", "network_mode=verify").end()

    for node, screen in at_once(try_it, THROUGH_NETPLAN).items():
        assert_line(screen, "confirmed", NODES[node].card)
        assert elsewhere(node) in screen


@pytest.mark.rotated("a change of addresses fails")
def test_an_undo_begun_before_its_time_disarms_the_timer(bare, tmp_path):
    def try_it(node: str) -> str:
        with frozen(tmp_path, node) as started:
            # What a confirmation that finds the network broken begins, and may not live to end.
            inside(node, "systemctl start --no-block hearth-network-undo.service", status=0)
            until(lambda: inside(node, "ls /run/hearth/network/undone").startswith("/"))
            is_as_before(node, bare)
        return started.end(status=2)

    for node, screen in at_once(try_it, BY_PROFILE).items():
        assert_line(screen, "change back", f"at {NODES[node].address}")


@pytest.mark.rotated("a change of addresses fails")
def test_a_machine_that_is_unplugged_before_the_confirmation_forgets_the_change(bare, tmp_path):
    def try_it(node: str) -> str:
        with frozen(tmp_path, node) as started:
            lab("power-off", node)
            lab("power-on", node)
            is_as_before(node, bare)
        return started.end(status=2)

    for node, screen in at_once(try_it, BY_PROFILE).items():
        assert_line(screen, f"no answer at {elsewhere(node)}")
        assert_line(screen, "restarted", f"at {NODES[node].address}")


# ---- what is refused ----------------------------------------------------------------------------


def untouched(node: str, before: dict[str, str]) -> None:
    assert inside(node, "test -e /run/hearth/network || echo nothing") == "nothing"
    is_as_before(node, before)


@pytest.mark.rotated("addresses are set or kept")
def test_all_refusals_come_at_once_and_nothing_is_armed(bare, tmp_path):
    wrong = {
        "tower": {"network_dns": ["router"], "network_gateway": "203.0.113.1"},
        "laptop": {"network_interface": "enp99s0", "cluster_address": NODES[PEER].address},
        "node4": {"cluster_address": "198.51.100.255"},
    }
    screen = play(tmp_path, NAMES, **wrong).end(status=2)
    for finding in (
        ("tower: network_dns router",),
        ("tower: network_gateway 203.0.113.1", "198.51.100.0/24"),
        ("laptop: ", "network_interface enp99s0", "wlp0s20f3 (02:4c:41:42:00:02)"),
        (f"laptop: {NODES[PEER].address}", "MAC 02:4c:41:42:00:03"),
        ("node4: cluster_address 198.51.100.255", "198.51.100.0/24"),
    ):
        assert_line(screen, *finding)
    for node in TRIED:
        untouched(node, bare)


@pytest.mark.rotated("addresses are set or kept")
def test_two_machines_that_swap_addresses_are_told_how(bare, tmp_path):
    tower, laptop = NODES["tower"].address, NODES["laptop"].address
    swapped = {"tower": {"cluster_address": laptop}, "laptop": {"cluster_address": tower}}
    screen = play(tmp_path, "tower,laptop", **swapped).end(status=2)
    assert_line(screen, f"tower: {laptop}", "-e nodes=laptop", "third", tower)
    assert_line(screen, f"laptop: {tower}", "-e nodes=tower", "third", laptop)
    untouched("tower", bare)


@pytest.mark.rotated("addresses are set or kept")
def test_a_machine_is_not_moved_under_a_run(bare, tmp_path):
    node = "laptop"
    on(
        node,
        "mkdir -p ai-cluster/config && cd ai-cluster/config && "
        """echo '{"run": "evening", "pid": 1}' >supervisor.lock && """
        "(flock supervisor.lock sleep 3600 >/dev/null 2>&1 &) && sleep 0.2",
    )
    moved = {node: {"cluster_address": elsewhere(node)}}
    screen = play(tmp_path, node, **moved).end(status=2)
    assert_line(screen, node, "'evening'", "under way")
    untouched(node, bare)
    on(node, "pkill -x flock; pkill -x sleep; rm -r ai-cluster")


@pytest.mark.rotated("addresses are set or kept")
def test_a_power_cut_during_the_change_is_noticed_as_soon_as_the_machine_is_back(bare, tmp_path):
    node = "node4"
    started = play(tmp_path, node, **{node: {"cluster_address": elsewhere(node)}})  # 120 s
    until(lambda: inside(node, ARMED) == "active")
    started.freeze()
    until(lambda: address_of(node).get("local") == elsewhere(node))
    lab("power-off", node)
    started.thaw()
    lab("power-on", node)
    began = time.monotonic()
    screen = started.end(status=2)
    assert time.monotonic() - began < 90
    assert_line(screen, "restarted", f"at {NODES[node].address}")
    is_as_before(node, bare)


@pytest.mark.rotated("addresses are set or kept")
def test_verify_says_what_is_missing_and_the_two_ways_out(bare, tmp_path):
    node = "laptop"
    missing = {node: {"cluster_address": elsewhere(node)}}
    folder = hosts(tmp_path, **missing)
    screen = Play(folder, "playbooks/provision/network.yml", "-e", f"nodes={node}").end(status=2)
    assert f"has {NODES[node].address}/24" in screen
    assert_line(screen, elsewhere(node), f"MAC {NODES[node].mac}")
    assert "network_mode: static" in screen
    untouched(node, bare)
    screen = Play(hosts(tmp_path), "playbooks/provision/network.yml").end()
    assert "changed=1" not in screen


@pytest.mark.rotated("addresses are set or kept")
def test_a_nic_of_ifupdown_is_left_alone(bare, tmp_path):
    its = NODES[PEER]
    inside(
        PEER,
        f"rm /etc/netplan/*; netplan generate; networkctl reload; sleep 1; "
        f"ip address replace {its.address}/24 dev {its.card}; ip link set {its.card} up; "
        "ip route replace default via 198.51.100.1; mkdir -p /etc/network; "
        f"printf 'auto {its.card}\\niface {its.card} inet dhcp\\n' >/etc/network/interfaces",
    )
    try:
        files = inside(PEER, f"{FINGERPRINT}; cat /etc/network/interfaces")
        screen = play(tmp_path, PEER).end(status=2)
        assert_line(screen, PEER, its.card, "ifupdown", "/etc/network/interfaces")
        assert_line(screen, its.address, f"MAC {its.mac}")
        assert inside(PEER, f"{FINGERPRINT}; cat /etc/network/interfaces") == files
        assert inside(PEER, ARMED) == "inactive"
    finally:
        lab("reset", PEER)


# ---- the controller is a node -------------------------------------------------------------------


@pytest.mark.rotated("addresses are set or kept")
def test_the_controller_sets_its_own_address_without_ssh(bare, tmp_path):
    code = packed((Controller(tmp_path).checkout, "hearth"))
    ansible = (
        "cd /root/hearth && LC_ALL=C.UTF-8 PYTHONPATH=training:controller "
        "PYTHONDONTWRITEBYTECODE=1 /opt/lab/venv/bin/python -m ansible.cli.playbook "
        "-i /root/hosts.yml playbooks/provision/network.yml -e nodes=me -e network_mode=static"
    )
    mistake = f"{' '.join(QUICK)} -e _network_force=on -e network_gateway=198.51.100.250"

    def try_it(node: str) -> None:
        me = {"cluster_address": elsewhere(node), "ansible_connection": "local"}
        peer = {"cluster_address": NODES[PEER].address}
        inside(node, "tar -C /root -x", given=code)
        listed = json.dumps({"cluster": {"hosts": {"me": me, PEER: peer}}})
        inside(node, "cat >/root/hosts.yml", given=listed.encode())
        wrong = inside(node, f"{ansible} {mistake}")
        assert_line(wrong, "gateway 198.51.100.250")
        assert f"is at {NODES[node].address}; /etc/" in wrong
        is_as_before(node, bare)
        assert "me changed=1" in inside(node, ansible)
        assert address_of(node).get("local") == elsewhere(node)
        assert "me changed=0" in inside(node, ansible)

    at_once(try_it, TRIED)
