"""A run's life by its verbs, on the local inventory: status, logs, stop, resume, runs.

The tests build on each other, in this order.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from support import programs
from support.facts import assert_line
from support.local_cluster import NODES, UNTIL_A_LOSS, LocalCluster, ended
from support.terminal import Terminal
from support.waiting import HANG, until

from hearth.supervisor.cause import ENDS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.rotated("a run's life by its verbs"),
]
DETACHED = ("-e", "wait=off", *UNTIL_A_LOSS)


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster with the run `evening`, ended by the first loss of a node."""
    folder = tmp_path_factory.mktemp("verbs")
    with closing(LocalCluster(folder, tiny_model, tiny_data, patient=True)) as local:
        given = local.tiny(run="evening", max_steps=100_000, checkpoint_every=5)
        local.play("train.yml", *given, *DETACHED)
        local.until_step("evening", 6)
        yield local


def test_a_run_under_way_is_shown_with_its_speed_and_its_nodes(home):
    screen = home.play("playbooks/status.yml")
    assert "evening  running" in screen
    assert "✓ all is well" in screen

    done = home.hearth("status", "--json")
    assert done.returncode == 0
    seen = json.loads(done.stdout)
    (run,) = seen["runs"]
    assert (run["name"], run["state"], run["model"]) == ("evening", "running", "tiny")
    assert run["step"] > 5
    assert run["steps"] == 100_000
    assert run["tokens_per_second"] > 0
    assert run["eta_seconds"] > 0
    assert run["checkpoint"]["step"] >= 5
    assert [(part["name"], part["state"]) for part in run["nodes"]] == [
        ("desk", "running"),
        ("laptop", "running"),
    ]
    for node in seen["nodes"]:
        assert node["run"] == "evening"
        assert node["network"]["interface"] == "lo"
        assert node["cpu_percent"] > 0


def test_a_run_under_way_is_not_removed(home):
    screen = home.play("playbooks/runs.yml", "-e", "delete=evening", "-e", "yes=on", status=2)
    assert_line(screen, "evening", "under way")
    assert home.record("desk", "evening")["state"] == "running"


def test_the_logs_of_the_newest_run_are_shown_by_node(home):
    screen = home.play("playbooks/logs.yml", "-e", "lines=5")
    for node in NODES:
        assert f"{node}: {home.workspace(node)}/logs/evening.log" in screen
    steps = [line for line in screen.splitlines() if line.startswith("    step ")]
    assert len(steps) == 5  # rank 0 says them

    screen = home.play("playbooks/logs.yml", "-e", "run=evening", "-e", "nodes=tower", status=2)
    assert_line(screen, "-e nodes", "tower", "desk, laptop")


def followers(local: LocalCluster) -> list[psutil.Process]:
    """Return the plays that follow a run of this cluster."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(local.checkout) and "playbooks/attach.yml" in process.cmdline():
                found.append(process)
    return found


def test_the_newest_run_is_watched_in_a_terminal_until_one_leaves(home):
    hearth = Path(sys.executable).with_name("hearth")
    with Terminal(hearth, "watch", cwd=home.folder, variables=home.environment) as terminal:
        for fact in ("evening", "training", "laptop", r"step \d+/100000", "50%", "loss"):
            terminal.until(fact)
        assert followers(home)
        terminal.type("q")
        terminal.until("hearth watch evening")
        assert terminal.ended() == 0
    until(lambda: not followers(home))
    assert home.record("desk", "evening")["state"] == "running"


def test_the_status_is_served_with_the_report_of_the_run_until_that_is_ended(home):
    serving = subprocess.Popen(
        [Path(sys.executable).with_name("hearth"), "status", "--serve", "0"],
        cwd=home.folder,
        env=home.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = serving.stdout.readline().split()[0]

        def page() -> str:
            with urllib.request.urlopen(f"{url}runs/evening", timeout=HANG) as answer:
                return answer.read().decode()

        until(lambda: "<svg" in page())
        shown = page()
        assert "is under way" in shown
        serving.terminate()
        assert serving.wait(HANG) == 0
    finally:
        serving.kill()
    until(lambda: not followers(home))


def test_a_run_that_is_stopped_keeps_a_checkpoint_and_is_summed_up(home):
    screen = home.play("playbooks/stop.yml")
    assert_line(screen, "evening", "checkpoint")
    assert_line(screen, "evening", "stopped")
    end = home.metrics("evening")[-1]
    assert (end["kind"], end["state"]) == ("end", "stopped")
    for node in NODES:
        assert (home.workspace(node) / f"checkpoints/evening/step-{end['step']:08d}").exists()

    screen = home.play("playbooks/stop.yml", status=2)
    assert "no run is under way" in screen


def reads(play: subprocess.Popen[str]) -> bool:
    """Return whether a play has begun to read what a node's program says."""
    for process in psutil.Process(play.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "-ISc" in process.cmdline():
                return True
    return False


def test_the_newest_run_goes_on_and_a_second_stop_ends_it_at_once(home):
    stopped_at = home.metrics("evening")[-1]["step"]
    screen = home.play("playbooks/resume.yml", *DETACHED)
    assert_line(screen, f"goes on from step {stopped_at}")
    assert_line(screen, "under way", "terminal")
    home.until_step("evening", stopped_at + 2)
    follower = home.start("playbooks/logs.yml", "-e", "nodes=laptop", "-e", "follow=on")
    until(lambda: reads(follower))

    home.rank("laptop").suspend()  # so that its step does not end
    ask = ("playbooks/stop.yml", "-e", "run=evening", "-e", "wait=off")
    home.play(*ask)
    assert home.record("desk", "evening")["state"] == "running"
    screen = home.play(*ask)
    assert_line(screen, "evening", "ends at once")
    until(lambda: home.record("laptop", "evening")["state"] in ENDS)

    screen = ended(follower)
    assert "  laptop: hearth: " in screen
    assert "  desk: hearth: " not in screen
    assert "asked to stop" in screen
    assert screen.index("asked to stop") < max(map(screen.rfind, ENDS))


def test_a_run_goes_on_by_its_name_but_not_without_the_node_that_has_its_checkpoints(home):
    kept, aside = (home.workspace("laptop") / "checkpoints" / name for name in ("evening", "aside"))
    more = ("playbooks/resume.yml", "-e", "run=evening", "-e", "max_steps=200000", *DETACHED)
    kept.rename(aside)
    screen = home.play(*more, "-e", "nodes=laptop", status=2)
    known = home.metrics("evening")[-1]["step"]
    assert_line(screen, "resume", "evening", f"step {known}", "laptop")
    aside.rename(kept)
    screen = home.play(*more)
    assert_line(screen, "evening", "tiny", "words.jsonl", "2 nodes (desk, laptop)")
    metrics = home.workspace("desk") / "results" / "evening" / "metrics.jsonl"
    until(
        lambda: (
            '"kind": "step"' in (last := metrics.read_text().splitlines()[-1])
            and json.loads(last)["steps"] == 200000
        )
    )


def test_a_run_whose_node_vanished_is_lost_and_that_is_broken(home):
    psutil.Process(home.record("laptop", "evening")["pid"]).kill()
    until(lambda: home.record("desk", "evening")["state"] == "failed")
    done = home.hearth("status")
    assert done.returncode == 3
    assert "evening  lost" in done.stdout
    assert "desk, laptop (gone)" in done.stdout
    assert_line(done.stdout, "✗", "evening", "lost")
    assert "Status\n" not in done.stdout  # the table, and nothing of the play


def test_two_runs_are_listed_and_compared_by_what_differs(home):
    for node in NODES:  # the same run under another name, with another rank of its LoRA
        results = home.workspace(node) / "results"
        socket_of_a_killed_one = shutil.ignore_patterns("control")
        shutil.copytree(results / "evening", results / "other", ignore=socket_of_a_killed_one)
        text = (results / "other" / "run.yml").read_text()
        text = text.replace("lora_rank: 4", "lora_rank: 8").replace("run: evening", "run: other")
        (results / "other" / "run.yml").write_text(text)
    screen = home.play("playbooks/runs.yml")
    for name in ("evening", "other"):  # steps: those that it was told last
        assert re.search(rf"{name} +lost +\d+ of 200000 .* tiny ", screen)
        assert re.search(rf"{name} .*desk, laptop", screen)  # below, if the table is too wide

    screen = home.play("playbooks/runs.yml", "-e", "compare=evening,other")
    assert screen.index("settings that differ:") < screen.index("lora_rank  4  8")
    assert "max_steps" not in screen

    screen = home.play("playbooks/runs.yml", "-e", "compare=evening,othr", status=2)
    assert_line(screen, "'othr'", "'other'?")


def test_the_curves_of_a_run_are_shown_on_loopback_until_that_is_ended(home):
    screen = home.play("playbooks/dashboard.yml", "-e", "run=evening")
    assert "Start TensorBoard: changed on desk" in screen
    told = re.search(
        r"^  evening: TensorBoard runs on desk \(process (\d+)\).*?\n\n", screen, re.M | re.S
    )
    port = int(re.search(r"http://localhost:(\d+)/", told[0])[1])
    board = psutil.Process(int(told[1]))
    sockets = board.net_connections(kind="inet")
    listening = {each.laddr for each in sockets if each.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", port)}
    address = f"http://127.0.0.1:{port}"
    assert b"TensorBoard" in urllib.request.urlopen(f"{address}/", timeout=HANG).read()

    def has_the_loss() -> bool:
        tags = urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=HANG).read()
        return "train/loss" in json.loads(tags).get(".", {})

    until(has_the_loss)

    screen = home.play("playbooks/dashboard.yml", "-e", "run=evening")
    assert told[0] in screen
    assert "changed on" not in screen

    screen = home.play("playbooks/dashboard.yml", "-e", "serve=off")
    assert "End TensorBoard: changed on desk" in screen
    assert not board.is_running() or board.status() == psutil.STATUS_ZOMBIE


def test_somebody_can_talk_to_the_run_as_they_are_told(home):
    screen = home.play("playbooks/chat.yml", "-e", "run=evening")
    typed = re.search(r"^ +talk to it +(env .+)$", screen, re.M)[1]
    done = programs.run("sh", "-c", f"echo say 1 | {typed} --max-tokens 5")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\(\d+ tokens", done.stdout, re.M)

    screen = home.play("playbooks/chat.yml", "-e", "serve=on", "-e", "nodes=laptop")
    address = re.search(r"http://localhost:\d+/v1", screen)[0]
    models = json.loads(urllib.request.urlopen(f"{address}/models", timeout=HANG).read())
    assert [model["id"] for model in models["data"]] == ["base", "adapter"]
    screen = home.play("playbooks/chat.yml", "-e", "serve=off")
    assert "End the endpoint: changed on laptop" in screen


def test_a_run_is_removed_only_with_consent(home):
    log = home.workspace("laptop") / "logs" / "evening.log"
    screen = home.play("playbooks/runs.yml", "-e", "delete=evening")
    assert "checkpoints/evening" in screen
    assert "Nothing was removed. To go ahead:" in screen
    assert log.exists()

    screen = home.play("playbooks/runs.yml", "-e", "delete=evening", "-e", "yes=on")
    assert "Remove the run: changed on desk, laptop" in screen
    assert_line(screen, "runs/evening", "kept")
    assert (home.runs / "evening" / "run.yml").exists()
    for node in NODES:
        left = [path for path in home.workspace(node).rglob("*evening*") if path.is_file()]
        assert not left
        assert (home.workspace(node) / "results" / "other" / "run.yml").exists()


def test_a_benchmark_of_one_rank_and_all_goes_on_where_it_was_interrupted(home):
    def ranks(attempt: int) -> list[str]:
        """Return the number of ranks that the node started for a run."""
        (record,) = home.workspace("desk").glob(f"results/benchmark-*-{attempt}/supervisor.json")
        return re.findall(r'"--nproc-per-node",\s+"(\d+)"', record.read_text())

    asked = (*home.tiny(), "-e", "steps=2", "-e", "_benchmark_warm_up=1")
    asked += ("-e", "nodes=desk", "-e", "hearth_nproc=2")
    kept = home.runs / "benchmarks"
    first = home.start("playbooks/benchmark.yml", *asked)
    until(lambda: ranks(1) == ["1"])
    until(lambda: home.launchers("desk"))
    (launcher,) = home.launchers("desk")
    launcher.suspend()  # so that the first run does not end meanwhile
    screen = home.play("playbooks/benchmark.yml", *asked, status=2)
    launcher.resume()
    assert_line(screen, "benchmark", "desk", "under way")
    until(lambda: next(kept.glob("*/2.log")).stat().st_size > 0)  # the second run is begun
    first.send_signal(signal.SIGINT)
    screen, _ = first.communicate(timeout=HANG)
    assert re.search(r"^  one rank of desk +\d+ tokens/s, 2 steps in .* s  \(1 of 2", screen, re.M)
    assert not list(kept.glob("*.json"))

    second = home.start("playbooks/benchmark.yml", *asked)
    until(lambda: ranks(3) == ["2"])
    screen = ended(second)
    assert_line(screen, "interrupted", "1 of 2")
    assert re.search(r"^  one rank of desk +1 +[\d.]+ s +\d+ +– +1\.00 +– +–$", screen, re.M)
    assert re.search(r"^  desk alone +1 +[\d.]+ s +\d+ +– +\d\.\d\d +(\d\.\d\d) +\1$", screen, re.M)
    ((record,), (text,)) = (kept.glob(f"*.{end}") for end in ("json", "txt"))
    assert len(json.loads(record.read_text())["runs"]) == 2
    assert "desk alone" in text.read_text()
    assert [path for path in kept.iterdir() if path.is_dir()] == []
    for node in NODES:  # nothing that would clutter the list of runs
        assert not list(home.workspace(node).rglob("*benchmark-2*"))
