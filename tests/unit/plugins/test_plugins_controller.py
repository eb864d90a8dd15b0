"""The plugins' decisions on the controller: `-e`, findings, progress, closing words."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
from io import BytesIO

import pytest
from ansible.parsing.dataloader import DataLoader
from hypothesis import given
from hypothesis import strategies as st
from support import programs
from support.facts import assert_names
from support.metric_lines import story_of
from support.plugins import PLUGINS, load
from support.repository import ROOT
from support.waiting import HANG, until

from hearth.base.text import duration
from hearth.diagnose.catalogue import entries
from hearth_controller.base.paths import as_typed, hearth_command
from hearth_controller.base.screen import Screen
from hearth_controller.runs import collect
from hearth_controller.runs.outcome import Outcome, with_diagnosis
from hearth_controller.runs.summary import paragraph, script_or_model, summary, table
from hearth_controller.supply.archive import pack
from hearth_controller.supply.code import code_files
from hearth_controller.watch.log import shown

run = load("action", "hearth_run")
callback = load("callback", "hearth")


# -- what is typed after -e ------------------------------------------------------------------------


def test_typed_variables_are_plain_and_train_adds_up(tmp_path):
    file = tmp_path / "more.yml"
    file.write_text("train: {seed: 3}\nwait: false\n")
    words = ["model=tiny max_steps=5", '{"train": {"lora_rank": 4, "seed": 1}}', f"@{file}"]
    typed = run.typed_variables(words, DataLoader())
    train = {"lora_rank": 4, "seed": 3}
    assert typed == {"model": "tiny", "max_steps": "5", "train": train, "wait": False}
    assert all(type(value) in (str, dict, bool) for value in typed.values())


# -- progress --------------------------------------------------------------------------------------


class Page:
    """Stands in for Ansible's Display."""

    def __init__(self):
        self.text = ""

    def display(self, text, newline=True, **_):
        self.text += text + ("\n" if newline else "")


def test_without_a_terminal_a_line_comes_at_each_tenth():
    page = Page()
    screen = Screen(page, live=False)
    for step in range(1, 101):
        screen.progress(f"step \x1b[2J{step}", step // 10)
    lines = page.text.split("\n")
    assert [line.strip() for line in lines[:3]] == ["step 1", "step 10", "step 20"]
    assert "\r" not in page.text


def test_on_a_terminal_one_line_is_drawn_over():
    page = Page()
    screen = Screen(page, live=True)
    for step in (1, 2):
        screen.progress(f"step {step}")
    screen.end()
    assert "\n" not in page.text
    assert page.text.count("\r") == 3


@pytest.mark.parametrize("live", [False, True])
def test_progress_that_stays_the_same_gives_a_sign_of_life_within_15_seconds(monkeypatch, live):
    """Also of a text that was not shown, since another had been shown just before."""
    now = [100.0]
    monkeypatch.setattr("hearth_controller.base.screen.time.monotonic", lambda: now[0])
    page = Page()
    screen = Screen(page, live=live)
    screen.still()
    assert page.text == ""
    screen.progress("all nodes are ready")
    now[0] += 3
    screen.progress("held-out evaluation")
    at, page.text = [], ""
    for _ in range(60):
        now[0] += 1
        screen.still()
        if page.text:
            how_long = [duration(now[0] - 103)] if live or at else []  # unless it is shown first
            at.append(now[0])
            assert_names(page.text, "held-out evaluation", *how_long)
            page.text = ""
    assert max(later - sooner for sooner, later in itertools.pairwise([103, *at, 163])) <= 15


def test_durations():
    shown = [duration(seconds) for seconds in (0.4, 59.6, 200, 3600, 7500)]
    assert shown == ["0 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 5 min"]


# -- the closing words -----------------------------------------------------------------------------

TOLD = [
    {"kind": "start", "steps": 60, "time": "2026-11-26T21:00:00+00:00"},
    {"kind": "evaluate", "when": "before", "perplexity": 40.0},
    {"kind": "sample", "when": "before", "question": "Why =eth0?", "answer": "I\n\x1b[31m dunno"},
    {"kind": "step", "step": 60, "steps": 60},
    {"kind": "checkpoint", "step": 50},
    {"kind": "evaluate", "when": "after", "perplexity": 10.0},
    {"kind": "sample", "when": "after", "question": "Why =eth0?", "answer": "It is a prefix."},
    {"kind": "end", "step": 60, "time": "2026-11-26T21:02:05+00:00"},
]
FINISHED = {"desk": {"state": "finished"}, "lap": {"state": "finished"}}
OUT = {"state": "failed", "cause": {"node": "lap", "message": "out of memory"}}
FAILED = {"desk": OUT, "lap": OUT}
FILES = ("adapter", "model", "best", "metrics.jsonl", "logs", "report.html")


def closing(lines, ends, files=FILES, hearth="hearth", model="tiny"):
    name, story = shlex.quote(model), story_of(*lines)
    return summary("r1", name, story, Outcome(ends, hearth), "runs/r1", files)


def test_the_command_for_the_same_inventory_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = [str(tmp_path / "inventory" / "my home"), "/etc/it's", "one,two,"]
    typed = shlex.split(hearth_command(sources, []))
    assert (typed[0], typed[1::2]) == ("hearth", ["-i"] * 3)
    assert typed[2::2] == ["inventory/my home", "/etc/it's", "one,two,"]
    assert hearth_command(sources, sources) == "hearth"


@given(st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1))
def test_a_path_as_typed_is_one_word_of_a_shell_and_leads_there(name):
    (typed,) = shlex.split(as_typed(os.path.abspath(name)))
    assert os.path.abspath(typed) == os.path.abspath(name)


def test_the_summary_names_a_model_so_that_it_can_be_pasted():
    text = closing(TOLD, FINISHED, model="/models/My Model")
    line = next(line for line in text.splitlines() if "your own data" in line)
    assert shlex.split(line)[-5:] == [
        *("hearth", "train", "/models/My Model", "--dataset", "FILE.jsonl")
    ]


@pytest.mark.parametrize(
    ("loss", "perplexity", "shown"),
    [(3.9, 49.4, "49.40"), (None, 50.0, "50.00"), (None, None, "infinity")],
)
def test_a_run_that_got_worse_says_so_first_and_what_to_change(loss, perplexity, shown):
    after = {"kind": "evaluate", "when": "after", "perplexity": perplexity, "loss": loss}
    before = {**TOLD[1], "loss": 3.69}
    lines = [*TOLD[:1], before, *TOLD[2:5], after, *TOLD[6:]]
    text = closing(lines, FINISHED)
    first, rest = text.split("r1 finished", 1)
    assert_names(first, "WORSE", "40.00", shown, "learning_rate", "epochs")
    assert_names(rest, "60 of 60")
    assert "WORSE" not in closing(TOLD, FINISHED)


def test_the_summary_of_a_finished_run():
    text = closing(TOLD, FINISHED)
    assert_names(text.splitlines()[0], "r1 finished", "60 of 60", "desk, lap", "2 min 5 s")
    assert_names(text, "40.00 → 10.00  (-75%)", "I [31m dunno", TOLD[6]["answer"])
    assert_names(text, *(f"runs/r1/{name}" for name in FILES))
    assert "\x1b" not in text
    assert_names(text, "hearth resume r1 --max-steps 120", "hearth train tiny")


def test_the_summary_of_a_failed_run_names_the_log_and_how_to_go_on():
    text = closing(TOLD[:5], FAILED, files=("logs",), hearth="hearth -i x")
    assert_names(text.splitlines()[0], "r1 failed", "60 of 60")
    assert_names(text, "less runs/r1/logs/lap.log", "hearth -i x resume r1")
    assert not any(name in text for name in ("adapter", "model", "best", "report"))


SILENT = {"state": "lost", "message": "no answer"}


@pytest.mark.parametrize(
    ("lines", "ends", "begins"),
    [
        ([], {"desk": {"state": "lost", "gone": True, "rank": 0}}, "r1 failed: before its first"),
        # Rank 0's record is out of reach: nobody can say that it has done nothing.
        ([], FAILED | {"desk": SILENT}, "r1 failed: how far"),
        (TOLD, {"desk": {"state": "finished"}, "lap": SILENT}, "r1 finished: 60 of 60"),
        (TOLD[:5], {"desk": {"state": "stopped"}}, "r1 was stopped: 60 of 60"),
    ],
)
def test_how_a_run_ended_is_the_first_word_of_its_summary(lines, ends, begins):
    assert closing(lines, ends, files=()).startswith(begins)


def test_a_run_of_which_no_node_answers_may_still_be_under_way():
    ends = dict.fromkeys(("desk", "lap"), SILENT)
    text = closing(TOLD[:5], ends, files=("logs",), hearth="hearth -i x")
    assert_names(text.splitlines()[0], "r1", "lost", "60 of 60")
    assert_names(text, "hearth -i x attach r1")
    assert "resume" not in text and "what happened" not in text
    assert Outcome(ends).culprits == {"desk": "no answer", "lap": "no answer"}


@given(st.text(max_size=800))
def test_whatever_a_model_says_it_is_a_few_printable_lines(text):
    lines = paragraph(text)
    assert 1 <= len(lines) <= 4
    assert all(len(line) <= 76 and line.isprintable() for line in lines)


def test_a_long_answer_is_set_below_itself():
    assert table([("after", ["The cure is", "to wait."]), ("adapter", "runs/a")]) == [
        "  after    The cure is",
        "           to wait.",
        "  adapter  runs/a",
    ]


# -- who failed ------------------------------------------------------------------------------------


LOST_LAP = {"cause": {"node": "lap", "message": "no sign of life for 15 s"}, "state": "failed"}


@pytest.mark.parametrize(
    ("ends", "blamed", "silent"),
    [
        (FAILED, {"lap": "out of memory"}, {}),
        ({"desk": LOST_LAP, "lap": SILENT}, {"lap": LOST_LAP["cause"]["message"]}, {}),
        ({"desk": {"state": "unknown"}, "lap": SILENT}, {"lap": "no answer"}, {}),
        ({"desk": {"state": "finished"}, "lap": SILENT}, {}, {"lap": "no answer"}),
        (FINISHED | {"x": {"state": "stopped"}}, {}, {}),
    ],
)
def test_only_the_node_that_failed_is_blamed_and_one_not_seen_to_the_end_is_named(
    ends, blamed, silent
):
    assert blamed.items() <= Outcome(ends).culprits.items()
    assert bool(Outcome(ends).culprits) == bool(blamed)
    assert Outcome(ends).silent == silent
    assert ("lap: no answer" in closing([], ends)) == bool(silent)


@pytest.mark.parametrize("kind", ["not_ready", "node_lost"])
@pytest.mark.parametrize("generation", [0, 1])
def test_a_node_that_came_back_and_found_nobody_does_not_make_a_run_fail(kind, generation):
    alone = {"node": "desk", "kind": kind, "message": "desk did not answer"}
    ends = {
        "desk": {"state": "finished", "generation": 1},
        "lap": {"state": "failed", "generation": generation, "cause": alone},
    }
    assert closing(TOLD, ends).startswith("r1 finished")
    assert Outcome(ends).culprits == {}
    assert Outcome(ends).silent == {"lap": "desk did not answer"}
    # Where it is all that is known, it counts.
    assert Outcome({"lap": ends["lap"], "desk": {"state": "lost"}}).culprits["desk"]


KILLED = "rank 1 was killed by signal 9 (SIGKILL)"
KERNEL = "hearth: 2026-11-20T07:10:10Z kernel: Out of memory: Killed process 4242 (python3)"


@pytest.mark.parametrize(
    ("error", "log", "entry"),
    [
        ("OSError: [Errno 28] No space left on device", "", "disk-full"),
        (KILLED, KERNEL, "killed-for-memory"),
        ("ValueError: odd", "", None),
    ],
)
def test_the_error_of_a_rank_is_shown_as_it_is_with_its_cause_and_its_cure(error, log, entry):
    said, cause, *cure = with_diagnosis(error, log, True).split("\n")
    assert said == error
    if entry is None:
        assert cause.startswith("cause: ") and not cure
    else:
        (known,) = (each for each in entries() if each.id == entry)
        assert (cause, *cure) == (f"cause: {known.cause}", f"cure: {known.cure}")


def test_what_hearth_says_itself_is_left_as_it_is():
    own = "the download failed (429 Client Error: Too Many Requests); try again"
    assert with_diagnosis(own, f"hearth: error: {own}\n", True) == own
    assert "\ncause: " in with_diagnosis(own, "", True)
    assert with_diagnosis("desk: its folder cannot be made", "", False).count("\n") == 0


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", ""])
def test_a_node_cannot_write_outside_the_folder(name):
    assert not collect.safe(name)


@pytest.mark.parametrize(
    "line, text",
    [
        ("step 1/34  loss 3.1", "step 1/34  loss 3.1"),
        ("  indented\tand so on  ", "  indented      and so on"),
        ("loading:  10%\rloading: 100%\r", "loading: 100%"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07and\x07 \x1b[2Jclear", "red and clear"),
    ],
)
def test_a_line_of_a_log_has_nothing_for_the_terminal_to_obey(line, text):
    assert shown(line) == text


def test_an_equal_folder_is_left_as_it_is(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for side in (one, two):
        (side / "deep").mkdir(parents=True)
        (side / "deep" / "file").write_text("same")
    assert not collect.put(one, two)
    (one / "deep" / "file").write_text("other")
    assert collect.put(one, two)
    assert (two / "deep" / "file").read_text() == "other"


def test_a_copy_of_a_record_takes_the_place_of_a_shorter_one_only(tmp_path):
    here = tmp_path / "metrics.jsonl"
    for text, kept in (("1\n2\n", "1\n2\n"), ("1\n", "1\n2\n"), ("1\n2\n3\n", "1\n2\n3\n")):
        (tmp_path / "fresh").write_text(text)
        collect.put(tmp_path / "fresh", here, fuller=True)
        assert here.read_text() == kept


def test_what_an_interrupted_collecting_left_goes_and_what_another_is_at_stays(tmp_path, start):
    over = start("pass")
    over.wait()
    for process in (over.pid, os.getpid()):
        (tmp_path / f".coming-{process}-x").mkdir()
        (tmp_path / f".coming-{process}-x" / "model").write_text("half")
    collect.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".coming-{os.getpid()}-x"]


def test_a_run_that_nobody_has_begun_is_forgotten_and_what_else_its_folder_holds_is_not(tmp_path):
    folder = tmp_path / "runs" / "night"
    assert [collect.keep(folder, text) for text in ("a", "a", "b")] == [True, False, True]
    assert (folder / "run.yml").read_text() == "b"
    assert [collect.forget(folder) for _ in range(2)] == [True, False]
    assert not folder.exists()
    collect.keep(folder, "a")
    (folder / "adapter").touch()
    assert collect.forget(folder)
    assert [path.name for path in folder.iterdir()] == ["adapter"]


def test_a_run_file_that_cannot_be_read_hides_no_end(tmp_path):
    file = tmp_path / "run.yml"
    for text in ("run: [", "hearth: 1\nunheard_of: 2\n"):
        file.write_text(text)
        assert script_or_model(file) == (None, "MODEL")


def test_the_archive_is_the_same_bytes_each_time_and_leaves_out_what_no_node_needs(tmp_path):
    (tmp_path / "hearth" / "__pycache__").mkdir(parents=True)
    for name, mode in (("hearth/__pycache__/x.pyc", 0o600), ("hearth/a.py", 0o600), ("go", 0o700)):
        (tmp_path / name).touch(mode)
    files = code_files(tmp_path)
    packed, again = BytesIO(), BytesIO()
    pack(tmp_path, files, packed)
    (tmp_path / "hearth" / "a.py").touch()
    pack(tmp_path, files, again)
    assert again.getvalue() == packed.getvalue()
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        assert [(each.name, each.mode) for each in tar] == [("go", 0o755), ("hearth/a.py", 0o644)]


LOCK = "ansible==12.3.0 \\\n    --hash=x\nansible-core==2.19.14 \\\n    --hash=y\n"


def test_the_locked_ansible_is_used_and_any_other_is_refused_in_a_line():
    assert callback.refusal("2.19.2", LOCK, True) == ""
    for version in ("2.17.14", "2.1.9", "2.20.0", "2.190.0"):
        said = callback.refusal(version, LOCK, True)
        assert_names(said, "needs ansible-core 2.19", f"is {version}", "source .venv/bin/activate")
        assert "\n" not in said
    assert callback.refusal("2.19.2", LOCK, False)


def test_an_ansible_of_another_version_ends_before_the_first_play(tmp_path):
    """The version is faked for this one process."""
    (tmp_path / "sitecustomize.py").write_text(
        "import ansible.release\nansible.release.__version__ = '2.16.3'\n"
    )
    words = (sys.executable, "-m", "ansible", "playbook", "playbooks/inventory.yml")
    done = programs.run(*words, cwd=PLUGINS.parent, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert_names(line, "ansible-core", "2.16.3")


# -- the screen ------------------------------------------------------------------------------------


def test_failures_are_text_and_nodes_that_say_the_same_share_it():
    said = [("b", "no space\nleft"), ("a", "no space\nleft"), ("c", "other")]
    texts = [callback.paragraph(*each) for each in callback.grouped(said)]
    assert texts == ["a, b: no space\n    left", "c: other"]


def test_a_result_without_a_message_says_why_it_has_none():
    assert callback.message_of({"msg": "Task failed: no such file"}) == "no such file"
    assert "secrets" in callback.message_of({"censored": "the output has been hidden"})
    assert "why" in callback.message_of({})


def play(name: str, *tasks: dict) -> dict:
    return {"name": name, "hosts": "all", "gather_facts": False, "tasks": list(tasks)}


def test_what_comes_of_a_task_stands_under_its_play(tmp_path):
    """Two nodes that are this computer; a task of each play changes something or says something."""
    plugin = tmp_path / "action_plugins" / "light.py"
    plugin.parent.mkdir()
    plugin.write_text(
        "from ansible.plugins.action import ActionBase\n"
        "from ansible.utils.display import Display\n"
        "class ActionModule(ActionBase):\n"
        "    def run(self, tmp=None, task_vars=None):\n"
        "        Display().display('lamp 1 of 2')\n"
        "        return {}\n"
    )
    node, empty = "{{ inventory_hostname }}", play("Nothing to say")
    copy = {"content": f"lamp of {node}\n", "dest": f"{tmp_path}/{node}", "mode": "0644"}
    settings, light = play("Settings", {"copy": copy}), play("Light", {"light": {}})
    colours = play("Colours", {"debug": {"msg": "\x1b]0;title\x07a \x1b[31mred\x1b[0m lamp\x08"}})
    plays = [empty, settings, empty, light, empty, colours]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    words = (sys.executable, "-m", "ansible", "playbook", "--connection", "local", "--diff")
    interpreter = f"ansible_python_interpreter={sys.executable}"
    more = ("--extra-vars", interpreter, "--inventory", "desk,laptop,", tmp_path / "play.yml")
    done = programs.run(*words, *more, cwd=PLUGINS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    desk, laptop = ("on desk", "lamp of desk"), ("on laptop", "lamp of laptop")
    said = ("Settings", *desk, *laptop, "Light", "lamp 1 of 2", "a red lamp\n", "changed=1")
    places = [done.stdout.index(part) for part in said]
    assert places == sorted(places)
    assert "Nothing to say" not in done.stdout
    assert not {*done.stdout} & {*"\x1b\x07\x08"}, "a task's words command no terminal"


# -- a play that is ended --------------------------------------------------------------------------


def test_a_play_that_is_ended_by_a_signal_leaves_no_temporary_files(tmp_path):
    """Nor does a process on this computer, such as the one that measures."""
    home, began = tmp_path / "home", tmp_path / "began"
    (tmp_path / "ws/scripts/hearth").mkdir(parents=True)
    home.mkdir()
    programs.stand_in(tmp_path / "python", f"touch {began}\nexec sleep {HANG}")
    task = {"command": ["hearth.node", "prepare"], "run_file": "run: r", "spec": {}, "node": "a"}
    task |= {"workspace": f"{tmp_path}/ws", "python": f"{tmp_path}/python"}
    book = tmp_path / "play.yml"
    book.write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [{"hearth_command": task}]}])
    )
    words = ["-i", "desk,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    play = subprocess.Popen(
        ["ansible-playbook", *words, book],
        cwd=ROOT,
        env=os.environ | {"HOME": str(home), "TMPDIR": str(home)},
        stdin=subprocess.DEVNULL,
    )
    until(began.exists)
    assert list(home.rglob("run-file"))
    play.terminate()
    assert play.wait(HANG) == -signal.SIGTERM
    until(lambda: not [path for path in home.rglob("*") if path.is_file()])
