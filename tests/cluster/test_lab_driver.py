"""The driver stage and restarts, over the lab's machines and its stand-ins of driver packages."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest
from support.facts import assert_line
from support.lab import (
    READY,
    Controller,
    as_root,
    as_user,
    at_once,
    inside,
    lab,
    machines,
    on,
    packed,
)
from support.openpgp import FINGERPRINT, KEY
from support.plugins import load
from support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.rotated("the driver stage alone")]

CARDS = {
    "tower": "NVIDIA GeForce RTX 5070 Ti, 16303 MiB, 12.0",
    "laptop": "NVIDIA GeForce RTX 4070 Laptop GPU, 8188 MiB, 8.9",
    "oldbox": "NVIDIA GeForce RTX 3070 Ti, 8192 MiB, 8.6",
}
PACKAGES = (
    "nvidia-driver-pinning-580 linux-headers-amd64 nvidia-driver-cuda nvidia-kernel-open-dkms"
)
NOW, LATER = "580.126.09", "580.142.02"
QUERY = "nvidia-smi --query-gpu=name,memory.total,compute_cap --format=csv,noheader"
REPOSITORY = "/opt/lab/repository"


def upgrade(node: str) -> None:
    """Do as an owner's `apt upgrade` a month on: newer packages, the old module loaded."""
    names = ("libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    files = " ".join(f"{REPOSITORY}/later/{name}_{LATER}*.deb" for name in names)
    as_root(node, f"dpkg --install {files}")


def boot(node: str) -> str:
    return inside(node, "cat /proc/sys/kernel/random/boot_id")


@pytest.fixture(scope="module")
def controller(tmp_path_factory) -> Iterator[Controller]:
    """Three bare machines and a controller."""
    with machines():
        yield Controller(tmp_path_factory.mktemp("home"))


def test_check_mode_says_what_would_be_installed_and_changes_nothing(controller):
    state = "find /etc /usr /var/lib/dpkg -newer /run/systemd/container | sort"
    before = as_root("tower", state)
    screen = controller.play("playbooks/provision/driver.yml", "--check", "--diff")
    assert_line(screen, "tower", "GeForce RTX 5070 Ti (Blackwell, 10de:2c05)", "580")
    assert f"({PACKAGES})" in screen
    assert "+URIs: file:/opt/lab/repository/nvidia" in screen
    assert as_root("tower", state) == before


def test_three_unlike_cards_get_one_branch_and_work(controller):
    screen = controller.play("playbooks/provision/driver.yml")
    for node, answer in CARDS.items():
        assert as_user(node, QUERY) == answer
        installed = as_user(node, "dpkg-query -W -f '${Package} ${Version}\\n'").splitlines()
        assert f"nvidia-kernel-open-dkms {NOW}-1+standin" in installed
        assert_line(screen, f"{node}: ", answer.split(",")[0].removeprefix("NVIDIA "))
        record = as_root(node, "cat /var/lib/hearth/record/record.json")
        assert f"nvidia-driver-cuda {NOW}-1+standin" in record
    assert_line(screen, "laptop, oldbox, tower", NOW, "works")


def test_a_second_time_changes_nothing(controller):
    screen = controller.play("playbooks/provision/driver.yml")
    assert_line(screen, NOW, "open", "works")
    assert "laptop changed=0 · oldbox changed=0 · tower changed=0" in screen


def test_the_cuda_toolkit_comes_on_request_and_the_driver_stays(controller):
    toolkit = ("-e", '{"cuda_toolkit": true}')
    screen = controller.play("playbooks/provision/driver.yml", "--check", *toolkit)
    assert "tower changed=1" in screen
    controller.play("playbooks/provision/driver.yml", *toolkit)
    assert "release 13.0" in as_user("tower", "sh -lc 'nvcc --version'")
    assert "cuda-toolkit-13-0" in as_root("tower", "cat /var/lib/hearth/record/record.json")
    screen = controller.play("playbooks/provision/driver.yml", *toolkit)
    assert "laptop changed=0 · oldbox changed=0 · tower changed=0" in screen


def test_the_status_tells_what_each_card_does(controller):
    screen = controller.play("playbooks/status.yml", *READY)
    for card, watts in (("5070 Ti", 300), ("4070 Laptop GPU", 140), ("3070 Ti", 290)):
        line = rf"0: NVIDIA GeForce RTX {card} +0% .* 35 °C +1[23] of {watts} W +nothing"
        assert re.search(line, screen)


def test_a_machine_is_not_restarted_without_permission(controller):
    at_once(upgrade, ("tower", "laptop"))
    before = {node: boot(node) for node in CARDS}
    screen = controller.play("playbooks/provision/driver.yml", status=None)
    for node in ("tower", "laptop"):
        assert_line(screen, NOW, LATER)
        assert f"-i inventory/lab reboot --nodes {node})" in screen
    assert "-e nodes=oldbox" not in screen
    assert {node: boot(node) for node in CARDS} == before


def test_the_controller_is_never_restarted(controller):
    """Play on the machine itself, as a controller that is rank 0 does."""
    on("tower", "tar x", given=packed((controller.checkout, "hearth")))
    on("tower", "cat >hearth/one.yml", given=_ONE.encode())
    before = boot("tower")
    on("tower", "mkdir -p -m 700 .ssh; ssh-keygen -q -N '' -t ed25519 -f .ssh/id_ed25519")
    own_key = on("tower", "tee .ssh/authorized_keys <.ssh/id_ed25519.pub")
    ansible = (
        "cd hearth && LC_ALL=C.UTF-8 ANSIBLE_HOST_KEY_CHECKING=0 PYTHONPATH=training:controller "
        "/opt/lab/venv/bin/python -m ansible playbook -i one.yml"
    )
    screen = on("tower", f"{ansible} playbooks/provision/driver.yml || echo status $?")
    assert_line(screen, "This machine", "never restarts")
    assert "status 2" in screen
    over_ssh = "-e ansible_connection=ssh -e ansible_host=198.51.100.11"
    for how in ("", over_ssh):  # also where the inventory does not say that it is this machine
        screen = on("tower", f"{ansible} playbooks/reboot.yml {how} || echo status $?")
        assert "it is never restarted from here" in screen
        assert "status 2" in screen
    # The others are restarted, and it is said that this one was not.
    on("oldbox", "mkdir -p -m 700 .ssh; cat >>.ssh/authorized_keys", given=f"{own_key}\n".encode())
    on("tower", "cat >hearth/one.yml", given=(_ONE + _OTHER).encode())
    others = boot("oldbox")
    screen = on("tower", f"{ansible} playbooks/reboot.yml || echo status $?")
    assert_line(screen, "tower", "This machine")
    assert "status" not in screen
    assert boot("oldbox") != others
    assert boot("tower") == before


_OTHER = """
    oldbox:
      cluster_address: 198.51.100.13
      ansible_user: lab
      ansible_become_password: lab
      ansible_python_interpreter: /usr/bin/python3
"""
_ONE = f"""
cluster:
  hosts:
    tower:
      cluster_address: 198.51.100.11
      ansible_connection: local
      ansible_become_password: lab
      ansible_python_interpreter: /usr/bin/python3
      driver_repo: nvidia
      _driver_repo_url: file:{REPOSITORY}/nvidia
      driver_reboot: true
"""


@pytest.mark.parametrize(
    ("fingerprint", "answer"),
    [(FINGERPRINT, '"changed": true'), ("0" * 40, FINGERPRINT)],
)
def test_a_repositorys_key_is_used_only_if_it_is_the_expected_one(controller, fingerprint, answer):
    as_user("oldbox", "cat >key", given=KEY.encode())
    named = "name=test url=https://mirror.invalid/ key_url=file:///home/lab/key"
    said = controller.module(
        "oldbox", "hearth_apt_source", f"{named} fingerprint={fingerprint}", "--become"
    )
    assert answer in said
    if fingerprint == FINGERPRINT:
        key = "/etc/apt/keyrings/hearth-test.gpg"
        there = base64.b64decode(as_root("oldbox", f"base64 -w0 {key}"))
        public_key = load("modules", "hearth_apt_source").public_key
        assert public_key(there) == public_key(KEY.encode())
        assert f"Signed-By: {key}" in as_user(
            "oldbox", "cat /etc/apt/sources.list.d/hearth-test.sources"
        )
    as_root("oldbox", "rm -f /etc/apt/sources.list.d/hearth-test.sources /etc/apt/keyrings/*")


def test_with_permission_the_machines_that_need_it_are_restarted_one_at_a_time(controller):
    before = {node: boot(node) for node in CARDS}
    controller.play("playbooks/provision/driver.yml", "-e", "driver_reboot=on")
    assert {node: boot(node) != before[node] for node in CARDS} == {
        "tower": True,
        "laptop": True,
        "oldbox": False,
    }
    times = "systemctl show --timestamp=us+utc -p UserspaceTimestamp -p FinishTimestamp --value"
    _, tower_up = as_user("tower", times).splitlines()
    laptop_began, _ = as_user("laptop", times).splitlines()
    assert laptop_began.split()[1:] > tower_up.split()[1:]
    # What runs there now is newer than the repository's, and stays.
    screen = controller.play("playbooks/provision/driver.yml")
    assert_line(screen, "tower, laptop", LATER, "open", "works")
    assert "laptop changed=0 · oldbox changed=0 · tower changed=0" in screen


def test_no_restart_under_a_run_unless_forced_and_none_after_a_failure(controller):
    before = {node: boot(node) for node in CARDS}
    lock = "ai-cluster/config/supervisor.lock"
    as_user("laptop", f"mkdir -p ai-cluster/config; cat >{lock}", given=b'{"run": "evening"}')
    as_user("laptop", f"setsid --fork flock {lock} sleep 300 </dev/null >/dev/null 2>&1")
    both = ("playbooks/reboot.yml", "-e", "nodes=laptop,oldbox")
    screen = controller.play(*both, status=None)
    assert_line(screen, "laptop", "evening", "under way")
    assert {node: boot(node) for node in CARDS} == before
    # Forced, it restarts, but is not reached any more.
    as_root("laptop", "systemctl mask --quiet ssh.service ssh.socket")
    screen = controller.play(*both, "-e", "force=on", "-e", "_reboot_timeout=9", status=None)
    assert_line(screen, "laptop", "198.51.100.12", "9 s")
    until(lambda: boot("laptop") != before["laptop"])
    assert boot("oldbox") == before["oldbox"]


# A network card whose driver is a module, and a newer kernel that lacks it.
_CARD = """
mkdir -p /run/card/class/enp9s0 /run/card/device/driver /run/card/r8169 /boot
touch /run/card/r8169/initstate
ln -s /run/card/device /run/card/class/enp9s0/device
ln -s /run/card/r8169 /run/card/device/driver/module
mount --bind /run/card/class /sys/class/net
mkdir -p /lib/modules/9.9.9-1-generic
touch /boot/vmlinuz-9.9.9-1-generic /lib/modules/9.9.9-1-generic/modules.dep
"""


def test_no_restart_into_a_kernel_without_the_driver_of_the_network_card(controller):
    before = boot("oldbox")
    as_root("oldbox", _CARD)
    words = ("playbooks/reboot.yml", "--limit", "oldbox")
    screen = controller.play(*words, "-e", "force=true", status=None)
    assert_line(screen, "oldbox", "not restarted", "9.9.9-1-generic", "enp9s0", "r8169")
    assert boot("oldbox") == before
    as_root(
        "oldbox",
        "echo kernel/r8169.ko: >>/lib/modules/9.9.9-1-generic/modules.dep; umount /sys/class/net",
    )


def test_ubuntus_packages_are_canonicals_for_the_installed_kernel(controller):
    """On a machine that calls itself Ubuntu; the packages are stand-ins under Ubuntu's names.

    A broken source of another vendor is named, and no reason to stop.
    """
    lab("reset", "laptop")
    as_root(
        "laptop",
        "dpkg --purge linux-image-amd64; "
        "apt-get -qq update; apt-get -qq install linux-image-generic-hwe-24.04; "
        'printf "ID=ubuntu\\nVERSION_ID=24.04\\n" >/usr/lib/os-release; '
        "echo 'deb [trusted=yes] file:/opt/shop ./' >/etc/apt/sources.list.d/shop.list",
    )
    screen = controller.play("playbooks/provision/driver.yml", "-e", "nodes=laptop")
    assert (
        "(linux-modules-nvidia-580-open-generic-hwe-24.04 nvidia-headless-no-dkms-580-open "
        "nvidia-utils-580)" in screen
    )
    assert "/opt/shop" in screen
    assert as_user("laptop", QUERY) == CARDS["laptop"]
    assert as_user("laptop", "ls /etc/apt/sources.list.d") == "shop.list"
