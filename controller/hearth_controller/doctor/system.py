"""Checks of the machine, of the stages of provisioning, and of remains of ended runs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from hearth_controller.base.clock import difference
from hearth_controller.base.other_runs import describe_other_run
from hearth_controller.doctor.finding import (
    Finding,
    broken,
    check,
    degraded,
    good,
    not_applicable,
    not_checked,
)
from hearth_controller.doctor.links import failed_calls
from hearth_controller.doctor.node import ExaminedNode, NodeGroup

FULL_MIB, TIGHT_MIB = 2 << 10, 10 << 10
"""Free disk below which checkpoints of a run may not fit, and below which a model may not."""

SWAPPING_MIB, CROWDED_MIB = 512, 2 << 10
"""Free memory below which nothing trains, and below which the smallest preset does not fit."""

_ALONE = not_applicable("nothing of this computer's system is Hearth's")


@check("login")
def login(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The node answers with its pinned host key."""
    if node.verify.gone:
        return broken(
            node.verify.gone,
            "a node that does not answer cannot train",
            f"{cluster.stage('preflight')} says what stands in the way",
        )
    return good("with its pinned host key" if node.over_ssh else "this computer")


def _stage(
    stage: str, kept: str, why: str, *, vital: bool = False
) -> Callable[[ExaminedNode, NodeGroup], Finding]:
    """Return the check that a stage of provisioning would change nothing.

    `kept` describes success, `why` the loss otherwise; `vital` makes a failure `broken`.
    """
    trouble = broken if vital else degraded

    def check(node: ExaminedNode, cluster: NodeGroup) -> Finding:
        result = node.stages.get(stage, {})
        fix = cluster.stage(stage)
        if node.alone:
            return _ALONE
        if "changed" not in result:
            return not_checked(node.rootless or "it could not be looked at")
        if result.get("findings"):
            return trouble(result["findings"][0], why, f"follow the finding, then {fix}")
        if result.get("failed"):
            return not_checked(str(result.get("msg", "the check failed")).partition("\n")[0])
        if result["changed"]:
            return trouble("not as provisioning leaves it", why, fix, stage)
        return good(kept)

    return check


_firewall = _stage("firewall", "lets the nodes in", "the other nodes are kept out", vital=True)


@check("firewall")
def firewall(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The firewall's rules let the nodes in, and the nodes do come in."""
    by_rules = _firewall(node, cluster)
    deaf, _ = failed_calls(node.verify, cluster.observations)
    if by_rules.outcome != "good" or not deaf:
        return by_rules
    return not_checked(
        f"{', '.join(deaf)}: {next(iter(deaf.values()))}, and Hearth finds no rule that does it"
    )


names = check("names")(
    _stage("names", "mean the nodes", "a name may lead to another machine, or nowhere")
)
nccl = check("NCCL")(_stage("nccl", "uses the right card", "NCCL by hand may take another card"))
sleep = check("sleep")(_stage("power", "never", "a node asleep is lost to its run"))
_time = _stage("time", "kept", "clocks drift apart")


@check("clock")
def clock(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """A time service is active, and the clock is within 5 s of the controller's."""
    kept = _time(node, cluster)
    off = difference(node.stages.get("time", {}).get("skew") or 0.0)
    if kept.outcome != "good" or not off:
        return kept
    return degraded(
        off,
        "logs of the nodes are out of order, and downloads over TLS may fail",
        f"on {node.name}: sudo systemctl restart {node.stages['time'].get('client', 'its client')}",
    )


@check("disk", "inspection")
def disk(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The disk has 10 GB for checkpoints and models; below 2 GB is broken."""
    least = min(node.inspection["disks"], key=lambda disk: disk["free_mib"])
    free = least["free_mib"]
    seen = f"{free / 1024:.1f} GB free"
    fix = f"{cluster.hearth} runs lists runs, --delete NAME removes one"
    if free < FULL_MIB:
        return broken(f"{seen} in {least['folder']}", "checkpoints may not fit", fix)
    if free < TIGHT_MIB:
        return degraded(f"{seen} in {least['folder']}", "a model more may not fit", fix)
    return good(seen)


@check("memory", "inspection")
def memory(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The memory has 2 GB for a rank; below 512 MB is broken."""
    its = node.inspection["memory"]
    free = its["total_mib"] - its["used_mib"]
    seen = f"{free / 1024:.1f} of {its['total_mib'] / 1024:.1f} GB free"
    fix = f"close unneeded programs on {node.name}: `ps --sort=-rss -eo rss,comm | head`"
    if node.busy:
        return good(f"{seen}, under run {node.busy}")
    if free < SWAPPING_MIB:
        return broken(seen, "the kernel would end a rank", fix)
    if free < CROWDED_MIB:
        return degraded(seen, "not even the smallest preset fits", fix)
    return good(seen)


@check("identity", "inspection")
def identity(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No other node is the same machine, or a copy of its disk."""
    if node.alone:
        return not_applicable("all nodes are this computer")
    its = node.inspection["identity"]
    for other in cluster.others(node):
        theirs = other.inspection.get("identity", {"machine_id": "", "host_keys": []})
        if its["machine_id"] and its["machine_id"] == theirs["machine_id"]:
            return broken(
                f"the machine id of {other.name}",
                "one machine under two names, or copies of one disk, get one address and one lease",
                "on one of them: sudo rm /etc/machine-id && sudo systemd-machine-id-setup",
            )
        if set(its["host_keys"]) & set(theirs["host_keys"]):
            return degraded(
                f"the host keys of {other.name}",
                "who holds one of the two machines can pass for the other",
                "on one of them: sudo rm /etc/ssh/ssh_host_* && sudo ssh-keygen -A, then "
                f"{cluster.stage('preflight')}",
            )
    return good("its own machine id and host keys")


@check("other runs", "inspection", home=True)
def other_runs(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No other user of the machine has a run under way."""
    found = node.inspection.get("other_runs", ())
    if found is None:
        return not_checked("/proc hides the processes of other users (hidepid)")
    if not found:
        return good("none")
    return degraded(
        "; ".join(map(describe_other_run, found)),
        "both share the machine's time and memory",
        f"wait for its end, or leave {node.name} out (--nodes)",
    )


@check("orphans", "inspection")
def orphans(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No process of a run has outlived its supervisor."""
    found = node.inspection["orphans"]
    if not found:
        return good("none")
    pids = " ".join(str(each["pid"]) for each in found)
    what = ", ".join(f"{each['what']} (process {each['pid']})" for each in found)
    return degraded(
        what, "it holds memory and the GPU, and belongs to no run", f"on {node.name}: kill {pids}"
    )


@check("leftovers", "inspection")
def leftovers(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No unit and no scratch folder of an ended run is left."""
    found = node.inspection["leftovers"]
    if not found:
        return good("none")
    unit = any(path.endswith(".service") for path in found)
    return degraded(
        ", ".join(found),
        "a unit looks for its run at every boot"
        if unit
        else "its run has ended without tidying up",
        f"{cluster.hearth} doctor --fix",
        "leftovers",
    )


@check("battery", "inspection", home=True)
def battery(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """A laptop is plugged in."""
    if node.inspection["on_battery"] is None:
        return not_applicable("no battery")
    if not node.inspection["on_battery"]:
        return good("plugged in")
    return degraded("it runs on its battery", "it computes slowly, and not for long", "plug it in")
