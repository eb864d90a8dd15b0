"""The node-side inspection of a machine, over folder trees laid out like a machine's."""

from __future__ import annotations

import base64

import pytest
from ansible.module_utils.hearth_node.driver import inspect as look
from support.openpgp import FINGERPRINT, KEY
from support.plugins import load
from support.programs import stand_in
from support.repository import ROOT

public_key = load("modules", "hearth_apt_source").public_key

EFI = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def put(root, path, content):
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def test_cards_are_the_display_controllers_of_any_maker(tmp_path):
    for slot, vendor, device, pci_class, driver in (
        ("01:00.0", "10de", "2c05", "0x030000", "nouveau"),
        ("01:00.1", "10de", "22e9", "0x040300", ""),  # its sound
        ("02:00.0", "10de", "2860", "0x030200", ""),
        ("00:02.0", "8086", "a780", "0x030000", "i915"),
        ("00:1f.6", "8086", "15b8", "0x020000", "e1000e"),
    ):
        folder = f"sys/bus/pci/devices/0000:{slot}"
        put(tmp_path, f"{folder}/vendor", f"0x{vendor}\n")
        put(tmp_path, f"{folder}/device", f"0x{device}\n")
        put(tmp_path, f"{folder}/class", f"{pci_class}\n")
        if driver:
            (tmp_path / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    found = look.cards(str(tmp_path))
    assert [(each["vendor"], each["device"], each["driver"]) for each in found] == [
        ("8086", "a780", "i915"),
        ("10de", "2c05", "nouveau"),
        ("10de", "2860", ""),
    ]
    assert look.cards(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Open Kernel Module for x86_64  580.126.09  Release Build", ("580.126.09", "open")),
        ("x86_64 Kernel Module  535.261.03  Tue Jul  1 2025", ("535.261.03", "proprietary")),
        ("", ("", "")),
    ],
)
def test_the_loaded_module_tells_its_version_and_kind(tmp_path, text, found):
    gcc = "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)"
    put(tmp_path, "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {text}\n{gcc}\n")
    assert look.loaded(str(tmp_path)) == found


@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"])
def test_the_driver_in_user_space_is_what_the_library_is_called(tmp_path, folder):
    file = put(tmp_path, f"{folder}/libnvidia-ml.so.590.48.01", "")
    link = file.with_name("libnvidia-ml.so.1")
    link.symlink_to(file.name)
    assert look.library(str(tmp_path)) == ("590.48.01", str(link))
    assert look.library(str(tmp_path / "none")) == ("", "")


@pytest.mark.parametrize(
    ("content", "on"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"", False)]
)
def test_secure_boot_is_the_fifth_byte(tmp_path, content, on):
    put(tmp_path, EFI, content)
    assert look.secure_boot(str(tmp_path)) is on
    assert look.secure_boot(str(tmp_path / "bios")) is False


def test_os_release_is_read_with_and_without_quotes(tmp_path):
    put(tmp_path, "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3"\n')
    known = {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3"}
    assert look.system(str(tmp_path)) == known


def test_modules_are_found_compressed_or_not_with_their_versions(tmp_path, monkeypatch):
    stand_in(tmp_path / "bin" / "modinfo", "case $3 in */41/*) echo 580.126.09;; *) exit 1;; esac")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    for path in ("40/updates/dkms/nvidia.ko.xz", "41/nvidia.ko", "42/kernel/nvidia_wmi.ko"):
        put(tmp_path, f"lib/modules/{path}", "")
    assert look.module_versions(str(tmp_path)) == {"40": "", "41": "580.126.09"}


def test_the_next_kernel_is_the_newest_in_boot(tmp_path):
    assert look.next_kernel(str(tmp_path)) == ""
    for kernel in ("6.8.0-60-generic", "6.11.0-9-oem", "6.8.0-124-generic", "6.12.0-1.old"):
        put(tmp_path, f"boot/vmlinuz-{kernel}", "")
    put(tmp_path, "boot/vmlinuz-rescue", "")
    assert look.next_kernel(str(tmp_path)) == "6.11.0-9-oem"


@pytest.mark.parametrize(("text", "off"), [("off\n", True), ("on-demand\n", False), (None, False)])
def test_prime_select_intel_is_recognised(tmp_path, text, off):
    if text:
        put(tmp_path, "etc/prime-discrete", text)
    assert look.prime_off(str(tmp_path)) is off


@pytest.mark.parametrize(
    ("taint", "signer", "enrolled"),
    [
        ("OE", "tower DKMS", False),  # loaded, and the kernel could not verify it
        ("POE", "Canonical Ltd. Kernel Module Signing", False),
        ("O", "somebody", True),  # loaded, and the kernel says that it did
        (None, "", False),
        (None, "tower DKMS", True),
        (None, "tower", False),
        (None, "Canonical Ltd. Kernel Module Signing", True),
    ],
)
def test_a_module_is_signed_if_the_kernel_says_so_or_its_signer_is_enrolled(
    tmp_path, monkeypatch, taint, signer, enrolled
):
    stand_in(tmp_path / "bin" / "mokutil", "echo '        Subject: CN=tower DKMS'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    if taint:
        put(tmp_path, "sys/module/nvidia/taint", f"{taint}\n")
    assert look.signer_enrolled(signer, str(tmp_path)) is enrolled


# ---- the role -----------------------------------------------------------------------------------


def test_upgrades_by_themselves_bring_driver_and_modules_together():
    """Nothing keeps one of the two back, so no kernel comes without its module."""
    written = [path for path in (ROOT / "roles" / "driver").rglob("*") if path.is_file()]
    assert not [path for path in written if "Package-Blacklist" in path.read_text()]


# ---- keys ---------------------------------------------------------------------------------------

BARE = base64.b64decode("".join(KEY.split("\n\n", 1)[1].split("\n=")[0].split("\n")))
# A key of somebody else: one byte of the key's material differs.
FOREIGN = BARE[:30] + bytes([BARE[30] ^ 1]) + BARE[31:]


def armoured(key: bytes) -> str:
    head, _, tail = KEY.partition("\n\n")
    return f"{head}\n\n{base64.b64encode(key).decode()}\n={tail.split(chr(10) + '=')[1]}"


def test_the_fingerprint_of_a_key_is_what_gpg_says():
    assert public_key(KEY.encode()) == public_key(BARE) == (BARE, FINGERPRINT)
    for another in (FOREIGN, (armoured(FOREIGN) + KEY).encode()):
        assert public_key(another)[1] != FINGERPRINT


@pytest.mark.parametrize(
    "file",
    [
        KEY + armoured(FOREIGN),
        KEY.replace("\n-----END", f"\n{base64.b64encode(FOREIGN).decode()}\n-----END"),
    ],
    ids=["a second block", "after the checksum"],
)
def test_a_key_that_hides_behind_the_good_one_is_not_written(file):
    assert public_key(file.encode()) == (BARE, FINGERPRINT)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"<html>404</html>", b"\x99\x01", b"\xc6\xff\x00"),
        BARE + BARE,
        BARE + FOREIGN,
        BARE + b"\xb4\x01x" + b"\xac\x01x",  # a user id, then a packet that is no part of a key
        BARE + b"\xb7" + FOREIGN,  # of no length: up to the end
        BARE + b"\xd1\xe0" + bytes(8385),  # an attribute in parts
        b"\xb4\x01x" + BARE,
    ],
)
def test_what_is_not_exactly_one_key_is_refused(content):
    with pytest.raises(ValueError, match=r"public key|packet|cut off"):
        public_key(content)
