"""Action plugin: write files to a node, and call it only if one of them differs there."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Compares on the controller, then has the module write the others."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, or that nothing has changed."""
        result = super().run(tmp, task_vars) | {"changed": False}
        arguments = dict(self._task.args)
        present, texts = arguments.pop("present"), arguments["texts"]
        arguments["names"] = [
            name
            for name in arguments["names"]
            if present.get(name) != hashlib.sha256(texts[name].encode()).hexdigest()
        ]
        if not arguments["names"]:
            return result
        return result | self._execute_module(module_args=arguments, task_vars=task_vars)
