"""A checkpoint brought from a node that is away: its ranks have ended, its supervisor answers.

The last node that trains leaves the newest checkpoint on its own disk. A node that lends again when
nobody has the run's state in memory asks for it over the mesh before it starts its ranks.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hearth.base.files import sync_below
from hearth.supervisor.messages import Ask, Given

PIECE = 32 << 10
"""Bytes of a piece; with its message around it, it fits the line that a stream reads at most."""

AT_ONCE = 32
"""Pieces that are asked for before the first of them has come."""

PATIENCE = 10.0
"""Seconds until a piece has come, or is not waited for any more."""

_FOLDERS = "step-*"
_UNFINISHED = ".writing-"
"""Beginning of the name of a folder that ranks complete or delete, as they do their own."""


class CheckpointTransfer:
    """Brings a checkpoint into the `folder` of a run's checkpoints, and gives those there away.

    `tell` sends a message to a node.
    """

    def __init__(self, folder: Path, tell: Callable[[str, Ask | Given], None]) -> None:
        self._folder, self._tell = folder, tell
        self._asked: dict[tuple[str, Ask], asyncio.Future[Given]] = {}

    def give(self, ask: Ask) -> Given:
        """Return the answer to another node's question; an empty one if there is no such thing."""
        if not ask.folder:
            return self._list(ask)
        path = _inside(self._folder, ask.folder, ask.file)
        try:
            if path is None:
                raise OSError
            with path.open("rb") as file:
                file.seek(ask.offset)
                return Given(ask, data=base64.b64encode(file.read(PIECE)).decode())
        except OSError:
            return Given(ask)

    def given(self, node: str, answer: Given) -> None:
        """Take note of a node's answer."""
        future = self._asked.pop((node, answer.ask), None)
        if future and not future.done():
            future.set_result(answer)

    async def bring(self, nodes: Iterable[str]) -> str:
        """Bring the newest checkpoint of these nodes, if it is newer than those here.

        Return a sentence on what was brought, or why nothing could be; "" if nothing is newer.
        """
        newest, holder = Given(Ask()), ""
        for node in nodes:
            with suppress(TimeoutError):
                found = await self._question(node, Ask())
                if _step(found.folder) > _step(newest.folder):
                    newest, holder = found, node
        if _step(newest.folder) <= _step(self._newest()):
            return ""
        unfinished = self._folder / f"{_UNFINISHED}{newest.folder}"
        try:
            await self._copy(holder, newest, unfinished)
        except TimeoutError:
            return f"{holder} did not send its checkpoint {newest.folder} within {PATIENCE:g} s"
        except (OSError, ValueError) as error:
            return f"the checkpoint {newest.folder} of {holder} could not be brought: {error}"
        finally:
            await asyncio.to_thread(shutil.rmtree, unfinished, True)
        return f"brought the checkpoint {newest.folder} from {holder}, which is away"

    async def _copy(self, holder: str, newest: Given, unfinished: Path) -> None:
        """Write the files of a node's newest checkpoint into a folder, and put that in place.

        Raises `TimeoutError`, `OSError`, or `ValueError` for files that no checkpoint has.
        """
        await asyncio.to_thread(shutil.rmtree, unfinished, True)
        for name, size in newest.files.items():
            path = _inside(self._folder, unfinished.name, name)
            if path is None or not newest.folder.startswith("step-"):
                raise ValueError(f"{name!r} names no file in it")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for first in range(0, size, PIECE * AT_ONCE):
                    last = min(size, first + PIECE * AT_ONCE)
                    offsets = range(first, last, PIECE)
                    asks = [Ask(newest.folder, name, offset) for offset in offsets]
                    for answer in await asyncio.gather(*(self._question(holder, a) for a in asks)):
                        content = base64.b64decode(answer.data)
                        if len(content) != min(PIECE, size - answer.ask.offset):
                            raise ValueError(f"{name} is shorter than {size} bytes by now")
                        file.write(content)
        await asyncio.to_thread(sync_below, unfinished)
        unfinished.rename(self._folder / newest.folder)

    async def _question(self, node: str, ask: Ask) -> Given:
        """Ask a node, and return its answer. Raises `TimeoutError` if none comes."""
        future = asyncio.get_running_loop().create_future()
        self._asked[node, ask] = future
        self._tell(node, ask)
        try:
            return await asyncio.wait_for(future, PATIENCE)
        finally:
            self._asked.pop((node, ask), None)

    def _newest(self) -> str:
        """Return the name of the newest checkpoint here; "" without one."""
        return max((path.name for path in self._folder.glob(_FOLDERS)), key=_step, default="")

    def _list(self, ask: Ask) -> Given:
        """Return the name of the newest checkpoint here, and its files with their sizes."""
        name = self._newest()
        try:
            files = {
                str(path.relative_to(self._folder / name)): path.stat().st_size
                for path in sorted((self._folder / name).rglob("*"))
                if name and path.is_file()
            }
        except OSError:
            return Given(ask)
        return Given(ask, folder=name, files=files)


def _step(name: str) -> int:
    """Return the step of a checkpoint by its folder's name; -1 for any other name."""
    number = name.removeprefix("step-")
    return int(number) if number.isdecimal() and number.isascii() else -1


def _inside(folder: Path, *names: str) -> Path | None:
    """Return the path of a file in a folder; None for names that lead out of it."""
    parts = [part for name in names for part in PurePosixPath(name).parts]
    named = all(names) and all(part not in ("..", "/") and "\0" not in part for part in parts)
    return folder.joinpath(*parts) if named else None
