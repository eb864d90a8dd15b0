"""File and variable names shared by a node's processes and the Ansible modules.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Valid names of a run, which are also folder names."""

SUPERVISOR_LOCK = "config/supervisor.lock"
"""File in a workspace, locked and filled in by the supervisor of the run in progress."""

LENDING = "lend.json"
"""File in a workspace with the word of a person at the node: whether it lends."""

QUEUE = "queue"
"""Folder in a workspace with a file for each run that waits for its turn, NAME.json, and the file
NAME.lock, which the run's supervisor holds for as long as it lives."""

ADDED = "hearth-added.json"
"""File of an environment with the names of the packages that Hearth added on request."""

LIBRARIES = ("torch", "transformers", "peft", "unsloth", "bitsandbytes")
"""Libraries that compute; a node need not have all of them."""

SUPERVISED = "HEARTH_SUPERVISED"
"""Environment variable of all processes that a supervisor starts: the workspace they work for."""

NOTIFY = "HEARTH_NOTIFY"
"""Environment variable with the addresses of a person that get messages; they hold tokens."""

PUSH_TOKEN = "HEARTH_PUSH_TOKEN"
"""Environment variable with the token for a push, on its way to a supervisor: ranks get none."""

TOKENS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "WANDB_API_KEY"),
    *(NOTIFY, PUSH_TOKEN),
)
"""Environment variables with a person's tokens, which only processes that need them get."""

OF_A_LAUNCH = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"),
    # torchrun would otherwise assume every node has this node's nproc.
    "TORCH_ELASTIC_WORKER_IDENTICAL",
)
"""Environment variables that each launch sets anew; those of another launch must not get in."""

OF_HEARTH = ("HEARTH_", "TORCHELASTIC_")
"""Beginnings of the other names of environment variables that belong to a launch."""

SUPERVISORS = frozenset(("hearth.supervisor", "hearth.supervise"))
"""Names of the supervisor's module on a command line: today's, and that of earlier versions."""

TORCHRUN = "hearth.trainer.torchrun"
"""Module that starts torchrun; its name on the command line identifies those processes."""

MANIFEST = "hearth.json"
"""File in a model folder with the checksums of all other files."""

STAGED_NAME = re.compile(r"([0-9a-f]{12})-.+")
"""Name of a local data file in a workspace: the head of its SHA-256, then its own name."""

HUB_ROWS = "hub"
"""Folder below the data folder for rows of Hub data sets, one parquet file each."""


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Hearth in the user's cache."""
    return Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hearth"


def python_path(code: object, environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of a process that imports Hearth from `code`: that, then the user's."""
    own = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [str(code), *own])))
