"""Edit NetworkManager profiles (keyfiles) line by line; all other lines stay unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible.module_utils.hearth_node.network.plan import Wanted

_SECTION = re.compile(r"\[([^\]]+)\]\s*")


def changed(text: str, changes: Mapping[str, Mapping[str, str | None]]) -> str:
    """Return a keyfile with these values by section and key; None removes a key."""
    left = {section: dict(values) for section, values in changes.items()}
    lines: list[str] = []
    section = ""

    def finish() -> None:
        """Add the section's new keys at its end, above its trailing blank lines."""
        place = len(lines)
        while place and not lines[place - 1].strip():
            place -= 1
        new = [
            f"{key}={value}" for key, value in left.pop(section, {}).items() if value is not None
        ]
        lines[place:place] = new

    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            finish()
            section = heading[1]
        key = line.partition("=")[0].strip()
        if "=" in line and not line.startswith("#") and key in left.get(section, {}):
            value = left[section].pop(key)
            if value is None:
                continue
            line = f"{key}={value}"
        lines.append(line)
    finish()
    for section in list(left):
        values = [f"{key}={value}" for key, value in left[section].items() if value is not None]
        if values:
            lines += ["", f"[{section}]", *values]
    return "\n".join(lines) + "\n"


def without_sections(text: str, *names: str) -> str:
    """Return a keyfile without these sections."""
    kept, section = [], ""
    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading[1]
        if section not in names:
            kept.append(line)
    return "\n".join(kept) + "\n"


def with_address(text: str, nic: str, uuid: str, wanted: Wanted) -> str:
    """Return a profile with a fixed IPv4 address, for this NIC alone.

    The UUID is explicit, since NetworkManager would otherwise derive one from the file's path.
    """
    here = _values(text, "ipv4")
    fixed = [here[key] for key in here if re.fullmatch(r"address\d+", key)]
    gone = (wanted.address, wanted.instead)
    others = [each for each in fixed if each.partition("/")[0] not in gone]
    first = f"{wanted.address}/{wanted.prefix}"
    if wanted.gateway:
        first += f",{wanted.gateway}"
    ipv4: dict[str, str | None] = {f"address{n}": None for n in range(1, len(fixed) + 1)}
    ipv4 |= {f"address{n}": each for n, each in enumerate([first, *others], start=1)}
    ipv4 |= {"method": "manual", "gateway": None}
    if wanted.dns:
        ipv4["dns"] = "".join(f"{server};" for server in wanted.dns)
    sections = {"connection": {"uuid": uuid, "interface-name": nic}, "ipv4": ipv4}
    if wanted.mtu:
        sections["ethernet"] = {"mtu": str(wanted.mtu)}
    return changed(text, sections)


def _values(text: str, section: str) -> dict[str, str]:
    """Return the keys of a section."""
    found, here = {}, ""
    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            here = heading[1]
        elif here == section and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip()
    return found


def without_power_saving(text: str) -> str:
    """Return a Wi-Fi profile with its power saving off."""
    return changed(text, {"wifi": {"powersave": "2"}})
