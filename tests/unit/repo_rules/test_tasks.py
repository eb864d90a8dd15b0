"""Tasks of playbooks and roles: how they read, their secrets, a person's tokens, downloads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from support.programs import run
from support.repository import ROOT

FILES = {
    str(path.relative_to(ROOT)): path
    for room in ("playbooks", "roles")
    for path in sorted((ROOT / room).rglob("*.yml"))
}
SECRETS = ["_verify_token"]


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in a value that was read from YAML."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from mappings(each)


def tasks(module: str) -> list[dict[str, Any]]:
    """Return all tasks that use a module."""
    load = DataLoader().load_from_file
    holding = (str(path) for path in FILES.values() if module in path.read_text())
    loaded = (load(file, trusted_as_template=True) for file in holding)
    return [each for file in loaded for each in mappings(file) if module in each]


@pytest.fixture(scope="module")
def templar() -> Templar:
    init_plugin_loader()
    return Templar(DataLoader(), variables={})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_made_anew_for_each_call(templar, name):
    (task,) = (each for each in tasks("ansible.builtin.set_fact") if name in str(each))
    secret = task["ansible.builtin.set_fact"][name]
    made = {templar.template(secret) for _ in range(3)}
    assert [len(each) for each in made] == [48] * 3
    assert task["no_log"]


def test_ansible_reads_all_playbooks_and_their_roles_without_a_warning():
    """A key that stands twice, or over one of `<<`, is one; every call would show it."""
    folders = (ROOT, ROOT / "playbooks", ROOT / "playbooks" / "provision")
    playbooks = [path for folder in folders for path in folder.glob("*.yml")]
    command = (sys.executable, "-m", "ansible", "playbook", "--syntax-check")
    done = run(*command, *playbooks, cwd=ROOT)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "WARNING" not in done.stdout


def test_there_are_no_other_secrets():
    text = "".join(path.read_text() for path in FILES.values())
    assert sorted(re.findall(r"(\w+):.*builtin\.password", text)) == sorted(SECRETS)


def test_of_a_persons_shell_only_two_tokens_and_the_addresses_of_messages_go_to_nodes():
    asked = re.compile(r"""\benv['"],\s*['"](\w+)""")
    found = {name: asked.findall(path.read_text()) for name, path in FILES.items()}
    assert {name: tokens for name, tokens in found.items() if tokens} == {
        "playbooks/eval.yml": ["HF_TOKEN"],
        "playbooks/export.yml": ["HF_TOKEN"],
        "playbooks/share.yml": ["HF_TOKEN"],
        "roles/hearth/defaults/main.yml": ["HEARTH_NOTIFY"],
        "roles/hearth/vars/main.yml": ["XDG_CACHE_HOME"],  # a folder here, for downloads
    }
    launch = (ROOT / "plugins" / "action" / "launch" / "hearth_launch.py").read_text()
    assert re.findall(r"environ.*?\"(\w+)\"", launch) == ["HF_TOKEN", "WANDB_API_KEY"]
    keyword = re.compile(r"^\s*(- )?environment:", re.MULTILINE)
    assert not [name for name, path in FILES.items() if keyword.search(path.read_text())]


def test_arguments_of_modules_travel_on_standard_input():
    settings = ConfigParser()
    settings.read(ROOT / "ansible.cfg")
    assert settings.getboolean("connection", "pipelining")


def test_a_download_names_its_checksum():
    downloads = tasks("ansible.builtin.get_url")
    assert downloads
    assert not [each for each in downloads if "checksum" not in each["ansible.builtin.get_url"]]


def test_no_module_of_ansibles_own_gets_a_path_that_may_begin_with_a_tilde():
    """Some expand it by passwd, where Python and shells on the node take $HOME."""
    ours = re.compile(
        r"\b(hearth_(workspace|shared|models|python)|python_(base|miniforge|cache))\b(?!\.)"
    )
    expanding = ("copy", "template", "fetch", "unarchive", "script", "assemble", "slurp", "stat")
    found = [
        (module, task.get("name"))
        for module in expanding
        for task in tasks(f"ansible.builtin.{module}")
        if ours.search(str(task[f"ansible.builtin.{module}"]))
    ]
    assert tasks("ansible.builtin.copy") and not found
