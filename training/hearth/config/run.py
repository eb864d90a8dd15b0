"""A run as recorded in `run.yml`: its name, its settings and the origin of each setting.

`run.yml` is the contract between the requester of a run and the nodes that train it: every node
gets the same file, and the trainer reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from hearth import __version__
from hearth.base.errors import ConfigError, DataError, did_you_mean
from hearth.base.files import open_regular, sha256_of, write_whole
from hearth.base.text import listed
from hearth.config.adapter import FoundAdapter, StartAdapter
from hearth.config.presets import ModelSource, load_preset
from hearth.config.problems import describe, with_present_names
from hearth.config.resolve import read_settings_file, resolve
from hearth.config.settings import FREE_ON_RESUME, Settings, for_run_name, shown
from hearth.config.shards import Shard, digest_of, shards_of


@dataclass(frozen=True)
class PlannedPipeline:
    """Placement of the layers and predicted speed, for `parallel: pipeline`.

    Attributes:
        stages: rank and number of layers of each stage, in the order of the activations.
        micro_batch: most rows of a micro-batch.
        step_seconds: predicted duration of a full step.
    """

    stages: tuple[tuple[int, int], ...]
    micro_batch: int
    step_seconds: float


RUN_FILE = "run.yml"
_HEADER = "# Written by Hearth; every node of the run has the same file.\n"


@dataclass(frozen=True)
class Run:
    """One training run, as `run.yml` records it.

    `dataset_sha256` is the checksum of a person's own data file, or one of all files of a folder or
    pattern; a mixture has a mapping of those of its data sets. `shards` are the files of data sets
    that have several. `launch` holds the launch options that were given with it, by
    name: the nodes and options of the roles. A run by hand has none. `data_revision` is the commit
    of a streamed data set. `pipeline` is what the controller has planned for `parallel: pipeline`;
    without it the ranks plan it themselves when they begin. `start` is the adapter that it begins
    with, None for a fresh one.
    """

    name: str
    created: str
    settings: Settings
    origins: dict[str, str]
    source: ModelSource
    dataset_sha256: str | dict[str, str] | None
    launch: dict[str, Any] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    data_revision: str | None = None
    pipeline: PlannedPipeline | None = None
    start: StartAdapter | None = None

    @property
    def data_checksums(self) -> dict[str, str | None]:
        """The checksum of each data set by name; None unless it is a person's own file."""
        known = self.dataset_sha256
        return {
            name: known.get(name) if isinstance(known, dict) else known
            for name in self.settings.data_sets
        }

    @property
    def packs_documents(self) -> bool:
        """Whether a row holds documents isolated from each other; those of token shards are not.

        A pair of answers is two documents of one row.
        """
        pairs = self.settings.objective in ("dpo", "orpo")
        return (self.settings.packing or pairs) and not self.token_shards

    @property
    def token_shards(self) -> tuple[Shard, ...]:
        """The shards that hold tokens: all, or none."""
        return tuple(shard for shard in self.shards if shard.holds_tokens)

    def files_of(self, dataset: str) -> tuple[Shard, ...]:
        """Return the files of a data set that is a folder or pattern, in order."""
        return tuple(
            shard for shard in self.shards if shard.dataset == dataset and not shard.holds_tokens
        )

    @property
    def resumes(self) -> bool:
        """Whether this resumes an earlier run."""
        return self.settings.resume is not None


def resolve_run(
    given: Mapping[str, Any],
    runs: Path,
    given_as: str = "command line",
    file: Path | None = None,
    now: datetime | None = None,
    say: Callable[[str], None] = print,
    find_adapter: Callable[[str, Path], FoundAdapter] | None = None,
) -> Run:
    """Return the run that a person requested.

    `runs` is the folder of earlier runs: a new run may not take the name of one, and
    `resume: NAME` continues one. `given`, `given_as` and `file` are as in `resolve`. `say` gets
    the preset that a repository of the Hub was recognised as, and the token shards that are read
    for the first time. `find_adapter` finds the adapter `onto` among `runs`.

    Raises `ConfigError` with every problem found.
    """
    from_file = read_settings_file(file) if file else {}
    resume = given.get("resume", from_file.get("resume"))
    if str(resume or "none").lower() not in ("none", "null"):
        return _resumed(str(resume), given, runs, given_as, from_file, f"file {file}", say)
    onto = str(given.get("onto", from_file.get("onto")) or "none")
    adapter = find_adapter(onto, runs) if find_adapter and onto not in ("none", "null") else None
    resolved = resolve(given, given_as, file, adapter)
    if resolved.notice:
        say(resolved.notice)
    now = now or datetime.now(UTC)
    model = for_run_name(resolved.source.name, "model")
    name = resolved.settings.run or f"{model}-{now:%Y%m%d-%H%M%S}"
    if (runs / name / RUN_FILE).exists():
        raise ConfigError(
            f"run: '{name}' exists already in {runs}; continue it with resume={name}, or choose "
            "another name"
        )
    sha256, shards = _data_of(resolved.settings, say)
    return Run(
        name=name,
        created=now.isoformat(timespec="seconds"),
        settings=resolved.settings.model_copy(update={"run": name}),
        origins=resolved.origins,
        source=resolved.source,
        dataset_sha256=sha256,
        shards=shards,
        start=adapter and adapter.start,
    )


def newest_run(runs: Path) -> str:
    """Return the name of the most recently requested run in the folder `runs`.

    Raises `ConfigError` if there is none.
    """
    found = []
    for path in runs.glob(f"*/{RUN_FILE}"):
        # Not read with read_run: it may be a run of a person's own script.
        with suppress(OSError, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError):
            with open_regular(path) as file:
                content = yaml.safe_load(file.read().decode())
            found.append((str(content["created"]), str(content["run"])))
    if not found:
        raise ConfigError(f"resume: there is no run in {runs} to resume")
    return max(found)[1]


def _resumed(
    name: str,
    given: Mapping[str, Any],
    runs: Path,
    given_as: str,
    from_file: Mapping[str, Any],
    file_as: str,
    say: Callable[[str], None],
) -> Run:
    """Return the earlier run `name` with the changes that a resumed run may have."""
    path = runs / name / RUN_FILE
    if not path.exists():
        names = sorted(found.parent.name for found in runs.glob(f"*/{RUN_FILE}"))
        raise ConfigError(
            f"resume: there is no run '{name}' in {runs}"
            + (f"; there are {', '.join(names[-5:])}" if names else "")
        )
    earlier = read_run(path)
    recorded = earlier.settings.model_dump(exclude={"resume"})
    resolved = resolve({**recorded, "resume": name, **from_file, **given}, given_as)
    model = str({**from_file, **given}.get("model", recorded["model"]))
    if resolved.source.id == earlier.source.id:  # another name of the same
        model = recorded["model"]
    settings = resolved.settings.model_copy(update={"model": model})
    findings = [
        f"{key}: a resumed run keeps its value ({recorded[key]!r}, not {value!r}); start a new "
        "run to change it"
        for key, value in settings.model_dump(exclude={"resume"}).items()
        if key not in FREE_ON_RESUME and value != recorded[key]
    ]
    sha256, _ = _data_of(earlier.settings, say)
    began_with = earlier.dataset_sha256
    if not isinstance(began_with, dict):
        sha256, began_with = ({earlier.settings.dataset: each} for each in (sha256, began_with))
    findings += [
        f"dataset: {dataset} has changed since run '{name}' began"
        for dataset, found in sha256.items()
        if found not in (None, began_with[dataset])
    ]
    if settings.run != name:
        findings.append(f"run: a resumed run keeps its name '{name}'; leave out run=")
    if findings:
        raise ConfigError(*findings)
    origins = {
        **earlier.origins,
        **dict.fromkeys(from_file, file_as),
        **dict.fromkeys(given, given_as),
    }
    # Other nodes may take part now, and none of them needs the layers that it had before.
    return replace(earlier, settings=settings, origins=origins, pipeline=None)


def _data_of(
    settings: Settings, say: Callable[[str], None]
) -> tuple[str | dict[str, str] | None, tuple[Shard, ...]]:
    """Return the checksum of a person's own data, None for data that has a name, and its shards.

    A mixture has the checksums of its files and folders.

    Raises `ConfigError` with the problems of shards, or if a mixture has one file twice.
    """
    try:
        shards = shards_of(settings, say)
    except DataError as error:
        raise ConfigError(*error.findings) from error
    checksums = {}
    for name in settings.data_sets:
        own = [shard for shard in shards if shard.dataset == name]
        if sha256 := digest_of(own) if own else _sha256(name):
            checksums[name] = sha256
    if not isinstance(settings.dataset, dict):
        return checksums.get(settings.dataset), shards
    first: dict[str, tuple[str, str]] = {}
    files = [(shard.sha256, shard.dataset, shard.path) for shard in shards]
    alone = [(sha256, name, name) for name, sha256 in checksums.items()]
    if findings := [
        f"dataset: {path} is the same file as {first[sha256][1]}; leave one out"
        for sha256, name, path in (*alone, *files)
        if first.setdefault(sha256, (name, path))[0] != name
    ]:
        raise ConfigError(*findings)
    return checksums, shards


def _sha256(dataset: str) -> str | None:
    """Return the checksum of a person's own data file, or None for a data set that has a name.

    The settings hold a file's absolute path (see `resolve`).
    """
    path = Path(dataset)
    return sha256_of(path) if path.is_absolute() and path.is_file() else None


def write_run(run: Run, path: Path) -> None:
    """Write `run` to `path` as YAML, atomically: without it the run's checkpoints are useless."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, run_text(run))


def run_text(run: Run) -> str:
    """Return `run` as the YAML text of `run.yml`."""
    content = {
        "run": run.name,
        "created": run.created,
        "hearth": __version__,
        "settings": run.settings.model_dump(mode="json"),
        "origins": run.origins,
        "source": asdict(run.source),
        "dataset_sha256": run.dataset_sha256,
        "launch": run.launch,
    }
    if run.shards:
        content["shards"] = [asdict(shard) for shard in run.shards]
    if run.data_revision:
        content["data_revision"] = run.data_revision
    if run.pipeline:
        content["pipeline"] = asdict(run.pipeline)
    if run.start:
        content["start"] = asdict(run.start)
    return _HEADER + yaml.safe_dump(content, sort_keys=False)


def read_run(path: Path) -> Run:
    """Return the run recorded at `path`.

    Raises `ConfigError` if the file is missing or was not written by `write_run`.
    """
    try:
        with open_regular(path) as file:
            return run_of(file.read().decode(), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such run file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not a run file ({error!r})") from error


def run_of(text: str, where: str) -> Run:
    """Parse the run recorded in `text`; errors name its origin `where`.

    Raises `ConfigError` if `run_text` did not make it.
    """
    try:
        content = yaml.safe_load(text)
        settings = content["settings"]
        return TypeAdapter(Run).validate_python(
            {
                "name": content["run"],
                "created": content["created"],
                "settings": Settings.model_validate(with_present_names(settings)),
                "origins": with_present_names(content["origins"]),
                "source": content["source"],
                "dataset_sha256": content["dataset_sha256"],
                "launch": content.get("launch", {}),  # files of earlier versions have none
                "shards": [
                    # Earlier versions had shards of a single data set only.
                    {**shard, "dataset": shard.get("dataset") or settings["dataset"]}
                    for shard in content.get("shards", [])
                ],
                "data_revision": content.get("data_revision"),
                "pipeline": content.get("pipeline"),
                "start": content.get("start"),
            }
        )
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(*describe(error, where, Settings.model_fields)) from error
    except RecursionError:
        raise ConfigError(f"{where}: this is not a run file (it is nested too deep)") from None
    except (KeyError, TypeError, AttributeError) as error:
        if isinstance(content, dict) and "script" in content:
            raise ConfigError(
                f"{where}: this run is of a script, not of Hearth's trainer"
            ) from None
        raise ConfigError(f"{where}: this is not a run file ({error!r})") from error


def pinned(run: Run, revision: str | None, data_revision: str | None = None) -> Run:
    """Return `run` with its model and its stream pinned to the Hub's commits, as far as given.

    A resumed run, or a node that joins later, thus gets the same.
    """
    source = replace(run.source, revision=revision or run.source.revision)
    return replace(run, source=source, data_revision=data_revision or run.data_revision)


def in_parallel(run: Run, parallel: str, pipeline: PlannedPipeline | None = None) -> Run:
    """Return `run` with `parallel=auto` resolved to `parallel`, and its planned `pipeline`.

    Weights that are stored in 4 bits cannot be divided: then the preset's repository gives them.
    """
    resolved = run.settings.parallel == "auto"
    source = run.source
    if source.in_4bit and parallel not in ("auto", "ddp"):
        source = load_preset(run.settings.model).source(run.settings.model)
    return replace(
        run,
        source=source,
        settings=run.settings.model_copy(update={"parallel": parallel}),
        origins=run.origins | ({"parallel": "auto"} if resolved else {}),
        pipeline=pipeline,
    )


def in_precision(run: Run, precision: str) -> Run:
    """Return `run` with `precision=auto` resolved to `precision`."""
    return in_steps(run, {"precision": precision})


def in_steps(run: Run, steps: Mapping[str, Any]) -> Run:
    """Return `run` with settings that were `auto`, such as those of its `steps`, resolved."""
    return replace(
        run,
        settings=run.settings.model_copy(update=dict(steps)),
        origins=run.origins | dict.fromkeys(steps, "auto"),
    )


def describe_settings(run: Run) -> str:
    """Return a table of all settings: name, value and origin of the value."""
    rows = [
        (name, shown(value), run.origins.get(name, "default"))
        for name, value in run.settings.model_dump().items()
    ]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}" for a, b, c in rows)


def find_run(given: str, results: Path) -> Path:
    """Return the folder of the run `given`: a folder's path, or the name of a run in `results`.

    A plain name is first looked for there: a play begins in a home with folders of any name.

    Raises `ConfigError` with the nearest names if there is no such run.
    """
    folder = Path(given)
    places = (results / given, folder) if folder.name == given else (folder, results / given)
    for place in places:
        if (place / RUN_FILE).is_file():
            return place.resolve()
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{given}: this is an adapter; name the folder of its run: runs/NAME")
    if (folder / "config.json").is_file():
        raise ConfigError(
            f"{given}: this is a model, not a run; name the folder of a run: runs/NAME"
        )
    names = [found.parent.name for found in results.glob(f"*/{RUN_FILE}")]
    near = did_you_mean(folder.name, names)
    there = f"there are {listed(names)}" if names else "train one, or name the folder of a run"
    raise ConfigError(f"{given}: there is no such run in {results}{near}; {there}")
