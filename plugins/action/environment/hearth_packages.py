"""Action plugin: compare a node's packages with the lock; send it the wheels it lacks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import SupplyError
from hearth.base.text import duration
from hearth_controller.base.screen import Screen
from hearth_controller.supply.extra import ExtraLock, contradictions
from hearth_controller.supply.locks import lock_in
from hearth_controller.supply.missing import (
    drift,
    installation,
    surplus,
    unsupported,
    with_extra,
)

KINDS = ("cpu", "gpu")
_WORTH_SHOWING = 10 << 20


class ActionModule(ActionBase):
    """Works for one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, with the findings that only the controller can make."""
        result = super().run(tmp, task_vars)
        self._vars = task_vars
        arguments = dict(self._task.args)
        self._locks = Path(arguments.pop("requirements"))
        self._extra = ExtraLock(Path(arguments.pop("extra_lock")))
        try:
            if arguments["verb"] == "look":
                return result | self._inspect(arguments)
            return result | self._install(arguments)
        except SupplyError as error:
            return result | {"failed": True, "msg": str(error)}

    def _module(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._execute_module("hearth_packages", dict(arguments), task_vars=self._vars)

    def _inspect(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the node's differing packages, with findings for those the lock cannot supply."""
        extra = arguments.pop("extra")
        pins = {kind: lock_in(self._locks, kind) for kind in KINDS}
        arguments["wanted"] = {
            kind: {pin.name: pin.version for pin in lock.values()} for kind, lock in pins.items()
        }
        answer = self._module(arguments) | {"extra": extra}
        if "differing" not in answer:
            return answer
        own = pins[answer["kind"]]
        answer["findings"] += contradictions(extra, own)
        if answer["target"]["python"]:
            answer["differing"] = with_extra(answer, self._locks, self._extra)
            answer["surplus"] = surplus(answer, self._locks, self._extra)
        if answer["differing"]:
            answer["findings"] += unsupported(answer, own)
        return answer

    def _install(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Send the missing wheels, install all, and remove packages added earlier."""
        look, wheels = arguments.pop("look"), arguments.pop("wheels")
        if self._task.check_mode:
            end = "to be mended" if look["present"] else "to be installed"
            return {"changed": True, "note": drift(look, end)}
        arguments |= installation(look, wheels, self._locks, self._extra)
        sent = ""
        if self._connection.transport == "local" and wheels:
            # The node is the controller itself: install from the wheel cache, and keep the wheels.
            arguments |= {"folder": str(Path(wheels[0]["path"]).parent), "keep": True}
        elif wheels:
            arguments["needed"] += sum(wheel["size"] for wheel in wheels)
            stock = self._module(arguments | {"verb": "stock"})
            if stock.get("failed"):
                return stock
            missing = [wheel for wheel in wheels if wheel["name"] in stock["missing"]]
            sent = self._send(missing, stock["folder"])
        answer = self._module(arguments)
        if answer.get("changed"):
            end = "mended" if look["present"] else "installed"
            look["surplus"] = surplus(look, self._locks, self._extra)
            answer["note"] = drift(look | {"differing": answer["differing"]}, end + sent)
        return answer

    def _send(self, wheels: list[dict[str, Any]], folder: str) -> str:
        """Send files to the node; return size and duration as text."""
        node, screen = self._vars["inventory_hostname"], Screen(self._display)
        size, done, began = sum(wheel["size"] for wheel in wheels), 0, time.monotonic()
        for wheel in wheels:
            self._transfer_file(wheel["path"], f"{folder}/{wheel['name']}")
            done += wheel["size"]
            if size > _WORTH_SHOWING:
                screen.progress(f"{node}: {done >> 20} of {size >> 20} MB sent")
        screen.end()
        if size <= _WORTH_SHOWING:
            return ""
        return f" ({size >> 20} MB sent in {duration(time.monotonic() - began)})"
