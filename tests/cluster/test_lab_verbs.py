"""A run's life by its verbs, on two machines of the lab. Tests of one story build on each other.

What the verbs say of every turn a run can take is held in test_verbs.py, on this computer alone.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_line
from support.lab import READY, Controller, as_root, at_home, bring, lab
from support.runs import (
    cluster,
    end,
    newest,
    ranks,
    record,
    start,
    units,
    until_state,
    until_step,
    until_together,
)
from support.waiting import until

from hearth.base.places import MANIFEST
from hearth.model.folder import take_stock
from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long]

CARDS = {node.name: node.card for node in plan.nodes(2)}
NODES = tuple(CARDS)
RUN = "evening"
SCRIPTS = Path(__file__).resolve().parents[1] / "fixtures" / "scripts"


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    """A controller, and two machines."""
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as controller:
        yield controller


@pytest.fixture(scope="module")
def evening(home) -> Iterator[Controller]:
    """The same, with a run under way."""
    start(home, RUN, max_steps=100_000, checkpoint_every=5)
    until_step(RUN, 6)
    yield home
    end(NODES, [RUN])


def verb(controller: Controller, name: str, *options: str) -> str:
    """Play the playbook of a verb; return what the screen showed."""
    words = [word for option in options for word in ("-e", option)]
    return controller.play(f"playbooks/{name}.yml", *READY, *words)


def status_of(controller: Controller, status: int = 0) -> dict:
    """Return the JSON of hearth status, which ends with this exit status."""
    done = controller.hearth("status", "--json", "-i", controller.inventory, *READY)
    assert done.returncode == status
    return json.loads(done.stdout)


@pytest.mark.rotated("verbs on machines")
def test_status_tells_of_the_run_and_of_each_machine(evening):
    said = status_of(evening)
    (run,) = said["runs"]
    assert (run["name"], run["state"]) == (RUN, "running")
    assert run["step"] > 5
    assert run["tokens_per_second"] > 0
    assert [part["state"] for part in run["nodes"]] == ["running", "running"]
    for node in said["nodes"]:
        card = CARDS[node["name"]]  # and not one of the decoys
        assert node["network"]["interface"] == card
        assert node["network"]["received"] > 0
        assert node["run"] == RUN
        command = f"tr '\\0' '\\n' </proc/{max(ranks(node['name']))}/environ"
        assert f"GLOO_SOCKET_IFNAME={card}" in at_home(node["name"], command).splitlines()


@pytest.mark.rotated("verbs on machines")
def test_a_machine_that_is_cut_off_is_told_from_the_run_which_goes_on(evening):
    lab("cut", "laptop")
    try:
        alone = until_together(RUN, newest("tower", RUN), ["tower"], NODES)
        said = status_of(evening, status=1)
        assert said["runs"][0]["state"] == "running"
        assert said["runs"][0]["step"] >= alone["step"]
        assert [node["answers"] for node in said["nodes"]] == [True, False]
    finally:
        lab("join", "laptop")
    until_together(RUN, alone["step"], NODES, NODES)


@pytest.mark.rotated("verbs on machines")
def test_the_verbs_answer_with_the_first_machine_off(evening):
    """Of two machines the second alone waits: it cannot know that the first does not train."""
    lab("cut", "tower")
    try:
        until_state("waiting", RUN, ["laptop"])
        said = status_of(evening, status=1)
        assert said["runs"][0]["state"] == "waiting"
        assert said["runs"][0]["step"] > 5
        assert [node["answers"] for node in said["nodes"]] == [False, True]
        assert_line(verb(evening, "logs", f"run={RUN}"), "waiting", "tower")
        reached = newest("tower", RUN)
    finally:
        lab("join", "tower")
    until_together(RUN, reached, NODES, NODES)


@pytest.mark.rotated("verbs on machines")
def test_the_curves_are_seen_through_the_tunnel_that_is_named(evening):
    verb(evening, "provision/ssh")  # until then there is a password, which the tunnel would ask for
    screen = verb(evening, "dashboard", "port=16006")
    assert_line(screen, RUN, "tower", "process")
    command = re.search(r"^ +tunnel +(ssh .+)$", screen, re.MULTILINE)[1]
    tunnel = subprocess.Popen(shlex.split(command), cwd=evening.checkout, env=evening.environment)
    try:
        page = "http://127.0.0.1:16006/"
        until(lambda: b"TensorBoard" in urllib.request.urlopen(page, timeout=10).read())
    finally:
        tunnel.terminate()
        tunnel.wait(10)
    verb(evening, "dashboard", "serve=off")
    assert at_home("tower", "pgrep -f '[t]ensorboard.main' || echo none") == "none"


@pytest.mark.rotated("verbs on machines")
def test_a_run_that_is_stopped_has_a_checkpoint_on_each_machine_and_a_report_here(evening):
    screen = verb(evening, "stop")
    assert f"{RUN} was stopped: " in screen
    step = [line for line in evening.metrics(RUN) if line["kind"] == "end"][-1]["step"]
    for node in NODES:
        kept = at_home(node, f"ls ai-cluster/checkpoints/{RUN}").split()
        assert f"step-{step:08d}" in kept
        until(lambda node=node: units(node) == "")
    assert (evening.runs / RUN / "report.html").exists()


@pytest.mark.rotated("verbs on machines")
def test_it_goes_on_and_is_attached_to_until_it_has_finished(evening):
    step = [line for line in evening.metrics(RUN) if line["kind"] == "end"][-1]["step"]
    verb(evening, "resume", f"max_steps={step + 40}", "wait=off")
    screen = verb(evening, "attach", f"run={RUN}")
    assert f"{RUN} finished: " in screen
    steps = [line["step"] for line in evening.metrics(RUN) if line["kind"] == "step"]
    assert steps == list(range(1, step + 41))
    assert {record(node, RUN)["state"] for node in NODES} == {"finished"}


@pytest.mark.rotated("launches on machines")
def test_a_script_is_launched_again_once_a_lost_machine_is_back(home):
    shutil.copytree(SCRIPTS / "plain", home.folder / "plain")
    home.play(
        "train.yml",
        *(*READY, "-e", f"script={home.folder}/plain/train.py", "-e", "run=script"),
        *("-e", "script_args=--steps 100000 --pause 0.1 --out {results}"),
        *("-e", "wait=off", "-e", "launch_silence_timeout=6"),
    )
    try:
        third_steps = "grep -c '^step 3 ' ai-cluster/logs/script.log"
        until(lambda: at_home("tower", third_steps) == "1")
        first = record("tower", "script")["generation"]
        lab("cut", "laptop")
        until_state("waiting", "script", ["tower"])
        lab("join", "laptop")
        until(lambda: at_home("tower", third_steps) == "2")
        (second,) = {record(node, "script")["generation"] for node in NODES}
        assert second > first
        screen = verb(home, "stop", "run=script")
        assert_line(screen, "script", "stopped", "train.py")
    finally:
        lab("join", "laptop", status=None)
        end(NODES, ["script"])


@pytest.mark.rotated("launches on machines")
def test_a_model_that_one_machine_has_is_brought_to_the_other_before_a_run(home, tiny_model):
    # Not below /tmp, which a machine has for itself.
    kept = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    model = shutil.copytree(tiny_model, kept / "models" / "owner--tiny")
    take_stock(model, "owner/tiny", "hub", "0123abcd").write(model / MANIFEST)
    bring(kept, ["laptop"])
    shutil.rmtree(kept)
    as_root("tower", f"install -d -o lab {kept} {kept}/models")
    screen = home.play(
        "train.yml",
        *(*READY, *home.tiny(model="owner/tiny", max_steps=2)),
        *("-e", f"hearth_models={kept}/models", "-e", "run=brought"),
    )
    assert "owner--tiny: laptop → tower" in screen
    assert "brought finished: " in screen


@pytest.mark.rotated("launches on machines")
def test_a_benchmark_compares_the_machines_alone_with_both_together(home):
    few = ("steps=2", "_benchmark_warm_up=1")
    words = [word for option in few for word in ("-e", option)]
    screen = home.play("playbooks/benchmark.yml", *READY, *home.tiny(), *words)
    for line in ("tower alone", "laptop alone"):
        assert re.search(rf"^  {line} +1 +[\d.]+ s +\d+ ", screen, re.MULTILINE)
    compared = r"\d\.\d\d +\d\.\d\d +\d\.\d\d"  # speed-up, of the sum, of as many like the fastest
    assert re.search(rf"^  all together +1 +[\d.]+ s +\d+ +– +{compared}$", screen, re.MULTILINE)
    (kept,) = (home.runs / "benchmarks").glob("*.json")
    assert [len(ran["nodes"]) for ran in json.loads(kept.read_text())["runs"]] == [1, 1, 2]
