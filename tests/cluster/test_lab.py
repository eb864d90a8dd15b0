"""`scripts/lab`: real machines in a network of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.facts import assert_names
from support.lab import STATE, at_once, computer_before, lab, on, row, snapshot
from support.lab import machines as three_machines
from support.repository import ROOT
from support.waiting import until

# It looks at the whole computer, and measures.
pytestmark = [
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rotated("the lab itself"),
]

NODES = {"tower": "enp5s0", "laptop": "wlp0s20f3", "oldbox": "eno1"}


@pytest.fixture(scope="module")
def before() -> Iterator[dict[str, list[str]]]:
    """The computer's networks, mounts and processes without the lab, which is down in the end."""
    yield computer_before()
    lab("down")


@pytest.fixture(scope="module")
def machines(before) -> Iterator[None]:
    """Three machines."""
    with three_machines():
        yield


def test_three_machines_are_up_and_once_more_changes_nothing(machines):
    for node, card in NODES.items():
        assert row(node)[1] == "on"
        assert row(node)[3] == card
        assert row(node)[-1] == "answers"
    assert "3 machines are up" in lab("up")


def test_a_machine_is_what_an_installer_leaves(machines):
    for node, card in NODES.items():
        assert on(node, "echo lab | sudo -S -p '' id -u") == "0"
        assert on(node, "ls ~/.ssh 2>/dev/null || echo none") == "none"
        links = dict(line.split()[:2] for line in on(node, "ip -brief link").splitlines())
        assert {re.sub("@.*", "", name) for name in links} == {"lo", card, "docker0", "tailscale0"}
        addresses = on(node, "ip -brief -4 address")
        assert "172.17.0.1/16" in addresses
        assert "100.64.0." in addresses
        assert f"127.0.1.1 {node}" in on(node, "cat /etc/hosts")
        assert on(node, "ip -4 route show default").startswith("default via 198.51.100.1 ")
        assert on(node, "systemctl is-system-running") == "running"


def test_a_machine_reaches_its_peers_but_neither_the_computer_nor_the_world(machines, before):
    assert on("tower", "ping -c 1 -W 2 198.51.100.13 >/dev/null && echo yes") == "yes"
    mine = [
        word.split("/")[0]
        for line in before["addresses"]
        for word in line.split()[2:]
        if "." in word and not word.startswith("127.")
    ]
    for address in [*mine, "203.0.113.1"]:
        assert on("tower", f"ping -c 1 -W 1 {address} >/dev/null || echo no") == "no"


def test_a_machine_can_change_neither_the_clock_nor_the_kernel_of_the_computer(machines):
    as_root = "echo lab | sudo -S -p '' sh -c"
    assert "cannot set date" in on("tower", f"{as_root} 'LC_ALL=C date -s @1000 2>&1 || true'")
    setting = "/proc/sys/kernel/pid_max"  # to what it is already, should it not be refused
    written = on("tower", f"{as_root} 'cat {setting} | tee {setting} || echo refused' 2>&1")
    assert "Read-only file system" in written


def test_a_cut_cable_is_dark_on_both_ends_until_it_is_joined(machines):
    losses = "cat /sys/class/net/wlp0s20f3/carrier_down_count"
    lost = int(on("laptop", losses))
    lab("cut", "laptop")
    assert row("laptop")[4] == "cut"
    assert row("laptop")[-1] == "silent"
    assert on("tower", "ping -c 1 -W 1 198.51.100.12 >/dev/null || echo no") == "no"
    lab("join", "laptop")
    until(lambda: row("laptop")[-1] == "answers")
    assert int(on("laptop", losses)) == lost + 1


def test_power_off_keeps_the_disk_and_power_on_boots_anew(machines):
    on("oldbox", "echo kept >note")
    started = "systemctl show -p KernelTimestamp -p UserspaceTimestamp"
    boot = on("oldbox", started)
    lab("power-off", "oldbox")
    assert row("oldbox")[1] == "off"
    assert lab("ssh", "oldbox", "true", status=255)
    assert row("tower")[-1] == "answers"
    lab("power-on", "oldbox")
    assert "kept" in on("oldbox", "cat note")
    assert on("oldbox", started) != boot


def test_reset_gives_a_bare_machine_and_leaves_the_others(machines):
    for node in ("laptop", "oldbox"):
        on(node, "echo mine >~/left")
    lab("link", "laptop", "100mbit")
    lab("reset", "laptop")
    assert on("laptop", "ls ~/left 2>/dev/null || echo bare") == "bare"
    assert on("oldbox", "cat ~/left") == "mine"
    assert row("laptop")[5] == "off"


BUSY = """
import time
end, used = time.monotonic() + 1, time.process_time()
while time.monotonic() < end: pass
print(time.process_time() - used)
"""


def test_a_share_of_the_processor_holds_and_is_lifted(machines):
    lab("cpu", "tower", "0.3")
    assert float(on("tower", f"python3 -c '{BUSY}'")) < 0.4
    lab("cpu", "tower", "off")
    until(lambda: float(on("tower", f"python3 -c '{BUSY}'")) > 0.4)


def test_each_machine_weighs_as_much_as_a_process_of_the_computer(machines):
    # Five seconds on one processor, so that the machines get going together.
    program = BUSY.replace("+ 1", "+ 5")
    (processor, *_) = os.sched_getaffinity(0)
    command = ["taskset", "-c", str(processor), "python3", "-c", program]
    own = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    used = at_once(lambda node: float(on(node, shlex.join(command))), NODES)
    assert float(own.communicate()[0]) < sum(used.values()) / 2


def test_a_machine_has_no_more_memory_than_it_is_held_to(machines):
    takes = """python3 -c 'b"x" * (1 << 29)' && echo enough || echo ended"""
    lab("memory", "laptop", "0.4")
    assert on("laptop", takes).startswith("ended")
    lab("memory", "laptop", "off")
    assert on("laptop", takes).startswith("enough")


RECEIVE = """
import socket, time
server = socket.create_server(("", 5201)); server.settimeout(20)
link = server.accept()[0]; got, began = 0, None
while data := link.recv(1 << 20):
    began = began or time.monotonic(); got += len(data)
print(got * 8e-6 / (time.monotonic() - began))
"""
SEND = """
import socket, sys, time
for _ in range(50):
    try: link = socket.create_connection((sys.argv[1], 5201), 5); break
    except OSError: time.sleep(0.2)
end = time.monotonic() + 1
while time.monotonic() < end: link.sendall(bytes(1 << 16))
"""


def measured(sender: str, receiver: str) -> float:
    """Return the Mbit/s that go from one machine to the other, over a second."""
    address = row(receiver)[2]
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(on, receiver, f"python3 -c '{RECEIVE}'")
        on(sender, f"python3 -c '{SEND}' {address}")
        return float(result.result())


def test_a_cable_carries_what_it_is_set_to_in_both_directions(machines):
    lab("link", "laptop", "100mbit")
    assert 60 < measured("laptop", "tower") < 115
    assert 60 < measured("tower", "laptop") < 115
    lab("link", "laptop", "1gbit")
    assert 150 < measured("laptop", "tower") < 1150
    # A machine that was unplugged meanwhile keeps its cable.
    lab("power-off", "laptop")
    lab("link", "laptop", "10mbit")
    lab("power-on", "laptop")
    assert measured("tower", "laptop") < 13
    lab("link", "laptop", "off")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("cut", "attic"), ["attic", "tower, laptop, oldbox"]),
        (("link", "tower", "fast"), ["fast", "speed"]),
        (("up", "--nodes", "2"), ["3 machines"]),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(machines, arguments, facts):
    state = (STATE / "state.json").read_bytes()
    assert_names(lab(*arguments, status=2), *facts)
    assert (STATE / "state.json").read_bytes() == state


# ---- the end ------------------------------------------------------------------------------------


def test_down_leaves_nothing_behind(before, machines):
    lab("down")
    assert snapshot() == before
    assert "not up" in lab("status", status=2)
    lab("down")  # once more does no harm


@pytest.mark.rotated("a lab after a crash")
@pytest.mark.parametrize(
    "crash", ["while it comes up", "its record is lost", "its router is killed"]
)
def test_down_is_complete_after_a_crash(before, crash):
    if crash == "while it comes up":
        command = subprocess.Popen([ROOT / "scripts" / "lab", "up"], stdout=subprocess.DEVNULL)
        until(lambda: (STATE / "laptop.log").exists())
        command.kill()
        command.wait(10)
    else:
        lab("up", "--nodes", "2")
    if crash == "its record is lost":
        (STATE / "state.json").unlink()
    elif crash == "its router is killed":
        for line in snapshot()["processes"]:
            if "dnsmasq" in line:
                os.kill(int(line.split()[0]), 9)
    lab("down")
    assert snapshot() == before
