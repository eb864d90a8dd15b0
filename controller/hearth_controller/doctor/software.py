"""Checks that packages, training code, models and data are identical on all nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from hearth_controller.doctor.finding import (
    Finding,
    broken,
    check,
    degraded,
    good,
    not_applicable,
    not_checked,
)
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation
from hearth_controller.supply.missing import differences

# If versions of these differ, nodes cannot communicate or compute different results.
_VITAL = frozenset({"torch", "nvidia-nccl-cu13", "transformers", "peft"})


@check("versions")
def versions(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The environment loads torch, and its versions match the other nodes."""
    if why := node.lacks("facts"):
        if not node.verify.findings or _explained_elsewhere(node):
            return not_checked(why)
        return broken(why, "nothing can train here", cluster.stage("python"))
    found = next(differing(node.verify, cluster.observations), None)
    facts = node.facts
    if found:
        what, own, usual = found
        return broken(
            f"{what} {own}, and {usual} on the others",
            "nodes with different versions do not talk to each other",
            cluster.stage("python"),
            "python",
        )
    nccl = f", NCCL {facts['nccl']}" if facts["nccl"] else ""
    return good(f"torch {facts['torch']}{nccl}")


def differing(node: Observation, nodes: Sequence[Observation]) -> Iterator[tuple[str, str, str]]:
    """Yield the versions of a node that differ from most others of its kind.

    Each item is (software, the node's version, the others' version).
    """
    # Of the packages that the inventory adds, those that other nodes have, too.
    added = sorted(node.facts.get("added", {}))
    for what, key, on_gpus in (
        # Without its build tag, which differs between CPU and GPU nodes.
        ("torch", lambda facts: str(facts["torch"]).partition("+")[0], False),
        ("Python", _python_release, False),
        ("CUDA", lambda facts: facts["cuda"], True),
        ("NCCL", lambda facts: facts["nccl"], True),
        *((name, partial(_added, name), False) for name in added),
    ):
        alike = [each for each in nodes if each.usable and (each.facts["cuda"] or not on_gpus)]
        alike = [each for each in alike if what not in added or what in each.facts.get("added", {})]
        if node not in alike:
            continue
        # On a tie the version of the lowest rank wins.
        usual = Counter(key(other.facts) for other in alike).most_common(1)[0][0]
        if key(node.facts) != usual:
            yield what, str(key(node.facts)), str(usual)


def _added(name: str, facts: Mapping[str, Any]) -> str:
    return facts["added"][name]


def _python_release(facts: Mapping[str, Any]) -> str:
    return ".".join(str(facts["python"]).split(".")[:2])


def _explained_elsewhere(node: ExaminedNode) -> bool:
    """Return whether another check may explain why a node's environment does not answer."""
    packages, code = node.packages, node.code
    if any(node.lacks(part) for part in ("inspection", "packages", "code")):
        return True
    amiss = packages["differing"], code["findings"], code["differing"]
    return not packages["present"] or not node.inspection["card"]["name"] or any(amiss)


@check("lock file", "packages")
def lock(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The installed packages match the lock file."""
    packages = node.packages
    fix = cluster.stage("python")
    if not packages["present"]:
        return broken("no Python environment", "nothing can train", fix, "python")
    wrong = packages["differing"]
    if not wrong:
        return good(f"as {packages['kind']}.lock says")
    seen = differences(sorted(wrong, key=lambda each: each["name"] not in _VITAL))
    if packages["findings"]:
        return broken(seen, "and the lock has no way to mend it", packages["findings"][0])
    if _VITAL & {one["name"] for one in wrong}:
        return broken(seen, "it may compute another thing than the other nodes", fix, "python")
    return degraded(seen, "it is not what Hearth was tested with", fix, "python")


@check("code", "code")
def code(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The workspace exists and holds the training code of this checkout."""
    code = node.code
    fix = cluster.stage("workspace")
    if code["findings"]:
        return broken("the workspace cannot be written", "nothing can train", code["findings"][0])
    if not code["prepared"]:
        return not_checked("not prepared yet: the first run brings the training code")
    if code["differing"]:
        count = len(code["differing"])
        files = code["differing"][0] if count == 1 else f"{count} files"
        return degraded(
            f"{files} unlike this checkout", "the next run replaces them", fix, "workspace"
        )
    if code["changed"]:
        return degraded(
            "folders of the workspace are missing", "the next run makes them", fix, "workspace"
        )
    return good("as in this checkout")


@check("models", "inspection")
def models(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The models are complete and match the other nodes."""
    its = node.inspection["models"]
    fix = "remove the folder {} on {}: the next run fetches it again"
    for name, model in its.items():
        if model["changed"]:
            return broken(
                f"{model['changed'][0]} of {name} is not what came",
                "this node would train another model",
                fix.format(name, node.name),
            )
    for name, model in its.items():
        others = [of.inspection.get("models", {}).get(name, {}) for of in cluster.nodes]
        if model["fingerprint"] != _most_frequent([one["fingerprint"] for one in others if one]):
            return broken(
                f"{name} is not that of the other nodes",
                "this node would train another model",
                fix.format(name, node.name),
            )
    if not its:
        return not_applicable("no model yet")
    if unread := [path for path in node.inspection["unread"] if not _staged(path, node)]:
        return not_checked(_unread(unread))
    return good(f"{len(its)} as their checksums say" if len(its) > 1 else f"{next(iter(its))}")


@check("data", "inspection")
def data(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The data files that runs transferred match their checksums.

    Rows from the Hub have no checksum and must match the other nodes.
    """
    damaged = node.inspection["damaged"]
    if damaged:
        return degraded(
            f"{damaged[0]} is not what came",
            "a run with it would be refused, or train on other rows",
            f"remove data/{damaged[0]} in the workspace of {node.name}: the next run brings it "
            "again",
        )
    for name, digest in node.inspection["hub_sums"].items():
        known = [of.inspection.get("hub_sums", {}).get(name) for of in cluster.nodes]
        if digest != _most_frequent([one for one in known if one]):
            return degraded(
                f"data/hub/{name} is not that of the other nodes",
                "a run with it would be refused",
                f"remove data/hub/{name} in the workspace of {node.name}: the next run brings it "
                "again",
            )
    if not node.inspection["data"] and not node.inspection["hub_data"]:
        return not_applicable("no data file yet")
    if unread := [path for path in node.inspection["unread"] if _staged(path, node)]:
        return not_checked(_unread(unread))
    count = len(node.inspection["data"]) + len(node.inspection["hub_data"])
    return good(f"{count} file{'s' if count > 1 else ''} as their checksums say")


def _staged(path: str, node: ExaminedNode) -> bool:
    """Return whether a file reported by a node belongs to data, not to a model."""
    return PurePosixPath(path).name in [*node.inspection["data"], *node.inspection["hub_data"]]


def _unread(unread: Sequence[str]) -> str:
    """Return the message that files were not read, naming the first."""
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    verb = "are" if more else "is"
    return f"{unread[0]}{more} {verb} too large to be read at every look"


def _most_frequent(prints: Sequence[str]) -> str:
    """Return the most frequent checksum; on a tie, the one of the lowest rank."""
    return Counter(prints).most_common(1)[0][0]
