"""The results of verifying a cluster, from the answers of its nodes to the lines to show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.judgement import Observation, Sum, judge, remarks, why_no_sum
from hearth_controller.doctor.verify_table import Line, table
from hearth_controller.inventory.unreachable import describe_failure


def observations(
    nodes: Sequence[Mapping[str, Any]],
    inspections: Mapping[str, Mapping[str, Any]],
    talks: Mapping[str, Mapping[str, Any]],
    playing: Collection[str],
) -> list[Observation]:
    """Return the verify results of each node.

    `inspections` and `talks` are by node the answers of the command `hearth.node`, empty without
    one; `playing` are the nodes that no earlier stage has lost.
    """
    return [
        Observation(
            name,
            int(node["rank"]),
            str(node["address"]),
            gone=why_gone(inspections[name], name in playing),
            findings=tuple(inspections[name].get("findings", ())),
            facts=inspections[name].get("facts", {}),
            talk=talks[name].get("facts", {}),
        )
        for name, node in ((str(node["name"]), node) for node in nodes)
    ]


def why_gone(inspection: Mapping[str, Any], playing: bool) -> str:
    """Return the reason why a node could not be inspected, or ''."""
    if inspection.get("unreachable"):
        why = describe_failure(inspection).splitlines()
        return f"cannot be reached: is it on, and its cable in? ({why[0] if why else 'no answer'})"
    if not playing:
        return "an earlier stage has failed on it or could not reach it, see above"
    if inspection.get("failed"):
        return str(inspection.get("msg") or "it could not be looked at; -v shows more")
    return ""


def sum_of(answers: Iterable[Mapping[str, Any]]) -> Sum | None:
    """Return the result of the all-reduce from the nodes' answers, None if it was not tried."""
    tried = [answer for answer in answers if "facts" in answer]
    failed = [answer for answer in tried if answer.get("findings")]
    if failed:
        if culprit := failed[0]["facts"].get("culprit"):
            return Sum(culprit=culprit, failure=failed[0]["findings"][0])
        each = dict.fromkeys(finding for answer in failed for finding in answer["findings"])
        return Sum(failure="; ".join(each))
    return Sum(facts=next((a["facts"] for a in tried if a["facts"]), {})) if tried else None


def show(
    nodes: Sequence[Observation], total: Sum | None, hearth: str, locks: Mapping[str, str]
) -> tuple[list[Line], dict[str, Any]]:
    """Return the lines to show, and the level of each node and of the all-reduce.

    `hearth` is the command for the same inventory, `locks` each node's `python_lock`.
    """
    verdicts = judge(nodes, total, f"{hearth} provision", locks)
    lines = table(nodes, verdicts, TABLE_WIDTH)
    below = remarks(nodes, total, why_no_sum(nodes) if total is None else "")
    lines += [(None, line) for line in below]
    levels = {name: advice.level for name, advice in verdicts.items()}
    failed = total is not None and bool(total.failure)
    if "fault" not in levels.values() and not failed:
        lines.append(("good", f"All {len(nodes)} nodes are verified."))
    return lines, {"levels": levels, "sum_failed": failed}
