"""The modules on a node, each run as Ansible runs it: arguments in, one JSON object out."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible.parsing.plugin_docs import read_docstring
from support.facts import assert_names
from support.modules import call
from support.programs import stand_in
from support.workspace import under_way

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "plugins" / "modules").rglob("*.py")), ids=lambda p: p.stem
)
def test_a_module_explains_each_of_its_options(path):
    parts = read_docstring(str(path), verbose=False, ignore_errors=False)
    assert parts["doc"]["module"] == path.stem
    for part in ("short_description", "description"):
        assert parts["doc"][part], part
    assert all(option["description"] for option in parts["doc"].get("options", {}).values())


@pytest.fixture
def answering(tmp_path):
    """Return a function that makes a stand-in for the node's Python; it says what it is told."""

    def make(says: str, status: int = 0) -> Path:
        return stand_in(
            tmp_path / "python",
            f"env > {tmp_path}/environment\n"
            f'echo "$@" > {tmp_path}/arguments\n'
            f"cat <<'TEXT'\n{says}\nTEXT\n"
            f"echo trouble >&2\nexit {status}",
        )

    return make


def spec(tmp_path: Path, python: Path) -> dict:
    (tmp_path / "ws" / "scripts" / "hearth").mkdir(parents=True, exist_ok=True)
    (tmp_path / "ws" / "config").mkdir(exist_ok=True)
    return {"run": "r", "node": "a", "workspace": f"{tmp_path}/ws", "python": str(python)}


SECRET = "a-token-that-nobody-else-may-see"


def test_start_lays_down_a_private_spec_and_says_whether_it_started(tmp_path, answering):
    carried = '"pid": 7, "state": "waiting", "unit": "hearth-r.service"}'
    python = answering(f'{{"ok": true, "started": true, {carried}')
    arguments = {
        "spec": spec(tmp_path, python),
        "token": SECRET,
        "run_file": "run: r\n",
        "secrets": {"KEY": "another-secret", "EMPTY": ""},
    }
    answer = call("hearth_supervise", verb="start", **arguments)
    assert answer["changed"]
    assert answer["findings"] == []
    written = tmp_path / "ws" / "config" / "r.json"
    assert written.stat().st_mode & 0o777 == 0o600
    content = json.loads(written.read_text())
    assert content["token"] == SECRET
    assert "another-secret" not in written.read_text()
    hidden = tmp_path / "ws" / "config" / "r.secrets"
    assert hidden.stat().st_mode & 0o777 == 0o600
    assert json.loads(hidden.read_text()) == {"KEY": "another-secret"}
    assert (tmp_path / "ws" / "results" / "r" / "run.yml").read_text() == "run: r\n"
    assert SECRET not in json.dumps(answer)
    assert SECRET not in (tmp_path / "arguments").read_text()

    answering(f'{{"ok": true, "started": false, {carried}')
    assert not call("hearth_supervise", verb="start", **arguments)["changed"]
    assert hidden.exists()


def files(tmp_path: Path) -> dict[Path, tuple[str, int]]:
    """Return text and time of each file of the workspace and of the stand-in's notes."""
    found = (path for path in tmp_path.rglob("*") if path.is_file())
    return {path: (path.read_text(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("run", ["r", "another"])
def test_a_start_beside_a_run_that_is_under_way_changes_nothing(tmp_path, answering, run):
    python = answering('{"ok": true, "started": true, "pid": 7, "unit": "hearth-r.service"}')
    its = spec(tmp_path, python)
    call("hearth_supervise", verb="start", spec=its, token=SECRET, run_file="run: r\n")
    with under_way(tmp_path / "ws", run):
        before = files(tmp_path)
        the_rest = {"token": "b" * 20, "run_file": "run: r\nseed: 7\n", "secrets": {"KEY": "x"}}
        answer = call("hearth_supervise", verb="start", spec=its, **the_rest)
        assert files(tmp_path) == before
    assert not answer["changed"]
    (finding,) = answer["findings"]
    assert_names(finding, f"run '{run}'", "under way")


def test_the_start_that_began_a_run_may_come_twice(tmp_path, answering):
    python = answering('{"ok": true, "started": false, "pid": 7, "unit": null}')
    arguments = {"spec": spec(tmp_path, python), "token": SECRET, "run_file": "run: r\n"}
    call("hearth_supervise", verb="start", **arguments)
    with under_way(tmp_path / "ws", "r"):
        answer = call("hearth_supervise", verb="start", **arguments)
    assert (answer["findings"], answer["changed"]) == ([], False)


def test_of_two_starts_at_once_one_is_refused(tmp_path, answering):
    python = answering('{"ok": true, "started": true, "pid": 7, "unit": null}')
    its = spec(tmp_path, python)
    lock = tmp_path / "ws" / "config" / "supervisor.lock"
    # A supervisor takes its time until it holds the workspace.
    holds = f'sleep 1\necho \'{{"run": "r"}}\' > {lock}\nflock {lock} sleep 4 > /dev/null 2>&1 &\n'
    python.write_text(python.read_text().replace("cat <<", f"{holds}sleep 0.5\ncat <<"))

    def start(token: str) -> dict:
        return call("hearth_supervise", verb="start", spec=its, token=token, run_file=token)

    tokens = ("a" * 20, "b" * 20)
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(tokens, pool.map(start, tokens), strict=True))
    (begun,) = (token for token, answer in answers.items() if not answer["findings"])
    assert json.loads((tmp_path / "ws" / "config" / "r.json").read_text())["token"] == begun
    assert (tmp_path / "ws" / "results" / "r" / "run.yml").read_text() == begun


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ('{"ok": true, "started": true, "pid": 7, "state": "waiting", "unit": null}', 0),
        ('{"ok": false, "findings": ["a: another run is under way"]}', 2),
        ("Traceback", 1),
    ],
)
def test_secrets_stay_only_where_a_unit_may_need_them_again(tmp_path, answering, says, status):
    python = answering(says, status)
    secrets = {"KEY": "another-secret"}
    the_rest = {"token": SECRET, "run_file": "run: r\n", "secrets": secrets}
    call("hearth_supervise", verb="start", spec=spec(tmp_path, python), **the_rest)
    left = [path for path in (tmp_path / "ws").rglob("*") if path.is_file()]
    assert not [path for path in left if "another-secret" in path.read_text()]


def test_a_place_that_cannot_be_written_is_a_finding_not_a_crash(tmp_path, answering):
    python = answering('{"ok": true, "started": true, "pid": 7, "state": "waiting", "unit": null}')
    its = spec(tmp_path, python)
    (tmp_path / "ws" / "results").write_text("in the way")
    answer = call("hearth_supervise", verb="start", spec=its, token=SECRET, run_file="run: r\n")
    assert_names(answer["findings"][0], tmp_path / "ws" / "results")
    assert not answer["changed"]


def test_a_node_that_lost_its_record_of_the_run_is_not_asked_to_stop(tmp_path, answering):
    its = spec(tmp_path, answering('{"ok": false, "findings": ["no run"]}', 2))
    answer = call("hearth_supervise", verb="stop", spec=its)
    assert (answer["findings"], answer["changed"]) == ([], False)


def test_check_mode_starts_nothing_and_foretells(tmp_path, answering):
    python = answering("{}")
    answer = call(
        "hearth_supervise",
        check=True,
        verb="start",
        spec=spec(tmp_path, python),
        token=SECRET,
        run_file="x",
    )
    assert answer["changed"]
    assert not (tmp_path / "arguments").exists()
    assert not list((tmp_path / "ws" / "config").iterdir())


@pytest.mark.parametrize(
    ("says", "status", "finding"),
    [
        ("not json", 1, "ended with status 1"),
        ("", 0, "trouble"),
        ("[1]", 0, "trouble"),
        ('{"ok": false}', 3, "ended with status 3"),
    ],
)
def test_a_command_that_says_nothing_sensible_is_a_finding(
    tmp_path, answering, says, status, finding
):
    answer = call("hearth_command", **command(tmp_path, answering(says, status)))
    assert finding in answer["findings"][0]


def command(tmp_path: Path, python: Path) -> dict:
    """Return the arguments of a call of one of Hearth's commands in a workspace with its code."""
    its = spec(tmp_path, python)
    return {name: its[name] for name in ("node", "workspace", "python")} | {
        "command": ["hearth.measure", "node"],
        "run_file": "run: r\n",
        "spec": {"nproc": 2},
    }


def test_a_missing_python_is_a_finding_with_the_way_out(tmp_path):
    answer = call("hearth_command", **command(tmp_path, tmp_path / "no" / "python"))
    assert "provision.yml" in answer["findings"][0]


def test_a_missing_workspace_is_a_finding_with_the_way_out(tmp_path, answering):
    given = command(tmp_path, answering('{"facts": {"port": 1}, "findings": []}'))
    answer = call("hearth_command", **given | {"workspace": f"{tmp_path}/none"})
    assert_names(answer["findings"][0], f"{tmp_path}/none", "provision.yml")
    assert not (tmp_path / "arguments").exists()


def test_a_command_gets_its_files_and_the_token_in_the_environment_only(tmp_path, answering):
    python = answering('{"findings": [], "facts": {"gpus": 0, "changed": true}}')
    answer = call(
        "hearth_command",
        **command(tmp_path, python),
        models=f"{tmp_path}/models",
        threads=3,
        secret=f"{SECRET}-too",
        hub_token=SECRET,
    )
    assert answer["facts"]["gpus"] == 0
    assert answer["changed"]
    told = (tmp_path / "environment").read_text().splitlines()
    assert f"HF_TOKEN={SECRET}" in told
    assert f"HEARTH_MODELS={tmp_path}/models" in told
    assert f"PYTHONPATH={tmp_path}/ws/scripts" in told
    assert "OMP_NUM_THREADS=3" in told
    words = (tmp_path / "arguments").read_text().split()
    assert words[:3] == ["-m", "hearth.measure", "node"]
    assert {"--spec", "--run-file"} <= set(words)
    assert SECRET not in " ".join(words)
    assert SECRET not in json.dumps(answer)


def test_a_supervisor_gets_no_token_of_the_shell_it_was_started_from(
    tmp_path, answering, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    python = answering('{"ok": true, "started": true}')
    call(
        "hearth_supervise",
        verb="start",
        spec=spec(tmp_path, python),
        token="x" * 20,
        run_file="run: r\n",
    )
    assert SECRET not in (tmp_path / "environment").read_text()
