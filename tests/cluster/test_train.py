"""`ansible-playbook train.yml` on the local inventory: two nodes, real ranks, a tiny model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import yaml
from support.facts import assert_line, assert_names
from support.local_cluster import NODES, UNTIL_A_LOSS, LocalCluster, ended
from support.metric_lines import records_in
from support.phone import TOKEN, Phone, phone
from support.waiting import HANG, until

pytestmark = [pytest.mark.cluster, pytest.mark.long]
HUB_TOKEN = "hf_planted0123456789abcdefghijklmnop"
API_KEY = "planted9876543210planted9876543210planted"
SECRETS = (HUB_TOKEN, API_KEY, TOKEN)


def planted(local: LocalCluster, here: Phone) -> dict[str, str]:
    """Return the secrets of a person for the shell of a play, and a temp folder in the owner."""
    temporary = local.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "HF_TOKEN": HUB_TOKEN,
        "WANDB_API_KEY": API_KEY,
        "HEARTH_NOTIFY": f"{here.ntfy} {here.json}",
        "TMPDIR": str(temporary),
    }


def holding(folder: Path, *words: str) -> list[str]:
    """Return the files below `folder`, where a run may be going on, that hold one of the words."""
    found = []
    for where, _, names in os.walk(folder):
        for path in (Path(where, name) for name in names):
            with suppress(FileNotFoundError):  # gone meanwhile, or a link that leads nowhere
                if path.is_file() and any(word.encode() in path.read_bytes() for word in words):
                    found.append(str(path.relative_to(folder)))
    return sorted(found)


class Watch(threading.Thread):
    """Keeps an eye on the process list for some words."""

    def __init__(self, *words: str) -> None:
        super().__init__(daemon=True)
        self.words = [word.encode() for word in words]
        self.seen, self.looks, self.done = [], 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            self.looks += 1
            for pid in psutil.pids():
                with suppress(OSError):  # it has ended
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if any(word in command for word in self.words):
                        self.seen.append(command)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join(10)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_model, tiny_data):
    """One whole run with everything shown (-vvv) and secrets in the controller's environment."""
    with (
        closing(LocalCluster(tmp_path_factory.mktemp("trained"), tiny_model, tiny_data)) as local,
        phone() as here,
    ):
        settings = local.tiny(run="first", max_steps=6)
        with Watch(*SECRETS) as watch:
            screen = local.play("train.yml", *settings, "-vvv", **planted(local, here))
        until(lambda: len(here.arrived) == 2)
        yield local, screen, watch, here


@pytest.fixture(scope="module")
def failed(tmp_path_factory, tiny_model, tiny_data):
    """A run with the same secrets that ends when a rank is killed, since none waits."""
    with (
        closing(LocalCluster(tmp_path_factory.mktemp("failed"), tiny_model, tiny_data)) as local,
        phone() as here,
    ):
        # wandb, too: whoever has the key may note it somewhere.
        settings = local.tiny(run="end", max_steps=100_000, wandb="offline")
        play = local.start("train.yml", *UNTIL_A_LOSS, *settings, **planted(local, here))
        local.until_step("end")
        meanwhile = holding(local.folder, *SECRETS)
        local.rank("laptop").kill()
        screen = ended(play, status=2)
        until(lambda: len(here.arrived) == 2)
        yield local, screen, meanwhile, here


@pytest.fixture(scope="module")
def short(tmp_path_factory, tiny_model, tiny_data):
    """A short run on one node as a person sees it."""
    words = ("run=short", "max_steps=3", "seed=7", "nodes=desk")
    with closing(LocalCluster(tmp_path_factory.mktemp("short"), tiny_model, tiny_data)) as local:
        yield local, local.train(*(part for word in words for part in ("-e", word)))


@pytest.mark.rotated
def test_a_model_made_from_scratch_comes_here_whole(local, tmp_path):
    bare = shutil.copytree(local.model, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    given = local.tiny(model=str(bare), max_steps=3)
    screen = local.play("train.yml", *given, "-e", "run=new", "-e", "lora=off", "-e", "scratch=on")
    assert "  model                runs/new/model\n" in screen
    weights = "model/model.safetensors"
    here = (local.runs / "new" / weights).read_bytes()
    assert not (local.runs / "new" / "adapter").exists()
    for node in NODES:
        assert (local.workspace(node) / "results" / "new" / weights).read_bytes() == here


def test_a_run_trains_on_both_nodes_and_its_files_come_here(trained):
    local, *_ = trained
    run = local.runs / "first"
    assert {path.name for path in run.iterdir()} == {
        *("run.yml", "metrics.jsonl", "adapter", "logs"),
        *("report.html", "ends.json"),
    }
    assert {path.name for path in (run / "logs").iterdir()} == {"desk.log", "laptop.log"}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        path.name for path in (run / "adapter").iterdir()
    }
    lines = local.metrics("first")
    assert [line["node"] for line in lines[0]["ranks"]] == ["desk", "laptop"]
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["state"] == "finished"
    assert_line(local.play("playbooks/status.yml"), "first", "finished")


def test_the_same_run_file_lies_everywhere(trained):
    local, *_ = trained
    files = [local.runs / "first" / "run.yml"]
    files += [local.workspace(node) / "results" / "first" / "run.yml" for node in NODES]
    texts = {path.read_text() for path in files}
    assert len(texts) == 1
    run = yaml.safe_load(texts.pop())
    assert run["settings"]["max_steps"] == 6
    assert run["origins"]["max_steps"] == run["origins"]["lora_rank"] == "-e"
    assert run["origins"]["seed"] == "default"


def test_each_node_gets_its_own_part_and_nothing_of_the_other(trained):
    local, *_ = trained
    specs = {}
    for node in NODES:
        path = local.workspace(node) / "config" / "first.json"
        assert path.stat().st_mode & 0o777 == 0o600
        specs[node] = json.loads(path.read_text())
    assert [specs[node]["rank"] for node in NODES] == [0, 1]
    for key in ("addresses", "token", "ports", "nprocs"):
        assert specs["desk"][key] == specs["laptop"][key]
    assert specs["desk"]["addresses"] == ["127.0.0.1", "127.0.0.2"]
    for node, other in (NODES, NODES[::-1]):
        assert str(local.workspace(other)) not in json.dumps(specs[node])


def test_a_secret_is_in_no_file_no_output_and_no_process_list(trained):
    local, screen, watch, _ = trained
    assert [secret for secret in SECRETS if secret in screen] == []
    assert holding(local.folder, *SECRETS) == []
    assert watch.looks > 10
    assert not watch.seen


def test_a_message_tells_that_the_run_has_finished_and_to_what_effect(trained):
    *_, here = trained
    assert here.titles == ["first finished"] * 2
    steps, nodes, perplexity = here.arrived[0]["body"].splitlines()
    assert steps.startswith("6 of 6 steps in ")
    assert nodes == "on desk, laptop"
    assert perplexity.startswith("held-out perplexity ")


def test_what_the_supervisors_share_is_in_their_launch_specs_alone(trained):
    local, screen, *_ = trained
    specs = [local.workspace(node) / "config" / "first.json" for node in NODES]
    token = json.loads(specs[0].read_text())["token"]
    assert token not in screen
    there = sorted(str(spec.relative_to(local.folder)) for spec in specs)
    assert holding(local.folder, token) == there


@pytest.mark.rotated("a short run")
def test_short_output_tells_what_changed_and_what_to_do_next(short):
    _, screen = short
    assert screen.index("held out;") < screen.index("Start the supervisors")
    how_to_look = screen.index("hearth attach short")
    assert how_to_look < screen.index("step 3/3") < screen.index("short finished: 3 of 3 steps")
    for word in ("held-out perplexity", "held-out question", "before", "after", "adapter", "logs"):
        assert word in screen
    assert "hearth resume short" in screen
    assert "{'" not in screen
    assert "TASK [" not in screen


@pytest.mark.rotated("a short run")
def test_a_run_is_exported_on_its_node_and_brought_here(short):
    local, _ = short
    wrong = ("-e", "run=short", "-e", "to=gguf", "-e", "precision=q4")
    assert_names(local.play("playbooks/export.yml", *wrong, status=2), "q4", "q4_k_m")
    assert not (local.runs / "short" / "export").exists()
    folder = local.runs / "short" / "export"
    folder.touch()  # so that it cannot be brought here
    local.play("playbooks/export.yml", "-e", "run=short", "-e", "to=merged", status=2)
    folder.unlink()
    screen = local.play("playbooks/export.yml", "-e", "run=short", "-e", "to=merged")
    merged = folder / "merged"
    assert_names(screen, "model.safetensors", merged)
    assert {"config.json", "model.safetensors"} < {path.name for path in merged.iterdir()}
    assert not list(local.workspace("desk").glob("results/short/export/*"))


@pytest.mark.rotated("a short run")
def test_the_report_is_named_at_the_end_and_another_look_changes_nothing(short):
    local, screen = short
    assert "  report               runs/short/report.html\n" in screen
    page = (local.runs / "short" / "report.html").read_text()
    assert "<title>short finished</title>" in page
    assert page.count("<svg") == 6
    assert "hearth train " in page
    assert "--seed 7" in page
    screen = local.play("playbooks/attach.yml")
    assert "changed on" not in screen
    assert (local.runs / "short" / "report.html").read_text() == page


@pytest.mark.rotated
def test_a_look_at_nodes_without_rank_0_brings_what_they_have(trained, tmp_path):
    local, *_ = trained
    elsewhere = ("-e", f"_plan_runs={tmp_path}")
    screen = local.play("playbooks/attach.yml", "-e", "run=first", "--limit", "laptop", *elsewhere)
    assert_line(screen, "first finished", "6 of 6 steps")
    assert_line(screen, "not seen", "desk")
    assert '"kind": "step"' in (tmp_path / "first" / "metrics.jsonl").read_text()
    assert (tmp_path / "first" / "adapter").exists()


@pytest.mark.rotated("a short run")
def test_a_node_that_cannot_start_calls_the_run_back_on_the_others(short):
    local, _ = short
    taken = local.workspace("laptop") / "config" / "stuck.json"
    (taken / "mine").mkdir(parents=True)
    screen = local.play("train.yml", *local.tiny(run="stuck", max_steps=100_000), status=2)
    shutil.rmtree(taken)
    assert_line(screen, "laptop", "stuck.json")
    assert_line(screen, "called back")
    assert "The run is under way" not in screen
    until(lambda: not local.processes())  # the play does not wait for their end
    assert local.record("desk", "stuck")["state"] == "stopped"


@pytest.mark.rotated
def test_control_c_ends_the_looking_not_the_training_which_outlasts_a_killed_rank_too(local):
    play = local.start("train.yml", *local.tiny(run="calm", max_steps=100_000))
    local.until_step("calm")
    os.killpg(play.pid, signal.SIGINT)
    screen, _ = play.communicate(timeout=HANG)
    assert "Traceback" not in screen
    assert_line(screen, "goes on", "terminal")
    here = local.record("desk", "calm")
    assert here["state"] == "running"
    assert psutil.pid_exists(here["pid"])

    screen = local.train("-e", "run=two", status=2)
    assert_line(screen, "'calm'", "under way")
    assert "Nothing was started on any node." in screen
    assert not (local.runs / "two").exists()
    assert not (local.workspace("desk") / "config" / "two.json").exists()
    assert local.record("desk", "calm")["state"] == "running"

    play = local.start("playbooks/attach.yml", "-e", "run=calm")
    local.rank("laptop").kill()

    def teams() -> list[dict]:
        text = (local.workspace("desk") / "results/calm/metrics.jsonl").read_text()
        return [line for line in records_in(text) if line["kind"] == "team"]

    until(lambda: [team for team in teams() if team["joined"] == ["laptop"]])
    local.play("playbooks/stop.yml", "-e", "run=calm")
    screen = ended(play)
    assert_line(screen, "calm was stopped")
    assert_line(screen, "on the way", "laptop", "rank 1", "signal 9 (SIGKILL)")
    assert "Traceback" not in screen
    steps = [line["step"] for line in local.metrics("calm") if line["kind"] == "step"]
    assert steps == list(range(1, steps[-1] + 1))
    assert [team["nodes"] for team in teams()[-2:]] == [["desk"], ["desk", "laptop"]]


@pytest.mark.rotated("a run that fails on this computer")
def test_a_killed_rank_fails_the_play_under_its_nodes_name_where_nobody_waits(failed):
    local, screen, *_ = failed
    assert_line(screen, "laptop: rank 1", "signal 9 (SIGKILL)")
    assert_line(screen, "cause", "killed")
    assert "\n    cure: " in screen
    assert_line(screen, "desk: stopped", "laptop")
    # Its failure is told once; the supervisors may have been seen on the way there.
    assert screen.count("\nlaptop: rank 1 was killed by signal 9") == 1
    assert "Traceback" not in screen
    assert {path.name for path in (local.runs / "end").iterdir()} >= {"run.yml", "metrics.jsonl"}
    assert (local.runs / "end" / "logs" / "laptop.log").stat().st_size > 0
    page = (local.runs / "end" / "report.html").read_text()
    assert "<title>end failed</title>" in page
    assert "<b>laptop</b>: rank 1 was killed by signal 9 (SIGKILL)" in page
    assert local.record("desk", "end")["cause"] == local.record("laptop", "end")["cause"]


@pytest.mark.rotated("a run that fails on this computer")
def test_a_secret_is_in_no_file_while_ranks_run_as_processes_nor_after_they_failed(failed):
    local, screen, meanwhile, _ = failed
    assert list((local.workspace("desk") / "results" / "end").glob("wandb/offline-run-*"))
    assert "Traceback" in (local.runs / "end" / "logs" / "laptop.log").read_text()
    assert meanwhile == []
    assert holding(local.folder, *SECRETS) == []
    assert [secret for secret in SECRETS if secret in screen] == []


@pytest.mark.rotated("a run that fails on this computer")
def test_a_message_tells_that_the_run_has_failed_and_where_and_why(failed):
    *_, here = failed
    assert here.titles == ["end failed on laptop"] * 2
    cause, cure, error, _, more = here.arrived[0]["body"].splitlines()
    assert error.startswith("rank 1 was killed by signal 9 (SIGKILL)")
    assert cause.startswith("cause: ")
    assert cure.startswith("cure: ")
    assert more == "more: hearth logs end --nodes laptop"
