"""The requested run and its launch options: typed, and as facts of a play."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hearth.base.files import sha256_of
from hearth.config import Run, Settings, in_parallel, run_of, run_text
from hearth.config.layout import staged_adapter, staged_name
from hearth.config.run import PlannedPipeline
from hearth.config.shape import Shape
from hearth_controller.script.request import ScriptRequest
from hearth_controller.script.run import ScriptRun, script_of, script_text
from hearth_controller.script.tree import Tree


@dataclass(frozen=True)
class LaunchOptions:
    """Options for the launch of a run, as typed beside its settings.

    `nodes` are names, `all` or `auto`. `queue` is empty for a run that starts at once, else it says
    when it was `submitted`, and `at` which time it may start (None for as soon as it can).
    `preview` is the number of examples to show instead of training.
    """

    nodes: tuple[str, ...] = ("auto",)
    elastic: bool | None = None
    min_nodes: int = 0
    meeting_port: int = 0
    cpu: bool = False
    lend: bool = True
    launcher: str = ""
    queue: dict[str, str | None] = field(default_factory=dict)
    wait: bool = True
    preview: int = 0
    job_options: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether single nodes were asked for by name."""
        return self.nodes not in (("all",), ("auto",))


@dataclass(frozen=True)
class Parcel:
    """Files of the controller for a place in each workspace: the options of `hearth_tree`."""

    source: str
    files: dict[str, str]
    size: int
    place: str

    @classmethod
    def from_tree(cls, tree: Tree, place: str) -> Parcel:
        """Return the parcel of a tree for `place`."""
        return cls(str(tree.source), dict(tree.files), tree.size, place)


@dataclass(frozen=True)
class ScriptFiles:
    """The part of a script's run that its record does not hold: its files, and its `spec`."""

    spec: dict[str, Any]
    code: Parcel
    data: Parcel | None = None
    summary: tuple[str, ...] = ()
    resumes: bool = False


@dataclass(frozen=True)
class PlacedLayers:
    """The layers of a pipeline, placed.

    `parts` has the stages of each node, as first layer and the one after the last; `learned` are
    the bytes of all trainable weights, `gathering` the seconds that a checkpoint takes to gather.
    """

    parts: dict[str, list[list[int]]]
    learned: int
    gathering: float


class _Fields(BaseModel):
    """The fields of a request that are read from facts as they are."""

    requested: tuple[str, ...]
    options: LaunchOptions
    shape: Shape | None
    recorded: int | None
    files: ScriptFiles | None


@dataclass(frozen=True)
class LaunchRequest:
    """A run, and the nodes that are to train it.

    Attributes:
        requested: names of the nodes, in order of rank.
        shape: sizes of the model, None if this computer does not know them.
        recorded: step of the newest checkpoint in the controller's record of a resumed run.
        files: those of a script's run.
        whole_on: with `auto` resolved to `pipeline`, the nodes that hold the whole model.
        placed: the layers of a pipeline, once they are placed.
    """

    run: Run | ScriptRun
    requested: tuple[str, ...]
    options: LaunchOptions = LaunchOptions()
    shape: Shape | None = None
    recorded: int | None = None
    files: ScriptFiles | None = None
    whole_on: tuple[str, ...] = ()
    placed: PlacedLayers | None = None

    @classmethod
    def from_script(
        cls, script: ScriptRequest, requested: tuple[str, ...], options: LaunchOptions
    ) -> LaunchRequest:
        """Return the request for the run of a script."""
        data = Parcel.from_tree(script.data, script.data_place) if script.data else None
        files = ScriptFiles(
            script.spec,
            Parcel.from_tree(script.code, script.code_place),
            data,
            tuple(script.summary),
            script.resumes,
        )
        return cls(script.run, requested, options, files=files)

    @property
    def facts(self) -> dict[str, Any]:
        """The request as facts of a play."""
        return {
            "name": self.name,
            "requested": list(self.requested),
            "options": asdict(self.options),
            "file": self.text,
            "shape": self.shape and asdict(self.shape),
            "recorded": self.recorded,
            "files": self.files and asdict(self.files),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> LaunchRequest:
        """Return the request that a play has as `facts`."""
        known = json.loads(json.dumps(dict(facts), default=str))  # without Ansible's tags
        text = known["file"]
        fields = {name: known[name] for name in _Fields.model_fields}
        run = (script_of if known["files"] else run_of)(text, "the run")
        return replace(cls(run, ()), **dict(_Fields.model_validate(fields)))

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run.name

    @property
    def resumes(self) -> bool:
        """Whether an earlier run goes on."""
        return self.files.resumes if self.files else self.training.resumes

    @cached_property
    def text(self) -> str:
        """The text of `run.yml`."""
        return run_text(self.run) if isinstance(self.run, Run) else script_text(self.run)

    @property
    def training(self) -> Run:
        """The run, which Hearth's own trainer trains."""
        if not isinstance(self.run, Run):
            raise TypeError(f"{self.name} is the run of a script")
        return self.run

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.training.settings

    @cached_property
    def at_most(self) -> Settings:
        """The settings, with those of the steps that are `auto` at their largest."""
        return self.settings.at_most()

    @property
    def resident(self) -> bool:
        """Whether ranks form new groups in place, so that nodes can leave and return."""
        return not self.files and self.settings.holds_all

    @property
    def divided(self) -> bool:
        """Whether each node has a part of the layers."""
        return not self.files and self.settings.parallel == "pipeline"

    @property
    def afterwards(self) -> bool:
        """Whether something follows the training, such as scores or a push."""
        return not self.files and self.settings.goes_on_afterwards

    @property
    def streams(self) -> bool:
        """Whether ranks read the data from the Hub while they train."""
        return not self.files and bool(self.settings.streaming)

    @property
    def lends(self) -> bool:
        """Whether nodes may leave and return between two steps: not with `-e lend=off`."""
        return self.resident and self.options.lend

    @property
    def measures(self) -> bool:
        """Whether speeds are needed before the run starts."""
        return self.settings.wants_speeds or self.settings.parallel == "fsdp"

    @property
    def by_speed(self) -> bool:
        """Whether rows are divided by speed."""
        return self.settings.split == "auto" and self.settings.replay is None

    @property
    def shares(self) -> list[int]:
        """The shares of `split`, empty if none were given."""
        return [] if isinstance(self.settings.split, str) else list(self.settings.split)

    @property
    def title(self) -> str:
        """The model and the data, or the script, for people."""
        if not isinstance(self.run, Run):
            return self.run.program
        data = " + ".join(Path(name).name for name in self.settings.data_sets)
        return f"{self.run.source.name} on {data}"

    @property
    def data_files(self) -> list[dict[str, str]]:
        """The run's data files on the controller: `source`, and the name on a node (`staged`)."""
        run = self.training
        several = {shard.dataset for shard in run.shards}
        sources = {shard.path: shard.sha256 for shard in run.shards} | {
            name: sha256 for name, sha256 in run.data_checksums.items() if name not in several
        }
        return [
            {"source": source, "staged": staged_name(sha256, source)}
            for source, sha256 in sources.items()
            if sha256
        ]

    @property
    def adapter_files(self) -> list[dict[str, str]]:
        """The weights of the adapter that the run begins with, like `data_files`.

        None for a resumed run if they are gone from here: then its checkpoint has to do.
        """
        start = self.training.start
        if start is None or not Path(start.path).is_file():
            return []
        # That of a new run was hashed a moment ago, and each stage of a launch asks again.
        if self.training.resumes and sha256_of(Path(start.path)) != start.sha256:
            return []
        return [{"source": start.path, "staged": staged_adapter(start)}]

    def was_auto(self, name: str) -> bool:
        """Return whether the setting `name` was resolved from `auto`."""
        return self.training.origins.get(name) == "auto"

    def with_parallel(self, parallel: str, planned: PlannedPipeline | None = None) -> LaunchRequest:
        """Return the request with `parallel` resolved, and its planned pipeline."""
        return replace(self, run=in_parallel(self.training, parallel, planned))
