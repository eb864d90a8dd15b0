"""Stdout callback: short output for people.

It prints a heading per play, a line per task that changed something, and each failure once as plain
text. With `-v` everything is shown as Ansible shows it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ansible import constants as C
from ansible.executor.process.worker import WorkerProcess
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.release import __version__ as ansible_version
from ansible.utils.path import cleanup_tmp_file

if TYPE_CHECKING:  # missing in an older Ansible, which is refused below
    from ansible.executor.task_result import CallbackTaskResult

DOCUMENTATION = r"""
name: hearth
type: stdout
short_description: Plain, short output
description:
  - Headings, changes and failures as plain text. With C(-v), Ansible's default output.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in configuration
"""

_CLEAR = "\r\x1b[K"
_WATCHING = {"hearth_follow", "hearth_log"}
_OWN_OUTPUT = {*_WATCHING, "ansible.builtin.pause"}
"""Tasks whose silence means no news, or that wait for a person."""
_ROOT = Path(__file__).resolve().parents[2]

_worker_is_alive = WorkerProcess.is_alive


def _is_alive(worker: WorkerProcess) -> bool:
    """Return whether a worker is alive; one that Ansible has closed is not.

    Ansible's own raises for a closed one: Ctrl-C between two workers then ended in a traceback.
    """
    try:
        return _worker_is_alive(worker)
    except ValueError:
        return False


WorkerProcess.is_alive = _is_alive


def _starts_worker(frame: FrameType | None) -> bool:
    """Return whether this process is just starting one of Ansible's workers."""
    while frame and frame.f_code.co_filename != inspect.getfile(WorkerProcess):
        frame = frame.f_back
    return frame is not None


def _interrupt_again(*_: Any) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # Ansible's tasks with a timeout want it so
    os.kill(os.getpid(), signal.SIGINT)


def goes_on(run: str, state: str, hearth: str) -> str:
    """Return the message for Ctrl-C while a run is being started or followed."""
    name = run or "NAME"
    return (
        f"\n{run or 'The run'} {state} without this terminal.\n"
        f"look again  {hearth} attach {name}\n"
        f"stop it     {hearth} stop {name}"
    )


def refusal(version: str, lock: str, own: bool) -> str:
    """Return the reason why this Ansible cannot be used, or ''.

    Any ansible-playbook that runs in this project loads this callback first. `lock` is the text
    of the controller's lock file, `own` whether Hearth's own packages are beside this Ansible.
    """
    locked = re.search(r"^ansible-core==(\d+\.\d+)", lock, re.MULTILINE)[1]
    if version.startswith(f"{locked}.") and own:
        return ""
    lacks = "" if own else " without Hearth's packages"
    return (
        f"Hearth needs ansible-core {locked} of its own .venv; this is {version}{lacks}. "
        "./scripts/setup makes it, `source .venv/bin/activate` takes it."
    )


def paragraph(label: str, text: str) -> str:
    """Return `label: text` with further lines indented below; without a label, the text."""
    if not label:
        return text
    first, *rest = text.strip().splitlines() or [""]
    return "\n".join([f"{label}: {first}", *(f"    {line}" for line in rest)])


def message_of(result: dict[str, Any]) -> str:
    """Return the message of a failed or unreachable result as plain text."""
    if "censored" in result:
        return "failed; its output is hidden because it may hold secrets"
    # Imported here: an Ansible without this package must first reach its refusal.
    from hearth_controller.inventory.unreachable import describe_failure

    return describe_failure(result) or "failed without saying why; -v shows more"


def grouped(said: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (node, message) pairs; nodes with equal messages are merged."""
    nodes: dict[str, list[str]] = {}
    for node, message in said:
        nodes.setdefault(message, []).append(node)
    return [(_together(names), message) for message, names in nodes.items()]


def _together(names: list[str]) -> str:
    """Return the names as one label, keeping their indentation."""
    first, *rest = sorted(names)
    return ", ".join([first, *(name.strip() for name in rest)])


def _short(method: Callable[..., None]) -> Callable[..., None]:
    """Use `method` without -v, and the method of Ansible's own callback with it."""

    @functools.wraps(method)
    def either(self: CallbackModule, *arguments: Any, **named: Any) -> None:
        if self._display.verbosity:
            getattr(Default, method.__name__)(self, *arguments, **named)
        else:
            method(self, *arguments, **named)

    return either


class CallbackModule(Default):
    """The short output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "hearth"

    def __init__(self) -> None:
        lock = (_ROOT / "requirements" / "control.lock").read_text()
        if refused := refusal(ansible_version, lock, find_spec("hearth") is not None):
            sys.exit(refused)
        super().__init__()
        from hearth.base.entry import reader_has_ended
        from hearth.base.text import folded, plain
        from hearth_controller.base.answer import VARIABLE
        from hearth_controller.base.pulse import Pulse

        self._plain, self._folded = plain, folded
        self._reader_has_ended, self._unread = reader_has_ended, False
        # `hearth` plays much that only looks, where counts of changes say nothing.
        self._counts_nothing = VARIABLE not in os.environ
        # Progress must not wait in a buffer when the output goes to a file or a pipe.
        sys.stdout.reconfigure(line_buffering=True)
        self._live = sys.stdout.isatty()
        self._heading = ""
        self._task_name, self._watches = "", False
        self._pulse = Pulse(self._live)
        self._leave_nothing_when_ended()
        self._lock = threading.RLock()
        self._listen()
        threading.Thread(target=self._beat, daemon=True).start()
        self._changed: list[str] = []
        self._said: list[tuple[str, str]] = []
        self._failed: list[tuple[str, str]] = []
        self._diffs: list[tuple[str, str]] = []
        self._run, self._state, self._hearth = "", "", "hearth"
        self._ansibles: Any = signal.signal(signal.SIGINT, self._interrupted)

    # -- output ----------------------------------------------------------------------------------

    def _say(self, text: str, color: str | None = None) -> None:
        text = self._plain(text)
        if self._live:
            text = self._folded(text, shutil.get_terminal_size().columns)
        self._display.display(text, color=color)

    def _listen(self) -> None:
        """Note all output: this callback's, and what workers hand to Ansible's display."""
        display = self._display.display

        def noting(*arguments: Any, **named: Any) -> None:
            self._pulse.heard()
            if named.get("newline", True):
                self._head()
            try:
                display(*arguments, **named)
            except BrokenPipeError:  # it would end Ansible's thread of results, and the play hang
                if not self._is_unread():
                    raise

        self._display.display = noting

    def _is_unread(self) -> bool:
        """Return whether the reader of the output, such as `head`, has ended."""
        self._unread = self._reader_has_ended() or self._unread
        return self._unread

    def _beat(self) -> None:
        """Give a sign of life while a task is silent; Ansible forks only between two outputs.

        A play whose reader has ended goes on without output, and ends where it would only watch,
        as by Ctrl-C.
        """
        while True:
            time.sleep(1)
            if self._is_unread() and self._watches:
                self._watches = False
                os.kill(os.getpid(), signal.SIGINT)
            with self._lock:
                if self._display.verbosity or not (line := self._pulse.line()):
                    continue
                if self._live:
                    self._passing(f"  {line}")
                else:
                    self._head()
                    self._say(f"  {line}")

    def _passing(self, text: str) -> None:
        """Show the current task until the next line replaces it; on a terminal only."""
        if self._live:
            text = text[: shutil.get_terminal_size().columns - 1]
            self._display.display(_CLEAR + text, newline=False, screen_only=True)

    def _head(self) -> None:
        """Print the heading of the play, once there is output below it."""
        if heading := self._heading:
            self._heading = ""
            self._passing("")
            self._say(f"\n{heading}", C.COLOR_HIGHLIGHT)

    def _flush(self) -> None:
        """Print the output of the task that has just ended."""
        with self._lock:
            self._pulse.begin("")
            self._print()

    def _print(self) -> None:
        self._passing("")
        if self._changed or self._said or self._failed or self._diffs:
            self._head()
        for nodes, diff in grouped(sorted(self._diffs)):
            self._say(f"  {self._task_name}: the difference on {nodes}")
            self._say(textwrap.indent(diff.rstrip(), "    ") + "\n")
        if self._changed:
            nodes = ", ".join(sorted(self._changed))
            self._say(f"  {self._task_name}: changed on {nodes}", C.COLOR_CHANGED)
        for nodes, message in grouped(self._said):
            self._say(paragraph(f"  {nodes}" if nodes else "", message))
        for nodes, message in grouped(self._failed):
            self._say(paragraph(nodes, message), C.COLOR_ERROR)
        self._changed, self._said, self._failed, self._diffs = [], [], [], []

    @staticmethod
    def _label(result: CallbackTaskResult) -> str:
        """Return the host that labels a result, or '' if it is about all hosts."""
        of_all = result.task.run_once or result.result.get("together")
        return "" if of_all else result.host.get_name()

    @staticmethod
    def _leave_nothing_when_ended() -> None:
        """Remove Ansible's temporary folder on SIGTERM, then leave the signal to Ansible.

        Ansible ends itself by the signal, and so never removes the folder.
        """
        ansibles = signal.getsignal(signal.SIGTERM)

        def ended(number: int, frame: Any) -> None:
            cleanup_tmp_file(C.DEFAULT_LOCAL_TMP)
            ansibles(number, frame)

        signal.signal(signal.SIGTERM, ended)

    # -- events from Ansible ---------------------------------------------------------------------

    @_short
    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the heading ready."""
        self._flush()
        self._play = play
        self._run = self._run or str(play.get_variable_manager().extra_vars.get("run", ""))
        mark = " (check mode: nothing is changed)" if play.check_mode else ""
        self._heading = f"{play.get_name().strip()}{mark}"

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Note whether the task only watches; then tell of it."""
        self._watches = task.action in _WATCHING
        if self._display.verbosity:
            super().v2_playbook_on_task_start(task, is_conditional)
        else:
            self._begin(task)

    def _begin(self, task: Any) -> None:
        """Store the task's name; show it while the task runs."""
        self._flush()
        self._task_name = (task.name or task.get_name()).strip()
        self._pulse.begin("" if task.action in _OWN_OUTPUT else self._task_name)
        if "validate_argument_spec" not in task.action:
            self._passing(f"  {self._task_name} …")
        if task.action == "hearth_launch" and task.args.get("stage") == "start":
            self._state = "may have begun on the nodes, where it goes on"
        elif task.action == "hearth_follow":
            self._state = "goes on"
        elif task.action == "hearth_collect":  # the run has ended
            self._state = ""

    def _interrupted(self, number: int, frame: Any) -> None:
        """Say what Ctrl-C has ended and what goes on, then leave the signal to Ansible."""
        if _starts_worker(frame):
            # What Ansible raises there is lost, or ends in a traceback: the signal comes again.
            signal.signal(signal.SIGALRM, _interrupt_again)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return
        state = self._state
        self._say(goes_on(self._run, state, self._hearth) if state else "\ninterrupted")
        self._display.error = lambda *_, **__: None  # Ansible would call it an error
        self._ansibles(number, frame)

    @_short
    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Treat handlers as tasks."""
        self._begin(task)

    @_short
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Note the node as one that the task runs on."""
        self._pulse.enter(host.get_name())

    @_short
    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Record a change, and the task's message."""
        self._pulse.leave(result.host.get_name())
        answer = result.result
        if result.task.action in ("hearth_run", "hearth_runs_show"):
            self._run = answer.get("name", self._run)
        if result.task.action == "hearth_inventory":
            self._hearth = answer.get("hearth", self._hearth)
        self._handle_warnings(answer)
        if answer.get("changed") and not result.task.no_log:
            self._changed.append(result.host.get_name())
        if text := answer.get("say"):
            self._said.append(("", str(text)))
        elif result.task.action in C._ACTION_DEBUG:
            self._said.append(("", textwrap.indent(str(answer.get("msg", "")).rstrip(), "  ")))
        elif note := answer.get("note"):
            self._said.append((result.host.get_name(), str(note)))

    @_short
    def v2_on_file_diff(self, result: CallbackTaskResult) -> None:
        """Record what `--diff` shows of a change."""
        results = result.result.get("results", []) if result.task.loop else [result.result]
        for each in results:
            if each.get("changed") and (diff := self._get_diff(each.get("diff") or [])):
                self._diffs.append((result.host.get_name(), diff))

    @_short
    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Record the message."""
        self._pulse.leave(result.host.get_name())
        self._handle_warnings(result.result)
        if ignore_errors:
            return
        results = result.result.get("results") if result.task.loop else None
        for each in results or [result.result]:
            if each.get("failed", True):
                self._failed.append((self._label(result), message_of(each)))

    @_short
    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Record the reason; if the play continues without the node, it says so itself."""
        self._pulse.leave(result.host.get_name())
        if not result.task.ignore_unreachable:
            message = f"cannot be reached: {message_of(result.result)}"
            self._failed.append((result.host.get_name(), message))

    @_short
    def v2_runner_on_skipped(self, result: CallbackTaskResult) -> None:
        """Say nothing."""
        self._pulse.leave(result.host.get_name())

    @_short
    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Leave it to the task's own result."""

    @_short
    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Leave it to the task's own result."""

    @_short
    def v2_runner_item_on_skipped(self, result: CallbackTaskResult) -> None:
        """Say nothing."""

    @_short
    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Say nothing."""

    @_short
    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say nothing: the inventory check speaks."""

    @_short
    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Say nothing: the failures above do."""

    @_short
    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print a line of counts, unless the play failed: then the failure is the last word."""
        self._flush()
        self._heading = ""
        words = []
        if not (self._counts_nothing or any(stats.changed.values()) or stats.dark):
            return
        for host in sorted(stats.processed.keys() - {"localhost"}):
            gone = " unreachable" if host in stats.dark else ""
            words.append(f"{host} changed={stats.changed.get(host, 0)}{gone}")
        if words and not stats.failures:
            self._say(f"\n{' · '.join(words)}", C.COLOR_OK)
