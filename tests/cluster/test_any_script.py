"""`train.yml -e script=FILE` on the local inventory: scripts that know nothing of Hearth."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from support.facts import assert_line, assert_names
from support.local_cluster import NODES, LocalCluster
from support.waiting import until

pytestmark = pytest.mark.cluster

HUB_TOKEN = "hf_planted0123456789planted0123456789"
SCRIPTS = Path(__file__).resolve().parents[1] / "fixtures" / "scripts"


def give_ranks(local: LocalCluster, **ranks: int) -> None:
    """Let the nodes of a local cluster have these ranks, and each a variable of the inventory."""
    hosts = local.checkout / "inventory" / "local" / "hosts.yml"
    inventory = yaml.safe_load(hosts.read_text())
    inventory["cluster"]["vars"] = {"hearth_environment": {"FOO": "of the group"}}
    for node, count in ranks.items():
        inventory["cluster"]["hosts"][node]["hearth_nproc"] = count
    inventory["cluster"]["hosts"]["laptop"]["hearth_environment"] = {"FOO": 7}
    hosts.write_text(yaml.safe_dump(inventory))


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two nodes, and scripts whose author has never heard of Hearth."""
    folder = tmp_path_factory.mktemp("script")
    with closing(LocalCluster(folder, folder / "no-model", folder / "no-data")) as local:
        shutil.copytree(SCRIPTS, folder / "work", ignore=shutil.ignore_patterns("__pycache__"))
        yield local


@pytest.fixture
def home(local) -> LocalCluster:
    """Two nodes with two ranks and one."""
    give_ranks(local, desk=2, laptop=1)
    return local


def go(local: LocalCluster, run: str, *more: str, script: str = "plain") -> str:
    """Play train.yml with a script."""
    at = local.folder / "work" / script / "train.py"
    return local.play("train.yml", "-e", f"script={at}", "-e", f"run={run}", *more)


@pytest.mark.rotated
def test_a_plain_script_runs_on_nodes_with_unlike_numbers_of_ranks(home, monkeypatch):
    monkeypatch.setitem(home.environment, "HF_TOKEN", HUB_TOKEN)
    rows = home.folder / "rows.csv"
    rows.write_text("".join(f"{n % 5},{n % 3},1,{n % 5 + n % 3 + 1}\n" for n in range(30)))
    work = home.folder / "work" / "plain"
    (work / ".git").mkdir()
    (work / ".git" / "HEAD").write_text("ref")
    screen = go(
        home,
        "plain",
        *("-e", "script_args=--steps 4 --run=it --out={results} --data {data}"),
        *("-e", f"script_data={rows}"),
    )
    assert_line(screen, "plain", "train.py", "2 nodes (desk, laptop)")
    assert "left out: .git" in screen
    assert_line(screen, "ranks:", "desk 2", "laptop 1")
    assert_line(screen, "plain finished", "train.py", "desk, laptop")
    files = home.runs / "plain" / "files"
    told = {
        path.parent.name + path.stem: json.loads(path.read_text()) for path in files.glob("*/*")
    }
    assert sorted(told) == ["deskrank0", "deskrank1", "laptoprank2"]
    assert {each["WORLD_SIZE"] for each in told.values()} == {"3"}
    assert [told[name]["LOCAL_WORLD_SIZE"] for name in sorted(told)] == [*"221"]
    assert {each["GLOO_SOCKET_IFNAME"] for each in told.values()} == {"lo"}
    assert [told[name]["FOO"] for name in sorted(told)] == [*["of the group"] * 2, "7"]
    assert {each["has a token"] for each in told.values()} == {True}
    assert HUB_TOKEN not in screen
    kept = [path for path in home.folder.rglob("*") if path.is_file()]
    assert not [path for path in kept if HUB_TOKEN.encode() in path.read_bytes()]
    assert len({round(each["weights"], 5) for each in told.values()}) == 1
    assert "step 4 loss" in (home.runs / "plain" / "logs" / "desk.log").read_text()
    for node in NODES:
        copy = home.workspace(node) / "code" / "plain"
        assert (copy / "model.py").read_text() == (work / "model.py").read_text()
        assert not (copy / ".git").exists()

    home.play("playbooks/runs.yml", "-e", "delete=plain", "-e", "yes=on")
    for node in NODES:
        assert not (home.workspace(node) / "code" / "plain").exists()


@pytest.mark.rotated
def test_a_lightning_script_runs_as_its_author_wrote_it(local):
    give_ranks(local, desk=1, laptop=1)
    given = "script_args=--nodes 2 --epochs 3 --out {results}"
    screen = go(local, "lightning", "-e", given, script="lightning")
    assert_line(screen, "lightning finished", "train.py", "desk, laptop")
    folder = local.runs / "lightning"
    losses = set()
    for rank, node in enumerate(NODES):
        log = (folder / "logs" / f"{node}.log").read_text()
        losses.add(re.search(rf"rank {rank} of 2: loss (\S+)", log)[1])
    assert len(losses) == 1
    assert (folder / "files" / "desk" / "checkpoints" / "epoch=2-step=12.ckpt").exists()


@pytest.mark.rotated
def test_a_script_is_looked_at_stopped_and_goes_on_as_it_was_when_it_began(home):
    given = ("-e", "script_args=--steps 100000 --pause 0.1 --out {results}", "-e", "wait=off")
    screen = go(home, "long", *given)
    assert_line(screen, "under way", "terminal")
    until(lambda: "step 2 " in (home.workspace("desk") / "logs" / "long.log").read_text())
    model = home.folder / "work" / "plain" / "model.py"
    as_it_was = model.read_text()
    model.write_text("edited meanwhile")

    screen = home.play("playbooks/status.yml")
    assert re.search(r"  long +running ", screen)
    assert "    train.py: running since 20" in screen

    screen = home.play("playbooks/stop.yml")
    assert_line(screen, "long", "SIGTERM", "train.py")
    assert_line(screen, "long", "stopped", "train.py")
    assert {home.record(node, "long")["state"] for node in NODES} == {"stopped"}

    screen = home.play("train.yml", "-e", "resume=long", "-e", "script_args=--steps 2", status=2)
    assert_line(screen, "changed", "'long'")
    model.write_text(as_it_was)
    screen = home.play("train.yml", "-e", "resume=long", "-e", "script_args=--steps 2")
    assert_line(screen, "long finished", "train.py", "desk, laptop")

    screen = home.play("playbooks/resume.yml", status=2)  # nobody meant it to begin anew
    assert_line(screen, "finished", "-e run=NAME")


@pytest.mark.rotated
def test_what_cannot_be_is_refused_all_at_once_before_anything_is_started(home):
    (home.folder / "work" / "notes.txt").write_text("")
    screen = home.play(
        "train.yml",
        *("-e", f"script={home.folder}/work/notes.txt", "-e", "model=smollm2-135m"),
        *("-e", "script_data=nowhere", "-e", "max_steps=3", "-e", "run=bad"),
        *("-e", "hearth_nproc=-2"),
        status=2,
    )
    assert_names(screen, "notes.txt", "-e model and -e script", "-e max_steps")
    assert_names(screen, "script_data:", "nowhere", "desk: hearth_nproc is -2")
    assert "Nothing was started" in screen
