"""The file in a workspace that describes the nodes of the cluster, for starts by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hearth.base.errors import LaunchError

CONFIG = "cluster_config.yaml"
"""The file's name. `hearth provision` writes it."""

LAUNCHER = "./launch_cluster.sh"
"""The command that a person types on a node."""


@dataclass(frozen=True)
class Cluster:
    """The nodes of the cluster by name, and this node's name, Python and model cache ('': own)."""

    own: str
    python: str
    models: str
    nodes: Mapping[str, Mapping[str, Any]]

    @property
    def by_rank(self) -> tuple[str, ...]:
        """The names of all nodes in the order of their ranks."""
        return tuple(sorted(self.nodes, key=lambda name: self.nodes[name]["rank"]))

    def addresses(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the cluster addresses of nodes."""
        return tuple(str(self.nodes[name]["address"]) for name in names)

    @property
    def interface(self) -> str:
        """The NIC of this node's cluster address; '' if provisioning has not seen it."""
        return self.nodes[self.own].get("interface") or ""


def read_cluster(workspace: Path) -> Cluster:
    """Return the cluster that CONFIG in `workspace` describes.

    Raises `LaunchError` if the file cannot be read, or does not describe this node.
    """
    path = workspace / CONFIG
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        nodes = {node["name"]: node for node in config["nodes"]}
        own = nodes[config["node"]]["name"]
        return Cluster(own, str(config["python"]), str(config.get("models") or ""), nodes)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        why = " ".join(str(error).split())
        raise LaunchError(
            f"{path}: cannot be read ({type(error).__name__}: {why}); "
            "`hearth provision --tags workspace` writes the file anew"
        ) from error
