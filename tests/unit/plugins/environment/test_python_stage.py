"""The stage python on a node: its decisions, actions and messages."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.hearth_node.environment import python as node
from support.facts import assert_names
from support.modules import call
from support.programs import stand_in
from support.stand_in_index import lock_line, make_wheel

AS_LOCKED = {"cpu": {"pyyaml": yaml.__version__}, "gpu": {"pyyaml": "0.1"}}
ALPHA = make_wheel("alpha", "1.0")


# -- which lock ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "version", "gpus", "lock"),
    [
        ("auto", "", 0, "cpu"),
        ("auto", "580.65.06", 1, "gpu"),
        ("auto", "610.65.06", 2, "gpu"),
        ("auto", "575.65.06", 1, "cpu"),
        ("auto", "580.65.06", 0, "cpu"),  # loaded, but it drives none
        ("cpu", "580.65.06", 1, "cpu"),
        ("gpu", "", 0, "gpu"),
    ],
)
def test_the_gpu_lock_is_for_a_driver_that_is_new_enough_and_drives_a_gpu(
    choice, version, gpus, lock
):
    assert node.lock_for(choice, version, gpus) == lock


# -- what differs ----------------------------------------------------------------------------------


def test_what_differs_has_the_version_there_is_and_the_one_that_is_wanted():
    assert node.differing({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "1"}) == [
        {"name": "b", "has": "1", "wants": "2"},
        {"name": "c", "has": "", "wants": "3"},
    ]


def test_an_environment_as_locked_differs_in_nothing():
    answer = call(
        "hearth_packages", verb="look", python=sys.executable, lock="cpu", wanted=AS_LOCKED
    )
    assert (answer["present"], answer["differing"], answer["findings"]) == (True, [], [])
    assert answer["target"]["python"] == list(sys.version_info[:2])
    answer = call(
        "hearth_packages", verb="look", python=sys.executable, lock="gpu", wanted=AS_LOCKED
    )
    assert answer["differing"] == [{"name": "pyyaml", "has": yaml.__version__, "wants": "0.1"}]


def look(tmp_path: Path, **options: object) -> dict:
    python = str(tmp_path / "env" / "bin" / "python")
    given = {"python": python, "lock": "cpu", "wanted": AS_LOCKED, "base": sys.executable}
    return call("hearth_packages", verb="look", **given | options)


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("echo 3 11; exit 1", ["sudo apt install python3.11-venv", "python_mode: conda"]),
        ("echo 3 10", ["is Python 3.10", "3.11", "python_mode: conda"]),
        ("echo broken >&2; exit 1", ["broken"]),
    ],
)
def test_a_python_that_cannot_make_the_environment_is_a_finding(tmp_path, script, facts):
    python = str(stand_in(tmp_path / "python", script))
    answer = look(tmp_path, base=python)
    (finding,) = answer["findings"]
    assert_names(finding, python, *facts)
    assert not answer["present"]


def test_conda_needs_an_environment_of_its_own_and_an_installer_for_this_processor(tmp_path):
    forge = str(tmp_path / "forge")
    answer = look(tmp_path, mode="conda", miniforge=forge, miniforge_url="http://x/Linux-arm.sh")
    assert answer["lacks_miniforge"]
    not_its_own, no_installer = answer["findings"]
    assert_names(not_its_own, forge)
    assert_names(no_installer, "Miniforge", answer["target"]["machine"])
    answer = look(
        tmp_path,
        mode="conda",
        python=f"{forge}/envs/distributed-training/bin/python",
        miniforge=forge,
        miniforge_url=f"http://x/Linux-{answer['target']['machine']}.sh",
    )
    assert answer["findings"] == []
    assert answer["target"]["python"] == [3, 11]


def test_an_environment_without_pip_cannot_be_mended_and_says_so(tmp_path):
    says = '{"version": [3, 11], "pip": false, "packages": []}'
    python = stand_in(tmp_path / "python", f"echo '{says}'")
    assert_names(look(tmp_path, python=str(python))["findings"][0], "pip")


# -- making and mending ----------------------------------------------------------------------------


def test_an_environment_is_made_and_its_packages_installed_from_files_alone(tmp_path):
    python, wheels = tmp_path / "env" / "bin" / "python", tmp_path / "incoming"
    mine, unfinished = python.with_name("mine"), tmp_path / "env.unfinished"
    given = {"python": str(python), "mode": "venv", "base": sys.executable}
    assert call("hearth_interpreter", check=True, **given)["changed"]
    assert not python.exists()
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert_names(call("hearth_interpreter", **given)["msg"], tmp_path / "env")  # the user's own
    assert mine.exists()
    unfinished.touch()  # Hearth's own, half made
    assert call("hearth_interpreter", **given)["changed"]
    assert not mine.exists() and not unfinished.exists()
    assert not call("hearth_interpreter", **given)["changed"]

    (name, content) = next(iter(ALPHA.items()))
    given = {
        "python": str(python),
        "folder": str(wheels),
        "files": {name: hashlib.sha256(content).hexdigest()},
        "locked": lock_line("alpha", "1.0", content),
        "wanted": {"locked": {"alpha": "1.0"}},
    }
    assert call("hearth_packages", verb="stock", **given)["missing"] == [name]
    (wheels / name).write_bytes(content[:-1])
    assert call("hearth_packages", verb="stock", **given)["missing"] == [name]
    answer = call("hearth_packages", verb="install", **given)
    assert_names(answer["msg"], name)
    (wheels / name).write_bytes(content)
    assert call("hearth_packages", verb="stock", **given)["missing"] == []
    answer = call("hearth_packages", verb="install", **given, keep=True)
    assert answer["differing"] == [{"name": "alpha", "has": "", "wants": "1.0"}]
    assert wheels.exists()
    answer = call("hearth_packages", verb="install", **given)
    assert not answer["changed"]


def test_a_disk_that_is_too_small_is_named_before_anything_is_sent(tmp_path):
    answer = call(
        "hearth_packages",
        verb="stock",
        python="x",
        folder=str(tmp_path / "incoming"),
        files={"a.whl": "0"},
        needed=1 << 60,
    )
    assert_names(answer["msg"], "1099511627776 MB")
