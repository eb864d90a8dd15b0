"""Other uses of a home's machine: battery, and programs on its GPUs."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.hearth_node.doctor import gpu_use, surroundings
from ansible.module_utils.hearth_node.runs import leftovers


def home(workspace: str) -> dict[str, Any]:
    """Return `on_battery`, the `gpus` with their programs, and the reason if there are none.

    The reason is `gpu_trouble`. Processes of the runs in `workspace` are told from others.
    """
    kept, lost = leftovers.processes(workspace)
    gpus, trouble = gpu_use.look(kept | {each["pid"] for each in lost})
    return {"on_battery": surroundings.on_battery(), "gpus": gpus, "gpu_trouble": trouble}
