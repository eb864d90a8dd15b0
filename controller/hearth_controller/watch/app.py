"""`hearth watch`: a run live in a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import DataTable, Footer, ProgressBar, Static

from hearth.base.text import plain
from hearth.record.windows import thinned
from hearth_controller.base.verdict import EXIT
from hearth_controller.watch.chart import AXIS, CURVE, MARK, chart
from hearth_controller.watch.child import Checkout, describe, play
from hearth_controller.watch.dialogs import Help, NodeLog, QuestionDialog
from hearth_controller.watch.feed import Feed
from hearth_controller.watch.rows import (
    GOOD,
    POOR,
    TITLES,
    NodeRow,
    figures,
    happenings,
    headline,
    node_rows,
    step_text,
    wrapped,
)

_STATUS_EVERY = 60.0
"""Seconds between two plays of status.yml, each of which costs this computer 3 s of a core."""

_MOST_EVENTS = 200
"""Number of events to show; a long run has thousands of checkpoints."""

_MARGIN = 4
"""Columns beside the text of a run that ended: spaces, and the scroll bar."""

_LENDING = {
    "n": ("off", "keep it for its owner; a run leaves it after its step"),
    "y": ("on", "lend it, whatever its terms in the inventory say"),
    "a": ("auto", "lend it by its terms"),
}
"""Choice and its meaning by key."""

_STYLES = {CURVE: "blue", MARK: "bold magenta", AXIS: "dim"}


class Curve(Widget):
    """The loss over the steps: a curve for training, marks for held-out data."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(id="curve")
        self._feed = feed

    def render(self) -> Text:
        """Return the curve in the size that there is."""
        story = self._feed.view.story
        windows = thinned(story.windows, 4 * max(self.size.width, 1))
        curve = [(each.step, each.loss) for each in windows if each.loss is not None]
        marks = [(each.step, each.loss) for each in story.evaluations if each.loss is not None]
        lines = chart(curve, marks, *self.size)
        if not lines:
            return Text("no step is on record yet", "dim")
        drawn = [[(piece.text, _STYLES[piece.kind]) for piece in line] for line in lines]
        return Text("\n").join(Text.assemble(*line) for line in drawn)


class WatchApp(App[str]):
    """The run of `feed`; its result is what to print when the terminal is free again."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-narrow"), (110, "-wide")]
    BINDINGS: ClassVar = [
        Binding("q", "leave", "leave"),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        Binding("s", "stop", "stop"),
        Binding("l", "log", "log of the node"),
        Binding("o", "lend", "lend the node"),
        Binding("question_mark", "help", "help", key_display="?"),
    ]

    def __init__(
        self,
        checkout: Checkout,
        run: str,
    ) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.feed = Feed(checkout, run, self._note)
        self.status: Mapping[str, Any] = {}
        self._checkout, self._dirty = checkout, True
        self._tasks: set[asyncio.Task[Any]] = set()

    def compose(self) -> ComposeResult:
        """Lay the parts out from top to bottom."""
        yield Static(id="title")
        with Horizontal(id="progress"):
            yield ProgressBar(total=None, show_eta=False, show_percentage=False)
            yield Static(id="steps")
        yield Static(id="figures")
        yield DataTable(id="nodes", cursor_type="row", zebra_stripes=False)
        with Container(id="below"):
            yield Curve(self.feed)
            with VerticalScroll(id="events"):
                yield Static(id="happened")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one(DataTable).add_columns(*((title, title) for title in TITLES))
        self.query_one("#curve").border_title = "loss · ● held out"
        self._begin(self._follow())
        self._begin(self._watch_status())
        self.set_interval(0.5, self._show)

    def on_resize(self) -> None:
        """Lay out anew what depends on the width."""
        self._note()

    async def on_unmount(self) -> None:
        """End the plays."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin work in the background, which ends with the app."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- data ------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Note that there is something new to show."""
        self._dirty = True

    async def _follow(self) -> None:
        """Follow the run to its end; leave if there is none to follow."""
        await self.feed.follow()
        outcomes = self.feed.view.outcomes.values()
        if all(outcome["state"] == "unknown" for outcome in outcomes):
            self.exit(describe(self.feed.answer), return_code=EXIT[self.feed.answer.verdict])

    async def _watch_status(self) -> None:
        """Keep the status of the nodes, as long as the run is under way."""
        while not self.feed.view.outcomes:
            answer = await play(self._checkout, "status", {})
            self.status = answer.facts or self.status
            self._note()
            await asyncio.sleep(_STATUS_EVERY)

    # -- screen ----------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show the run as it is now; times of silence change by themselves."""
        if len(self.screen_stack) > 1:
            return
        view, now = self.feed.view, time.monotonic()
        health = {node["name"]: node for node in self.status.get("nodes", [])}
        self._show_nodes(node_rows(view, health, now))
        if not self._dirty:
            return
        self._dirty = False
        runs = {run["name"]: run for run in self.status.get("runs", [])}
        model = runs.get(view.run, {}).get("model")
        title = [(view.run or "hearth watch", "bold"), *([(f" · {model}", "")] if model else [])]
        state = (headline(view), _state_style(view.state))
        self.query_one("#title", Static).update(Text.assemble(*title, " · ", state))
        story = view.leader.story
        self.query_one(ProgressBar).update(total=story.steps or None, progress=story.step)
        self.query_one("#steps", Static).update(Text(step_text(view) or self.feed.last_line))
        self.query_one("#figures", Static).update(Text(" · ".join(figures(view))))
        self.query_one("#happened", Static).update(self._events())
        ended = self.feed.answer is not None
        self.screen.set_class(ended, "-ended")
        self.query_one("#events").border_title = "how it ended" if ended else "what happened"
        self.query_one("#curve").refresh()

    def _show_nodes(self, rows: Sequence[NodeRow]) -> None:
        """Show the nodes; the chosen one stays chosen."""
        table = self.query_one("#nodes", DataTable)
        if [key.value for key in table.rows] != [row.name for row in rows]:
            table.clear()
            for row in rows:
                table.add_row(*[""] * len(TITLES), key=row.name)
        for row in rows:
            style = "red" if row.silent or row.state in POOR else ""
            state = "green" if row.state in GOOD and not style else style
            cells = [Text(plain(row.name), "bold"), *map(Text, row.cells)]
            cells[2].stylize(state)
            cells[-1].stylize("red" if row.silent else "")
            for title, cell in zip(TITLES, cells, strict=True):
                if table.get_cell(row.name, title) != cell:
                    table.update_cell(row.name, title, cell, update_width=True)

    def _events(self) -> Text:
        """Return the events, newest first, below the closing text of a run that ended."""
        story = self.feed.view.story
        width = self.size.width - _MARGIN
        closing = describe(self.feed.answer).splitlines() if self.feed.answer else []
        lines = [Text(line) for line in wrapped(closing, width)]
        lines += [
            Text.assemble((f"{time} ", "dim"), (text, "red" if alarm else ""))
            for time, text, alarm in happenings(story)[:_MOST_EVENTS]
        ]
        return Text("\n").join(lines)

    # -- keys ------------------------------------------------------------------------------------

    def action_leave(self) -> None:
        """Leave; the training continues."""
        view = self.feed.view
        on = bool(view.run and not view.outcomes)
        answer = self.feed.answer
        text = f"{view.run} continues; look again: hearth watch {view.run}" if on else ""
        self.exit(text, return_code=EXIT[answer.verdict] if answer else 0)

    def action_help(self) -> None:
        """Explain the keys and columns."""
        self.push_screen(Help())

    def action_log(self) -> None:
        """Show the log of the chosen node."""
        if node := self._chosen():
            self.push_screen(NodeLog(self._begin_play, self.feed.view.run, node))

    @work
    async def action_stop(self) -> None:
        """Stop the run, if that is confirmed."""
        run = self.feed.view.run
        if not run or self.feed.view.outcomes:
            self.notify("no run is under way here")
            return
        question = f"Stop {run}? It ends after its step, with a checkpoint."
        answers = {"y": "stop it; a second stop ends it at once"}
        if await self.push_screen_wait(QuestionDialog(question, answers)):
            await self._play("stop", {"run": run, "wait": "off"})

    @work
    async def action_lend(self) -> None:
        """Lend the chosen node, or keep it for its owner."""
        if not (node := self._chosen()):
            return
        answers = {key: f"{choice}: {meaning}" for key, (choice, meaning) in _LENDING.items()}
        if key := await self.push_screen_wait(QuestionDialog(f"Lend {node} to runs?", answers)):
            await self._play("lend", {"nodes": node, "lend": _LENDING[key][0]})

    def _begin_play(
        self, playbook: str, words: Mapping[str, str], say: Callable[[str], object]
    ) -> asyncio.Task[Any]:
        """Begin a play in the background."""
        return self._begin(play(self._checkout, playbook, words, say))

    async def _play(self, playbook: str, words: Mapping[str, str]) -> None:
        """Play a playbook and show its output."""
        self.notify(f"{playbook}: asking the nodes …")
        answer = await play(self._checkout, playbook, words)
        severity = "error" if answer.errors else "information"
        self.notify(describe(answer), severity=severity, timeout=15, markup=False)

    def _chosen(self) -> str:
        """Return the name of the chosen node, '' without one."""
        table = self.query_one("#nodes", DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)


def _state_style(state: str) -> str:
    """Return the style of the state of a run."""
    if state in ("failed", "lost"):
        return "bold red"
    return "bold green" if state in ("running", "finished") else "bold"
