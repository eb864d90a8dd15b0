"""What the modules do on a node, each run as Ansible runs it: arguments in, one JSON object out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.parsing.plugin_docs import read_docstring
from support.modules import call

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "plugins" / "modules").glob("*.py")), ids=lambda p: p.stem
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
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            f"env > {tmp_path}/environment\n"
            f'echo "$@" > {tmp_path}/arguments\n'
            f"cat <<'TEXT'\n{says}\nTEXT\n"
            f"echo trouble >&2\nexit {status}\n"
        )
        python.chmod(0o755)
        return python

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
    assert "ws/results" in answer["findings"][0]
    assert "cannot be written: " in answer["findings"][0]
    assert not answer["changed"]


def test_check_leaves_nothing_behind(tmp_path, answering):
    python = answering('{"ok": false, "findings": ["a: port 1 is taken"], "facts": {"port": 1}}', 2)
    answer = call("hearth_supervise", verb="check", spec=spec(tmp_path, python), token=SECRET)
    assert answer["findings"] == ["a: port 1 is taken"]
    assert answer["facts"] == {"port": 1}
    assert not answer["changed"]
    assert not list((tmp_path / "ws" / "config").iterdir())


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
    answer = call(
        "hearth_prepare",
        run_file="run: r\n",
        node="a",
        workspace=f"{tmp_path}/ws",
        python=str(answering(says, status)),
    )
    assert finding in answer["findings"][0]


def test_a_missing_python_is_a_finding_with_the_way_out(tmp_path):
    answer = call(
        "hearth_prepare", run_file="", node="a", workspace="~/w", python=f"{tmp_path}/no/python"
    )
    assert "provision.yml" in answer["findings"][0]


def test_prepare_hands_the_token_on_in_the_environment_only(tmp_path, answering):
    python = answering('{"ok": true, "findings": [], "facts": {"gpus": 0}}')
    answer = call(
        "hearth_prepare",
        run_file="run: r\n",
        node="a",
        workspace=f"{tmp_path}/ws",
        python=str(python),
        models=f"{tmp_path}/models",
        hub_token=SECRET,
    )
    assert answer["facts"] == {"gpus": 0, "nproc": 1}
    told = (tmp_path / "environment").read_text()
    assert f"HF_TOKEN={SECRET}" in told
    assert f"HEARTH_MODELS={tmp_path}/models" in told
    assert f"PYTHONPATH={tmp_path}/ws/scripts" in told
    assert SECRET not in (tmp_path / "arguments").read_text()
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
