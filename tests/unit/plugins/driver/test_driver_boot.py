"""Whether the next kernel drives the machine, over folder trees laid out like a machine's."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.driver.boot import lockout, needs
from support.facts import assert_names

NOW, NEXT = "6.8.0-40-generic", "6.8.0-149-generic"
REALTEK = "pci:v000010ECd00008168sv00001462sd00007D25bc02sc00i00"
NVME = "pci:v0000144Dd0000A80Asv0000144Dsd0000A801bc01sc08i02"


class Archive:
    """A stand-in of apt: the packages that it has, and none is installed."""

    def __init__(self, *names: str) -> None:
        self.has, self.installed = names.__contains__, {}


class Tree:
    """A machine's folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file("proc/self/mountinfo", "")

    def file(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def link(self, path: str, goal: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        (self.root / goal).mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.root / goal)

    def device(self, path: str, module: str, alias: str = "", *, built_in: bool = False) -> str:
        """Add a device that a module drives; return its folder."""
        folder = f"sys/devices/{path}"
        self.link(f"{folder}/driver", f"sys/bus/drivers/{module}")
        if not (self.root / f"sys/bus/drivers/{module}/module").exists():
            self.link(f"sys/bus/drivers/{module}/module", f"sys/module/{module}")
        if not built_in:
            self.loaded(module)
        self.file(f"{folder}/modalias", f"{alias}\n")
        return folder

    def loaded(self, module: str) -> None:
        self.file(f"sys/module/{module}/initstate", "live\n")

    def card(self, name: str, path: str, module: str, alias: str = "", **more: bool) -> None:
        """Add a network card."""
        folder = self.device(path, module, alias, **more)
        self.link(f"{folder}/net/{name}/device", folder)
        self.link(f"sys/class/net/{name}", f"{folder}/net/{name}")

    def disk(self, name: str, folder: str) -> None:
        """Add a block device in a device's folder."""
        self.link(f"sys/class/block/{name}", f"{folder}/{name}")
        self.file(f"dev/{name}")

    def mount(self, device: str, kind: str = "ext4") -> None:
        """Have / on a device; other mounts come before it."""
        rest = "22 27 0:21 / /proc rw - proc proc rw\n29 1 8:2 /home /home rw - xfs /dev/sdz1 rw\n"
        own = f"27 1 259:2 / / rw,relatime shared:1 - {kind} {device} rw\n"
        self.file("proc/self/mountinfo", rest + own)

    def kernel(self, release: str, *modules: str, built_in: str = "", aliases: str = "") -> None:
        """Install a kernel with these modules."""
        folder = f"lib/modules/{release}"
        self.file(
            f"{folder}/modules.dep",
            "".join(f"kernel/{each}.ko.zst: kernel/net/mii.ko.zst\n" for each in modules),
        )
        self.file(f"{folder}/modules.builtin", f"kernel/fs/{built_in}.ko\n")
        self.file(f"{folder}/modules.alias", aliases)

    def lost(self, *packages: str) -> tuple[str, str]:
        """Return the reason and the remedy of a lockout by the next kernel."""
        its = lockout(NEXT, NOW, Archive(*packages), str(self.root))
        return its.reason, its.remedy


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def tower(tree) -> Tree:
    """Return a machine with one network card and / on an NVMe disk."""
    tree.card("enp3s0", "pci0000:00/0000:00:1c.0/0000:03:00.0", "r8169", REALTEK)
    controller = tree.device("pci0000:00/0000:01:00.0", "nvme", NVME)
    tree.disk("nvme0n1p2", f"{controller}/nvme/nvme0/nvme0n1")
    tree.mount("/dev/nvme0n1p2")
    return tree


# ---- what drives a machine ----------------------------------------------------------------------


def test_the_modules_of_cards_and_root_disk_are_found(tower):
    assert [(need.purpose, need.module) for need in needs(str(tower.root))] == [
        ("enp3s0", "r8169"),
        ("the root disk", "nvme"),
    ]


def test_a_card_behind_usb_needs_the_controller_too(tree):
    hub = "pci0000:00/0000:00:14.0"
    tree.device(hub, "xhci_pci")
    tree.card("enx01", f"{hub}/usb1/1-2/1-2:1.0", "cdc_ncm", "usb:v0BDAp8156")
    assert [need.module for need in needs(str(tree.root))] == ["cdc_ncm", "xhci_pci"]


def test_what_is_built_in_and_what_is_no_hardware_is_no_need(tree):
    tree.card("enp4s0", "pci0000:00/0000:04:00.0", "e1000e", built_in=True)
    tree.link("sys/class/net/lo", "sys/devices/virtual/net/lo")
    tree.link("sys/class/net/docker0", "sys/devices/virtual/net/docker0")
    tree.mount("overlay", "overlay")
    assert needs(str(tree.root)) == []


@pytest.mark.parametrize(
    ("uuid", "level", "module"),
    [("CRYPT-LUKS2-x-root", "", "dm-crypt"), ("LVM-x", "raid1", "raid1"), ("", "raid5", "raid456")],
)
def test_a_volume_needs_what_it_is_made_of_down_to_the_disk(tree, uuid, level, module):
    controller = tree.device("pci0000:00/0000:00:17.0", "ahci")
    tree.disk("sda3", f"{controller}/ata1/host0/block/sda")
    tree.disk("dm-0", "sys/devices/virtual/block")
    tree.file("sys/devices/virtual/block/dm-0/dm/uuid", f"{uuid}\n")
    tree.file("sys/devices/virtual/block/dm-0/md/level", f"{level}\n")
    tree.link("sys/devices/virtual/block/dm-0/slaves/sda3", "sys/class/block/sda3")
    tree.loaded(module.replace("-", "_"))
    tree.file("dev/dm-0")
    (tree.root / "dev/mapper").mkdir()
    (tree.root / "dev/mapper/vg-root").symlink_to("../dm-0")
    tree.mount("/dev/mapper/vg-root")
    assert [need.module for need in needs(str(tree.root))] == [module, "ahci"]


def test_a_disk_that_several_controllers_lead_to_needs_theirs(tree):
    controller = tree.device("pci0000:00/0000:02:00.0", "nvme")
    subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    tree.link(f"{controller}/nvme/nvme0/device", controller)
    tree.link(f"{subsystem}/nvme0", f"{controller}/nvme/nvme0")
    tree.disk("nvme0n1p2", f"{subsystem}/nvme0n1")
    tree.mount("/dev/nvme0n1p2")
    assert [need.module for need in needs(str(tree.root))] == ["nvme"]


@pytest.mark.parametrize("kind", ["btrfs", "zfs"])
def test_a_file_system_that_is_a_module_is_needed(tree, kind):
    tree.loaded(kind)
    tree.mount("rpool/ROOT/ubuntu", kind)
    assert [need.module for need in needs(str(tree.root))] == [kind]


# ---- what the next kernel has -------------------------------------------------------------------


def test_a_kernel_without_the_cards_driver_is_a_lockout_with_its_package(tower):
    tower.kernel(NEXT, "drivers/nvme/host/nvme")
    extra = f"linux-modules-extra-{NEXT}"
    reason, remedy = tower.lost(extra)
    assert_names(reason, NEXT, "enp3s0", "r8169", "network")
    assert "nvme" not in reason
    assert remedy == f"sudo apt-get install {extra}"


def test_a_kernel_without_the_disks_driver_does_not_start(tower):
    tower.kernel(NEXT, "drivers/net/r8169")
    reason, remedy = tower.lost()
    assert_names(reason, NEXT, "root disk", "nvme", "start")
    assert NEXT in remedy


@pytest.mark.parametrize("module", ["zfs", "r8125"])
def test_a_module_of_its_own_package_or_of_dkms_is_brought_that_way(tree, module):
    tree.kernel(NEXT, "x")
    if module == "zfs":
        tree.loaded("zfs")
        tree.mount("rpool/ROOT/ubuntu", "zfs")
    else:
        tree.card("enp3s0", "pci0000:00/0000:03:00.0", module)
        tree.file(f"lib/modules/{NOW}/updates/dkms/{module}.ko.zst")
    _, remedy = tree.lost(f"linux-main-modules-zfs-{NEXT}")
    expected = {"zfs": f"linux-main-modules-zfs-{NEXT}", "r8125": f"dkms autoinstall -k {NEXT}"}
    assert expected[module] in remedy


@pytest.mark.parametrize(
    "kernel",
    [
        {"modules": ["drivers/net/r8169", "drivers/nvme"]},
        {"modules": ["drivers/net/r8169"], "built_in": "nvme"},
        # Another module answers for the device, as r8169 does for a card that r8168 of DKMS drives.
        {
            "modules": ["drivers/nvme"],
            "aliases": "alias pci:v000010ECd00008168sv*sd*bc*sc*i* r8169\n# no alias\n",
        },
    ],
)
def test_a_kernel_with_all_drivers_is_none(tower, kernel):
    tower.kernel(NEXT, *kernel.pop("modules"), **kernel)
    assert tower.lost() == ("", "")


def test_a_driver_that_is_built_into_the_next_kernel_is_known_by_its_aliases(tower):
    tower.kernel(NEXT, "drivers/nvme")
    built_in = "r8169.license=GPL\0r8169.alias=pci:v000010ECd00008168sv*sd*bc*sc*i*\0"
    tower.file(f"lib/modules/{NEXT}/modules.builtin.modinfo", built_in)
    assert tower.lost() == ("", "")


def test_names_are_compared_as_the_kernel_spells_them(tree):
    tree.card("eth0", "pci0000:00/0000:05:00.0", "snd_hda")
    tree.kernel(NEXT, "drivers/snd-hda")
    assert tree.lost() == ("", "")


def test_a_kernel_without_its_initial_ram_disk_does_not_start(tower):
    tower.kernel(NEXT, "drivers/net/r8169", "drivers/nvme")
    tower.file(f"boot/initrd.img-{NOW}")
    reason, remedy = tower.lost()
    assert_names(reason, NEXT, "RAM disk")
    assert f"-k {NEXT}" in remedy
    tower.file(f"boot/initrd.img-{NEXT}")
    assert tower.lost() == ("", "")


def test_without_a_kernel_in_boot_nothing_is_known(tower):
    its = lockout("", NOW, Archive(), str(tower.root))
    assert (its.reason, its.remedy) == ("", "")
