"""The decisions of a launch, each made here from what all nodes have answered.

    ports    after every node was inspected: whom does each ask for the port of the run?
    plan     after that: does the model fit, who sends what to whom?
    pair     before layers are placed: which links are to be measured?
    place    after that: which layers on which nodes?
    agree    after every node was prepared: have all the same model, data and versions?
    choose   after speeds and links were measured: which nodes train, and each node's launch spec

Findings are by node; the play shows them together and stops. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.nvidia import ranks_of
from hearth.base.text import counted
from hearth.config import in_precision, in_steps, pinned, run_of, run_text
from hearth.config.shape import shape_of
from hearth.fit.capacity import automatic_precision
from hearth_controller.doctor.examine import warnings
from hearth_controller.doctor.links import locks_too_little
from hearth_controller.doctor.node import ExaminedNode, Observation
from hearth_controller.launch.alternatives import measured_node
from hearth_controller.launch.devices import device_of, gpus_of, unseen_gpu, unused_gpu
from hearth_controller.launch.fit import check_fit, rooms_of, shape_of_run
from hearth_controller.launch.job import job_script
from hearth_controller.launch.placing import place_run, with_parallel
from hearth_controller.launch.prediction import NodeFacts, choose_nodes
from hearth_controller.launch.request import described
from hearth_controller.launch.resume import left_behind
from hearth_controller.launch.spec import node_specs
from hearth_controller.transfer.distribution import Distribution, lacked_files


@dataclass(frozen=True)
class Launch:
    """A run and the nodes asked to train it, by rank, with their answers so far.

    Attributes:
        run: as `hearth_controller.launch.request` returns it.
        addresses: cluster addresses by node.
        answers: by step (`look`, `ports`, `prepared`, `links`) the results by node.
        locks: `python_lock` by node; `cpu` means that its GPUs are not to be used.
    """

    run: Mapping[str, Any]
    addresses: Mapping[str, str]
    answers: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)

    def facts(self, step: str) -> dict[str, dict[str, Any]]:
        """Return the facts of a step by node; empty for a node that has none."""
        answers = self.answers.get(step, {})
        return {name: answers.get(name, {}).get("facts") or {} for name in self.addresses}

    @property
    def prepared(self) -> dict[str, dict[str, Any]]:
        """The facts of the prepared nodes; those of an earlier run if all of them have any."""
        looks = self.facts("look")
        if self._kept(looks):
            return {name: facts["prepared"] for name, facts in looks.items()}
        return self.facts("prepared")

    def _kept(self, looks: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether all nodes have the facts of an earlier run; its layers were others."""
        divided = self.run.get("parallel") == "pipeline"
        return not divided and all("prepared" in facts for facts in looks.values())

    @property
    def _steps(self) -> dict[str, Any]:
        """The settings of steps that the nodes have resolved, all alike since their data are."""
        return next(iter(self.prepared.values()), {}).get("steps", {})

    @property
    def scripted(self) -> bool:
        """Whether the ranks run a person's script."""
        return "spec" in self.run

    @property
    def busy(self) -> dict[str, str]:
        """The run that has each node on which this one has to wait for its turn."""
        return {name: its["busy"] for name, its in self.facts("look").items() if its.get("busy")}

    def idle_gpus(self) -> dict[str, list[str]]:
        """Return a finding for each node that would train on its processor beside an idle GPU.

        `cpu=on` takes them all, and so does a node's `python_lock: cpu`; on one computer alone
        scripts/setup chooses that by itself, so there it is not a person's word.
        """
        prepared, found = self.prepared, {}
        for name, facts in self.facts("look").items():
            meant = self.locks.get(name) == "cpu" and not facts.get("own", {}).get("one_computer")
            if not facts or meant or self.run["cpu"]:
                continue
            memory = facts["memory"]
            if finding := unused_gpu(memory) or unseen_gpu(memory, prepared[name]):
                found[name] = [finding]
        return found

    def _unable_to_lend(self) -> dict[str, list[str]]:
        """Return a finding for each node with terms of lending that this run cannot heed."""
        if self.run.get("resident") or not self.run["lend"]:
            return {}
        kind = "a script" if self.scripted else f"parallel={self.run['parallel']}"
        found = {}
        for name, facts in self.facts("look").items():
            terms = facts.get("own", {}).get("lend", {})
            given = [f"lend_{key}" for key in ("when", "hours", "command") if terms.get(key)]
            if given:
                found[name] = [
                    f"{', '.join(given)}: the ranks of {kind} are launched together on all nodes "
                    "or none, so that no node can leave for a while: -e lend=off keeps it for "
                    "the whole run, or leave it out by -e nodes="
                ]
        return found

    def away(self) -> dict[str, str]:
        """Return by node that is away now the reason; a run that ignores lending has none."""
        looks = self.facts("look")
        return {name: facts["away"] for name, facts in looks.items() if facts.get("away")}

    def ports(self) -> dict[str, dict[str, Any]]:
        """Return by node the spec with which it asks the others for the port of the run.

        It is empty on one computer, where no firewall is in between.
        """
        peers = [] if self._one_computer() else self._peers(self.facts("look"))
        return {peer["name"]: {"own": peer["name"], "peers": peers} for peer in peers}

    def _peers(self, facts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the nodes that named a port, if there are two."""
        peers = [
            {"name": name, "address": self.addresses[name], "port": its["port"]}
            for name, its in facts.items()
            if "port" in its
        ]
        return peers if len(peers) > 1 else []

    def _closed(self) -> dict[str, list[str]]:
        """Return a finding for each node whose port another one could not reach."""
        asked, looks, found = self.facts("ports"), self.facts("look"), {}
        for name, address in self.addresses.items():
            failed = {caller: facts.get("failed", {}).get(name) for caller, facts in asked.items()}
            kept_out = {caller: why for caller, why in failed.items() if why}
            if kept_out:
                sources = ", ".join(self.addresses[caller] for caller in kept_out)
                kind = "ip6" if ":" in address else "ip"
                found[name] = [
                    f"{', '.join(kept_out)} cannot connect to port {looks[name]['port']} at "
                    f"{address}: {next(iter(kept_out.values()))}. "
                    "`hearth provision --tags firewall` opens ufw and firewalld to the nodes; "
                    "rules of your own need one more on "
                    f"{name}, such as `nft insert rule inet filter input {kind} saddr "
                    f"'{{ {sources} }}' accept`"
                ]
        return found

    def plan(self, shared: str, direct: float) -> dict[str, Any]:
        """Return `found` (findings by node), the `transfer` and whether the nodes may `fetch`.

        The `run` has `parallel=auto` resolved; with `places` its layers are to be placed.
        `prepared` is whether all are prepared since an earlier run with the same inputs.
        `shared` and `direct` (bytes) are those of `Distribution`.
        """
        run, names, looks = self.run, list(self.addresses), self.answers["look"]
        count = f"{len(names)} node{'s' * (len(names) > 1)}"
        lines = [f"{run['name']}: {run['title']}, {count} ({', '.join(names)})"]
        found = self._closed()
        transfer: dict[str, Any] = {"source": names[0], "lacks": {}, "fetches": [], "found": {}}
        if not self.scripted:
            verdict = check_fit(run, {name: _with_room(looks.get(name, {})) for name in names})
            if verdict.parallel != run["parallel"]:
                run = with_parallel(run, verdict.parallel) | {"whole_on": list(verdict.whole_on)}
            lines += verdict.lines
            transfer = self._transfer(shared, direct)
            of_transfer = transfer["found"]
            if run["parallel"] == "pipeline":  # a node needs its layers only, once they are placed
                of_transfer, transfer["say"] = {}, ""
                run, told = self._in_one_precision(run)
                lines += told
            lines += transfer.pop("say", "").splitlines()
            for name, findings in (*verdict.findings.items(), *of_transfer.items()):
                found[name] = [*found.get(name, []), *findings]
        launch = replace(self, run=run)
        for name, findings in (*self.idle_gpus().items(), *launch._unable_to_lend().items()):
            found[name] = [*findings, *found.get(name, [])]
        fetch = not any(found.values()) and all(map(self._sound, names))
        return {
            "run": run,
            "found": found,
            "transfer": transfer | {"brings": _brings(transfer)},
            "free": not self.busy,
            "places": fetch and run.get("parallel") == "pipeline",
            "fetch": fetch,
            "prepared": fetch and launch._kept({name: self.facts("look")[name] for name in names}),
            "say": "\n".join(f"  {line.strip()}" for line in lines),
        }

    def _in_one_precision(self, run: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the run in the precision that all of its nodes have, and a line about it.

        Else each node would time its layers, and count their bytes, in the one that it prefers. A
        resumed run has the one that it began with.
        """
        rooms = [room for each in rooms_of(self.answers["look"]).values() for room in each]
        alike = len({automatic_precision([room]) for room in rooms}) < 2
        if alike or run["settings"]["precision"] != "auto" or run["resumes"]:
            return run, []
        chosen = automatic_precision(rooms)
        settled = described(in_precision(run_of(run["file"], "the run"), chosen))
        settled["whole_on"] = run["whole_on"]
        return {**run, **settled}, [f"precision=auto: {chosen}, which all of these nodes have"]

    def _transfer(self, shared: str, direct: float) -> dict[str, Any]:
        """Return the plan of `Distribution` for the model and data of the run."""
        run, looks, names = self.run, self.answers["look"], list(self.addresses)
        # Nodes on one computer have one cache.
        if len(names) > 1 and not self._one_computer():
            return Distribution(run, self.addresses, shared, direct, looks).choose()
        nothing: dict[str, Any] = {"source": names[0], "lacks": {}, "fetches": [], "found": {}}
        return nothing | {"copies": lacked_files(run, looks, names), "links": {}, "shares": []}

    def pair(self) -> dict[str, Any]:
        """Return the spec of the link tests (`talk`) between nodes that have measured a layer."""
        return {"talk": self._talk(self.facts("layers"))}

    def place(self, shared: str, direct: float) -> dict[str, Any]:
        """Return the `run` with its layers placed, the `transfer` of its nodes, and `placed`.

        Where a node is busy or away and was never measured, nothing is `placed`, and the ranks do
        it when they begin.

        Raises `LaunchError` if the model fits no placement, a stage no disk, a node has timed its
        layers on other ranks than it was found to have, or a run would go on without the node that
        has its newest checkpoint.
        """
        layers, links, looks = self.facts("layers"), self.facts("links"), self.facts("look")
        configs = (facts.get("config") for facts in self.facts("config").values())
        config = next(filter(None, configs), {})
        shape = shape_of_run(self.run, self.answers["look"]) or shape_of(config)
        if not all(facts.get("layers") for facts in layers.values()):
            return {"run": self.run, "placed": False, "say": self._not_placed(config)}
        if shape is None:
            raise LaunchError(
                f"parallel=pipeline: the sizes of {self.run['model']} "
                f"({config.get('model_type', 'of an unknown kind')}) are not known, so its layers "
                "cannot be placed; take parallel=ddp"
            )
        if unlike := self._unlike_ranks():
            raise LaunchError(*unlike)
        limit = self.run["settings"]["memory_limit"]
        rooms = rooms_of(
            {name: _with_room(look) for name, look in self.answers["look"].items()}, limit
        )
        nodes = {
            name: measured_node(
                layers[name], rooms[name], links[name], device_of(looks[name]["memory"], {})
            )
            for name in self.addresses
        }
        placed = place_run(self.run, shape, nodes)
        names = placed["run"]["requested"]
        if self.run["resumes"]:
            reached = {name: facts["checkpoint"] for name, facts in layers.items()}
            if behind := left_behind(self.run["name"], names, reached, self.run["recorded"]):
                raise LaunchError(*behind)
        addresses = {name: self.addresses[name] for name in names}
        answers = self.answers | {"look": {name: self.answers["look"][name] for name in names}}
        launch = replace(self, run=placed["run"], addresses=addresses, answers=answers)
        transfer = launch._transfer(shared, direct)
        if lacking := [
            f"{name}: {finding}" for name, said in transfer["found"].items() for finding in said
        ]:
            raise LaunchError(*lacking)
        say = "\n".join(filter(None, [placed["say"], transfer.pop("say", "")]))
        return {
            "run": placed["run"],
            "say": say,
            "placed": True,
            "transfer": transfer | {"brings": _brings(transfer)},
        }

    def _unlike_ranks(self) -> list[str]:
        """Return a finding for each node that has timed its layers on another number of ranks.

        The driver's GPUs count for the memory and torch's for the speeds.
        """
        looks, found = self.facts("look"), []
        for name, facts in self.facts("layers").items():
            memory, nproc = looks[name]["memory"], looks[name]["own"]["nproc"]
            timed, listed = len(facts["layers"]), ranks_of(memory, nproc)
            if timed != listed:
                found.append(
                    f"{name}: its driver lists GPUs for {counted(listed, 'rank')}, and "
                    f"{counted(timed, 'rank')} timed a layer, by the GPUs that torch sees: "
                    f"`hearth doctor` says why; hearth_nproc sets the ranks of {name}, and -e "
                    "nodes= leaves it out"
                )
        return found

    def _not_placed(self, config: Mapping[str, Any]) -> str:
        """Return why the layers are not placed yet."""
        if not config:
            return ""
        return (
            "  parallel=pipeline: not every node can be measured now, so the ranks measure their "
            "layers and place them when they begin, as if the links took no time"
        )

    def _one_computer(self) -> bool:
        own = (facts.get("own", {}) for facts in self.facts("look").values())
        return any(each.get("one_computer") for each in own)

    def _sound(self, name: str) -> bool:
        """Return whether a node was inspected, and nothing wrong was found on it so far."""
        answers = [answers.get(name, {}) for answers in self.answers.values()]
        wrong = any(
            answer.get(word) for answer in answers for word in ("findings", "failed", "unreachable")
        )
        return bool(self.facts("look")[name]) and not wrong

    def _not_measured(self) -> str:
        """Return why nothing is known of the speed of a run that waits for its turn."""
        nodes_of: dict[str, list[str]] = {}
        for node, run in self.busy.items():
            nodes_of.setdefault(run, []).append(node)
        taken = "; ".join(f"{run} has {', '.join(nodes)}" for run, nodes in nodes_of.items())
        return (
            f"not measured, since {taken}: all of these nodes take part, and the run divides its "
            "rows by speeds that are kept or that it measures when it begins"
        )

    def agree(self) -> dict[str, Any]:
        """Return the run's `file` with the Hub's revisions, and the spec of the link tests.

        `talk` has the spec by node; it is empty if there are no links to measure.
        """
        prepared = self.prepared
        lines = list(self.run.get("summary", ()))
        file = self.run["file"]
        if not self.scripted:
            lines += next(iter(prepared.values()))["summary"]
            revisions = (
                common([facts.get(of) for facts in prepared.values()])
                for of in ("model_revision", "data_revision")
            )
            settled = in_steps(run_of(file, "the run"), self._steps)
            file = run_text(pinned(settled, *revisions))
        talk = self._talk(prepared)
        lines += [
            f"{name}: {warning}"
            for name, facts in self.facts("look").items()
            for warning in warnings(
                ExaminedNode(
                    Observation(name, 0, self.addresses[name]),
                    inspection=facts["home"],
                    power_limit=0 if self._one_computer() else facts["own"].get("power_limit", 0),
                )
            )
        ]
        for name, facts in self.facts("look").items():
            if "rdma" in facts and (hint := locks_too_little(facts | facts["memory"])):
                lines.append(f"{name}: {hint}")
        return {"file": file, "talk": talk, "say": "\n".join(f"  {line}" for line in lines)}

    def _talk(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the spec of the link tests by node, empty if there are no links to measure."""
        peers = [] if self.busy else self._peers(facts)
        return {
            peer["name"]: {"own": peer["name"], "peers": peers, "speed": True} for peer in peers
        }

    def choose(
        self, timeouts: Mapping[str, float], slurm: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the `names` that train, their `specs`, and the text of their `job`.

        `slurm` has Slurm's `nodes` by name and the `options` of a job; without it there is none.

        Raises `LaunchError` with everything that keeps these nodes from training together.
        """
        prepared, looks = self.prepared, self.facts("look")
        devices = {
            name: device_of(facts["memory"], prepared[name]) for name, facts in looks.items()
        }
        if self.scripted:
            # A person's script has a minute to end.
            choice: dict[str, Any] = {"names": list(self.addresses), "stop_grace": 60.0}
            nproc = {
                name: ranks_of(facts["memory"], facts["own"]["nproc"])
                for name, facts in looks.items()
            }
            each = ", ".join(f"{name} {count} on {devices[name]}" for name, count in nproc.items())
            choice["say"] = f"  ranks: {each}"
        else:
            links = self.facts("links")
            nodes = {
                name: NodeFacts(
                    _unmeasured(facts) if self.busy else facts, links[name], devices[name]
                )
                for name, facts in prepared.items()
            }
            rows = self._steps.get("global_batch", self.run["global_batch"])
            choice = choose_nodes({**self.run, "global_batch": rows}, nodes)
            if self.busy and not choice.get("findings") and self.run.get("measures"):
                choice["say"] = f"{choice['say']}\n  {self._not_measured()}"
            nproc = {name: facts["nproc"] for name, facts in prepared.items()}
        if choice.get("findings"):
            raise LaunchError(*choice["findings"])
        names, split = choice["names"], self.run.get("split", [])
        ranks = sum(nproc[name] for name in names)
        # Ranks without a share are in no placement.
        if split and "parts" not in self.run and len(split) != ranks:
            raise LaunchError(
                f"split: {':'.join(map(str, split))} has {len(split)} shares, but the run has "
                f"{ranks} ranks; give one share per rank"
            )
        timeouts = {**timeouts, "stop_grace": choice["stop_grace"]}
        gpus = {name: gpus_of(looks[name]["memory"], prepared[name]) for name in names}
        specs = node_specs(
            self.run, names, self.addresses, looks, nproc, gpus, timeouts, bool(slurm)
        )
        job = ""
        if slurm:
            known = looks[next(iter(looks))]["slurm_gpus"]
            whole = {name: known.get(name, 0) if gpus[name] else 0 for name in names}
            job = job_script(self.run, specs, slurm["nodes"], whole, slurm["options"])
        # It says nothing of the time at which a run out of the queue begins.
        away = {} if self.run.get("queue") else self.away()
        say = "\n".join(filter(None, [choice.get("say", ""), *describe_away(away, names)]))
        return {"names": names, "specs": specs, "job": job, "say": say}


def _brings(transfer: Mapping[str, Any]) -> bool:
    """Return whether anything is to be brought to a node."""
    return any(map(transfer.get, ("lacks", "fetches", "copies", "links")))


def describe_away(away: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return a line for each of the chosen nodes that is away, and one if all of them are."""
    lines = [
        f"  AWAY NOW: {name} ({away[name]}); it joins when it lends again"
        for name in names
        if name in away
    ]
    if len(lines) == len(names):
        lines.append("  All are away: the run begins when one of them lends.")
    return lines


def _with_room(look: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inspection of a node with the memory that is free once the run there has ended."""
    facts = look.get("facts") or {}
    if not facts.get("busy"):
        return look
    memory = {**facts["memory"], "free_mib": facts["memory"]["total_mib"]}
    return {**look, "facts": {**facts, "memory": memory}}


def _unmeasured(prepared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a prepared node without its speed, which links would have to go with."""
    return {name: value for name, value in prepared.items() if name != "ranks"}


def common(revisions: Sequence[str | None]) -> str | None:
    """Return the revision that all nodes have, or None.

    Two revisions can have the same files, and only the files matter to the ranks.
    """
    return revisions[0] if len(set(revisions)) == 1 else None
