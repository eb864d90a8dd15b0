"""Profiles of NetworkManager (keyfiles), changed line by line so that all else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible.module_utils.hearth_network_plan import Wanted

_SECTION = re.compile(r"\[([^\]]+)\]\s*")


def changed(text: str, changes: Mapping[str, Mapping[str, str | None]]) -> str:
    """Return a keyfile with these values by section and key; None takes a key out."""
    left = {section: dict(values) for section, values in changes.items()}
    lines: list[str] = []
    section = ""

    def finish() -> None:
        """Add what is new in the section that ends here, above the blank lines that end it."""
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

    The UUID is written down, since NetworkManager would derive one from the file's place.
    """
    keys = re.findall(r"^((?:address|route)\d+|addresses|gateway|dns|method)\s*=", text, re.M)
    ours = {key: None for key in keys if not key.startswith("route")}
    address = f"{wanted.address}/{wanted.prefix}"
    ipv4 = ours | {
        "method": "manual",
        "address1": f"{address},{wanted.gateway}" if wanted.gateway else address,
    }
    if wanted.dns:
        ipv4["dns"] = "".join(f"{server};" for server in wanted.dns)
    else:
        ipv4.pop("dns", None)
    connection = {"uuid": uuid, "interface-name": nic}
    return changed(text, {"connection": connection, "ipv4": ipv4})


def without_power_saving(text: str) -> str:
    """Return a Wi-Fi profile with its power saving off."""
    return changed(text, {"wifi": {"powersave": "2"}})
