"""Action plugin: download the nodes' missing packages to the controller, once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import SupplyError
from hearth_controller.base.screen import Screen
from hearth_controller.supply.download import download
from hearth_controller.supply.locks import Pin, read_lock
from hearth_controller.supply.target import Target
from hearth_controller.supply.wheelhouse import Wheel, Wheelhouse

DOCUMENTATION = r"""
module: hearth_supplies
short_description: Fetch what the nodes lack onto the controller, once for all
description:
  - Downloads the wheels of the packages that differ on any node, for the platforms of those nodes,
    and Miniforge's installer if a node is to get one. What is here already is not fetched again.
  - Nothing of any node is touched. Meant to run once.
options:
  looks:
    description: What M(hearth_packages) found, by node.
    type: dict
    required: true
  requirements:
    description: Folder with the lock files.
    type: path
    required: true
  cache:
    description: Folder of the controller for what is fetched.
    type: path
    required: true
  builds_from:
    description: Index for builds of a version, such as C(2.13.0+cpu).
    type: str
    required: true
  miniforge_url:
    description: Address of Miniforge's installer.
    type: str
    required: true
  miniforge_sha256:
    description: Its checksum.
    type: str
    required: true
"""

RETURN = r"""
wheels:
  description: The wheels for each node, by node; C(path), C(name), C(sha256), C(size), C(unpacked).
  returned: always
  type: dict
installer:
  description: Miniforge's installer, or nothing.
  returned: always
  type: str
"""


Kind = tuple[str, Target]
"""Lock and platform: nodes of one kind get the same wheels."""


def kind_of(look: Mapping[str, Any]) -> Kind:
    """Return lock and platform of a node, from its inspection."""
    target = look["target"]
    return look["kind"], Target(tuple(target["python"]), target["machine"], target["glibc"])


def wanted(looks: Mapping[str, Mapping[str, Any]], locks: Path) -> dict[str, list[Pin]]:
    """Return the missing pins by node; nodes that match the lock are left out."""
    lacking = {}
    for node, look in looks.items():
        if look.get("differing"):
            pins = read_lock((locks / f"{look['kind']}.lock").read_text())
            lacking[node] = [pins[each["name"]] for each in look["differing"]]
    return lacking


def by_kind(
    looks: Mapping[str, Mapping[str, Any]], lacking: Mapping[str, list[Pin]]
) -> dict[Kind, list[Pin]]:
    """Return the missing pins by kind of node, each pin once."""
    groups: dict[Kind, dict[str, Pin]] = {}
    for node, pins in lacking.items():
        groups.setdefault(kind_of(looks[node]), {}).update({pin.name: pin for pin in pins})
    return {kind: list(pins.values()) for kind, pins in groups.items()}


def as_dict(wheel: Wheel) -> dict[str, Any]:
    """Return a wheel as a dict that fits into a task's result."""
    return {
        "path": str(wheel.path),
        "name": wheel.path.name,
        "sha256": wheel.sha256,
        "size": wheel.size,
        "unpacked": wheel.unpacked,
    }


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Download the files, and return their paths."""
        result = super().run(tmp, task_vars) | {"changed": False, "wheels": {}, "installer": ""}
        string = {"type": "str", "required": True}
        _, options = self.validate_argument_spec(
            {
                "looks": {"type": "dict", "required": True},
                "requirements": {"type": "path", "required": True},
                "cache": {"type": "path", "required": True},
                "builds_from": string,
                "miniforge_url": string,
                "miniforge_sha256": string,
            }
        )
        looks, cache = options["looks"], Path(options["cache"])
        screen = Screen(self._display)
        try:
            result["wheels"] = self._wheels(looks, options, Wheelhouse(cache / "wheels"), screen)
            if any(look.get("lacks_miniforge") for look in looks.values()):
                url = options["miniforge_url"]
                installer = cache / "downloads" / url.rsplit("/", 1)[-1]
                download(url, options["miniforge_sha256"], installer, screen.progress)
                result["installer"] = str(installer)
        except SupplyError as error:
            return result | {"failed": True, "msg": str(error)}
        except OSError as error:
            why = f"{cache} cannot be used for downloads ({error}): free space, or set python_cache"
            return result | {"failed": True, "msg": why}
        finally:
            screen.end()
        return result

    def _wheels(
        self,
        looks: Mapping[str, Any],
        options: Mapping[str, Any],
        house: Wheelhouse,
        screen: Screen,
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the missing wheels by node; nodes of one kind share a download."""
        lacking = wanted(looks, Path(options["requirements"]))
        fetched = {
            kind: house.fetch(pins, kind[1], options["builds_from"], screen.progress)
            for kind, pins in by_kind(looks, lacking).items()
        }
        return {
            node: [as_dict(fetched[kind_of(looks[node])][pin.name]) for pin in pins]
            for node, pins in lacking.items()
        }
