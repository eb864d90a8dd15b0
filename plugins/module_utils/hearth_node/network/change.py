"""NetworkChange changes that give a NIC its address, and the way back from the last one kept.

A candidate has the file to write and the commands to apply it. The NIC keeps its renderer: if
netplan defined the active configuration, netplan's file is changed, and otherwise NetworkManager's
own profile.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
from dataclasses import asdict, dataclass, field, fields, replace

from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.nics import Nic
from ansible.module_utils.hearth_node.base import write_private
from ansible.module_utils.hearth_node.changes.record import FOLDER
from ansible.module_utils.hearth_node.network import keyfile
from ansible.module_utils.hearth_node.network.nics import Manager
from ansible.module_utils.hearth_node.network.plan import Wanted

try:
    from ansible.module_utils.hearth_node.network import netplan
except ImportError:  # PyYAML: netplan brings it for the system's Python, but this one lacks it
    netplan = None

_NETPLAN = ("/run/netplan", "/etc/netplan", "/lib/netplan")
_HELD = "# Hearth has changed what cloud-init wrote.\nnetwork: {config: disabled}\n"
_PROFILES = "/etc/NetworkManager/system-connections"

CONFIGURATION = ("/etc/netplan", _PROFILES)
"""Folders that an undone change leaves as they were."""

_SECRET = re.compile(
    r"""(?mix) ^ (\s* ["']? [\w.-]* (password|psk|pin|secret|wep-key\d?|private-key) [\w.-]* ["']?
    \s* [:=] \s*) .* $"""
)
# A reload of networkd reconfigures the changed NICs. A `reconfigure` right after it left a NIC for
# good without its fresh lease (systemd 252: 3 of 120 times in the lab, 0 of 100 without). Another
# `reconfigure` does not help then; a restart does, and leaves the other NICs alone.
ADDRESSED = """\
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ip -4 -oneline address show dev "$1" scope global | grep -q . && exit
    sleep 1
done
systemctl restart systemd-networkd
"""


class Unable(Exception):
    """The change is impossible; `args` are the findings."""


@dataclass(frozen=True)
class NetworkChange:
    """A change that awaits confirmation.

    `target` is the file that changes for good, `shadow` one that overrides it until the next boot,
    `also` files (text by path) to write once the change is kept. `apply` and `undo` are the
    commands to run once the shadow is written or removed. `before` and `after` are for people.
    """

    nic: str
    target: str
    shadow: str
    content: str
    apply: list[list[str]]
    undo: list[list[str]]
    before: str
    after: str
    then: list[list[str]] = field(default_factory=list)
    also: dict[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether the file's content would change."""
        return self.before != self.after


def without_secrets(text: str) -> str:
    """Return a configuration with passwords and keys hidden."""
    return _SECRET.sub(r"\1(hidden)", text)


def candidate(nic: Nic, manager: Manager, wanted: Wanted, name: str) -> NetworkChange:
    """Return the change that gives a NIC an address.

    `name` is the NIC that the address is for: that of `nic`, unless a test forces another. Raises
    Unable.
    """
    if manager.definition:
        return _of_netplan(nic, manager, wanted, name)
    return _of_profile(nic, manager, wanted, name)


def _of_netplan(nic: Nic, manager: Manager, wanted: Wanted, name: str) -> NetworkChange:
    if netplan is None:
        raise Unable("this Python has no module yaml: install python3-yaml")
    paths = netplan.in_force(
        path for folder in _NETPLAN for path in sorted(glob.glob(f"{folder}/*.yaml"))
    )
    documents = {}
    for path in paths:
        try:
            documents[path] = netplan.load(_read(path))
        except ValueError as error:
            raise Unable(f"{path} cannot be read: {error}") from None
    found = netplan.places(documents, manager.definition)
    files = " and ".join(place.path for place in found)
    if len(found) != 1:
        where = f"is spread over {files}: put it into one file" if found else "is in no file"
        raise Unable(f"netplan's definition {manager.definition} of {nic.name} {where}")
    place = found[0]
    if not place.path.startswith("/etc/"):
        raise Unable(f"netplan's definition of {nic.name} is in {place.path}, made at each boot")
    document = documents[place.path]
    by_networkmanager = manager.kind == "networkmanager"
    if by_networkmanager and nic.wireless:
        document = netplan.awake(document, place)
    changed, key = netplan.with_address(document, place, name, wanted, ranked=by_networkmanager)
    same = changed == documents[place.path]
    content = _read(place.path) if same else netplan.dump(changed, name)
    _validate(place.path, content)
    generate = [["netplan", "generate"]]
    if by_networkmanager:
        up = ["uuid", manager.uuid] if key == place.key else ["id", f"netplan-{key}"]
        apply = generate + _activate(name, *up)
        undo = generate + _activate(nic.name, "uuid", manager.uuid)
    else:
        apply = undo = [*generate, ["networkctl", "reload"], ["sh", "-c", ADDRESSED, "", nic.name]]
    before = netplan.dump(documents[place.path], name)
    return NetworkChange(
        nic=name,
        target=place.path,
        shadow=f"/run/netplan/{os.path.basename(place.path)}",
        content=content,
        apply=apply,
        undo=undo,
        before=without_secrets(before),
        after=without_secrets(before if same else content),
        then=generate,
        also=_hold_cloud_init() if "cloud-init" in place.path else {},
    )


def _hold_cloud_init() -> dict[str, str]:
    """Return the file that keeps cloud-init from rewriting its netplan file, if there is one."""
    folder = "/etc/cloud/cloud.cfg.d"
    return {f"{folder}/99-hearth-network.cfg": _HELD} if os.path.isdir(folder) else {}


def _of_profile(nic: Nic, manager: Manager, wanted: Wanted, name: str) -> NetworkChange:
    """Return the change to one of NetworkManager's own profiles.

    A profile in /run overrides the one in /etc with the same UUID. An in-memory profile, as
    NetworkManager creates for a cable, is left alone; a named profile is added beside it.
    """
    text, own = _read(manager.file), manager.file.startswith("/etc/")
    if own:
        target, identity, before = manager.file, manager.uuid, text
    else:
        target, before = f"{_PROFILES}/hearth-{nic.name}.nmconnection", ""
        identity = str(uuid.uuid5(uuid.NAMESPACE_OID, f"hearth {nic.mac}"))
        text = keyfile.changed(
            keyfile.without_sections(text, ".nmmeta", "proxy"),
            {"connection": {"id": f"hearth-{nic.name}", "timestamp": None, "autoconnect": None}},
        )
    after = keyfile.with_address(text, name, identity, wanted)
    if nic.wireless:
        after = keyfile.without_power_saving(after)
    return NetworkChange(
        nic=name,
        target=target,
        shadow=f"/run/NetworkManager/system-connections/hearth-{nic.name}.nmconnection",
        content=after,
        apply=_activate(name, "uuid", identity),
        undo=_activate(nic.name, "uuid", manager.uuid),
        before=without_secrets(before),
        after=without_secrets(after),
        then=[["nmcli", "connection", "reload"]],
    )


def _activate(nic: str, *profile: str) -> list[list[str]]:
    return [
        ["nmcli", "connection", "reload"],
        ["nmcli", "--wait", "20", "connection", "up", *profile, "ifname", nic],
    ]


def _validate(path: str, content: str) -> None:
    """Let netplan parse the files as they would be. Raises Unable with its error output."""
    with tempfile.TemporaryDirectory(prefix="hearth-") as root:
        for folder in _NETPLAN[1:]:
            there = root + folder
            if os.path.isdir(folder):
                shutil.copytree(folder, there)
        write_private(root + path, content)
        done = run("netplan", "generate", "--root-dir", root)
    if done.returncode:
        said = without_secrets(done.stderr.replace(root, "").strip())
        raise Unable(f"netplan refuses {path} with the address in it: {said}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Unable(f"{path} cannot be read: {error}") from None


def fingerprint(*folders: str) -> str:
    """Return a checksum over folders of small files: content, modes and owners."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in glob.glob(f"{folder}/*")):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).hexdigest()
            line = f"{path} {status.st_mode:o} {status.st_uid} {status.st_gid} {content}\n"
            found.update(line.encode(errors="surrogateescape"))
    return found.hexdigest()


_FILE = os.path.join(FOLDER, "network.json")
_LEASED = {"ipv4": {"method": "auto", "address1": None, "dns": None}}


@dataclass(frozen=True)
class Past:
    """A confirmed change, and the machine's addresses before it."""

    candidate: NetworkChange
    addresses: list[str]


def keep_past(candidate: NetworkChange, addresses: list[str]) -> None:
    """Store a change that is about to be kept; of several to one file, the first undo wins."""
    known = load_past()
    if known and known.candidate.target == candidate.target:
        addresses, undo = known.addresses, known.candidate.undo
        candidate = replace(candidate, undo=undo)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    write_private(_FILE, json.dumps({"candidate": asdict(candidate), "addresses": addresses}))


def load_past() -> Past | None:
    """Return the stored change, or None."""
    try:
        with open(_FILE, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    names = {each.name for each in fields(NetworkChange)}  # an older Hearth wrote more of them
    known = {name: value for name, value in found["candidate"].items() if name in names}
    return Past(NetworkChange(**known), found["addresses"])


def forget_past() -> None:
    """Remove the stored change."""
    os.unlink(_FILE)


def backwards(ours: NetworkChange, original: str | None) -> NetworkChange:
    """Return the candidate that reverts `ours`; `original` is the earlier content of its file.

    If there was no file, NetworkManager had created a profile of its own, which uses DHCP: while
    the way back is tried, the file uses DHCP too.
    """
    absent = original is None
    return replace(
        ours,
        content=keyfile.changed(ours.content, _LEASED) if absent else original,
        apply=ours.apply if absent else ours.undo,
        undo=ours.apply,
        before=without_secrets(ours.content),
        after=without_secrets(original or ""),
    )
