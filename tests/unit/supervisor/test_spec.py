"""The launch spec: every fault at once, the token never shown."""

from __future__ import annotations

import json
import os
import sys

import pytest
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.ranks.control_protocol import Form
from hearth.supervisor import workers
from hearth.supervisor.spec import load_spec, with_secrets
from hearth.supervisor.workers import NOT_FOR_RANKS, STORE_CLIENTS, command, environment
from hearth.trainer import torchrun

GOOD = {
    "run": "r1",
    "node": "laptop",
    "rank": 1,
    "nodes": ["desk", "laptop"],
    "addresses": ["10.0.0.1", "10.0.0.2"],
    "ports": [29400, 29401],
    "nproc": 1,
    "nprocs": [2, 1],
    "python": "/opt/env/bin/python",
    "workspace": "~/ai-cluster",
    "token": "0123456789abcdef",
}
RESIDENT = {"resident": True, "elastic": True}
GROUP = Form(0, ("desk", "laptop"), "10.0.0.1", 29500, ("10.0.0.1", "10.0.0.9"), fresh=True)


@pytest.fixture
def load(tmp_path):
    def load(**changes):
        path = tmp_path / "r1.json"
        path.write_text(json.dumps({k: v for k, v in {**GOOD, **changes}.items() if v != "omit"}))
        return load_spec(path)

    return load


def test_a_spec_is_read_and_what_has_a_default_may_be_left_out(load):
    spec = load()
    assert spec.nodes == ("desk", "laptop")
    assert spec.ports == (29400, 29401)
    assert spec.address == "10.0.0.2"
    assert spec.record == spec.workspace / "results/r1/supervisor.json"
    assert spec.log == spec.workspace / "logs/r1.log"
    assert spec.workspace.is_absolute()
    assert (spec.interface, spec.environment, spec.ready_timeout) == ("", {}, 120)


def test_hearths_trainer_gets_the_runs_file_and_works_in_the_results(load):
    spec = load()
    assert spec.words == ["--run-file", f"{spec.results}/run.yml"]
    assert (spec.scripted, spec.place) == (False, spec.results)


def test_a_persons_script_gets_its_own_words_with_the_places_of_this_node(load):
    words = ["--out={results}/x", "{data}", '{"a": {results}}', "{other}"]
    spec = load(script="code/r1/a.py", folder="code/r1", data="data/1f/rows", arguments=words)
    assert spec.scripted
    assert spec.place == spec.workspace / "code/r1"
    files = spec.workspace / "results/r1/files"
    rows = str(spec.workspace / "data/1f/rows")
    assert spec.words == [f"--out={files}/x", rows, f'{{"a": {files}}}', "{other}"]


def test_behind_the_dashes_torchrun_takes_no_word_of_the_script_for_its_own(load):
    spec = load(script="code/r1/a.py", folder="code/r1", arguments=["--run", "x"])
    words = command(spec, GROUP)
    script = str(spec.workspace / "code/r1/a.py")
    assert words[words.index("--") :] == ["--", script, "--run", "x"]


def test_resident_ranks_have_a_torchrun_of_their_node_only(load):
    spec = load(**RESIDENT, return_timeout=0)
    assert spec.layout == (("desk", 2), ("laptop", 1))
    alone = Form(0, ("laptop",), "10.0.0.2", 29500, ("10.0.0.2",), fresh=True)
    words = command(spec, alone)
    options = dict(zip(words[3::2], words[4::2], strict=False))
    assert (options["--nnodes"], options["--node-rank"]) == ("1", "0")
    assert (options["--master-addr"], options["--master-port"]) == ("10.0.0.2", "29500")
    assert command(spec, GROUP)[words.index("--master-addr") + 1] == "10.0.0.1"


@pytest.mark.parametrize(
    ("start_method", "cuda", "forks"),
    [("fork", False, True), ("fork", True, False), ("spawn", False, False)],
)
def test_ranks_are_forked_only_of_hearths_trainer_and_without_cuda(
    monkeypatch, start_method, cuda, forks
):
    way, static = [], torchrun.static_tcp_rendezvous
    monkeypatch.setattr(static, "StaticTCPRendezvous", torchrun.AtOneAddress)
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: cuda)  # stands in for that build
    monkeypatch.setattr(torchrun, "_fork_ranks", lambda *_: way.append("fork"))
    monkeypatch.setattr(torchrun.torchrun, "main", lambda: way.append("torchrun"))
    monkeypatch.setattr(sys, "argv", ["torchrun", f"--start-method={start_method}", "x.py"])
    assert torchrun.main() == 0
    assert way == ["fork" if forks else "torchrun"]


def test_a_persons_script_finds_its_places_and_nothing_of_hearths_code(load, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    spec = load(interface="enp5s0", script="code/r1/a.py", folder="code/r1", data="data/1f/rows")
    told = environment(spec, GROUP)
    assert told["HEARTH_RESULTS"] == str(spec.files)
    assert told["HEARTH_DATA"] == str(spec.workspace / "data/1f/rows")
    assert told["GLOO_SOCKET_IFNAME"] == "enp5s0"
    for word in ("HF_HUB_OFFLINE", "TORCH_ELASTIC_WORKER_IDENTICAL"):
        assert word not in told
    # torchrun needs them to find Hearth, and takes them from the ranks.
    assert told[NOT_FOR_RANKS].split() == ["PYTHONPATH", "PYTHONSAFEPATH"]
    own = environment(load(models="/srv/models"), GROUP)
    assert own[STORE_CLIENTS].split() == [*GROUP.clients]
    assert own["HEARTH_MODELS"] == "/srv/models"
    code = str(spec.workspace / "scripts")
    assert own["PYTHONPATH"] == told["PYTHONPATH"] == f"{code}:/somewhere"
    monkeypatch.setenv("PYTHONPATH", code)
    assert environment(spec, GROUP)["PYTHONPATH"] == code
    assert not {"HEARTH_RESULTS", NOT_FOR_RANKS} & own.keys()


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"run": "omit"}, ["'run'", "missing"]),
        ({"runs": 1}, ["unknown", "'runs'", "another version"]),
        ({"silence_timeout": 0}, ["'silence_timeout'", "above 0 s", "not 0 s"]),
        ({"return_timeout": -1.0}, ["'return_timeout'", "0 s or more", "not -1 s"]),
        ({"elastic": True, "return_timeout": 0}, ["'elastic'", "return_timeout"]),
        (RESIDENT | {"folder": "code/r1"}, ["'resident'", "user's script"]),
    ],
)
def test_faults_are_named(load, changes, facts):
    with refuses(LaunchError, *facts):
        load(**changes)


def test_all_faults_come_at_once_and_the_token_is_not_shown(load):
    with refuses(LaunchError, "'python'", "'runs'") as error:
        load(python="omit", runs=1)
    assert len(error.value.findings) == 2
    assert GOOD["token"] not in f"{error.value} {load()!r}"


def test_a_file_that_is_no_spec_is_named(tmp_path):
    path = tmp_path / "spec.json"
    for content in ("{", "[]", None):
        path.unlink() if content is None else path.write_text(content)
        with refuses(LaunchError, path, "JSON object"):
            load_spec(path)


@pytest.mark.parametrize("slurm", [False, True], ids=["file", "job"])
def test_addresses_of_messages_stay_with_the_supervisor(load, tmp_path, monkeypatch, slurm):
    spec = load()
    given = {"KEY": "of-ranks", "HEARTH_NOTIFY": "ntfy://planted"}
    if slurm:  # a job has them in its environment
        for name, text in given.items():
            monkeypatch.setenv(name, text)
    else:
        (tmp_path / "r1.secrets").write_text(json.dumps(given))
    own = with_secrets(spec, tmp_path / "r1.json")
    assert own.notify == "ntfy://planted"
    of_ranks = environment(own, GROUP)
    assert of_ranks["KEY"] == "of-ranks"
    assert "planted" not in str(of_ranks)
    assert "planted" not in repr(own)
    assert "HEARTH_NOTIFY" not in os.environ


def test_a_script_finds_nvcc_of_a_toolkit_that_is_beside_the_search_path(
    load, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(workers, "CUDA", str(tmp_path / "cuda/bin"))
    assert environment(load(), GROUP)["PATH"] == "/nowhere"
    (tmp_path / "cuda/bin").mkdir(parents=True)
    assert environment(load(), GROUP)["PATH"] == f"/nowhere:{tmp_path}/cuda/bin"
