"""The `hearth` command with real plays on the local inventory, typed in another folder."""

from __future__ import annotations

import json
import shutil
from contextlib import closing

import pytest
from support.facts import assert_names
from support.local_cluster import NODES, TINY, LocalCluster

from hearth.config import shown

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.rotated("the hearth command")]
FLAGS = [f"--{name.replace('_', '-')}={shown(value)}" for name, value in TINY.items()]


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data):
    with closing(LocalCluster(tmp_path_factory.mktemp("command"), tiny_model, tiny_data)) as local:
        shutil.copy(tiny_data, local.folder / "mine.jsonl")
        yield local


@pytest.fixture(scope="module")
def trained(home):
    """Output of `hearth train --json` for a file that is named as it is seen there."""
    data = ("--dataset", "mine.jsonl", "--max-steps", 3, "--run", "first")
    done = home.hearth("train", home.model, *data, *FLAGS, "--json")
    assert done.returncode == 0
    return done


def test_a_run_answers_programs_and_shows_people_what_happens_aside(home, trained):
    answer = json.loads(trained.stdout)
    assert (answer["verdict"], answer["run"], answer["state"]) == ("good", "first", "finished")
    assert (answer["step"], answer["steps"], answer["nodes"]) == (3, 3, list(NODES))
    assert answer["folder"] == str(home.runs / "first")
    assert answer["perplexity"].keys() == {"before", "after"}
    assert_names(trained.stderr, "first finished: 3 of 3 steps", "hearth chat first")


def test_a_run_is_known_to_the_verbs_that_look_at_it(home, trained):
    done = home.hearth("runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert_names(done.stdout, "first", "finished", "3 of 3")
    logs = json.loads(home.hearth("logs", "--lines", 3, "--json").stdout)
    assert logs["run"] == "first"
    assert {node: len(lines) for node, lines in logs["logs"].items()} == dict.fromkeys(NODES, 3)
    chat = json.loads(home.hearth("chat", "--json").stdout)
    assert_names(chat["command"], home.workspace(chat["node"]), "first")


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        (["train", "MODEL", "--learning-rate", "-1"], ["learning_rate", "greater than 0"]),
        (["logs", "nosuch"], ["nosuch", "there are first"]),
        (["lend", "off", "--nodes", "tower"], ["tower", "desk, laptop"]),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_done(home, trained, typed, facts):
    words = [home.model if word == "MODEL" else word for word in typed]
    done = home.hearth(*words)
    assert done.returncode == 2
    assert_names(done.stdout + done.stderr, *facts)
    assert [path.name for path in home.runs.iterdir()] == ["first"]
