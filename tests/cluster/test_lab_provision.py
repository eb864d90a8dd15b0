"""From bare machines to a cluster that trains, and back: the whole of provision.yml.

The machines get fixed addresses. One day in five they get packages from a real wheelhouse, on
others the image's Python has them and the machines are of several releases. The tests tell one
story, so they run in order.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_line
from support.lab import PYTHON, Play, bring, inside, inventory, lab, machines, on, short_run, tree
from support.rotated import ALL, SEED
from support.waiting import HANG

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = {node.name: node for node in plan.nodes(3)}
TURN = 1 + SEED % 2 if SEED % 5 else 0  # in five weeks, each turn meets each rotated test
INSTALLS = ALL or TURN == 0
OF_A_DAY = ["bookworm", "trixie,bookworm,resolute", "noble,noble,jammy"]
PASSWORD = "only-these-machines-know-it"
EVERYTHING = "etc home opt root usr/local var/lib/hearth var/lib/systemd/linger boot srv"


def fixed(node: plan.LabNode) -> str:
    """Return the address that a machine is to get, which the router does not hand out."""
    return node.address.replace("100.1", "100.6")


class Cluster:
    """Three machines, the inventory that a person would write for them, and their passwords.

    `model` is at the same place on each.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self.model = model
        self.inventory = inventory(
            folder / "house",
            {
                name: {
                    "cluster_address": fixed(node),
                    "first_address": node.address,
                    "network_mode": "static",
                    **({} if INSTALLS else {"hearth_python": PYTHON}),
                }
                for name, node in NODES.items()
            },
        )
        self.vault = folder / "vault-password"
        self.vault.write_text("opens the vault\n")
        secrets = folder / "secrets.yml"
        secrets.write_text(f"ansible_password: {PASSWORD}\nansible_become_password: {PASSWORD}\n")
        subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "vault", "encrypt"),
                *("--vault-password-file", self.vault, secrets),
            ],
            check=True,
            capture_output=True,
            timeout=HANG,
        )
        self._secrets = ["-e", f"@{secrets}", "--vault-password-file", self.vault]

    def play(self, playbook: str, *arguments: object, status: int | None = 0) -> str:
        """Play as a person with the vault's password; no password is ever on the screen."""
        play = Play(self.inventory, playbook, *self._secrets, *arguments)
        screen = play.end(status)
        assert PASSWORD not in screen
        return screen

    def train(self, *arguments: object) -> str:
        """Train as a person who has no password of these machines: not even for sudo."""
        none = ["-e", "ansible_password=", "-e", "ansible_become_password="]
        return Play(self.inventory, "train.yml", *none, *arguments).end()


@pytest.fixture(scope="module", params=OF_A_DAY if ALL else [OF_A_DAY[TURN]])
def cluster(request, tiny_model, tmp_path_factory) -> Iterator[Cluster]:
    # Not below /tmp, which a machine has for itself.
    kept = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    try:
        model = shutil.copytree(tiny_model, kept / "tiny")
        with machines(3, "--release", request.param):
            for node in NODES:
                on(node, "true")  # Ubuntu notes the first login in the home
                inside(node, f"echo {plan.USER}:{PASSWORD} | chpasswd")
            bring(model, NODES)
            yield Cluster(tmp_path_factory.mktemp("person"), model)
    finally:
        shutil.rmtree(kept)


@pytest.fixture(scope="module")
def bare(cluster) -> dict[str, dict[str, str]]:
    """/etc of each machine before Hearth."""
    return {node: tree(node) for node in NODES}


@pytest.mark.rotated
def test_check_mode_on_bare_machines_foretells_and_changes_nothing(cluster, bare):
    before = {node: tree(node, EVERYTHING) for node in NODES}
    screen = cluster.play("provision.yml", "--check", "--diff", "-vvv")
    assert re.search(r"HandleLidSwitch=ignore", screen)
    for node, its in NODES.items():
        assert fixed(its) in screen
        assert tree(node, EVERYTHING) == before[node]


@pytest.mark.rotated("a machine that is off")
def test_a_node_that_is_off_is_named_at_once_and_the_others_are_done(cluster, bare):
    lab("power-off", "oldbox")
    screen = cluster.play("provision.yml", status=None)
    lab("power-on", "oldbox")
    assert_line(screen.split("Logins without a password")[0], "oldbox", "reached")
    for node in ("tower", "laptop"):
        assert re.search(rf"✓ {node} +\d +{fixed(NODES[node])} +{NODES[node].card}", screen)


@pytest.fixture(scope="module")
def provisioned(cluster, bare) -> str:
    """Facts that provisioning shows: on bare machines, or after one of them was off."""
    return cluster.play("provision.yml")


def test_all_are_provisioned_and_verified(provisioned):
    screen = provisioned
    for node, its in NODES.items():
        assert re.search(rf"✓ {node} +\d +{fixed(its)} +{its.card}", screen)
        assert re.search(rf"✓ {node} .*2\.13\.0", screen)
    for card in ("RTX 5070 Ti", "RTX 4070 Laptop", "RTX 3070 Ti"):
        assert card in screen
    assert_line(screen, "all-reduce", "3 ranks", "right")
    assert_line(screen, "3 nodes", "verified")
    assert "[WARNING]" not in screen


@pytest.mark.rotated("a machine that is off")
def test_the_next_run_finishes_what_was_left_and_no_more(provisioned):
    # Done before, but for the list of nodes by which a person starts a rank by hand, and the host
    # key of a machine that nobody had seen before.
    done = re.findall(r"^  (.+): changed on .*\btower\b", provisioned, re.MULTILINE)
    readme = [name for name in done if name.startswith("Write its README")]
    assert readme
    assert {*done} <= {*readme, "Record the workers' host keys on rank 0"}


@pytest.mark.rotated("provisioned twice, and undone")
def test_a_second_run_changes_nothing_and_shows_no_secret(cluster, provisioned):
    before = {node: tree(node) for node in NODES}
    screen = cluster.play("provision.yml", "-vvv")
    recap = screen.split("PLAY RECAP")[-1]
    for node in NODES:
        assert re.search(rf"^{node} .* changed=0 +unreachable=0 +failed=0", recap, re.MULTILINE)
    assert {node: tree(node) for node in NODES} == before


def test_they_train_together_and_nobody_asks_for_a_password(cluster, provisioned):
    screen = cluster.train(*short_run(3, str(cluster.model), 512))  # a token of its is one byte
    assert_line(screen, "finished", "3 of 3 steps", "tower, laptop, oldbox")


@pytest.mark.rotated("provisioned twice, and undone")
def test_a_reset_leaves_etc_as_it_was_but_for_what_it_lists(cluster, bare, provisioned):
    screen = cluster.play("playbooks/reset.yml", "-e", "yes=on")
    assert "driver packages installed" in screen
    for node, before in bare.items():
        left = {
            path: its for path, its in tree(node).items() if "nvidia-driver-pinning" not in path
        }
        assert left == before
        address = inside(node, f"ip -brief -4 address show {NODES[node].card}")
        assert NODES[node].address in address
        assert fixed(NODES[node]) not in address
