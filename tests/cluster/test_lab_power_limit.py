"""A limit on the power of GPUs over real machines, whose cards and drivers are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.facts import assert_line
from support.lab import (
    READY,
    Controller,
    as_root,
    at_once,
    inside,
    inventory,
    lab,
    machines,
    on,
    tree,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.rotated("a limit on power")]

NODES = ("tower", "laptop")
STAGE = "playbooks/provision/power_limit.yml"
UNIT = "hearth-power-limit.service"
LATER = "580.142.02"


def ask(node: str, field: str) -> str:
    """Return a field of the node's card."""
    return inside(node, f"nvidia-smi --query-gpu={field} --format=csv,noheader")


def limit(node: str) -> str:
    return ask(node, "power.limit")


def after_a_power_cut(node: str) -> str:
    """Return the limit of a machine once it is up again."""
    lab("power-off", node)
    lab("power-on", node)
    return limit(node)


@pytest.fixture(scope="module")
def controller(tmp_path_factory) -> Iterator[Controller]:
    """Two machines whose drivers work; the inventory limits the card of the first."""
    hosts = {node.name: {"cluster_address": node.address} for node in plan.nodes(2)}
    hosts["tower"]["power_limit"] = 220
    home = tmp_path_factory.mktemp("home")
    with machines(2):
        controller = Controller(home, inventory=inventory(home / "two", hosts))
        controller.play("playbooks/provision/driver.yml")
        yield controller


@pytest.fixture(scope="module")
def before(controller) -> dict[str, dict[str, str]]:
    """The contents of /etc on each machine without a limit."""
    return at_once(tree, NODES)


def test_a_value_outside_a_cards_range_is_refused_before_anything_is_changed(controller, before):
    for playbook in ("playbooks/provision/preflight.yml", STAGE):
        screen = controller.play(playbook, "-e", "power_limit=325", status=2)
        assert_line(screen, "laptop", "power_limit: 325", "4070 Laptop GPU", "5 to 140 W")
        assert "tower: power_limit" not in screen  # which takes up to 330 W
    assert "No limit was changed on any machine." in screen
    assert at_once(tree, NODES) == before
    assert at_once(limit, NODES) == {"tower": "300.00 W", "laptop": "140.00 W"}


def test_check_mode_shows_the_limit_and_sets_none(controller, before):
    screen = controller.play(STAGE, "--check", "--diff")
    assert_line(screen, "-300 W")
    assert_line(screen, "+220 W")
    assert_line(screen, "+ExecStart=/usr/bin/nvidia-smi -pl 220")
    assert at_once(tree, NODES) == before
    assert limit("tower") == "300.00 W"


def test_the_limit_is_set_where_the_inventory_has_one_and_a_second_time_nothing(controller, before):
    screen = controller.play(STAGE)
    assert_line(screen, "tower", "5070 Ti", "220 of 300 W")
    assert limit("tower") == "220.00 W"
    assert ask("tower", "persistence_mode") == "Enabled"
    assert as_root("tower", f"systemctl is-enabled {UNIT}") == "enabled"
    assert tree("laptop") == before["laptop"]
    screen = controller.play(STAGE)
    assert "laptop changed=0 · tower changed=0" in screen


def test_the_status_shows_limit_and_default_and_the_measured_cost(controller, before):
    uuid = ask("tower", "uuid").removeprefix("GPU-")
    on("tower", "mkdir -p ai-cluster/data/speeds")
    for name, seconds, more in (("a", 1.0, {}), ("b", 1.25, {"watts": 220.0})):
        case = {"processor": f"NVIDIA GeForce RTX 5070 Ti {uuid}", **more}
        text = json.dumps({"sizes": [1], "seconds": [seconds], "case": case})
        on("tower", f"cat >ai-cluster/data/speeds/{name}.json", given=text.encode())
    screen = controller.play("playbooks/status.yml", *READY)
    assert_line(screen, "RTX 5070 Ti", "of 220 W (default 300)")
    assert_line(screen, "RTX 4070 Laptop GPU", "of 140 W")
    assert_line(screen, "tower: GPU 0", "220 of 300 W, 20% slower than at 300 W (measured")


def test_it_is_there_again_after_a_power_cut(controller, before):
    assert after_a_power_cut("tower") == "220.00 W"


def test_it_is_there_again_after_an_upgrade_of_the_driver_and_a_restart(controller, before):
    names = ("libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    files = " ".join(f"/opt/lab/repository/later/{name}_{LATER}*.deb" for name in names)
    as_root("tower", f"dpkg --install {files}")
    assert "mismatch" in limit("tower")  # the old module is loaded
    assert after_a_power_cut("tower") == "220.00 W"
    assert ask("tower", "driver_version") == LATER


def test_it_is_there_again_when_the_driver_was_loaded_anew_and_its_daemon_starts(
    controller, before
):
    """With a stand-in of nvidia-persistenced, which real drivers start whenever they are loaded."""
    daemon = "[Service]\\nExecStart=/bin/sleep infinity\\n"
    unit = "/run/systemd/system/nvidia-persistenced.service"
    as_root("tower", f"printf '{daemon}' >{unit}; systemctl daemon-reload; modprobe nvidia")
    assert limit("tower") == "300.00 W"
    as_root("tower", "systemctl start nvidia-persistenced")
    until(lambda: limit("tower") == "220.00 W")
    as_root("tower", f"systemctl stop nvidia-persistenced; rm {unit}; systemctl daemon-reload")


def test_0_takes_back_what_was_laid_and_nothing_else(controller, before):
    screen = controller.play(STAGE, "-e", "power_limit=0")
    assert "laptop changed=0" in screen
    assert at_once(tree, NODES) == before
    assert limit("tower") == "300.00 W"
    assert ask("tower", "persistence_mode") == "Disabled"
    as_root("laptop", "nvidia-smi -pm 1")
    as_root("laptop", "nvidia-smi -pl 300")
    screen = controller.play(STAGE, "-e", "power_limit=0")
    assert "laptop changed=0 · tower changed=0" in screen
    assert ask("laptop", "persistence_mode") == "Enabled"  # a person's own setting


def test_a_card_that_its_firmware_holds_is_said_and_nothing_stays(controller, before):
    alone = ("-e", "nodes=laptop", "-e", "power_limit=100")
    screen = controller.play(STAGE, *alone, status=2)
    assert_line(screen, "power_limit: 100", "4070 Laptop GPU", "still held to 140 W", "firmware")
    assert tree("laptop") == before["laptop"]
    assert ask("laptop", "persistence_mode") == "Enabled"  # as it was before
    assert inside("laptop", f"systemctl is-active {UNIT}") == "inactive"


def test_doctor_finds_a_limit_that_is_not_the_inventorys_and_sets_it(controller, before):
    screen = controller.play("playbooks/doctor.yml", *READY, "-e", "fix=on")
    assert_line(screen, "tower: power limit: GPU 0 is held to 300 W, not to power_limit: 220")
    assert_line(screen, "mended on tower", "power_limit")
    assert_line(screen.split("after mending")[-1], "power limit", "220 of 300 W · 140 W")
    assert limit("tower") == "220.00 W"


def test_a_reset_sets_the_default_limit_again_and_leaves_no_unit(controller, before):
    screen = controller.play("playbooks/reset.yml", "-e", "yes=on", "-e", "nodes=tower")
    assert_line(screen, f"remove /etc/systemd/system/{UNIT}")
    assert limit("tower") == "300.00 W"
    assert ask("tower", "persistence_mode") == "Disabled"
    assert not [path for path in tree("tower") if "power-limit" in path or "persistenced" in path]
    assert after_a_power_cut("tower") == "300.00 W"
