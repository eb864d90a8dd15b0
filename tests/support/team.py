"""Ranks of a tiny model under a stand-in for their supervisors, with faults at chosen moments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from hearth.config import resolve_run, write_run
from hearth.ranks.control_protocol import Formed, Waiting
from support.conductor import Conductor
from support.ranks import SCRIPT, TRAINER, TRANSFORMERS
from support.waiting import until

RUN = "night"

_RANK = f"""
import functools, importlib, json, os, runpy, signal, sys
from pathlib import Path


def install(fault):
    module, _, name = fault["call"].partition(":")
    owner, _, method = name.partition(".")
    owner = getattr(importlib.import_module(module), owner)
    original = getattr(owner, method)
    calls = 0
    # A rank that is started again has no faults.
    name = (fault["number"], method, fault["act"], os.environ["LOCAL_RANK"])
    done = Path("-".join(map(str, ("fault", *name))))

    def act():
        done.touch()
        if fault["act"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault["act"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        from hearth.ranks.world import GroupBroken
        raise GroupBroken("a fault of the test")

    @functools.wraps(original)
    def faulty(*arguments, **named):
        nonlocal calls
        calls += 1
        now = calls == fault["number"] and not done.exists()
        if now and fault["before"]:
            act()
        found = original(*arguments, **named)
        if now and not fault["before"]:
            act()
        return found

    setattr(owner, method, faulty)


exec(os.environ["PRELUDE"])
for fault in json.loads(os.environ["FAULTS"]):
    ranks = (None, int(os.environ["LOCAL_RANK"]))
    if fault["node"] == os.environ["HEARTH_NODE"] and fault["local_rank"] in ranks:
        install(fault)
sys.argv[0] = {str(SCRIPT)!r}
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


@dataclass(frozen=True)
class Fault:
    """A fault of the ranks of one node.

    Attributes:
        node: its name.
        call: `module:Class.method`, which the fault strikes at.
        number: of the call, from 1.
        act: "kill"; "stop"; or "break", which is what a rank sees whose peer is lost.
        before: whether it strikes before the call; else after it.
        local_rank: the rank that it strikes; all of the node without.
    """

    node: str
    call: str
    number: int
    act: str = "kill"
    before: bool = False
    local_rank: int | None = None


SUM = "hearth.trainer.exchange:Exchange.run"
MICRO_BATCH = "hearth.trainer.work:Work.begin_rows"
PROPOSE = "hearth.trainer.optimizer_step:Learner.propose"
COMMIT = "hearth.trainer.optimizer_step:Learner.commit"
CHECKPOINT = "hearth.trainer.checkpointing:Checkpointer.keep"
BARRIER = "hearth.ranks.world:World.barrier"
SHARE = "hearth.trainer.exchange:Exchange.share"


class Team:
    """A run on the nodes a, b and c with one rank each, or on those of `layout`.

    Args:
        folder: gets a folder for each node.
        settings: of the run.
        faults: each strikes once.
        layout: number of ranks by node.
        prelude: Python code that every rank runs first.
        imports, imported_with: what else is imported before ranks are forked, and the variables
            that this, and the ranks, find in their environment.
        on_gpu: whether each rank imports everything itself: what looks for a GPU when it is
            imported, as bitsandbytes does, leaves none to a fork.

    Attributes:
        ranks: the stand-in for the supervisors.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        *faults: Fault,
        layout: dict[str, int] | None = None,
        prelude: str = "",
        imports: tuple[str, ...] = (),
        imported_with: tuple[tuple[str, str], ...] = (),
        on_gpu: bool = False,
    ) -> None:
        run = resolve_run({"run": RUN, **settings}, folder / "runs")
        write_run(run, folder / "run.yml")
        layout = layout or {"a": 1, "b": 1, "c": 1}
        for node in layout:  # as the supervisor of a node makes it
            (folder / node / "runs" / RUN).mkdir(parents=True)
        self.ranks = Conductor(
            folder,
            layout,
            _RANK,
            *("--run-file", folder / "run.yml"),
            imports=() if on_gpu else (TRANSFORMERS, *TRAINER, *imports),
            imported_with=imported_with,
            PRELUDE=prelude,
            FAULTS=json.dumps([asdict(fault) for fault in faults]),
            **dict(imported_with),
        )

    def __enter__(self) -> Team:
        self.ranks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.ranks.__exit__(*error)

    def begin(self, *nodes: str) -> None:
        """Start the ranks of these nodes, or of all, and form their first group."""
        self.ranks.start(*nodes)
        self.ranks.hear(Waiting, *self.ranks.ranks(*nodes))
        self.ranks.form(*nodes, fresh=True)

    def begin_slowly(self, node: str, *nodes: str) -> dict[str, str]:
        """Begin with these nodes, or all, until a fault has stopped one; return the choices."""
        self.begin(*nodes)
        (formed,) = self.ranks.hear(Formed, self.ranks.ranks(node)[0])
        status = Path(f"/proc/{self.ranks.pids[formed.rank]}/stat")
        until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")
        return formed.message.choices

    def wake(self, node: str) -> None:
        """Let the stopped ranks of a node go on."""
        self.ranks.wake(*self.ranks.ranks(node))

    def regroup(self, *nodes: str) -> None:
        """Wait until the ranks of these nodes have left the newest group, and form one of them."""
        ranks, last = self.ranks.ranks(*nodes), self.ranks.generation

        def is_out(told: Waiting) -> bool:
            return told.loaded and (told.generation == last or told.why == "new")

        self.ranks.hear(Waiting, *ranks, where=is_out)
        since = len(self.ranks.said)
        self.ranks.form(*nodes)
        self.ranks.hear(Formed, *ranks, since=since)

    def end(self, *nodes: str) -> None:
        """Wait until the ranks of these nodes, or of all, have ended well."""
        statuses = self.ranks.wait(*self.ranks.ranks(*nodes))
        assert not any(statuses), [self.ranks.log(rank) for rank in self.ranks.ranks(*nodes)]

    def folder(self, node: str) -> Path:
        """Return the folder of the run on a node."""
        return self.ranks.place(node) / "runs" / RUN

    def records(self, node: str) -> list[dict[str, Any]]:
        """Return a node's record of the run."""
        lines = (self.folder(node) / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def learned(self, node: str) -> dict[str, torch.Tensor]:
        """Return the trained tensors of a node by name."""
        adapter = self.folder(node) / "adapter" / "adapter_model.safetensors"
        whole = self.folder(node) / "model" / "model.safetensors"
        return load_file(whole if whole.exists() else adapter)


_OWN = {"time", "seconds", "eta_seconds", "path", "adapter", "model", "exchanged_bytes", "waited"}
_BY_CLOCK = ("tokens_per_second", "seconds_by_rank", "celsius", "peak_memory", "energy_joules")


def timeless(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records without what depends on clocks or on the node that wrote them."""
    return [
        {
            name: value
            for name, value in record.items()
            if name not in _OWN and not any(part in name for part in _BY_CLOCK)
        }
        for record in records
        if record["kind"] != "checkpoint"
    ]
