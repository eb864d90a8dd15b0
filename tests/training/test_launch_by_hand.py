"""A node's ranks started by hand, beside supervisors and in their place; torchrun is a stand-in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from support.facts import assert_names
from support.supervisors import TRAINING, Nodes, free_port
from support.waiting import HANG, until

from hearth.config import read_run


@pytest.fixture
def run(nodes) -> Nodes:
    """Two nodes with the files that provisioning and a start leave in their workspaces."""
    run = nodes(2, environment={"STEPS": "3", "FOO": "bar"})
    addresses = ("127.0.0.1", "127.0.0.2")
    known = [
        {"name": name, "rank": rank, "address": addresses[rank], "interface": "lo", "nproc": 1}
        for rank, name in enumerate(run.names)
    ]
    for name in run.names:
        config = {"node": name, "python": sys.executable, "nodes": known}
        (run.workspace(name) / "cluster_config.yaml").write_text(yaml.safe_dump(config))
        (run.workspace(name) / "config").mkdir()
        (run.workspace(name) / "config" / "first.json").write_text(run.spec(name).read_text())
        (run.workspace(name) / "results" / "first").mkdir(parents=True)
    return run


def by_hand(run: Nodes, node: str, *words: object) -> subprocess.Popen[str]:
    module = (sys.executable, "-m", "hearth.supervisor.by_hand")
    return subprocess.Popen(
        [*module, "--workspace", str(run.workspace(node)), *map(str, words)],
        env={"PYTHONPATH": str(TRAINING), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(started: subprocess.Popen[str], status: int) -> tuple[str, str]:
    """Return output and errors of a command that has ended with this status."""
    told = started.communicate(timeout=HANG)
    assert started.returncode == status, told
    return told


def test_ranks_by_hand_print_here_and_the_record_goes_on(run):
    run.start()
    records = run.wait()
    assert [each["state"] for each in records.values()] == ["finished"] * 2
    generation = 1 + records["node0"]["generation"]
    both = [by_hand(run, name, rank) for rank, name in enumerate(run.names)]
    for rank, (screen, _) in enumerate(said(one, 0) for one in both):
        other = 1 - rank
        assert_names(screen, run.names[other], f"launch_cluster.sh {other} --run first")
        assert f"generation {generation} rank {rank} step 2" in screen
    for name in run.names:
        record = run.status(name)
        assert (record["state"], record["alive"]) == ("finished", False)
        assert record["generation"] == generation
        assert (record["exit_code"], record["nodes"]) == (0, run.names)
        assert "step 2" in run.log(name)  # of the supervisors alone
        assert f"generation {generation}" not in run.log(name)


@pytest.mark.rotated
def test_a_rank_that_fails_by_hand_is_the_status_and_the_record(run):
    (run.workspace("node0") / "scripts" / "train.py").write_text("import sys; sys.exit(7)")
    said(by_hand(run, "node0", 0), 7)
    record = run.status("node0")
    assert (record["state"], record["exit_code"]) == ("failed", 7)
    assert_names(record["cause"]["message"], "by hand", "status 7")


@pytest.mark.rotated
def test_a_run_under_way_keeps_the_node(run):
    run.start("node0")
    until(lambda: (run.workspace("node0") / "results/first/supervisor.json").exists())
    _, error = said(by_hand(run, "node0", 0), 2)
    assert_names(error, "first", "under way", run.supervisor("node0").pid)
    assert run.record("node0")["state"] == "waiting"


@pytest.mark.rotated
def test_a_node_is_held_by_one_at_a_time_however_that_was_started(run):
    run.change("node0", environment={})
    (run.workspace("node0") / "config" / "first.json").write_text(run.spec("node0").read_text())
    ours = by_hand(run, "node0", 0)
    try:
        until(lambda: (run.workspace("node0") / "results/first/supervisor.json").exists())
        for command in (by_hand(run, "node0", 0), by_hand(run, "node0", 0, "--run", "first")):
            _, error = said(command, 2)
            assert_names(error, "first", "under way", ours.pid)
        assert run.verb("run", "--spec", run.spec("node0"))[0] == 2
        (run.workspace("node0") / "results" / "first" / "stop").write_text("stop\n")
        assert "step" in said(ours, 0)[0]
        assert run.status("node0")["state"] == "stopped"
    finally:
        ours.kill()


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("words", "change", "facts"),
    [
        ((1,), {}, ["node0 is rank 0", "first", "launch_cluster.sh 0 --run first"]),
        ((0, "--run", "second"), {}, ["second", "known: first", "--model"]),
        ((0, "--max-stpes", "5"), {}, ["--max-stpes", "--max-steps"]),
        ((1, "--max-steps", "5"), {}, ["node0 is rank 0", "launch_cluster.sh 0 --max-steps 5"]),
        ((0, "--run-file", "x.yml"), {}, ["--run-file", "--run NAME"]),
        ((0,), {"nodes": []}, ["cluster_config.yaml", "node0"]),
        ((0,), {"nodes": [{"name": "node0"}]}, ["cluster_config.yaml", "node1 of run 'first'"]),
        ((0,), {"node": "node7"}, ["cluster_config.yaml", "node7"]),
        ((0,), "a: [", ["cluster_config.yaml", "hearth provision --tags workspace"]),
    ],
)
def test_what_cannot_be_started_by_hand_is_said(run, words, change, facts):
    file = run.workspace("node0") / "cluster_config.yaml"
    config = yaml.safe_load(file.read_text())
    file.write_text(change if isinstance(change, str) else yaml.safe_dump(config | change))
    _, error = said(by_hand(run, "node0", *words), 2)
    assert_names(error, *facts)
    assert "Traceback" not in error


@pytest.mark.rotated
def test_the_network_is_that_of_the_clusters_file(run):
    file = run.workspace("node0") / "cluster_config.yaml"
    config = yaml.safe_load(file.read_text())
    config["nodes"][0]["interface"] = "enp5s0"
    file.write_text(yaml.safe_dump(config))
    _, error = said(by_hand(run, "node0", 0), 2)
    assert_names(error, "enp5s0", "lo", "127.0.0.1")


@pytest.fixture
def fresh(nodes) -> Nodes:
    """Two nodes with the real trainer, before any launch by train.yml."""
    run = nodes(2)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for rank, name in enumerate(run.names):
        shutil.rmtree(run.workspace(name) / "scripts")
        shutil.copytree(TRAINING, run.workspace(name) / "scripts", ignore=ignored)
        known = [
            {"name": name, "rank": rank, "address": f"127.0.0.{rank + 1}", "interface": "lo"}
            for rank, name in enumerate(run.names)
        ]
        config = {"node": name, "python": sys.executable, "nodes": known, "models": ""}
        (run.workspace(name) / "cluster_config.yaml").write_text(yaml.safe_dump(config))
    return run


def test_a_new_run_begins_by_hand_on_all_nodes_and_can_be_resumed(fresh, tiny_model, tiny_data):
    words = (
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96, "--wandb", "off"),
        *("--split", "equal", "--micro-batch", 1, "--port", free_port()),
    )

    def both(*more: object) -> str:
        started = [
            by_hand(fresh, name, rank, *words, *more) for rank, name in enumerate(fresh.names)
        ]
        screens = [said(one, 0)[0] for one in started]
        assert_names(screens[0], "on node1 (127.0.0.2)", "launch_cluster.sh 1")
        return screens[0]

    screen = both("--run", "night", "--max-steps", 3)
    assert_names(screen, "step 3/3", "node0", "node1")
    for name in fresh.names:
        results = fresh.workspace(name) / "results" / "night"
        assert read_run(results / "run.yml").settings.max_steps == 3
        assert (fresh.workspace(name) / "checkpoints" / "night").is_dir()
    metrics = (fresh.workspace("node0") / "results/night/metrics.jsonl").read_text()
    assert [
        line["step"] for line in map(json.loads, metrics.splitlines()) if line["kind"] == "step"
    ] == [1, 2, 3]
    assert "step 5/5" in both("--resume", "night", "--max-steps", 5)


def test_without_settings_the_small_preset_is_trained_where_nothing_was_started(fresh):
    """The stand-in for torchrun shows its arguments."""
    stand_in = fresh.workspace("node0") / "python"
    stand_in.write_text(f"#!{sys.executable}\nimport os, sys\nprint(*sys.argv, os.environ)\n")
    stand_in.chmod(0o755)
    file = fresh.workspace("node0") / "cluster_config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"python": str(stand_in)}))
    screen, _ = said(by_hand(fresh, "node0", 0, "--port", port := free_port()), 0)
    assert_names(
        screen, "--nnodes 2", "--node-rank 0", "--master-addr 127.0.0.1", f"--master-port {port}"
    )
    assert "HF_HUB_OFFLINE" not in screen
