"""Action plugin: what a run will be like, predicted from what was measured, and on which nodes.

The judgement is that of `hearth.plan.prediction`; here is only what passes between Ansible and it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import ConfigError
from hearth.plan.grace import stop_grace
from hearth.plan.prediction import (
    ADVISED,
    Contender,
    Prediction,
    Traffic,
    advised_sync_every,
    choose,
    fastest_alone,
    predict,
)
from hearth.plan.sharded import fetch_seconds, network_cost, turns
from hearth.plan.speed import Speed
from hearth.plan.split import Division, better_global_batch, by_speed, in_shares
from hearth.verify.table import speed
from hearth_controller.launch.resume import going_on, left_behind

DOCUMENTATION = r"""
module: hearth_worth
short_description: Measure the links between the nodes, or say whether the cluster is worth it
options:
  verb:
    description:
      - V(links) speaks with every other node and measures how fast they hear it. What each node
        left is expected as C(launch_measured).
      - V(choose) predicts the run from C(launch_measured) and C(launch_links) of all nodes, and
        returns the nodes that make it faster. With C(parallel=fsdp) it returns all of them and
        says what the network costs. Meant to run once.
    type: str
    required: true
  nodes:
    description: The nodes with C(name) and C(address), in order of rank.
    type: list
    elements: dict
    required: true
  workspace:
    description: The workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
"""

RETURN = r"""
names:
  description: The nodes that are to train, in order of rank.
  type: list
  returned: with V(choose)
stop_grace:
  description: How many seconds a stop leaves the ranks to end their step and keep a checkpoint.
  type: float
  returned: with V(choose), without findings
say:
  description: What a person should know before the run.
  type: str
  returned: with V(choose), if there is anything to say
findings:
  description: What stands in the way of these nodes together.
  type: list
  returned: with V(choose)
"""


def contenders(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]], most: int
) -> list[Contender]:
    """Return what was measured of each node, with micro-batches of up to `most` rows.

    `known` are the variables by node.
    """
    found = []
    for name in names:
        talk = known[name].get("launch_links", {}).get("facts", {})
        speeds = [
            Speed(tuple(rank["speed"]["sizes"]), tuple(rank["speed"]["seconds"]))
            for rank in known[name]["launch_measured"]["facts"]["ranks"]
        ]
        links = (talk.get("mbit", {}), talk.get("milliseconds", {}))
        found.append(Contender(name, tuple(each.no_larger_than(most) for each in speeds), *links))
    return found


def selected(
    wanted: Sequence[str],
    nodes: Sequence[Contender],
    rows: int,
    traffic: Traffic,
    divided: Division,
) -> Prediction:
    """Return the run over the nodes that were asked for: by name, `all`, or the best choice."""
    if list(wanted) == ["auto"] and divided is by_speed:
        return choose(nodes, rows, traffic)
    if list(wanted) in (["all"], ["auto"]):
        return predict(nodes, rows, traffic, divided)
    return predict([node for node in nodes if node.name in wanted], rows, traffic, divided)


def told(
    nodes: Sequence[Contender],
    chosen: Prediction,
    rows: int,
    row_tokens: int,
    traffic: Traffic,
    divided: Division,
) -> list[str]:
    """Return what a person should know: who is how fast, and what comes of it together."""
    alone = fastest_alone(nodes, rows)
    wide = max(len(node.name) for node in nodes)
    lines = []
    for node in nodes:
        link = f"   link {speed(max(node.mbit.values()))}" if node.mbit else ""
        tokens = node.rows_per_second * row_tokens
        lines.append(f"{node.name:<{wide}}  up to {tokens:.0f} tokens/s alone{link}")
    gain = chosen.rows_per_second / alone.rows_per_second
    together = f"{chosen.rows_per_second * row_tokens:.0f} tokens/s"
    if len(chosen.nodes) > 1:
        lines.append(
            f"together {together}: {gain:.2f} times {alone.nodes[0]} alone; a step takes "
            f"{chosen.step_seconds:.2f} s, {chosen.exchange_seconds:.2f} s of it to exchange "
            f"{traffic.size / 1e6:.1f} MB"
            + (f" every {traffic.every} steps" if traffic.every > 1 else "")
        )
    everyone = predict(nodes, rows, traffic, divided)
    left_out = [node.name for node in nodes if node.name not in chosen.nodes]
    if left_out and chosen.rows_per_second > everyone.rows_per_second:
        lines.append(
            f"LEFT OUT: {', '.join(left_out)}. With all nodes a step would take "
            f"{everyone.step_seconds:.2f} s, without {chosen.step_seconds:.2f} s "
            "(-e nodes=all takes them all the same)"
        )
    seldom = advised_sync_every(nodes, rows, traffic, divided)
    if seldom and seldom.rows_per_second > chosen.rows_per_second:
        lines.append(
            f"slow links: sync_every={ADVISED} with all nodes would come to "
            f"{seldom.rows_per_second * row_tokens:.0f} tokens/s, with an approximate result"
        )
    ranks = [rank for node in nodes if node.name in chosen.nodes for rank in node.ranks]
    better = better_global_batch(rows, ranks, chosen.exchange_seconds)
    # The steps of a round make up for what one of them cannot share evenly.
    if better and divided is by_speed and traffic.every == 1:
        lines.append(
            f"global_batch={better} would keep all of them busier than {rows}: rows cannot be cut"
        )
    return lines


def sharded(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `run` over these nodes if every rank has a part of the model (`parallel: fsdp`).

    Nobody is left out for being slow, since a part of the model would be missing.
    """
    facts = [known[name]["launch_prepared"]["facts"] for name in names]
    ranks = sum(each["nproc"] for each in facts)
    if ranks == 1:
        finding = f"parallel: fsdp needs two ranks or more, and {names[0]} has one"
        return {"findings": [f"{finding}; take parallel=ddp, or more nodes"]}
    links = [known[name].get("launch_links", {}).get("facts", {}).get("mbit", {}) for name in names]
    mbit = [each for link in links for peer, each in link.items() if peer in names]
    if len(names) == 1:
        return {"names": list(names), "stop_grace": stop_grace()}
    weights, slowest = max(each["weight_bytes"] for each in facts), min(mbit, default=None)
    try:
        micro_batches = _turns(run, ranks)
    except ConfigError as error:
        return {"findings": error.findings}
    return {
        "names": list(names),
        # What the ranks compute meanwhile was not measured.
        "stop_grace": stop_grace(micro_batches * fetch_seconds(weights, ranks, slowest)),
        "say": f"  {network_cost(weights, ranks, slowest)}",
    }


def _turns(run: Mapping[str, Any], ranks: int) -> int:
    """Return how many times a sharded run fetches in a step, or the most where it replays others.

    Raises `ConfigError` if its split is not one share a rank.
    """
    rows, micro_batch = run["global_batch"], run["settings"]["micro_batch"]
    if run["settings"]["replay"]:
        return rows
    # What a card holds cannot be tried out without the others.
    return turns(rows, 1 if micro_batch == "auto" else micro_batch, run["split"] or None, ranks)


def judging_seconds(
    run: Mapping[str, Any], prepared: Mapping[str, Any], rows_per_second: float
) -> float:
    """Return how long a held-out evaluation takes at most; 0 in a run that has none.

    `prepared` are the facts about the data.
    """
    settings = run["settings"]
    if not (settings["evaluate"] or settings["eval_every"]):
        return 0.0
    return prepared["held_out_rows"] / rows_per_second


def going_on_over(
    answer: Mapping[str, Any], given: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what the `answer` has besides where a run goes on: from where, or why it cannot."""
    run = given["run"]
    if answer["findings"] or not run["resumes"]:
        return {}
    reached = {
        node["name"]: known[node["name"]]["launch_prepared"]["facts"]["checkpoint"]
        for node in given["nodes"]
    }
    asked = answer["names"], reached, run["recorded"]
    said = going_on(*asked)
    return {
        "findings": left_behind(run["name"], *asked),
        "say": "\n".join([*filter(None, [answer.get("say")]), *([f"  {said}"] if said else [])]),
    }


class ActionModule(ActionBase):
    """Measures on a node, or judges on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return what the node's links are like, or the prediction."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "verb": {"type": "str", "choices": ["links", "choose"], "required": True},
                "nodes": {"type": "list", "elements": "dict", "required": True},
                "workspace": {"type": "str", "required": True},
                "python": {"type": "str", "required": True},
                "run": {"type": "dict", "required": True},
            }
        )
        known = task_vars["hostvars"]
        if given["verb"] == "choose":
            answer = {"findings": []} | self._chosen(given, known)
            return result | answer | going_on_over(answer, given, known)
        peers = [
            {
                "name": node["name"],
                "address": node["address"],
                "port": known[node["name"]]["launch_measured"]["facts"]["port"],
            }
            for node in given["nodes"]
        ]
        own = task_vars["inventory_hostname"]
        arguments = {
            "verb": "talk",
            "workspace": given["workspace"],
            "python": given["python"],
            "node": own,
            "spec": {"own": own, "peers": peers, "speed": True},
        }
        return result | self._execute_module("hearth_verify", arguments, task_vars=task_vars)

    @staticmethod
    def _chosen(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the nodes that are to train, and what a person should know."""
        names = [str(node["name"]) for node in given["nodes"]]
        run = given["run"]
        everyone = run["nodes"] in (["all"], ["auto"])
        named = names if everyone else [name for name in names if name in run["nodes"]]
        if run["parallel"] == "fsdp":
            return sharded(named, known, run)
        if "facts" not in known[names[0]].get("launch_measured", {}):
            return {"names": named, "stop_grace": stop_grace()}
        settings, rows = run["settings"], run["global_batch"]
        most = rows if settings["micro_batch"] == "auto" else settings["micro_batch"]
        nodes = contenders(names, known, most)
        first = known[names[0]]["launch_measured"]["facts"]["ranks"][0]
        compressed = settings["compress"] != "none"
        traffic = Traffic.of(first["exchange_bytes"], run["sync_every"], compressed)
        divided = by_speed if run["by_speed"] else in_shares(run["split"] or None)
        try:
            chosen = selected(run["nodes"], nodes, rows, traffic, divided)
        except ConfigError as error:
            return {"findings": error.findings}
        lines = told(nodes, chosen, rows, first["row_tokens"], traffic, divided)
        return {
            "names": list(chosen.nodes),
            # A run stops only where its nodes exchange.
            "stop_grace": stop_grace(
                chosen.step_seconds * traffic.every,
                measured=True,
                learned=first["exchange_bytes"],  # gradients, each as large as its weight
                judging=judging_seconds(
                    run, known[names[0]]["launch_prepared"]["facts"], chosen.rows_per_second
                ),
            ),
            "say": "\n".join(f"  {line}" for line in lines),
        }
