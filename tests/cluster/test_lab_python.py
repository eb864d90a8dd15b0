"""The stages python and nccl on machines of the lab, with a lock of two packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.facts import assert_line
from support.lab import Controller, as_root, as_user, machines, of_the_first, on
from support.stand_in_index import StandInIndex, make_wheel
from support.stand_in_lock import ALPHA, BETA, index_of_the_lock, stage_settings

pytestmark = [pytest.mark.lab, pytest.mark.rotated("the stages python and nccl alone")]

NODES = {"tower": "enp5s0", "laptop": "wlp0s20f3"}
OLDER = make_wheel("alpha", "0.9")
VENV = "~/.local/share/hearth/venv"
MINIFORGE = "~/.local/share/hearth/miniforge"
INCOMING = "~/.cache/hearth/incoming"


def put(node: str, path: str, content: bytes) -> None:
    """Write a file on a machine, as its user."""
    as_user(node, f"cat >{path}", given=content)


@pytest.fixture(scope="module")
def index() -> Iterator[StandInIndex]:
    with index_of_the_lock() as server:
        yield server


class Home(Controller):
    """A controller whose pip asks the stand-in index only."""

    def __init__(self, folder: Path, index: StandInIndex) -> None:
        super().__init__(folder, inventory=of_the_first(len(NODES), folder / "inventory"))
        self.index = index
        self.environment |= index.variables(folder / "pip")
        self.settings = stage_settings(folder, index)

    def provision(self, *arguments: str, status: int | None = 0, **settings: Any) -> str:
        """Play the stage python."""
        given = json.dumps(self.settings | settings)
        return self.play("playbooks/provision/python.yml", "-e", given, *arguments, status=status)

    def taken_requests(self) -> list[str]:
        """Return which files were asked for since the last call of this."""
        names = [name for name, _ in self.index.asked]
        self.index.asked.clear()
        return names


@pytest.fixture(scope="module")
def controller(index, tmp_path_factory) -> Iterator[Home]:
    """A controller of two bare machines, whose host keys are pinned."""
    home = Home(tmp_path_factory.mktemp("home"), index)
    with machines(len(NODES)):
        home.play("playbooks/provision/preflight.yml")
        yield home


@pytest.fixture(scope="module")
def first(controller) -> str:
    """Provision the bare machines with their environment and return the screen's output."""
    screen = controller.provision("--check")
    assert_line(screen, "2 packages")
    for node in NODES:
        assert "No such file" in as_user(node, "ls ~/.local ~/.cache 2>&1 || true")
    assert controller.taken_requests() == []
    # As if an earlier transfer had broken off: one file is whole, the other is not.
    alpha, beta = *ALPHA, *BETA
    as_user("laptop", f"mkdir -p {INCOMING}; echo half >{INCOMING}/{beta}")
    put("laptop", f"{INCOMING}/{alpha}", ALPHA[alpha])
    screen = controller.provision()
    assert sorted(controller.taken_requests()) == sorted([alpha, beta])  # once, for both machines
    return screen


def versions(node: str, python: str = f"{VENV}/bin/python") -> str:
    code = "import alpha, beta; print(alpha.__version__, beta.__version__)"
    return as_user(node, f'{python} -c "{code}"')


def test_bare_machines_get_what_is_locked_and_keep_no_wheels(first):
    assert_line(first, "laptop, tower", "2 packages installed")
    for node in NODES:
        assert versions(node) == "1.0 2.0"
        assert as_user(node, "ls -A ~/.cache") == ""


def test_a_second_time_nothing_changes_and_nothing_is_fetched(controller, first):
    screen = controller.provision()
    assert "laptop changed=0 · tower changed=0" in screen
    assert controller.taken_requests() == []


def test_a_node_that_has_drifted_is_named_and_mended_and_the_others_let_be(controller, first):
    (name, content), pip = next(iter(OLDER.items())), f"{VENV}/bin/python -m pip --isolated"
    put("laptop", f"/tmp/{name}", content)
    as_user("laptop", f"{pip} install --quiet --no-index --no-deps /tmp/{name}")
    assert versions("laptop") == "0.9 2.0"

    screen = controller.provision("--check")
    assert_line(screen, "laptop", "alpha 0.9 instead of 1.0", "to be mended")
    assert versions("laptop") == "0.9 2.0"

    screen = controller.provision()
    assert_line(screen, "laptop", "alpha 0.9 instead of 1.0 — mended")
    assert "laptop changed=1 · tower changed=0" in screen
    assert versions("laptop") == "1.0 2.0"
    assert controller.taken_requests() == []


def test_conda_makes_the_python_and_the_users_own_conda_is_let_be(controller, first):
    """With a stand-in for Miniforge: the real one needs a channel."""
    conda = ("-l", "laptop")
    as_user("laptop", "mkdir -p ~/miniforge3/bin ~/.conda ~/.ansible")
    as_user("laptop", "echo mine >~/.condarc; echo mine >~/.conda-mine")
    before = as_user("laptop", "cat ~/.bashrc ~/.profile ~/.condarc; ls -A ~ ~/miniforge3/bin")

    screen = controller.provision(
        *conda, python_mode="conda", python_channel="nowhere", status=None
    )
    assert_line(screen, "laptop", "distributed-training", "Python 3.11")
    assert_line(screen, "404", "nowhere")

    screen = controller.provision(*conda, python_mode="conda")
    python = f"{MINIFORGE}/envs/distributed-training/bin/python"
    assert versions("laptop", python) == "1.0 2.0"
    calls = as_user("laptop", f"cat {MINIFORGE}/calls").splitlines()
    assert calls[-1] == (
        "create --yes --quiet -n distributed-training --override-channels -c conda-forge "
        "python=3.11 pip in /home/lab/.local/share/hearth/miniforge/envs"
    )
    assert (
        as_user("laptop", "cat ~/.bashrc ~/.profile ~/.condarc; ls -A ~ ~/miniforge3/bin") == before
    )
    # The installer came once, for both plays; the wheels were there.
    assert controller.taken_requests() == ["Miniforge3-stand-in-x86_64.sh"]

    screen = controller.provision(*conda, python_mode="conda")
    assert "laptop changed=0" in screen
    assert controller.taken_requests() == []

    # In a login shell it has a name, until a reset.
    activate = "sh -lc 'conda activate hearth && python -c \"import alpha\" && echo it works'"
    assert as_user("laptop", activate) == "it works"
    controller.play("playbooks/reset.yml", *conda, "-e", "yes=on")
    assert as_user("laptop", f"{activate} 2>&1 || true") != "it works"
    assert as_user("laptop", "ls -A ~/.conda") == ""


def test_a_users_own_packages_come_with_the_list_and_go_with_it(controller, first):
    controller.index.files |= make_wheel("gamma", "1.0", requires="beta")
    screen = controller.provision(python_extra=["gammma", "gamma", "delta"], status=None)
    assert_line(screen, "index has no gammma")
    assert_line(screen, "index has no delta")
    screen = controller.provision(python_extra=["gamma"])
    assert_line(screen, "laptop, tower", "gamma missing", "mended")
    controller.taken_requests()
    # A newer one on the index changes nothing: the versions are kept beside the inventory.
    controller.index.files |= make_wheel("gamma", "2.0", requires="beta")
    screen = controller.provision(python_extra=["gamma"])
    assert "laptop changed=0 · tower changed=0" in screen
    assert controller.taken_requests() == []
    which = f'{VENV}/bin/python -c "import gamma; print(gamma.__version__)"'
    assert {as_user(node, which) for node in NODES} == {"1.0"}
    screen = controller.provision("--check")
    assert_line(screen, "gamma", "python_extra")
    controller.provision()
    for node in NODES:
        assert "No module" in as_user(node, f"{which} 2>&1 || true")
        assert versions(node) == "1.0 2.0"


def test_what_stands_in_the_way_is_told_before_anything_is_fetched(controller, first):
    screen = controller.provision(
        hearth_python="~/x/bin/python", python_base="python3.99", status=None
    )
    assert_line(screen, "tower, laptop", "python_base python3.99", "run")
    assert "Nothing was downloaded" in screen
    screen = controller.provision(
        python_mode="conda",
        _hearth_miniforge="~/forge",
        _python_miniforge_installers={"riscv64": {}},
        status=None,
    )
    assert_line(screen, "Miniforge", "x86_64")
    assert controller.taken_requests() == []


# -- nccl ------------------------------------------------------------------------------------------


def shell(node: str) -> dict[str, str]:
    """Return the NCCL and Gloo variables of a login shell on the machine."""
    said = on(node, "bash -lc 'env | grep -E \"^(NCCL|GLOO)_\"; true'")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_nccl_gloo_and_a_persons_shell_get_the_interface_of_the_cluster_address(controller):
    as_root("laptop", "echo NCCL_DEBUG=INFO >/etc/nccl.conf")
    screen = controller.play("playbooks/provision/nccl.yml", "--check", "--diff")
    assert "+NCCL_SOCKET_IFNAME==wlp0s20f3" in screen
    assert as_user("tower", "ls /etc/nccl.conf 2>/dev/null || echo none") == "none"

    screen = controller.play("playbooks/provision/nccl.yml")
    for node, card in NODES.items():
        assert "docker0" in as_user(node, "ls /sys/class/net")
        assert shell(node) == {
            "NCCL_SOCKET_IFNAME": f"={card}",
            "NCCL_SOCKET_FAMILY": "AF_INET",
            "GLOO_SOCKET_IFNAME": card,
        }
        lines = as_user(node, "cat /etc/nccl.conf").splitlines()
        assert f"NCCL_SOCKET_IFNAME=={card}" in lines
        assert ("NCCL_DEBUG=INFO" in lines) is (node == "laptop")

    screen = controller.play("playbooks/provision/nccl.yml")
    assert "laptop changed=0 · tower changed=0" in screen


def test_a_line_that_would_overrule_the_clusters_is_named(controller):
    as_root("tower", "echo NCCL_SOCKET_IFNAME=docker0 >/etc/nccl.conf")
    screen = controller.play("playbooks/provision/nccl.yml", status=None)
    assert_line(screen, "tower", "/etc/nccl.conf", "NCCL_SOCKET_IFNAME=docker0")
    assert as_user("tower", "cat /etc/nccl.conf") == "NCCL_SOCKET_IFNAME=docker0"


def test_an_address_that_no_interface_carries_is_named_with_those_there_are(controller):
    wrong = ("-e", "ansible_host=198.51.100.11", "-e", "cluster_address=198.51.100.77")
    screen = controller.play("playbooks/provision/nccl.yml", "-l", "tower", *wrong, status=None)
    assert_line(screen, "cluster address 198.51.100.77")
    assert "enp5s0 198.51.100.11" in screen
