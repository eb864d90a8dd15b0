"""Doctor on the local inventory: its findings on this computer, and its mending."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.facts import assert_line
from support.local_cluster import NODES, LocalCluster
from support.repository import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.rotated("doctor here")]

EXCUSED = ("disk", "memory", "latency")
"""How full this computer is, and how busy, is not the business of these tests."""

SCHEMA = json.loads((ROOT / "docs" / "doctor.schema.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster whose nodes have their workspaces."""
    with closing(LocalCluster(tmp_path_factory.mktemp("doctor"), tiny_model, tiny_data)) as local:
        local.play("playbooks/provision/workspace.yml")
        yield local


def outcomes(seen: dict, node: str) -> dict[str, str]:
    """Return the outcome of each check on a node."""
    return {each["check"]: each["outcome"] for each in seen["checks"] if each["node"] == node}


def kept(local: LocalCluster) -> set[Path]:
    """Return all files of the workspaces but those that Python makes for itself."""
    files = (local.folder / "data").rglob("*")
    return {path for path in files if "__pycache__" not in path.parts}


def test_this_computer_is_examined_without_root_and_nothing_is_changed(home):
    before = kept(home)
    done = home.hearth("doctor", "--json")
    seen = json.loads(done.stdout)
    Draft202012Validator(SCHEMA).validate(seen)
    assert {"degraded": 1, "good": 0, "broken": 3}[seen["verdict"]] == done.returncode
    assert not [why for why in seen["reasons"] if why.split(": ")[1] not in EXCUSED]
    for node in NODES:
        its = outcomes(seen, node)
        for check in ("login", "versions", "lock file", "code", "address", "reach"):
            assert its[check] == "good", check
        for check in ("link", "duplicate", "MTU", "names", "firewall", "clock", "sleep"):
            assert its[check] == "not applicable", check
    assert {(pair["from"], pair["to"]) for pair in seen["pairs"]} == {NODES, NODES[::-1]}
    assert all(pair["milliseconds"] > 0 and pair["mbit"] > 0 for pair in seen["pairs"])
    assert kept(home) == before


def test_code_that_was_changed_is_named_and_mended_when_it_is_asked_for(home):
    code = home.workspace("laptop") / "scripts" / "hearth" / "base"
    errors, text, stale = (code / f"{name}.py" for name in ("errors", "text", "stale"))
    whole = [errors.read_text(), text.read_text()]
    errors.write_text("broken")
    scratch = home.workspace("desk") / "logs" / ".evening.torchrun"
    scratch.mkdir()
    done = home.hearth("doctor")
    assert done.returncode in (1, 3)
    assert_line(done.stdout, "! laptop", "code", "hearth/base/errors.py")
    assert "fix: hearth provision --tags workspace" in done.stdout
    assert f"! desk: leftovers: {scratch}" in " ".join(done.stdout.split())
    assert "Doctor\n" not in done.stdout  # the table, and nothing of the play
    assert errors.read_text() == "broken"

    text.unlink()
    stale.write_text("left over")
    done = home.hearth("doctor", "--json", "--fix")
    seen = json.loads(done.stdout)
    Draft202012Validator(SCHEMA).validate(seen)
    assert seen["mended"] == {"desk": ["leftovers"], "laptop": ["workspace"]}
    assert outcomes(seen, "laptop")["code"] == "good"
    assert outcomes(seen, "desk")["leftovers"] == "good"
    assert [errors.read_text(), text.read_text()] == whole
    assert not stale.exists()
    assert not scratch.exists()


def test_a_fresh_checkout_is_no_trouble_and_what_depends_on_a_workspace_is_not_checked(local):
    seen = json.loads(local.hearth("doctor", "--json").stdout)
    Draft202012Validator(SCHEMA).validate(seen)
    assert not [why for why in seen["reasons"] if why.split(": ")[1] not in EXCUSED]
    for node in NODES:
        its = outcomes(seen, node)
        assert its["code"] == "not checked"
        assert its["versions"] == its["reach"] == "not checked"
    assert not (local.folder / "data").exists()
