"""The export that a person asks for, and its check, which does without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hearth.after.plain_adapter import why_not
from hearth.base.errors import ModelError, did_you_mean
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.record.result import Result, find_result

FILE_TYPES = {"f16": 1, "q8_0": 7, "q6_k": 18, "q5_k_m": 17, "q4_k_m": 15}
"""llama.h's llama_ftype of each precision that is offered, the most exact first."""


@dataclass(frozen=True)
class ExportRequest:
    """An export that a person asks for.

    Attributes:
        run: folder of the run.
        to: what to make.
        precision: of a GGUF file, one of `FILE_TYPES`; None for the default.
        best: whether to take the result with the lowest held-out loss.
        onto: name in Ollama of the base model, on top of which the adapter goes by itself.
        folder: where to write; None is a folder of the run.
        trust_remote_code: whether code that comes with the base model may run.
    """

    run: Path
    to: Literal["gguf", "ollama", "merged"]
    precision: str | None = None
    best: bool = False
    onto: str | None = None
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
        parts = [self.to, "" if self.to == "merged" or self.onto else self.of_file]
        parts += ["adapter" if self.onto else "", "best" if self.best else ""]
        return self.run / "export" / "-".join(filter(None, parts))


def check(request: ExportRequest, layout: Layout, say: Callable[[str], None]) -> Result:
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
    elif request.precision and (request.to == "merged" or request.onto):
        findings.append(
            f"--precision {request.precision}: a merged model and an adapter keep their precision; "
            "leave it out"
        )
    if request.onto and request.to != "ollama":
        findings.append(f"--onto {request.onto}: this is for --to ollama; leave it out")
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
    if result.kind == "model" and (request.to == "merged" or request.onto):
        findings.append(
            f"{result.folder}: this run trained the whole model; "
            + ("it needs no merging" if request.to == "merged" else "leave out --onto")
        )
    if request.onto and result.kind == "adapter" and (why := why_not(result.folder)):
        findings.append(f"{result.folder}: {why}; leave out --onto, which merges it")
    if findings:
        raise ModelError(*findings)
    return result
