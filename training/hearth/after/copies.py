"""Copies of a run's result in a folder, such as that of a NAS, or at an address of fsspec.

A folder is written beside its place and renamed, so that it is whole or not there. A bucket cannot
rename: run.yml goes last and marks a whole copy; until then another file says whose it will be.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import yaml

from hearth.base.addresses import links_of
from hearth.base.errors import SupplyError
from hearth.base.extras import ensure_extra, use_extra
from hearth.base.files import bytes_below, replaced_folder
from hearth.base.hub import brief_scrubbed, scrub
from hearth.base.text import byte_count
from hearth.config import Run
from hearth.config.run import RUN_FILE

LEAST = 100_000_000
"""Free bytes that a folder must have before a run, whose adapter has no size yet."""

_UNFINISHED = ".hearth-unfinished"
"""File in a bucket that marks an unfinished copy, with the creation time of its run."""

_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs")
"""Schemes that obstore has; its settings and secrets are environment variables, such as AWS_…"""

_LOCAL = "file"
"""Protocol of an address that is a folder of this node."""

Say = Callable[[str], None]


def check_copy(target: str, run: Run, say: Say) -> None:
    """Check that a copy of `run` can be written below `target`; nothing stays there.

    Raises `SupplyError` with the reason and the cure if it cannot.
    """
    if is_folder(target):
        _check_folder(folder_of(target), run)
        return
    system, root = _opened(target, say)
    probe = f"{root.rstrip('/')}/.hearth-{secrets.token_hex(4)}"
    with _explained(target):
        system.pipe_file(probe, b"")
        system.rm_file(probe)
        _check_place(system, target, f"{root.rstrip('/')}/{run.name}", run)


def copy_result(
    target: str, run: Run, files: Mapping[str, Path], texts: Mapping[str, str], say: Say
) -> str:
    """Write a copy of `run` below `target` and return its place.

    `files` are paths of files and folders by their names in the copy, `texts` further files. An
    earlier copy of the same run is replaced.

    Raises `SupplyError` if it cannot be written; a partial copy is removed then.
    """
    if is_folder(target):
        return str(_copy_to_folder(folder_of(target), run, files, texts))
    system, root = _opened(target, say)
    place = f"{root.rstrip('/')}/{run.name}"
    with _explained(target):
        earlier = _check_place(system, target, place, run)
        sources = {
            "/".join(filter(None, [name, inner])): source
            for name, path in files.items()
            for source, inner in _files(path)
        }
        sent = [_UNFINISHED]
        try:
            system.pipe_file(f"{place}/{_UNFINISHED}", run.created.encode())
            if RUN_FILE in earlier:
                system.rm_file(f"{place}/{RUN_FILE}")
            for name, source in sources.items():
                sent.append(name)
                system.put_file(str(source), f"{place}/{name}")
            for name in sorted(texts, key=lambda each: each == RUN_FILE):
                sent.append(name)
                system.pipe_file(f"{place}/{name}", texts[name].encode())
            for name in ({*earlier} | {_UNFINISHED}) - {*sources, *texts}:
                system.rm_file(f"{place}/{name}")
        except BaseException:
            for name in () if earlier else sent:
                with suppress(Exception):  # the first error is the one to tell
                    system.rm_file(f"{place}/{name}")
            raise
    return system.unstrip_protocol(place)


def is_folder(target: str) -> bool:
    """Return whether `target` is a folder of this node, and not the address of a store."""
    return [link.protocol for link in links_of(target)] in ([""], [_LOCAL])


def folder_of(target: str) -> Path:
    """Return the path of a folder."""
    return Path(target.removeprefix(f"{_LOCAL}://")).expanduser()


def _check_folder(folder: Path, run: Run) -> None:
    if not folder.is_dir():
        raise SupplyError(
            f"copy_to: there is no folder {folder} on this node; mount it, or make it. It is not "
            "made for you, since it would then be below an empty mount point"
        )
    with _explained(str(folder)):
        probe = folder / f".hearth-{secrets.token_hex(4)}"
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
        place = folder / run.name
        created = (
            _created_in((place / RUN_FILE).read_text()) if (place / RUN_FILE).is_file() else None
        )
    if free < LEAST:
        raise SupplyError(
            f"copy_to: {folder} has {byte_count(free)} left, less than {byte_count(LEAST)}; free "
            "some space there, or name another folder"
        )
    if place.exists() and created is None:
        raise SupplyError(
            f"copy_to: {place} is there already and is no copy of a run; move it away, or name "
            "another folder"
        )
    _check_other(str(folder), created, run)


def _copy_to_folder(
    folder: Path, run: Run, files: Mapping[str, Path], texts: Mapping[str, str]
) -> Path:
    """Write a copy of `run` into a folder of this node, and return its path."""
    _check_folder(folder, run)
    size = sum(bytes_below(path) or path.stat().st_size for path in files.values())
    free = shutil.disk_usage(folder).free
    if size > free:
        raise SupplyError(
            f"copy_to: {folder} has {byte_count(free)} left and the result takes "
            f"{byte_count(size)}; free some space there, or name another folder"
        )
    place = folder / run.name
    with _explained(str(folder)), replaced_folder(place) as new:
        for name, path in files.items():
            if path.is_dir():
                shutil.copytree(path, new / name, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(path, new / name)
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")
    return place


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of a file or folder, and its name within the folder."""
    if path.is_file():
        yield path, ""
    for inner in sorted(path.rglob("*")):
        if inner.is_file():
            yield inner, inner.relative_to(path).as_posix()


def _opened(target: str, say: Say) -> tuple[Any, str]:
    """Return fsspec's file system of an address, and the path in it.

    Raises `SupplyError` if there is none, or if this node lacks a package for it.
    """
    schemes = [link.protocol for link in links_of(target)]
    for scheme in filter(_BUCKETS.__contains__, schemes):
        use_extra(ensure_extra("stores", f"copy_to={scheme}:// (obstore)", say))
        import_module("obstore.fsspec").register(scheme)
    with _explained(target):
        try:
            return fsspec.core.url_to_fs(target)
        except ImportError as error:
            raise SupplyError(
                f"copy_to: {scrub(target)} needs a package that this node lacks "
                f"({brief_scrubbed(error)}); install it into the Python that trains, or take a "
                "folder or s3://"
            ) from error
        except ValueError as error:
            raise SupplyError(
                f"copy_to: fsspec cannot use {scrub(target)}: {brief_scrubbed(error)}; take a "
                "folder, or an address such as s3://bucket/runs"
            ) from error


def _check_place(system: Any, target: str, place: str, run: Run) -> list[str]:
    """Return the names of the files at `place` in a bucket, which are of an earlier copy of `run`.

    Raises `SupplyError` if they are something else.
    """
    top = f"{place.strip('/')}/"
    there = [key.strip("/").removeprefix(top) for key in system.find(place)]
    created = None
    if RUN_FILE in there:
        created = _created_in(system.cat_file(f"{place}/{RUN_FILE}").decode())
    elif _UNFINISHED in there:
        created = system.cat_file(f"{place}/{_UNFINISHED}").decode()
    if there and created is None:
        raise SupplyError(
            f"copy_to: {scrub(target)} has files below {run.name} already that are no copy of a "
            "run; move them away, or name another place"
        )
    _check_other(target, created, run)
    return there


def _created_in(text: str) -> str:
    """Return when the run in the text of a run.yml was created; '' if it is none."""
    with suppress(yaml.YAMLError, KeyError, TypeError):
        return str(yaml.safe_load(text)["created"])
    return ""


def _check_other(target: str, created: str | None, run: Run) -> None:
    """Raise `SupplyError` if there is a copy, and of another run than `run`."""
    if created not in (None, run.created):
        raise SupplyError(
            f"copy_to: {scrub(target)} has a copy of another run named {run.name} already; move it "
            "away, or name another place"
        )


@contextmanager
def _explained(target: str) -> Iterator[None]:
    """Turn a store's errors into a `SupplyError` with a cure."""
    try:
        yield
    except SupplyError:
        raise
    except Exception as error:  # each store has errors of its own
        detail = (isinstance(error, OSError) and error.strerror) or brief_scrubbed(error)
        raise SupplyError(
            f"copy_to: {scrub(target)} cannot be written ({detail}); check that it is there, has "
            "room, and that this node may write to it"
        ) from error
