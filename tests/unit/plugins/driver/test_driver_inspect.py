"""The node-side inspection of a machine, over folder trees laid out like a machine's."""

from __future__ import annotations

import base64

import pytest
from ansible.module_utils.hearth_node.driver import inspect as look
from ansible.module_utils.hearth_node.driver.openpgp import public_key
from support.modules import call
from support.openpgp import FINGERPRINT, KEY
from support.workspace import under_way

EFI = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def put(root, path, content):
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def device(root, slot, vendor, device, pci_class, driver=""):
    folder = f"sys/bus/pci/devices/{slot}"
    for name, value in {
        "vendor": vendor,
        "device": device,
        "class": pci_class,
    }.items():
        put(root, f"{folder}/{name}", f"{value}\n")
    if driver:
        (root / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def test_cards_are_the_display_controllers_of_any_maker(tmp_path):
    device(tmp_path, "0000:01:00.0", "0x10de", "0x2c05", "0x030000", "nouveau")
    device(tmp_path, "0000:01:00.1", "0x10de", "0x22e9", "0x040300")  # its sound
    device(tmp_path, "0000:02:00.0", "0x10de", "0x2860", "0x030200")
    device(tmp_path, "0000:00:02.0", "0x8086", "0xa780", "0x030000", "i915")
    device(tmp_path, "0000:00:1f.6", "0x8086", "0x15b8", "0x020000", "e1000e")
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
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  "
            "(root@host)  Thu\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
            ("580.126.09", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jul  1 2025\n",
            ("535.261.03", "proprietary"),
        ),
        ("", ("", "")),
    ],
)
def test_the_loaded_module_tells_its_version_and_kind(tmp_path, text, found):
    put(tmp_path, "proc/driver/nvidia/version", text)
    assert look.loaded(str(tmp_path)) == found


@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"])
def test_the_driver_in_user_space_is_what_the_library_is_called(tmp_path, folder):
    file = put(tmp_path, f"{folder}/libnvidia-ml.so.590.48.01", "")
    link = file.with_name("libnvidia-ml.so.1")
    link.symlink_to(file.name)
    assert look.library(str(tmp_path)) == ("590.48.01", str(link))


def test_no_library_is_no_driver(tmp_path):
    assert look.library(str(tmp_path)) == ("", "")


@pytest.mark.parametrize(
    ("content", "on"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"", False)]
)
def test_secure_boot_is_the_fifth_byte(tmp_path, content, on):
    put(tmp_path, EFI, content)
    assert look.secure_boot(str(tmp_path)) is on
    assert look.secure_boot(str(tmp_path / "bios")) is False


def test_os_release_is_read_with_and_without_quotes(tmp_path):
    put(tmp_path, "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3"\n')
    assert look.system(str(tmp_path)) == {
        "id": "ubuntu",
        "version": "24.04",
        "name": "Ubuntu 24.04.3",
    }


def test_kernels_with_a_module_are_found_compressed_or_not(tmp_path):
    put(tmp_path, "lib/modules/6.1.0-40-amd64/updates/dkms/nvidia.ko.xz", "")
    put(tmp_path, "lib/modules/6.1.0-41-amd64/updates/dkms/nvidia.ko", "")
    put(tmp_path, "lib/modules/6.1.0-42-amd64/kernel/nvidia_wmi.ko", "")
    found = look.kernels_with_module(str(tmp_path))
    assert found == ["6.1.0-40-amd64", "6.1.0-41-amd64"]


# ---- keys ---------------------------------------------------------------------------------------

BARE = base64.b64decode("".join(KEY.split("\n\n", 1)[1].split("\n=")[0].split("\n")))
# A key of somebody else: one byte of the key's material differs.
FOREIGN = BARE[:30] + bytes([BARE[30] ^ 1]) + BARE[31:]


def armoured(key: bytes) -> str:
    head, _, tail = KEY.partition("\n\n")
    return f"{head}\n\n{base64.b64encode(key).decode()}\n={tail.split(chr(10) + '=')[1]}"


def test_the_fingerprint_of_a_key_is_what_gpg_says():
    assert public_key(KEY.encode()) == public_key(BARE) == (BARE, FINGERPRINT)


def test_one_changed_byte_is_another_key():
    assert public_key(FOREIGN)[1] != FINGERPRINT


@pytest.mark.parametrize(
    "file",
    [
        KEY + armoured(FOREIGN),
        KEY.replace("\n-----END", f"\n{base64.b64encode(FOREIGN).decode()}\n-----END"),
    ],
    ids=["a second block", "after the checksum"],
)
def test_a_key_that_hides_behind_the_good_one_is_not_written(file):
    key, fingerprint = public_key(file.encode())
    assert fingerprint == FINGERPRINT
    assert key == BARE


def test_a_key_that_hides_before_the_good_one_is_the_one_that_is_compared():
    assert public_key((armoured(FOREIGN) + KEY).encode())[1] != FINGERPRINT


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


# ---- a run under way ----------------------------------------------------------------------------


def test_a_run_is_under_way_for_as_long_as_its_supervisor_holds_the_lock(tmp_path):
    assert call("hearth_leave", workspace=str(tmp_path))["run"] == ""
    with under_way(tmp_path, "evening"):
        assert call("hearth_leave", workspace=str(tmp_path))["run"] == "evening"
    assert call("hearth_leave", workspace=str(tmp_path))["run"] == ""
