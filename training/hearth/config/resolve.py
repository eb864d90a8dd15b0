"""The one resolver of settings: defaults < preset < file < command line.

Each layer overrides single settings of the layer below and never replaces it. The play and the
script by hand both use it, so that a run means the same however it was started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hearth.base.errors import ConfigError, DataError, did_you_mean
from hearth.base.files import path_fault
from hearth.base.text import cut, listed
from hearth.config.adapter import FoundAdapter
from hearth.config.conflicts import conflicts_of
from hearth.config.presets import (
    SMALL,
    ModelSource,
    Preset,
    load_preset,
    preset_behind,
    preset_names,
)
from hearth.config.problems import describe
from hearth.config.settings import Settings, is_file, shown
from hearth.config.shards import files_in_both
from hearth.config.types import Mixture, parse_mixture
from hearth.data.locate import (
    HubDataset,
    LocalFile,
    LocalFiles,
    ShardFiles,
    locate,
    shard_files,
    shipped_names,
)

PREFERENCE_RATES = {"dpo": 0.05, "orpo": 0.2, "kto": 0.05}
"""Part of the learning rate for answers that suits preferences, by the objective. That of `dpo` is
measured on SmolLM2 (docs/preferences.md), the others follow common practice."""


@dataclass(frozen=True)
class Resolved:
    """Settings, the layer each of them came from, and the source of the model.

    `notice` says which preset a repository of the Hub was recognised as; '' for any other model.
    """

    settings: Settings
    origins: dict[str, str]
    source: ModelSource
    notice: str = ""


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return the settings in the YAML file `path`.

    Raises `ConfigError` if the file is missing or is not a mapping of settings.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such settings file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the settings file cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(*describe(error, str(path))) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a settings file is a list of 'setting: value' lines")
    return content


def _source_of(model: str) -> ModelSource:
    """Return the source of a model that is not a preset, derived from the form of its name."""
    if fault := path_fault(model):
        raise ConfigError(f"model: {cut(repr(model))} can be neither a folder nor a name: {fault}")
    folder = Path(model).expanduser()
    if folder.is_dir():
        return ModelSource(name=folder.name, id=str(folder.resolve()), kind="folder")
    if model.startswith((".", "/", "~")):
        raise ConfigError(
            f"model: there is no folder {model} on this computer; it must be here, too, and at the "
            "same path on every node"
        )
    if model.count("/") == 1 and all(model.split("/")):
        return ModelSource(name=model.replace("/", "--"), id=model, kind="hub")
    raise ConfigError(
        f"model: {cut(repr(model))} is no preset{did_you_mean(model, preset_names())}, no Hub id "
        f"(owner/name) and no local folder; presets: {', '.join(preset_names())}"
    )


def _named(model: str) -> tuple[str, Preset | None, ModelSource]:
    """Return name, preset and source of a model; '' and None if it is no preset's.

    Raises `ConfigError` if it is no preset, no local folder and no name of the Hub's.
    """
    if model in preset_names():
        preset = load_preset(model)
        return model, preset, preset.source(model)
    source = _source_of(model)
    if source.kind == "hub" and (known := preset_behind(model)):
        name, repository = known
        preset = load_preset(name)
        return name, preset, preset.source_in(repository, name)
    return "", None, source


def _all_located(dataset: str | Mixture) -> str | Mixture:
    """Return the data set, or each one of a mixture, as `_located` does.

    Raises `DataError` with everything that is wrong with them.
    """
    if not isinstance(dataset, dict):
        return _located(str(dataset))
    shares: Mixture = {}
    findings = []
    for name, share in dataset.items():
        try:
            place = _located(name)
        except DataError as error:
            findings += error.findings
            continue
        if isinstance(locate(name), ShardFiles):
            findings.append(
                f"dataset: {name} are token shards, which have no documents to mix; give their "
                "text in the mixture, or the shards alone"
            )
        if place in shares:
            findings.append(f"dataset: {name} is given twice, as {place}; add its shares up")
        shares[place] = share
    if findings:
        raise DataError(*findings)
    return shares


def _located(dataset: str) -> str:
    """Return the data set's name; for a person's own files, their absolute path or pattern.

    Symbolic links are kept: the typed name gives the format, that of the link's target may not.
    Raises `DataError` if a file is meant and cannot be used as one.
    """
    found = locate(dataset)
    if isinstance(found, (LocalFiles, ShardFiles)):
        return _absolute(dataset)
    if isinstance(found, LocalFile) and dataset not in shipped_names():
        return os.path.abspath(found.path)
    return dataset


def _absolute(pattern: str) -> str:
    return os.path.abspath(os.path.expanduser(pattern))


def _with_validation(settings: Settings) -> Settings:
    """Return `settings` with the absolute pattern of the validation shards.

    Raises `DataError` if these are no token shards, or do not suit the data set.
    """
    dataset = locate(next(iter(settings.data_sets)))
    if settings.validation is None:
        if settings.eval_every and isinstance(dataset, ShardFiles):
            raise DataError(
                "eval_every: nothing of token shards is held out; name others by validation=, or "
                "leave eval_every out"
            )
        return settings
    shards = shard_files("validation", settings.validation)
    if not isinstance(dataset, ShardFiles):
        raise DataError(
            f"validation: token shards go with token shards, and dataset is {settings.dataset}; "
            "leave validation out, and set held_out or mark examples with split: held_out"
        )
    if both := files_in_both(dataset, shards):
        raise DataError(
            f"validation: {listed(path.name for path in both)} would be trained on and evaluated; "
            "narrow the pattern of dataset or of validation"
        )
    return settings.model_copy(update={"validation": _absolute(settings.validation)})


def resolve(
    given: Mapping[str, Any],
    given_as: str = "command line",
    file: Path | None = None,
    adapter: FoundAdapter | None = None,
) -> Resolved:
    """Return the resolved settings and the layer that each came from.

    `given` holds a person's settings for this run, `given_as` their name in messages ("-e"), `file`
    a settings file in between. Values may be strings; they are parsed by the declared type. The
    `adapter` that the run goes on training determines some settings.

    Raises `ConfigError` with every problem found.
    """
    from_file = read_settings_file(file) if file else {}
    model = given.get("model", from_file.get("model", adapter and adapter.model))
    preset_name, preset, source, from_preset, findings = "", None, None, {}, []
    if isinstance(model, str) and model:
        try:
            preset_name, preset, source = _named(model)
        except ConfigError as error:
            findings += error.findings
    else:
        findings.append(
            "model is required and not set; give "
            f"{'-e ' if given_as == '-e' else ''}model={SMALL}, which any computer trains, "
            f"another preset ({', '.join(each for each in preset_names() if each != SMALL)}), a "
            "Hub id (owner/name) or a local folder"
        )
    if preset and source:
        from_preset = preset.settings | ({"load_in_4bit": True} if source.in_4bit else {})

    of_preset = f"preset {preset_name}"
    layers: list[tuple[str, str | None, Mapping[str, Any]]] = [
        (of_preset, f"training/presets/{preset_name}.yml", from_preset),
        *_layer_of(adapter, model),
        (f"file {file}", str(file), from_file),
        (given_as, None, given),
    ]
    merged: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for origin, where, layer in layers:
        findings += _problems_of(layer, where)
        merged |= layer
        origins |= dict.fromkeys(layer, origin)
    given_data = merged.get("dataset", Settings.model_fields["dataset"].default)
    try:
        merged["dataset"] = _all_located(parse_mixture(given_data))
    except DataError as error:
        findings += error.findings
    except ValueError:
        assert findings  # the layer that it stands in has said so
    if findings or source is None:
        raise ConfigError(*dict.fromkeys(findings))
    dataset = merged["dataset"]
    if preset and isinstance(dataset, str) and isinstance(locate(dataset), ShardFiles):
        for name in [name for name in preset.with_shards if origins[name] == "default"]:
            merged[name] = preset.with_shards[name]
            origins[name] = of_preset
    objective = merged.get("objective")
    if objective in PREFERENCE_RATES and origins["learning_rate"] in ("default", of_preset):
        rate = merged.get("learning_rate", Settings.model_fields["learning_rate"].default)
        merged["learning_rate"] = PREFERENCE_RATES[objective] * float(rate)
        origins["learning_rate"] = f"objective {objective}"
    if adapter:
        merged["onto"] = adapter.name
    merged["model"] = preset_name or (source.id if source.kind == "folder" else model)
    settings = Settings.model_validate(merged)
    tasks = tuple(_absolute(task) if is_file(task) else task for task in settings.eval)
    settings = settings.model_copy(update={"eval": tasks})
    if source.kind == "hub":
        source = replace(source, weights=not settings.scratch)
    findings = conflicts_of(settings)
    if adapter:
        findings += _differing(settings, source, adapter)
        source = _at_revision(source, adapter)
    name = next(iter(settings.data_sets))
    if settings.streaming and not isinstance(locate(name), HubDataset):
        findings.append(f"streaming: {name} is not on the Hub; take streaming=off")
    if settings.columns and isinstance(locate(name), ShardFiles):
        findings.append(f"columns: {name} are token shards, which have none; leave columns out")
    if settings.objective != "sft" and isinstance(locate(name), ShardFiles):
        findings.append(
            f"objective: {name} are token shards, which hold no answers for {settings.objective}; "
            "take objective=sft, or a data set of preferences"
        )
    if findings:
        raise ConfigError(*findings)
    try:
        settings = _with_validation(settings)
    except DataError as error:
        raise ConfigError(*error.findings) from error
    notice = ""
    if preset and preset_name != model:
        source, notice = _recognised(preset, preset_name, source, settings, origins)
    return Resolved(settings, origins, source, notice)


def _layer_of(
    adapter: FoundAdapter | None, model: Any
) -> list[tuple[str, str | None, Mapping[str, Any]]]:
    """Return the layer of the settings that the `adapter` of a run determines, if it has one."""
    if adapter is None:
        return []
    base = {"model": model} if model == adapter.model and model else {}
    return [(f"onto {adapter.name}", None, adapter.settings | base)]


def _differing(settings: Settings, source: ModelSource, adapter: FoundAdapter) -> list[str]:
    """Return a finding for each setting that differs from what the `adapter` determines.

    Copies of one model can be in several folders; the nodes compare their contents.
    """
    fixed = Settings.model_validate({"model": "any", **adapter.settings})
    findings = []
    for name in adapter.settings:
        typed, own = getattr(settings, name), getattr(fixed, name)
        both = [set(each) if isinstance(each, tuple) else each for each in (typed, own)]
        if both[0] != both[1]:
            findings.append(
                f"{name}: {shown(typed)} cannot be used: the adapter of onto={adapter.name} has "
                f"{shown(own)}, and goes on as it is; leave {name} out"
            )
    with suppress(ConfigError):  # its base was in a folder that is not here
        preset, _, base = _named(adapter.model)
        same = source.id == base.id or (preset and preset == settings.model)
        if not same and {source.kind, base.kind} == {"hub"}:
            findings.append(
                f"model: the adapter of onto={adapter.name} was trained on {base.id}, and fits no "
                f"other model such as {source.id}; leave model out"
            )
    return findings


def _at_revision(source: ModelSource, adapter: FoundAdapter) -> ModelSource:
    """Return `source` at the commit of the Hub that the `adapter` was trained on, if known."""
    known = adapter.source
    if known is None or known.kind != "hub" or known.id != source.id:
        return source
    return replace(source, revision=known.revision)


def _recognised(
    preset: Preset, name: str, source: ModelSource, settings: Settings, origins: Mapping[str, str]
) -> tuple[ModelSource, str]:
    """Return where the model of a recognised repository comes from, and what to say of it.

    Weights that are stored in 4 bits cannot be had in 16 or 8 bits, nor be divided; then the
    preset's own repository gives the model.
    """
    applied = [
        f"{key}={shown(getattr(settings, key))}"
        for key, origin in origins.items()
        if origin == f"preset {name}"
    ]
    notice = f"{source.id} is the preset {name}" + (f": {', '.join(applied)}" if applied else "")
    usable = settings.load_in_4bit and settings.holds_all
    if source.in_4bit and not (usable and preset.shape and not preset.shape.num_experts):
        notice += f"; its weights in 4 bits do not suit this run, {preset.id} gives the model"
        source = preset.source(name)
    return source, notice


def _problems_of(layer: Mapping[str, Any], where: str | None) -> list[str]:
    """Return the problems within one layer, so that each finding can name its file."""
    for name, value in layer.items():
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            return [f"{where or 'settings'}: {name} is no UTF-8 text: {error.reason}"]
    try:
        Settings.model_validate({"model": "any", **layer})
    except ValidationError as error:
        return describe(error, where, Settings.model_fields)
    return []
