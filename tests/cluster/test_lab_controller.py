"""The computer that one types on is rank 0: everything is played on a machine of the lab itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.facts import assert_line
from support.lab import PYTHON, Controller, inside, machines, packed, short_run
from support.repository import ROOT

from hearth_lab import plan

pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.rotated("a controller that is a node"),
]

TOWER, LAPTOP = plan.nodes(2)
ADDRESS = {"tower": "198.51.100.61", "laptop": "198.51.100.62"}
HOSTS = {
    "tower": {"ansible_connection": "local", "cluster_address": ADDRESS["tower"]},
    "laptop": {"cluster_address": ADDRESS["laptop"], "first_address": LAPTOP.address},
}
# In the place of group_vars/cluster/machines.yml of the example.
MACHINES = {
    "ansible_user": plan.USER,
    "ansible_password": plan.PASSWORD,
    "ansible_become_password": plan.PASSWORD,
    "network_mode": "static",
    "driver_repo": "nvidia",
    "_driver_repo_url": "file:/opt/lab/repository/nvidia",
    "driver_reboot": True,
    "python_mode": "venv",
    "python_lock": "cpu",
    "hearth_python": PYTHON,
    "hearth_models": "/opt/lab/models",
    "hearth_threads": 1,
}
# As `pip install` leaves them in .venv/bin, which the image does not have.
_COMMANDS = {"ansible": "adhoc", "ansible-playbook": "playbook"}


def repository(checkout: Path) -> bytes:
    """Return an archive of a clone with an inventory of one's own, and with Ansible's commands."""
    example = ROOT / "inventory/homelab.example/group_vars/cluster/connection.yml"
    own = {
        "inventory/house/hosts.yml": yaml.safe_dump({"cluster": {"hosts": HOSTS}}, sort_keys=False),
        "inventory/house/group_vars/cluster/machines.yml": yaml.safe_dump(MACHINES),
        "inventory/house/group_vars/cluster/connection.yml": example.read_text(),
    }
    for name, module in _COMMANDS.items():
        own[f"bin/{name}"] = (
            f"#!{PYTHON}\nimport sys\nfrom ansible.cli.{module} import main\nsys.exit(main())\n"
        )
    for name, text in own.items():
        file = checkout / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    return packed((checkout, "hearth"))


def play(*words: str) -> str:
    """Call ansible-playbook on the tower as its user does, and return what the screen showed."""
    command = (
        "cd ~/hearth && PATH=$PWD/bin:$PATH PYTHONPATH=training:controller LC_ALL=C.UTF-8 "
        f"ansible-playbook -i inventory/house {' '.join(words)}; echo status $?"
    )
    screen = inside("tower", f"runuser -l {plan.USER} -c '{command}'")
    screen, _, status = screen.rpartition("status ")
    assert int(status) == 0
    return screen


@pytest.fixture(scope="module")
def tower(real_models, tmp_path_factory) -> Iterator[None]:
    """Two machines; the first has the repository, and no SSH server that anybody could reach."""
    with machines(2):
        unpack = f"runuser -u {plan.USER} -- tar --extract --directory /home/{plan.USER}"
        clone = Controller(tmp_path_factory.mktemp("person")).checkout
        inside("tower", unpack, given=repository(clone))
        inside("tower", "systemctl disable --now ssh.service ssh.socket; pkill -x sshd; true")
        yield


def test_it_gets_its_own_address_and_provisions_the_others_once(tower):
    started = inside("tower", "cat /proc/sys/kernel/random/boot_id")
    screen = play("provision.yml")
    for node, its in (("tower", TOWER), ("laptop", LAPTOP)):
        assert re.search(rf"✓ {node} +\d +{ADDRESS[node]} +{its.card}", screen)
    assert_line(screen, "2 nodes", "verified")
    assert inside("tower", "cat /proc/sys/kernel/random/boot_id") == started
    assert inside("tower", "ss -ltnH 'sport = :22'") == ""
    screen = play("provision.yml")
    assert "laptop changed=0 · tower changed=0" in screen


def test_no_loopback_address_leaves_it(tower):
    for node in ADDRESS:
        for name, address in ADDRESS.items():
            assert inside(node, f"getent ahostsv4 {name} | cut -d ' ' -f 1 | sort -u") == address
    screen = play("train.yml", *short_run(2, "smollm2-135m"))
    assert_line(screen, "finished", "2 of 2 steps", "tower, laptop")
    home = Path("/home", plan.USER)
    left = f"{home}/ai-cluster/config {home}/ai-cluster/results /etc/nccl.conf /etc/default/hearth"
    assert inside("laptop", f"grep -r '127[.]0[.]' {left} || echo none") == "none"
