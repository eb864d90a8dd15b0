"""Words and options that have another name now, or are gone.

With the settings of `hearth.config.problems` it is the one table of old names: a person who types
one, or has one in an inventory, is told the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hearth.base.errors import did_you_mean
from hearth.config.problems import RENAMED as OF_SETTINGS
from hearth.config.problems import elsewhere

RENAMED: Mapping[str, str] = {
    **OF_SETTINGS,
    "node": "nodes",
    "till": "until",
    "attach_run": "run",
    "benchmark_repeat": "repeat",
    "benchmark_steps": "steps",
    "chat_node": "nodes",
    "chat_port": "port",
    "chat_state": "serve",
    "dashboard_port": "port",
    "dashboard_state": "serve",
    "distribute_names": "nodes",
    "doctor_fix": "fix",
    "evaluate_best": "best",
    "evaluate_limit": "eval_limit",
    "evaluate_tasks": "eval",
    "export_best": "best",
    "export_node": "nodes",
    "export_precision": "precision",
    "export_to": "to",
    "export_trust_remote_code": "trust_remote_code",
    "lend_nodes": "nodes",
    "lend_to": "lend",
    "lend_until": "until",
    "logs_follow": "follow",
    "logs_lines": "lines",
    "logs_nodes": "nodes",
    "reboot_force": "force",
    "reset_force": "force",
    "reset_remove": "remove",
    "reset_yes": "yes",
    "runs_compare": "compare",
    "runs_delete": "delete",
    "runs_move": "move",
    "runs_pick": "run",
    "runs_place": "place",
    "runs_yes": "yes",
    "share_best": "best",
    "share_copy_to": "copy_to",
    "share_private": "private",
    "share_push": "push",
    "verify_single": "single",
}
"""The present word after `-e` by the old name."""

_FIXED = "it is fixed now"
GONE: Mapping[str, str] = {
    "attach_interval": _FIXED,
    "attach_patience": _FIXED,
    "benchmark_warm_up": _FIXED,
    "distribute_between": "nodes always send to each other",
    "distribute_direct_mb": _FIXED,
    "doctor_file": "`hearth doctor --json` prints it",
    "driver_repo_key": "it is always NVIDIA's own",
    "driver_repo_url": "it is always NVIDIA's own",
    "export_cache": "downloads are always in hearth/ in your cache folder",
    "hearth_one_computer": "it follows from the addresses: all of them are loopback",
    "machine_timeout": _FIXED,
    "network_confirm_timeout": _FIXED,
    "network_force": "it was for tests",
    "plan_runs": "runs are always in runs/ beside train.yml",
    "preflight_disk_gb": "it follows from the lock file",
    "preflight_index": "it was shown and never used",
    "python_build_packages": "a missing C compiler is always installed",
    "python_cache": "downloads are always in hearth/ in your cache folder",
    "python_conda_version": _FIXED,
    "python_cpu_index": "it is always the PyTorch project's own",
    "python_keep_wheels": "they are always removed after they were installed",
    "python_miniforge": "name an environment of your own with hearth_python",
    "python_miniforge_installers": _FIXED,
    "python_requirements": "the lock files are always those of requirements/",
    "reboot_timeout": _FIXED,
    "status_file": "`hearth status --json` prints it",
    "stop_now": "a second call of stop.yml ends the run at once",
    "verify_all_reduce": "the sum over all nodes is always checked",
    "verify_limit": _FIXED,
    "workspace_linger": "runs are units of your user's systemd wherever a machine is a node",
    "workspace_source": "the training code is always that of training/",
    "workspace_verdict": _FIXED,
}
"""The reason by the name of an option that is gone."""


def hint(name: str, known: Iterable[str]) -> str:
    """Return the present name of an unknown word or option, or the most similar `known` one."""
    if name in RENAMED:
        return f"; write -e {RENAMED[name]}= instead"
    if name in GONE:
        return f" any more ({GONE[name]}); leave it out"
    if setting := elsewhere(name, known):
        return f"; write -e {setting if '=' in setting else f'{setting}='} instead"
    return did_you_mean(name, known)
