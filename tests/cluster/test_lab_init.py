"""`hearth init` in a home of three machines, and the plays with the inventory that it wrote.

One machine lets in by key, one only by password, one announces itself by mDNS alone. The computer
that it is typed on is on the same network, as the router.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest
import yaml
from support.facts import assert_names
from support.lab import PYTHON, as_root, machines, on, tree
from support.person import HEARTH, PASSWORDS, Person
from support.programs import run
from support.terminal import Terminal
from support.waiting import HANG, until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.rotated("an inventory that init wrote")]

TOWER, LAPTOP, OLDBOX = plan.nodes(3)
ANNOUNCE = f"""
import socket, time
from zeroconf import ServiceInfo, Zeroconf

kind, address = "_ssh._tcp.local.", "{OLDBOX.address}"
home = Zeroconf(interfaces=[address])
home.register_service(ServiceInfo(
    kind, f"oldbox.{{kind}}", 22, addresses=[socket.inet_aton(address)], server="oldbox.local."))
time.sleep({HANG})
"""


@pytest.fixture(scope="module")
def person(tmp_path_factory) -> Iterator[Person]:
    with machines(3):
        person = Person(tmp_path_factory.mktemp("person"))
        public = (person.ssh / "id_ed25519.pub").read_text()
        on("tower", "mkdir -m 700 .ssh && cat >.ssh/authorized_keys", public.encode())
        (person.ssh / "more").write_text(f"Host big\n  HostName {TOWER.address}\n  User lab\n")
        scan = person.call(*person.within("ssh-keyscan", "-t", "ed25519", LAPTOP.address)).stdout
        person_known = f"{scan}192.0.2.9 {scan.split(maxsplit=1)[1]}"
        (person.ssh / "known_hosts").write_text(person_known)
        as_root("oldbox", f"systemd-run --quiet {PYTHON} -c '{ANNOUNCE}'")
        yield person


@pytest.fixture
def before(person):
    """The files of the machines and of the person's ssh, which must be as they are."""
    state = [tree(node, "etc home root") for node in ("tower", "laptop", "oldbox")]
    known = (person.ssh / "known_hosts").read_text()
    yield
    assert [tree(node, "etc home root") for node in ("tower", "laptop", "oldbox")] == state
    assert (person.ssh / "known_hosts").read_text() == known


def test_every_machine_is_found_and_none_is_changed(person, before):
    found = {}

    def heard():
        found.update(json.loads(person.hearth("init", "--json", "--user", plan.USER)))
        return len(found["machines"]) == 4

    until(heard)  # the announcement may begin late
    by_host = {each["host"]: each for each in found["machines"]}
    tower, laptop, oldbox = (by_host[each] for each in ("big", LAPTOP.address, OLDBOX.address))
    assert (tower["login"], tower["address"], tower["nic"]) == ("key", TOWER.address, TOWER.card)
    assert tower["facts"]["hostname"] == "tower"
    assert tower["facts"]["sudo"]
    assert_names(tower["facts"]["gpus"][0]["name"], "5070 Ti")
    assert (laptop["login"], laptop["source"]) == ("password", "~/.ssh/known_hosts")
    assert (oldbox["login"], oldbox["source"]) == ("password", "mDNS")
    assert by_host["localhost"]["address"] == plan.ROUTER
    assert [each["entry"] for each in found["left_out"]] == ["192.0.2.9"]


def test_a_person_answers_and_the_plays_take_what_was_written(person, before):
    words = person.within(sys.executable, "-c", HEARTH, "init", "--not-here")
    with Terminal(*words, cwd=person.checkout, variables=person.environment, columns=80) as screen:
        seen = 0
        for prompt, keys in (
            ("Your login", f"{plan.USER}\n"),
            ("Machines", f"1 2 oldbox={OLDBOX.address}\n"),
            ("Machines", "1 2 3\n"),
            ("Mode", "\n"),
            ("Write", "\n"),
            ("Use it", "\n"),
        ):
            seen = screen.until(rf"{prompt}[^\n]*\]: ", seen)
            screen.type(keys)
        screen.until("--check --diff", seen)
        assert screen.ended() == 0
    assert max(map(len, re.split(r"[\r\n]+", screen.text))) <= 80
    assert (person.checkout / "inventory/.in-use").read_text() == "inventory/home\n"
    hosts = yaml.safe_load((person.checkout / "inventory/home/hosts.yml").read_text())
    addresses = [each["cluster_address"] for each in hosts["cluster"]["hosts"].values()]
    assert addresses == [TOWER.address, LAPTOP.address, OLDBOX.address]
    names = list(hosts["cluster"]["hosts"])
    shown = person.plays("provision.yml", "--check", "--tags", "preflight,network", *PASSWORDS)
    assert_names(shown, *names, *addresses)
    assert "pinned" not in shown  # init has pinned the keys already


def test_the_key_of_another_machine_is_never_taken(person, before):
    known = person.ssh / "known_hosts"
    lines = known.read_text()
    try:
        known.write_text(lines.replace("192.0.2.9", TOWER.address))
        found = json.loads(person.hearth("init", "--json", "--no-mdns", "--user", plan.USER))
    finally:
        known.write_text(lines)
    tower = next(each for each in found["machines"] if each["host"] == "big")
    assert (tower["login"], tower["facts"], tower["host_keys"]) == ("refused", None, [])
    assert_names(tower["trouble"], f"ssh-keygen -R {TOWER.address}")


def test_use_takes_it_from_any_folder(person, tmp_path):
    shown = run(sys.executable, "-c", HEARTH, "use", cwd=tmp_path, **person.environment).stdout
    assert_names(shown, person.checkout / "inventory/home", "hearth use")
