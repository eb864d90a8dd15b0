"""The stage python on a node: its decisions, actions and messages."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
import sys

import pytest
import yaml
from ansible.module_utils.hearth_node.changes.record import Journal
from ansible.module_utils.hearth_node.environment import python as node
from ansible.module_utils.testing import patch_module_args
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from support.facts import assert_names
from support.modules import call
from support.plugins import load
from support.programs import stand_in
from support.repository import ROOT
from support.stand_in_index import lock_line, make_wheel
from support.stand_in_miniforge import INSTALLER

AS_LOCKED = {"cpu": {"pyyaml": yaml.__version__}, "gpu": {"pyyaml": "0.1"}}


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


@pytest.fixture
def inspect(tmp_path):
    """Return a function that looks at an environment, which is not there yet."""
    python = str(tmp_path / "env" / "bin" / "python")
    given = {"python": python, "lock": "cpu", "wanted": AS_LOCKED, "base": sys.executable}
    return lambda **options: call("hearth_packages", verb="look", **given | options)


def test_an_environment_as_locked_differs_in_nothing(inspect):
    answer = inspect(python=sys.executable)
    assert (answer["present"], answer["differing"], answer["findings"]) == (True, [], [])
    assert answer["target"]["python"] == list(sys.version_info[:2])
    assert f"2.{answer['target']['glibc']}" == platform.libc_ver()[1]
    answer = inspect(python=sys.executable, lock="gpu")
    assert answer["differing"] == [{"name": "pyyaml", "has": yaml.__version__, "wants": "0.1"}]


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("echo 3 11; exit 1", ["sudo apt install python3.11-venv", "python_mode: conda"]),
        ("echo 3 10", ["is Python 3.10", "3.11", "python_mode: conda"]),
        ("echo broken >&2; exit 1", ["broken"]),
    ],
)
def test_a_python_that_cannot_make_the_environment_is_a_finding(tmp_path, inspect, script, facts):
    python = str(stand_in(tmp_path / "python", script))
    answer = inspect(base=python)
    (finding,) = answer["findings"]
    assert_names(finding, python, *facts)
    assert not answer["present"]


def test_conda_needs_an_environment_of_its_own_and_an_installer_for_this_processor(
    tmp_path, inspect
):
    forge = str(tmp_path / "forge")
    given = {"mode": "conda", "miniforge": forge}
    answer = inspect(**given, installers={"riscv64": {}})
    assert answer["lacks_miniforge"]
    not_its_own, no_installer = answer["findings"]
    machine = answer["target"]["machine"]
    assert_names(not_its_own, forge)
    assert_names(no_installer, "Miniforge", machine)
    own = f"{forge}/envs/distributed-training/bin/python"
    pinned = {"url": "http://x/forge.sh", "sha256": "0" * 64}
    answer = inspect(**given, python=own, installers={machine: pinned})
    assert answer["findings"] == []
    assert answer["installer"] == pinned
    assert answer["target"]["python"] == [3, 11]


@pytest.mark.parametrize(
    ("tools", "headers", "wants"),
    [
        ("gcc", True, []),
        ("clang", True, []),
        ("", True, ["gcc", "libc6-dev"]),
        ("gcc", False, ["python3.12-dev"]),
        ("", False, ["gcc", "libc6-dev", "python3.12-dev"]),
    ],
)
@pytest.mark.parametrize("installs", [True, False])
def test_what_triton_lacks_to_build_kernels_is_installed_or_a_finding(
    tmp_path, monkeypatch, inspect, tools, headers, wants, installs
):
    for name in filter(None, ["apt-get", tools]):
        stand_in(tmp_path / "bin" / name, "")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.delenv("CC", raising=False)
    probe = f'case "$2" in *Python.h*) exit {int(not headers)};; esac; echo 3 12'
    base = str(stand_in(tmp_path / "python", probe))
    answer = inspect(mode="venv", base=base, lock="gpu", build_packages=installs)
    assert answer["build_packages"] == (wants if installs else [])
    said = " ".join(answer["findings"])
    assert_names(said, *([] if installs else wants))
    assert bool(said) == bool(wants and not installs)
    # The CPU's lock has no kernels, and an environment of conda's has its headers.
    assert inspect(mode="venv", base=base, lock="cpu")["findings"] == []


def test_an_environment_without_pip_cannot_be_mended_and_says_so(tmp_path, inspect):
    says = '{"version": [3, 11], "pip": false, "packages": []}'
    python = stand_in(tmp_path / "python", f"echo '{says}'")
    assert_names(inspect(python=str(python))["findings"][0], "pip")


@pytest.mark.parametrize(
    ("known", "python"),
    [
        ({}, "/usr/bin/python3"),
        ({"ansible_connection": "ssh"}, "/usr/bin/python3"),
        ({"ansible_connection": "local"}, "playing"),
        ({"ansible_connection": "ansible.builtin.local"}, "playing"),
    ],
)
def test_modules_run_in_the_systems_python_over_ssh_and_in_the_playing_one_here(known, python):
    init_plugin_loader()
    loader = DataLoader()
    file = str(ROOT / "playbooks" / "group_vars" / "all.yml")
    chosen = loader.load_from_file(file, trusted_as_template=True)["ansible_python_interpreter"]
    variables = known | {"ansible_playbook_python": "playing"}
    assert Templar(loader, variables=variables).template(chosen) == python


@pytest.mark.rotated
def test_conda_is_asked_for_pip_by_name(tmp_path):
    (tmp_path / "installer.sh").write_text(INSTALLER)
    forge, python = tmp_path / "forge", tmp_path / "forge" / "envs" / "env" / "bin" / "python"
    given = {"miniforge": str(forge), "installer": str(tmp_path / "installer.sh")}
    assert call("hearth_interpreter", python=str(python), mode="conda", **given)["changed"]
    assert node.inspect_environment(str(python)).pip


def test_an_environment_is_made_and_its_packages_installed_from_files_alone(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
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

    wheels, ((name, content),) = tmp_path / "incoming", make_wheel("alpha", "1.0").items()
    packages = functools.partial(
        call,
        "hearth_packages",
        python=str(python),
        folder=str(wheels),
        files={name: hashlib.sha256(content).hexdigest()},
        locked=lock_line("alpha", "1.0", content),
        wanted={"locked": {"alpha": "1.0"}},
    )
    assert_names(packages(verb="stock", needed=1 << 60)["msg"], "1099511627776 MB")
    assert packages(verb="stock")["missing"] == [name]
    (wheels / name).write_bytes(content[:-1])
    assert packages(verb="stock")["missing"] == [name]
    assert_names(packages(verb="install")["msg"], name)
    (wheels / name).write_bytes(content)
    assert packages(verb="stock")["missing"] == []
    answer = packages(verb="install", keep=True)
    assert answer["differing"] == [{"name": "alpha", "has": "", "wants": "1.0"}]
    assert wheels.exists()
    assert not packages(verb="install")["changed"]

    # What a user adds comes and goes with its list; what was there before stays.
    ((helper, content),) = make_wheel("helper", "1.0").items()
    (wheels / helper).write_bytes(content)
    extra = functools.partial(
        packages,
        verb="install",
        keep=True,
        files={helper: hashlib.sha256(content).hexdigest()},
        locked=lock_line("helper", "1.0", content),
    )
    wanted = {"alpha": "1.0", "helper": "1.0"}
    assert extra(wanted={"locked": wanted}, added=["alpha", "helper"])["changed"]
    assert not extra(wanted={"locked": wanted}, added=["alpha", "helper"])["changed"]
    looked = functools.partial(packages, verb="look", lock="cpu", wanted={"cpu": {"alpha": "1.0"}})
    assert (looked()["added"], looked()["others"]["helper"]) == (["helper"], "1.0")
    assert extra(wanted={"locked": {}}, added=[])["changed"]
    assert (looked()["added"], "helper" in looked()["others"]) == ([], False)
    assert looked()["differing"] == []  # alpha is not Hearth's to remove


@pytest.fixture
def named(tmp_path, monkeypatch, capsys):
    """A home with Hearth's Miniforge, and `named` to give its environment the name for conda."""
    home, profile = tmp_path / "home", tmp_path / "etc/profile.d/hearth-conda.sh"
    own, module = "~/.local/share/hearth/miniforge", load("modules", "hearth_conda")
    forge = home / own.removeprefix("~/")
    (tmp_path / "installer.sh").write_text(INSTALLER)
    for folder in (forge, home / "theirs"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["bash", tmp_path / "installer.sh", "-b", "-p", folder], check=True)
    python = forge / "envs/distributed-training/bin/python"
    stand_in(python, "echo hearth")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(node, "PROFILE", str(profile))
    monkeypatch.setattr(module, "PROFILE", str(profile))
    folders = {"folder": str(tmp_path / "record"), "originals": str(tmp_path / "originals")}
    journal = functools.partial(Journal, **folders)
    monkeypatch.setattr(module, "Journal", journal)

    def name(check: bool = False, miniforge: str = own) -> dict[str, object]:
        given = {"python": str(python), "miniforge": miniforge, "home": str(home)}
        with patch_module_args(given | {"_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    def activated(shell: str) -> str:
        script = f". {profile}; {shell}conda activate hearth && python"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
        return done.stdout.strip()

    def undo() -> None:
        record = journal()
        for entry in reversed(record.entries()):
            record.restore(entry.path)

    name.python, name.activated, name.undo, name.home = str(python), activated, undo, home
    name.lacks = lambda: node.lacks_name(str(python), own)
    return name


def test_conda_finds_the_environment_by_its_name_until_a_reset(named):
    assert named.lacks() and named(check=True)["changed"] and named.lacks()
    assert named()["changed"]
    assert not named.lacks() and not named()["changed"]
    assert named.activated("") == "hearth"
    # A conda of the user's, which has another root, finds it too, and stays the one that is used.
    assert named.activated(f". {named.home}/theirs/etc/profile.d/conda.sh; ") == "hearth"
    named.undo()
    assert named.lacks()
    assert not (named.home / ".conda").exists()
    assert named.activated("") == ""


def test_an_environment_of_the_users_keeps_the_name(named):
    mine = named.home / ".conda/envs/hearth"
    mine.mkdir(parents=True)
    assert_names(named()["note"], mine, node.folder_of(named.python))
    assert not named.lacks()
    named.undo()
    assert mine.is_dir() and not mine.is_symlink()


def test_in_a_home_of_several_nodes_each_ones_conda_has_the_name(named):
    own = "~/.local/share/hearth/tower/miniforge"
    assert named(miniforge=own)["changed"]
    assert (named.home / own.removeprefix("~/") / "envs/hearth").is_symlink()
    assert not (named.home / ".conda").exists()
