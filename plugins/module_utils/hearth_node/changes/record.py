"""Record and undo the changes that provisioning makes to this machine.

Before a file is changed for the first time, its bytes, mode and owner go into the record's folder;
the record also keeps the checksum of Hearth's version. A file that changed since then is
recognised by it; only files still as Hearth left them are restored.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.files import alone
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.system.user import acting_as

FOLDER = "/var/lib/hearth/record"
ORIGINALS = "/var/lib/hearth/originals"

HOME = "home"
"""Stage of the paths in a user's home that no other stage has."""

_HOME_STAGES = ("ssh", HOME)  # their paths are a user's: Hearth acts on them as that user


@dataclass(frozen=True)
class PathState:
    """State of a path: `kind` is `absent`, `file`, `link` or `folder`."""

    kind: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    sha256: str = ""
    target: str = ""


_PRIVATE = PathState("file", mode=0o600)


@dataclass
class ChangedPath:
    """One changed path. `now` is the state Hearth left; None if another program changes it."""

    path: str
    stage: str
    first: PathState
    now: PathState | None = None
    blocks: list[str] = field(default_factory=list)
    then: list[list[str]] = field(default_factory=list)

    def as_owner(self) -> AbstractContextManager[None]:
        """Act as the user whose path it is; do nothing for a path of the system."""
        if self.stage not in _HOME_STAGES or self.now is None:
            return nullcontext()
        return acting_as(self.now.uid, self.now.gid)


@dataclass(frozen=True)
class Change:
    """Result of a change, or its prediction in check mode; `diff` is the output of `--diff`."""

    changed: bool
    diff: dict[str, str] = field(default_factory=dict)


def result(changes: list[Change]) -> dict[str, object]:
    """Return a module's `changed` and `diff` for several changes."""
    made = [change for change in changes if change.changed]
    return {"changed": bool(made), "diff": [change.diff for change in made if change.diff]}


@dataclass(frozen=True)
class Undone:
    """Result of undoing a path: `restored`, `removed`, `left`, or `same` if it already was so.

    `why` is the reason for `left` and `same`.
    """

    path: str
    state: str
    why: str = ""


class RecordError(Exception):
    """The record cannot be read, or an original cannot be saved."""


@contextmanager
def recorded(module: Any, trouble: str) -> Iterator[None]:
    """Fail the Ansible module, with `trouble` and the reason, if the block cannot change a file."""
    try:
        yield
    except (RecordError, OSError) as error:
        module.fail_json(msg=f"{trouble}: {error}")


def path_state(path: str) -> PathState:
    """Return the current state of `path`."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return PathState("absent")
    owner = {"mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}
    if stat.S_ISLNK(status.st_mode):
        return PathState("link", uid=status.st_uid, gid=status.st_gid, target=os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return PathState("folder", **owner)
    if not stat.S_ISREG(status.st_mode):
        raise RecordError(f"{path} is neither file, link nor folder: Hearth leaves it alone")
    return PathState("file", sha256=hashlib.sha256(Path(path).read_bytes()).hexdigest(), **owner)


def with_block(text: str, marker: str, block: str | None) -> str:
    """Return `text` with a managed block replaced, or appended if new; None removes the block.

    Everything outside the block's two marker lines stays unchanged.
    """
    begin, end = f"# hearth: {marker} begin\n", f"# hearth: {marker} end\n"
    before, found, rest = text.partition(begin)
    if found:
        _, closed, after = rest.partition(end)
        if not closed:
            raise RecordError(f"the line '{end.strip()}' is missing: put it back below its block")
    else:
        after = ""
        if before and not before.endswith("\n") and block is not None:
            before += "\n"
    if block is None:
        return before + after
    return f"{before}{begin}{block.rstrip()}\n{end}{after}"


class Journal:
    """The record of this machine, for changes of a stage. With `check`, they are only predicted.

    The paths of the stages `ssh` and `home` belong to `user`, and Hearth acts on them as that user.
    Two playbooks may work on one machine: each change takes a file lock and reloads the record.
    """

    def __init__(
        self,
        stage: str = "",
        check: bool = False,
        user: pwd.struct_passwd | None = None,
        folder: str = FOLDER,
        originals: str = ORIGINALS,
    ) -> None:
        self._stage, self.check, self._user = stage, check, user
        self._folder, self._originals = folder, originals
        self._file = os.path.join(folder, "record.json")
        self._entries: dict[str, ChangedPath]
        self._notes: list[dict[str, str]]
        self._due: list[list[str]]
        self._load()

    # -- changing --------------------------------------------------------------------------------

    def write(
        self,
        path: str,
        content: bytes,
        *,
        mode: int | None = None,
        then: Sequence[list[str]] = (),
    ) -> Change:
        """Make `path` a file with this content. Mode and owner are kept, or 0644 and one's own.

        `then` are commands that put the restored original into effect (run by `settle`).
        """
        with self._alone():
            here, wanted = self._states(path, content, mode)
            return self._change(path, here, wanted, content, then)

    def link(self, path: str, target: str, *, then: Sequence[list[str]] = ()) -> Change:
        """Make `path` a symbolic link, such as one to /dev/null that masks a unit."""
        with self._alone():
            with self._as_user():
                here = path_state(path)
                uid, gid = self._ids(path, here)
            wanted = PathState("link", uid=uid, gid=gid, target=target)
            content = f"-> {target}\n".encode()
            return self._change(path, here, wanted, content, then)

    def block(self, path: str, marker: str, text: str | None, *, mode: int | None = None) -> Change:
        """Keep `text` as a managed block in the file at `path`; None removes the block.

        The lines around it belong to the owner: a reset removes the block and keeps them.
        """
        with self._alone():
            with self._as_user():
                present = text_of(path)
            if not present and text is None:
                return Change(False)
            content = with_block(present, marker, text).encode(errors="surrogateescape")
            known = self._entries.get(path)
            pure = known is None or bool(known.blocks)
            here, wanted = self._states(path, content, mode)
            blocks = [marker] if pure else []
            return self._change(path, here, wanted, content, blocks=blocks)

    def before(self, path: str, *, then: Sequence[list[str]] = ()) -> None:
        """Save `path` as it is now, before another program changes it."""
        with self._alone():
            self._remember(path, path_state(path))
            self._extend(path, then)
            self._entries[path].now = None
            self._save()

    def note(self, text: str) -> None:
        """Note a change that no reset undoes, such as a package, once."""
        note = {"stage": self._stage, "text": text}
        with self._alone():
            if note not in self._notes:
                self._notes.append(note)
                self._save()

    # -- undoing ---------------------------------------------------------------------------------

    def entries(self) -> list[ChangedPath]:
        """Return the changed paths, oldest change first."""
        return list(self._entries.values())

    def original(self, path: str) -> bytes | None:
        """Return a recorded file's content from before Hearth; None if there was no file."""
        return self._saved(self._entries[path].first)

    def notes(self) -> list[dict[str, str]]:
        """Return `stage` and `text` of the changes that no reset undoes."""
        return list(self._notes)

    def restore(self, path: str, plain: Callable[[str], str] | None = None) -> Undone:
        """Restore a path to its original state and take it off the record.

        From a file that others write to as well, only Hearth's part is removed: its blocks, or the
        text that `plain` removes. Any other file that was changed since is left alone; a
        copy of the original stays in the folder of originals.
        """
        with self._alone():
            if path not in self._entries:  # a concurrent reset has restored it
                return Undone(path, "restored")
            return self._restore(self._entries[path], plain)

    def restore_stage(self) -> list[dict[str, str]]:
        """Restore all paths of this record's stage, newest first; return the differences."""
        ours = [entry.path for entry in self.entries() if entry.stage == self._stage]
        return [
            {"before": f"{path}\n", "after": f"{self.restore(path).state}\n"}
            for path in reversed(ours)
        ]

    def settle(self) -> list[str]:
        """Run the commands that put restored paths into effect; return a sentence per failure.

        The commands stay on the record until they have run, so after an interrupted reset the next
        one runs them.
        """
        tried = list(self._due)
        failed = run_all(tried)
        if tried:
            with self._alone():
                self._due = [command for command in self._due if command not in tried]
                self._save()
        return failed

    def forget(self) -> None:
        """Remove the record itself, once everything on it is undone."""
        if self._entries:
            raise RecordError(f"{len(self._entries)} changes are still to be undone")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._notes = []

    # -- the parts -------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the record against other processes and reload it; not in check mode."""
        if self.check:
            yield
            return
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with alone(Path(self._folder)):
            self._load()
            yield

    def _change(
        self,
        path: str,
        here: PathState,
        wanted: PathState,
        content: bytes,
        then: Sequence[list[str]] = (),
        blocks: Sequence[str] = (),
    ) -> Change:
        """Save the original, then change the path, unless it is already as wanted.

        The wanted state is recorded before the change: any other state found later is another
        program's, even if Hearth was interrupted in between.
        """
        if here.kind == "folder":
            raise RecordError(f"{path} is a folder, where a {wanted.kind} is needed")
        if here == wanted:
            return Change(False)
        with self._as_user():
            change = Change(True, _diff(path, here, content, wanted))
        if not self.check:
            self._folders(os.path.dirname(path))
            self._remember(path, here)
            self._extend(path, then)
            entry = self._entries[path]
            entry.blocks += [block for block in blocks if block not in entry.blocks]
            earlier, entry.now = entry.now, wanted
            self._save()
            try:
                with self._as_user():
                    _put(path, content, wanted)
            except OSError:  # the path is unchanged
                entry.now = earlier or wanted
                self._save()
                raise
        return change

    def _as_user(self) -> AbstractContextManager[None]:
        """Act as the user of the stage's paths, if they are a user's."""
        return acting_as(self._user.pw_uid, self._user.pw_gid) if self._user else nullcontext()

    def _states(self, path: str, content: bytes, mode: int | None) -> tuple[PathState, PathState]:
        """Return the current state of `path`, and that of a file with this content."""
        with self._as_user():
            here = path_state(path)
            uid, gid = self._ids(path, here)
        wanted = PathState(
            "file",
            mode=(here.mode if here.kind == "file" else 0o644) if mode is None else mode,
            uid=uid,
            gid=gid,
            sha256=hashlib.sha256(content).hexdigest(),
        )
        return here, wanted

    def _ids(self, path: str, here: PathState) -> tuple[int, int]:
        """Return the ids of a path's owner and group: the user's, else those it has, or one's own.

        Raises `RecordError` if the file there belongs to another user.
        """
        if self._user is None:
            return (os.geteuid(), os.getegid()) if here.kind == "absent" else (here.uid, here.gid)
        if here.kind != "absent" and here.uid != self._user.pw_uid:
            raise RecordError(f"{path} is not {self._user.pw_name}'s")
        return self._user.pw_uid, self._user.pw_gid

    def _folders(self, folder: str) -> None:
        """Create missing parent folders, each on the record."""
        with self._as_user():
            missing = []
            while folder and not os.path.isdir(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            for path in reversed(missing):
                os.mkdir(path, 0o755)
                made = ChangedPath(path, self._stage, PathState("absent"), path_state(path))
                self._entries[path] = made

    def _remember(self, path: str, here: PathState) -> None:
        """Save the original, once."""
        if path in self._entries:
            return
        if here.kind == "file":
            with self._as_user():
                content = Path(path).read_bytes()
            os.makedirs(os.path.join(self._folder, "before"), mode=0o700, exist_ok=True)
            _put(self._copy(here), content, _PRIVATE)
        self._entries[path] = ChangedPath(path, self._stage, here)

    def _extend(self, path: str, then: Sequence[list[str]]) -> None:
        """Add commands to those of a path, each once."""
        known = self._entries[path].then
        known += [command for command in then if command not in known]

    def _copy(self, first: PathState) -> str:
        return os.path.join(self._folder, "before", first.sha256)

    def _saved(self, first: PathState) -> bytes | None:
        """Return the content of an original; None if it was no file."""
        return Path(self._copy(first)).read_bytes() if first.kind == "file" else None

    def _restore(self, entry: ChangedPath, plain: Callable[[str], str] | None) -> Undone:
        """Restore a path as `restore` describes, without the lock."""
        path, original = entry.path, self._saved(entry.first) or b""
        try:
            with entry.as_owner():
                undone = self._undo(entry, original, plain)
        except PermissionError as error:
            if entry.stage not in _HOME_STAGES:
                raise
            undone = Undone(path, "left", f"its user may not change it: {error}")
        if undone.state == "left" and entry.first.kind == "file" and not self.check:
            kept = self._originals + path
            os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)
            shutil.copyfile(self._copy(entry.first), kept)
            os.chmod(kept, 0o600)
            undone = Undone(path, "left", f"{undone.why}; the original is in {kept}")
        if not self.check:
            del self._entries[path]
            self._due += [command for command in entry.then if command not in self._due]
            self._save()
        return undone

    def _undo(
        self, entry: ChangedPath, original: bytes, plain: Callable[[str], str] | None
    ) -> Undone:
        """Restore a path from its original content, unless another program has changed it."""
        path = entry.path
        if entry.blocks and plain is None:
            plain = functools.partial(_without_blocks, markers=entry.blocks)
        here = path_state(path)
        ours = entry.now is None or here == entry.now
        if here == entry.first:
            return Undone(path, "same", "it is as it was before Hearth")
        if plain and here.kind == "file" and entry.first.kind in ("file", "absent"):
            return self._take_out(entry, here, original, plain)
        if ours:
            if not self.check and not _put_back(entry, original):
                return Undone(path, "left", "it holds files that are not Hearth's")
            return Undone(path, "removed" if entry.first.kind == "absent" else "restored")
        if here.kind == "absent":
            return Undone(path, "left", "it was removed since")
        return Undone(path, "left", "it was changed since")

    def _take_out(
        self, entry: ChangedPath, here: PathState, original: bytes, plain: Callable[[str], str]
    ) -> Undone:
        """Remove Hearth's part of a file; the rest stays, even if it differs from the original."""
        path = entry.path
        kept = plain(text_of(path)).encode(errors="surrogateescape")
        # Adding a block also ends the line before it.
        if kept.rstrip(b"\n") == original.rstrip(b"\n"):
            if not self.check:
                _put_back(entry, original)
            return Undone(path, "removed" if entry.first.kind == "absent" else "restored")
        if not self.check:
            _put(path, kept, here)
        return Undone(path, "restored", "Hearth's lines only; others have changed since")

    def _load(self) -> None:
        self._entries, self._notes, self._due = {}, [], []
        try:
            with open(self._file, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise RecordError(
                f"{self._file}, the record of what Hearth has changed, cannot be read: {error}"
            ) from error
        for each in found["entries"]:
            now = PathState(**each.pop("now")) if each["now"] else each.pop("now")
            entry = ChangedPath(**each | {"first": PathState(**each["first"])}, now=now)
            self._entries[entry.path] = entry
        self._notes, self._due = found["notes"], found.get("due", [])

    def _save(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        entries = [asdict(entry) for entry in self._entries.values()]
        kept = {"entries": entries, "notes": self._notes, "due": self._due}
        text = json.dumps(kept, indent=1) + "\n"
        _put(self._file, text.encode(), _PRIVATE)


def run_all(commands: list[list[str]]) -> list[str]:
    """Run commands, each once, in the order given; return a sentence for each that failed."""
    failed = []
    for command in dict.fromkeys(map(tuple, commands)):
        done = run(*command, seconds=60)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            failed.append(f"`{' '.join(command)}` ended with status {done.returncode}: {last}")
    return failed


def _put(path: str, content: bytes, wanted: PathState) -> None:
    """Make `path` a file with this content, fsynced, or a link, by one rename."""
    folder = os.path.dirname(path)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".hearth-") as temporary:
        place = os.path.join(temporary, "new")
        if wanted.kind == "link":
            os.symlink(wanted.target, place)
        else:
            with open(place, "xb") as file:  # in a folder that only its owner enters
                file.write(content)
                os.fchmod(file.fileno(), wanted.mode)
                file.flush()
                os.fsync(file.fileno())
        if (wanted.uid, wanted.gid) != (os.geteuid(), os.getegid()):
            os.lchown(place, wanted.uid, wanted.gid)
        os.replace(place, path)


def _put_back(entry: ChangedPath, original: bytes) -> bool:
    """Restore the original state; return False for a folder that is not empty."""
    path, first = entry.path, entry.first
    if entry.stage in _HOME_STAGES:  # a user cannot give a file to another group
        first = replace(first, gid=os.getegid())
    if first.kind in ("file", "link"):
        _put(path, original, first)
    elif os.path.isdir(path) and not os.path.islink(path):
        if os.listdir(path):
            return False
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return True


def _without_blocks(text: str, markers: list[str]) -> str:
    for marker in markers:
        text = with_block(text, marker, None)
    return text


def _diff(path: str, here: PathState, content: bytes, wanted: PathState) -> dict[str, str]:
    """Return the two sides that Ansible shows with `--diff`."""
    if here.kind == "file":
        before = text_of(path)
    else:
        before = f"-> {here.target}\n" if here.kind == "link" else ""
    after = content.decode(errors="replace")
    if before == after:  # only mode or owner differ
        before = f"{here.uid}:{here.gid} {here.mode:04o}\n"
        after = f"{wanted.uid}:{wanted.gid} {wanted.mode:04o}\n"
    return {"before": before, "after": after, "before_header": path, "after_header": path}
