"""The modules on a node, each run as Ansible runs it: arguments in, one JSON object out."""

from __future__ import annotations

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.plugin_docs import read_docstring
from support.facts import assert_names
from support.modules import call
from support.programs import stand_in
from support.repository import ROOT
from support.workspace import under_way


@pytest.mark.parametrize(
    "path", sorted((ROOT / "plugins" / "modules").rglob("*.py")), ids=lambda p: p.stem
)
def test_a_module_explains_each_of_its_options(path):
    parts = read_docstring(str(path), verbose=False, ignore_errors=False)
    assert parts["doc"]["module"] == path.stem
    for part in ("short_description", "description"):
        assert parts["doc"][part], part
    assert all(option["description"] for option in parts["doc"].get("options", {}).values())


SECRET = "a-token-that-nobody-else-may-see"
STARTED = '{"ok": true, "started": true, "pid": 7, "state": "waiting", "unit": "hearth-r.service"}'


@pytest.fixture
def answering(tmp_path):
    """Return a function that makes a stand-in for the node's Python; it prints `answer`."""

    def make(says: str, status: int = 0) -> Path:
        unknown = '[ "$2" = hearth.diagnose ] && exit 1'
        notes = f'{unknown}\nenv > {tmp_path}/environment\necho "$@" > {tmp_path}/arguments'
        answer = f"cat <<'TEXT'\n{says}\nTEXT\necho trouble >&2\nexit {status}"
        return stand_in(tmp_path / "python", f"{notes}\n{answer}")

    return make


@pytest.fixture
def supervise(tmp_path, workspace):
    """Return a function that starts the run `r` in the workspace, or takes another verb to it."""
    spec = {"run": "r", "node": "a", "workspace": str(workspace), "python": f"{tmp_path}/python"}
    spec["environment"] = {"FOO": "bar"}

    def act(verb: str = "start", **more: Any) -> dict[str, Any]:
        given = {"token": SECRET, "run_file": "run: r\n"} if verb == "start" else {}
        return call("hearth_supervise", **{"verb": verb, "spec": spec} | given | more)

    return act


def test_start_lays_down_a_private_spec_and_says_whether_it_started(
    tmp_path, workspace, answering, supervise, monkeypatch
):
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    answering(STARTED)
    secrets = {"KEY": "another-secret", "EMPTY": ""}
    answer = supervise(secrets=secrets)
    assert answer["changed"]
    assert answer["findings"] == []
    written, hidden = (workspace / "config" / name for name in ("r.json", "r.secrets"))
    assert {path.stat().st_mode & 0o777 for path in (written, hidden)} == {0o600}
    assert json.loads(written.read_text())["token"] == SECRET
    assert "another-secret" not in written.read_text()
    assert json.loads(hidden.read_text()) == {"KEY": "another-secret"}
    assert (workspace / "results" / "r" / "run.yml").read_text() == "run: r\n"
    assert SECRET not in json.dumps(answer)
    for told in ("arguments", "environment"):
        assert SECRET not in (tmp_path / told).read_text()

    assert "FOO=bar" in (tmp_path / "environment").read_text().splitlines()

    answering(STARTED.replace('"started": true', '"started": false'))
    assert not supervise(secrets=secrets)["changed"]
    assert hidden.exists()


def test_a_job_has_its_secrets_in_its_environment_and_in_no_file(
    tmp_path, workspace, answering, supervise
):
    spec = {"run": "r", "node": "a", "workspace": str(workspace), "python": f"{tmp_path}/python"}
    answering('{"ok": true, "started": true, "job": "12"}')
    secrets = {"KEY": "another-secret"}
    supervise(spec=spec | {"slurm": True}, secrets=secrets)
    assert "another-secret" not in "".join(text for text, _ in files(tmp_path).values())
    answer = supervise("submit", spec=spec, secrets=secrets, job="#!/bin/bash\n")
    assert (answer["changed"], answer["record"]["job"]) == (True, "12")
    assert (workspace / "results" / "r" / "job.sbatch").read_text() == "#!/bin/bash\n"
    holding = [path.name for path, (text, _) in files(tmp_path).items() if "another-s" in text]
    assert holding == ["environment"]  # of the process that submits


def files(tmp_path: Path) -> dict[Path, tuple[str, int]]:
    """Return text and time of each file of the workspace and of the stand-in's notes."""
    found = (path for path in tmp_path.rglob("*") if path.is_file())
    return {path: (path.read_text(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("run", ["r", "another"])
def test_a_start_beside_a_run_that_is_under_way_changes_nothing(
    tmp_path, workspace, answering, supervise, run
):
    answering(STARTED)
    supervise()
    with under_way(workspace, run):
        before = files(tmp_path)
        answer = supervise(token="b" * 20, run_file="run: r\nseed: 7\n", secrets={"KEY": "x"})
        assert files(tmp_path) == before
    assert not answer["changed"]
    (finding,) = answer["findings"]
    assert_names(finding, f"run '{run}'", "under way")


def test_the_start_that_began_a_run_may_come_twice(workspace, answering, supervise):
    answering('{"ok": true, "started": false, "pid": 7, "unit": null}')
    supervise()
    with under_way(workspace, "r"):
        answer = supervise()
    assert (answer["findings"], answer["changed"]) == ([], False)


def test_of_two_starts_at_once_one_is_refused(workspace, answering, supervise):
    python = answering(STARTED)
    lock = workspace / "config" / "supervisor.lock"
    # A supervisor takes its time until it holds the workspace.
    holds = f'sleep 1\necho \'{{"run": "r"}}\' > {lock}\nflock {lock} sleep 4 > /dev/null 2>&1 &\n'
    python.write_text(python.read_text().replace("cat <<", f"{holds}sleep 0.5\ncat <<"))
    tokens = ("a" * 20, "b" * 20)
    with ThreadPoolExecutor() as pool:
        each = pool.map(lambda token: supervise(token=token, run_file=token), tokens)
        answers = dict(zip(tokens, each, strict=True))
    (begun,) = (token for token, answer in answers.items() if not answer["findings"])
    assert json.loads((workspace / "config" / "r.json").read_text())["token"] == begun
    assert (workspace / "results" / "r" / "run.yml").read_text() == begun


@pytest.mark.parametrize(
    ("says", "status"),
    [
        (STARTED.replace('"hearth-r.service"', "null"), 0),
        ('{"ok": false, "findings": ["a: another run is under way"]}', 2),
        ("Traceback", 1),
    ],
    ids=["no unit", "refused", "failed"],
)
def test_secrets_stay_only_where_a_unit_may_need_them_again(
    workspace, answering, supervise, says, status
):
    answering(says, status)
    supervise(secrets={"KEY": "another-secret"})
    assert not any("another-secret" in text for text, _ in files(workspace).values())


def test_a_place_that_cannot_be_written_is_a_finding_not_a_crash(workspace, answering, supervise):
    answering(STARTED)
    (workspace / "results").rmdir()
    (workspace / "results").write_text("in the way")
    answer = supervise()
    assert_names(answer["findings"][0], workspace / "results")
    assert not answer["changed"]


def test_a_node_that_lost_its_record_of_the_run_is_not_asked_to_stop(answering, supervise):
    answering('{"ok": false, "findings": ["no run"]}', 2)
    answer = supervise("stop")
    assert (answer["findings"], answer["changed"]) == ([], False)


def test_check_mode_starts_nothing_and_foretells(tmp_path, workspace, answering, supervise):
    answering("{}")
    assert supervise(check=True)["changed"]
    assert not (tmp_path / "arguments").exists()
    assert not list((workspace / "config").iterdir())


# -- another command -------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, workspace):
    """Return a function that has the node's Python run one of Hearth's commands."""

    node = {"node": "a", "workspace": str(workspace), "python": f"{tmp_path}/python"}
    task = {"command": ["hearth.node", "prepare"], "run_file": "run: r\n", "spec": {"nproc": 2}}
    return lambda **more: call("hearth_command", **node | task | more)


LACKS = "ImportError: libtorch_python.so: cannot open shared object file: No such file or directory"
LOCKED = "PermissionError: [Errno 13] Permission denied: 'model.safetensors'"


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (LACKS, ["cause:", "cure:", "hearth provision --tags python"]),
        (LOCKED, ["cause:", "cure:", "chown"]),
        ("SomethingError: new", []),
    ],
    ids=["library", "file", "unknown"],
)
def test_a_process_that_crashes_is_diagnosed(tmp_path, workspace, command, error, facts):
    (workspace / "scripts" / "hearth").rmdir()
    (workspace / "scripts").rmdir()
    (workspace / "scripts").symlink_to(ROOT / "training")
    crash = f"cat >&2 <<'TEXT'\nTraceback (most recent call last):\n  File \"x.py\"\n{error}\nTEXT"
    known = f'[ "$2" = hearth.diagnose ] && exec {sys.executable} "$@"'
    stand_in(tmp_path / "python", f"{known}\n{crash}\nexit 1")
    (finding,) = command()["findings"]
    assert_names(finding, "hearth.node", "status 1", error, *facts)
    assert ("Traceback" in finding) == (not facts)


@pytest.mark.parametrize("words", [["hearth.node", "of-tomorrow"], ["hearth.tomorrow", "look"]])
def test_a_command_that_the_nodes_code_does_not_have_is_named_with_what_brings_it(
    workspace, command, words
):
    (workspace / "scripts" / "hearth").rmdir()
    (workspace / "scripts").rmdir()
    (workspace / "scripts").symlink_to(ROOT / "training")
    (finding,) = command(command=words, run_file="", python=sys.executable)["findings"]
    assert_names(finding, workspace, *words, "older", "hearth provision --tags workspace")
    assert "invalid choice" not in finding


def test_an_environment_without_a_package_is_named_once_and_asked_no_more(
    tmp_path, workspace, command
):
    python = tmp_path / "python"
    stand_in(python, "echo \"ModuleNotFoundError: No module named 'yaml'\" >&2; exit 1")
    (finding,) = command()["findings"]
    assert_names(finding, python, "yaml", "hearth provision --tags python", "scripts/setup")
    answer = call(
        "hearth_inspect", workspace=str(workspace), python=str(python), node="a", spec={"run": "r"}
    )
    assert answer["findings"] == [finding]
    assert answer["facts"] == {}


def test_a_node_that_has_this_code_already_is_inspected(workspace, answering):
    path = workspace / "scripts" / "hearth" / "a.py"
    path.write_text("a = 1\n")
    code = {"hearth/a.py": hashlib.sha256(path.read_bytes()).hexdigest()}
    python = str(answering('{"facts": {"cores": 4}, "findings": []}'))
    given = {"workspace": str(workspace), "python": python, "node": "a", "spec": {"run": "r"}}
    assert call("hearth_inspect", **given, code=code)["facts"]["cores"] == 4
    path.write_text("a = 2\n")
    assert call("hearth_inspect", **given, code=code)["facts"] == {}


@pytest.mark.parametrize(
    ("says", "status", "fact"),
    [
        ("not json", 1, "status 1"),
        ("", 0, "trouble"),
        ("[1]", 0, "trouble"),
        ('{"ok": false}', 3, "status 3"),
    ],
)
def test_a_command_that_says_nothing_sensible_is_a_finding(answering, command, says, status, fact):
    answering(says, status)
    assert_names(command()["findings"][0], fact)


def test_a_missing_python_or_workspace_is_a_finding_with_the_way_out(tmp_path, answering, command):
    assert_names(command()["findings"][0], "hearth provision")
    answering('{"facts": {"port": 1}, "findings": []}')
    answer = command(workspace=f"{tmp_path}/none")
    assert_names(answer["findings"][0], f"{tmp_path}/none", "hearth provision")
    assert not (tmp_path / "arguments").exists()


def test_a_command_gets_its_files_and_the_token_in_the_environment_only(
    tmp_path, workspace, answering, command
):
    answering('{"findings": [], "facts": {"gpus": 0, "changed": true}}')
    more = {"models": f"{tmp_path}/models", "threads": 3, "hub_token": SECRET}
    more["variables"] = {"FOO": 7, "NCCL_DEBUG": "INFO"}
    answer = command(**more, secret=f"{SECRET}-too")
    assert answer["facts"]["gpus"] == 0
    assert answer["changed"]
    assert {
        f"HF_TOKEN={SECRET}",
        f"HEARTH_MODELS={tmp_path}/models",
        f"PYTHONPATH={workspace}/scripts",
        *("OMP_NUM_THREADS=3", "FOO=7", "NCCL_DEBUG=INFO"),
    } <= set((tmp_path / "environment").read_text().splitlines())
    words = (tmp_path / "arguments").read_text().split()
    assert words[:3] == ["-m", "hearth.node", "prepare"]
    assert {"--spec", "--run-file"} <= set(words)
    assert SECRET not in " ".join(words)
    assert SECRET not in json.dumps(answer)
