"""The mark of a workspace: the paths in it that Hearth made, so that it replaces no others."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable

from ansible.module_utils.hearth.base.files import read_object
from ansible.module_utils.hearth.base.places import LENDING, MANIFEST, QUEUE, RUN_NAME, STAGED_NAME
from ansible.module_utils.hearth_node.base import text_of, write_private

_OF_RUNS = ("results", "checkpoints")  # they have a folder for each run
# In these folders a file's name and the existing runs show whether it is Hearth's.
_BY_NAME = (*_OF_RUNS, "logs", "config", QUEUE)

# A file that is written has another name until it is whole, and so has a folder.
_FILE = r"\.?({})(\.new|\.\d+)?"
_FOLDER = r"\.?({})(\.unfinished|\.old)?"
_OF_A_RUN = "|".join(
    (
        _FILE.format(r"run\.yml|metrics\.jsonl|supervisor\.json|votes\.json|job\.sbatch|stop"),
        _FOLDER.format("adapter|model|best"),
        r"job\.log|control|export|files|tensorboard|wandb",
    )
)
_PATHS = (
    f"results/RUN/({_OF_A_RUN})",
    r"checkpoints/RUN/((\.writing-)?step-\d+|\.reading-.+)",
    r"logs/(RUN\.log|\.RUN\.torchrun|transfer\.log|\.(chat|tensorboard)\.log)",
    r"config/supervisor\.lock",
    "config/" + _FILE.format(r"(RUN|transfer|chat|tensorboard)\.json|RUN\.secrets"),
    f"{QUEUE}/" + _FILE.format(r"RUN\.(json|lock)"),
)


def runs_in(workspace: str) -> set[str]:
    """Return the names of the runs that have anything by Hearth in this workspace."""
    marks = {
        "results": lambda path: _holds(path, ("run.yml", "supervisor.json")),
        "checkpoints": lambda path: any(name.startswith("step-") for name in _names_in(path)),
        "config": lambda path: "run" in (read_object(path) or {}),
        QUEUE: lambda path: "position" in (read_object(path) or {}),
    }
    return {
        run
        for folder, is_marked in marks.items()
        for name in _names_in(os.path.join(workspace, folder))
        if RUN_NAME.fullmatch(run := name.removesuffix(".json"))
        and is_marked(os.path.join(workspace, folder, name))
    }


def written_by_hearth(runs: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of the paths in a workspace that Hearth writes for these runs."""
    run = "|".join(map(re.escape, sorted(runs))) or "(?!)"
    return re.compile("|".join(_PATHS).replace("RUN", f"({run})"))


def _holds(folder: str, names: Iterable[str]) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) and not os.path.islink(folder) else []


FOLDERS = ("data", "models", "scripts", "logs", "config", "results", "checkpoints", "queue")
"""Folders that every workspace has."""

FILES = ("README.md", "cluster_config.yaml", "launch_cluster.sh")
"""Files for a person that provisioning puts into a workspace, beside `hearth-lend`."""

LEND = "hearth-lend"
"""The command in a workspace for a person at the node, to keep or lend it."""

MARK = ".hearth-workspace"
"""File in a workspace that lists the paths that Hearth made, one per line."""

_FOLDERS = (*FOLDERS, "code")
_MADE = (*_FOLDERS, *FILES, LEND)
# Folders that hold a person's own files too; Hearth's are known by name or manifest.
_SHARED = {
    "data": re.compile(r"\.?[0-9a-f]{12}([-.].*)?|hub|tokens|speeds|prepared|unsloth|compiled"),
    "models": re.compile(r"\..+\.(lock|arriving|unfinished)|.+\.folder\.json"),
}


def made_here(workspace: str) -> set[str]:
    """Return the paths in a workspace that Hearth made, according to its mark.

    An unmarked workspace with the training code and all its folders is from before the mark: it is
    Hearth's as a whole.
    """
    if lines := text_of(os.path.join(workspace, MARK)).splitlines():
        return {line for line in lines if line.split("/")[0] in _MADE and ".." not in line}
    before = all(
        os.path.isdir(os.path.join(workspace, name))
        for name in (*FOLDERS, "scripts/hearth")
        if name != "queue"  # made later
    )
    return {*_FOLDERS} if before else set()


def claim(workspace: str, places: Iterable[str]) -> set[str]:
    """Return the paths that are Hearth's once it has written to `places`, paths in the workspace.

    Those are the ones that it made, and every place where there is nothing yet, or its topmost
    folder that does not exist.
    """
    made = made_here(workspace)
    for place in places:
        if not is_claimed(place, made):
            free = (each for each in _downward(place) if _is_free(os.path.join(workspace, each)))
            made.update(list(free)[:1])
    return made


def is_claimed(place: str, made: set[str]) -> bool:
    """Return whether a path in the workspace is Hearth's, by itself or within a folder."""
    return not made.isdisjoint(_downward(place))


def node_mark(workspace: str, node: str) -> str:
    """Return the file that shows the nodes of an inventory that they share a workspace."""
    return os.path.join(workspace, f".hearth-node-{node}")


def write_mark(workspace: str, made: set[str], check: bool) -> bool:
    """Write the mark of an existing workspace, unless `check`; return whether it was another."""
    path, text = os.path.join(workspace, MARK), "".join(f"{place}\n" for place in sorted(made))
    if text_of(path) == text:
        return False
    if not check:
        write_private(path, text)
    return True


def is_workspace(folder: str) -> bool:
    """Return whether a folder has the mark, or training code from before the mark."""
    return any(os.path.lexists(os.path.join(folder, name)) for name in (MARK, "scripts/hearth"))


def removable(workspace: str) -> tuple[list[str], list[str]]:
    """Return the paths in a workspace that Hearth made, and all others.

    If there are no others, the first is the workspace itself; but a home, a link or the root of a
    disk stays. A link within the workspace is another's, unless it leads to a data file that nodes
    share.
    """
    gone: list[str] = []
    stays = [workspace]
    if made := made_here(workspace):
        gone, stays = _Sorter(workspace, made).sort(os.listdir(workspace))
    homes = {os.path.expanduser("~"), *(user.pw_dir for user in pwd.getpwall())}
    fixed = os.path.ismount(workspace) or os.path.islink(workspace) or workspace in homes
    return (gone, stays or [workspace]) if fixed or stays else ([workspace], [])


class _Sorter:
    """Sorts paths in a workspace into Hearth's and others, also within its folders."""

    def __init__(self, workspace: str, made: set[str]) -> None:
        self._workspace, self._made = workspace, made
        self._runs = runs_in(workspace)
        self._written = written_by_hearth(self._runs)

    def sort(self, places: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return Hearth's absolute paths, and the others."""
        gone: list[str] = []
        stays: list[str] = []
        for place in sorted(places):
            path, within, others = os.path.join(self._workspace, place), [], []
            if self._is_mixed(place) and os.path.isdir(path) and not os.path.islink(path):
                within, others = self.sort(f"{place}/{name}" for name in os.listdir(path))
            if self._is_hearths(path, place) and not others:
                gone.append(path)
            else:
                gone += within
                stays += others or [path]
        return gone, stays

    def _is_mixed(self, place: str) -> bool:
        """Return whether a folder can hold a person's own files beside Hearth's."""
        folder, _, run = place.partition("/")
        if folder not in _BY_NAME:
            return place in (*_SHARED, "code")
        of_a_run = folder in _OF_RUNS and run in self._runs
        return is_claimed(place, self._made) and (not run or of_a_run)

    def _is_hearths(self, path: str, place: str) -> bool:
        """Return whether Hearth made a path in the workspace."""
        folder, _, name = place.partition("/")
        if os.path.islink(path):  # Hearth's leads to a data file that nodes share
            return folder == "data" and STAGED_NAME.fullmatch(name) is not None
        if name and folder in _SHARED:
            known = _SHARED[folder].fullmatch(name) or os.path.isfile(os.path.join(path, MANIFEST))
            return bool(known) or place in self._made
        if name and folder in _BY_NAME:
            is_run = folder in _OF_RUNS and name in self._runs
            return is_run or is_empty(path) or self._written.fullmatch(place) is not None
        return is_claimed(place, self._made) or place == LENDING or place.startswith(".hearth-")


def _downward(place: str) -> list[str]:
    """Return a path and the folders that lead to it, the topmost first."""
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _is_free(path: str) -> bool:
    """Return whether there is nothing at a path, or an empty folder."""
    return not os.path.lexists(path) or is_empty(path)


def is_empty(path: str) -> bool:
    """Return whether a path is an empty folder."""
    return os.path.isdir(path) and not os.listdir(path)
