"""The course of a launch: its nodes, their answers so far, and the refusal with all findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hearth.base.errors import HearthError, LaunchError
from hearth_controller.doctor.message import message
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import Answers, LaunchStage, NodeCall, Played, program
from hearth_controller.transfer.distribution import DIRECT

NOTHING = "Nothing was started on any node."


@dataclass(frozen=True)
class Site:
    """The controller's side of a launch.

    Attributes:
        addresses: cluster addresses by node of the inventory, in order of rank.
        slurm_nodes: Slurm's names of the nodes; empty without Slurm.
        slurm_options: options of sbatch for each job.
        training: folder with the training code.
        runs: folder with a folder for each run.
        hearth: the `hearth` command for this inventory.
        shared: a folder that all nodes see, or ''.
        direct: largest data file, in bytes, that it sends to each node; larger ones go to one.
        timeouts: of the supervisors, in seconds.
        notifies: whether addresses get messages.
        check: whether this is check mode.
        colours: whether text may have colours.
        call: an id of this launch.
    """

    addresses: Mapping[str, str]
    slurm_nodes: Mapping[str, str] = field(default_factory=dict)
    slurm_options: tuple[str, ...] = ()
    training: str = ""
    runs: str = ""
    hearth: str = "hearth"
    shared: str = ""
    direct: float = DIRECT
    timeouts: Mapping[str, float] = field(default_factory=dict)
    notifies: bool = False
    check: bool = False
    colours: bool = False
    call: str = ""


class Course:
    """A launch under way, and all results of its nodes."""

    def __init__(self, request: LaunchRequest, site: Site) -> None:
        self.site = site
        self.results: dict[str, list[Mapping[str, Any]]] = {name: [] for name in request.requested}
        self.addresses = {name: site.addresses[name] for name in request.requested}

    def stage(
        self, name: str, calls: Mapping[str, Sequence[NodeCall]], **more: Any
    ) -> Played[Answers]:
        """Play a stage on the nodes that have calls; return their answers, and keep them."""
        if not any(calls.values()) and not more:
            return {}
        answers = yield LaunchStage(name, calls, **more)
        for node, results in answers.items():
            self.results[node] += results
        return answers

    def program(
        self,
        stage: str,
        command: str,
        specs: Mapping[str, Mapping[str, Any]],
        run: str = "",
        **hidden: str,
    ) -> Played[dict[str, Mapping[str, Any]]]:
        """Run a program of Hearth on each node that has a spec; return the facts by node.

        `run` and `hidden` are as in `program`.
        """
        calls = {node: [program(command, spec, run, **hidden)] for node, spec in specs.items()}
        answers = yield from self.stage(stage, calls)
        return {node: result.get("facts") or {} for node, (result, *_) in answers.items()}

    def is_sound(self, node: str) -> bool:
        """Return whether a node has answered, and nothing wrong was found on it so far."""
        wrong = any(
            result.get(word)
            for result in self.results[node]
            for word in ("findings", "failed", "unreachable")
        )
        return bool(self.results[node]) and not wrong

    def refuse(
        self,
        nodes: Iterable[str],
        found: Mapping[str, Sequence[str]] | None = None,
        same: Sequence[str] = (),
        then: str = NOTHING,
        advises: bool = True,
    ) -> None:
        """Raise `LaunchError` with all findings of the nodes, if there are any.

        `found` are further ones. The facts `same` must be equal on all nodes. The text ends with
        `then` and, if it `advises`, with the command that goes on without unreachable nodes.
        """
        results = {
            name: [{"findings": list((found or {}).get(name, ()))}, *self.results[name]]
            for name in nodes
        }
        playing = [
            name for name, of in results.items() if not any(result.get("gone") for result in of)
        ]
        if text := message(results, playing, same=same, then=then, without=advises):
            raise LaunchError(text)


@contextmanager
def nothing_started() -> Iterator[None]:
    """Say below an error that nothing was started."""
    try:
        yield
    except HearthError as error:
        raise LaunchError(*error.findings, NOTHING) from error
