"""netplan's files: find the definition of a NIC, and give it a fixed address.

netplan merges a definition spread over files (two address lists give two addresses), and of two
definitions that match a NIC the alphabetically first wins. So the active definition is changed in
place, and the rest of its file is kept.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from ansible.module_utils.hearth_node.network.plan import Wanted

_HEADER = "# Hearth has set the address of {nic}; `hearth reset` restores the file before it.\n"
_SECTIONS = ("ethernets", "wifis", "bonds", "bridges", "vlans")
_PLAIN = re.compile(r"true|false|0|[1-9]\d*")
# Sorts before any installer's name, so that networkd matches it first.
_FIRST = "00-hearth-{nic}"


class _Loader(yaml.SafeLoader):
    """Read every scalar as text: YAML 1.1 parses some MACs as numbers."""


class _Dumper(yaml.SafeDumper):
    """Write documents that _Loader has read."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] == "tag:yaml.org,2002:null"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    if _PLAIN.fullmatch(value):
        tag = "bool" if value in ("true", "false") else "int"
        return dumper.represent_scalar(f"tag:yaml.org,2002:{tag}", value)
    return dumper.represent_str(value)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True)
class Position:
    """Position of a definition: file, section and key."""

    path: str
    section: str
    key: str


def load(text: str) -> dict[str, Any]:
    """Return the document; every scalar is text. Raises ValueError that names the error."""
    try:
        found = yaml.load(text, _Loader) or {}
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(found, dict) or not isinstance(found.get("network") or {}, dict):
        raise ValueError("it has no mapping 'network'")
    return found


def dump(document: Mapping[str, Any], nic: str) -> str:
    """Return the text of a document that Hearth has changed for a NIC."""
    return _HEADER.format(nic=nic) + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True
    )


def in_force(paths: Iterable[str]) -> list[str]:
    """Return the files that netplan reads; for equal file names, that of the first folder.

    `paths` come in the order of netplan's folders: /run, /etc, /lib.
    """
    by_name: dict[str, str] = {}
    for path in paths:
        by_name.setdefault(os.path.basename(path), path)
    return [by_name[name] for name in sorted(by_name)]


def places(documents: Mapping[str, Mapping[str, Any]], key: str) -> list[Position]:
    """Return the places of this definition, in the order of the documents (by path).

    NetworkManager names a Wi-Fi profile after definition and network, so the longest definition
    that is a prefix of the key matches too.
    """
    found = [
        Position(path, section, name)
        for path, document in documents.items()
        for section in _SECTIONS
        for name in (document.get("network") or {}).get(section) or {}
        if name == key or (section == "wifis" and key.startswith(f"{name}-"))
    ]
    longest = max((len(place.key) for place in found), default=0)
    return [place for place in found if len(place.key) == longest]


def with_address(
    document: Mapping[str, Any],
    place: Position,
    nic: str,
    wanted: Wanted,
    *,
    ranked: bool = False,
) -> tuple[dict[str, Any], str]:
    """Return the document with this address for the NIC, and the key of the definition that has it.

    The NIC's definition stands at `place`. If it is for several NICs (a name with *, a driver) it
    stays, and one for this NIC alone is sorted before it. `ranked` is for NetworkManager, which
    orders profiles by their autoconnect priority.
    """
    changed = copy.deepcopy(dict(document))
    section = changed["network"][place.section]
    settings, key = section[place.key] or {}, place.key
    if not _is_fixed(settings, wanted):
        settings = _fixed(settings, wanted)
    match = settings.get("match")
    if not match and place.section == "ethernets":
        key = nic
        section.pop(place.key)
    elif match and _fits_several(match):
        key = _FIRST.format(nic=nic)
        settings = {**settings, "match": {"name": nic}}
        backend = dict(settings.pop("networkmanager", None) or {})
        passed = backend.get("passthrough") or {}
        if ranked:
            rank = {"connection.autoconnect-priority": "100"}
            settings["networkmanager"] = {"passthrough": {**passed, **rank}}
    section[key] = settings
    return changed, key


def _fits_several(match: Mapping[str, Any]) -> bool:
    """Return whether a definition can match more than one NIC."""
    return "macaddress" not in match and bool(re.search(r"[*?\[]", str(match.get("name", "*"))))


def _is_leased(settings: Mapping[str, Any]) -> bool:
    return str(settings.get("dhcp4", "false")).lower() in ("true", "yes", "on", "y")


def _is_fixed(settings: Mapping[str, Any], wanted: Wanted) -> bool:
    """Return whether a definition already gives the wanted address, in any spelling."""
    gateways = [settings["gateway4"]] if settings.get("gateway4") else []
    gateways += [each.get("via") for each in settings.get("routes") or [] if _is_default(each)]
    servers = (settings.get("nameservers") or {}).get("addresses") or []
    return (
        not _is_leased(settings)
        and f"{wanted.address}/{wanted.prefix}" in map(_address, settings.get("addresses") or [])
        and gateways == ([wanted.gateway] if wanted.gateway else [])
        and set(wanted.dns) <= set(servers)
        and str(wanted.mtu) in ("0", settings.get("mtu"))
    )


def _fixed(settings: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Return the settings of a definition with a fixed IPv4 address."""
    fixed = copy.deepcopy(dict(settings))
    if _is_leased(fixed):
        fixed["dhcp4"] = "false"
    fixed.pop("gateway4", None)
    others = [
        each
        for each in fixed.get("addresses") or []
        if _address(each).partition("/")[0] not in (wanted.address, wanted.instead)
    ]
    fixed["addresses"] = [f"{wanted.address}/{wanted.prefix}", *others]
    routes = [each for each in fixed.get("routes") or [] if not _is_default(each)]
    if wanted.gateway:
        routes.append(_default_route(fixed) | {"via": wanted.gateway})
    fixed["routes"] = routes
    if not routes:
        del fixed["routes"]
    if wanted.mtu:
        fixed["mtu"] = str(wanted.mtu)
    if wanted.dns:
        servers = dict(fixed.get("nameservers") or {})
        sixes = [each for each in servers.get("addresses") or [] if ":" in each]
        fixed["nameservers"] = servers | {"addresses": [*wanted.dns, *sixes]}
    return fixed


def _default_route(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default route as written, or one equivalent to the leased one."""
    for route in settings.get("routes") or []:
        if _is_default(route):
            return dict(route)
    metric = (settings.get("dhcp4-overrides") or {}).get("route-metric")
    return {"to": "default", "via": "", **({"metric": metric} if metric else {})}


def awake(document: Mapping[str, Any], place: Position) -> dict[str, Any]:
    """Return the document with power saving off for a Wi-Fi NIC of NetworkManager."""
    changed = copy.deepcopy(dict(document))
    settings = changed["network"][place.section][place.key]
    for name, point in (settings.get("access-points") or {}).items():
        backend = dict((point or {}).get("networkmanager") or {})
        passed = backend.get("passthrough") or {}
        backend["passthrough"] = {**passed, "wifi.powersave": "2"}
        settings["access-points"][name] = {**(point or {}), "networkmanager": backend}
    return changed


def _address(each: Any) -> str:
    """Return an entry of `addresses`, which can be a mapping of address to options."""
    return next(iter(each)) if isinstance(each, dict) else str(each)


def _is_default(route: Mapping[str, Any]) -> bool:
    """Return whether a route is IPv4's default one (of the main table)."""
    return (
        route.get("to") in ("default", "0.0.0.0/0")
        and ":" not in str(route.get("via", ""))
        and "table" not in route
    )
