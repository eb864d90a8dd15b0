"""`hearth init` and `hearth use` from the typed words to the files, with a stand-in of ssh."""

from __future__ import annotations

import argparse
import builtins
import json
import shutil
import sys
from collections import deque

import pytest
import yaml
from support.facts import assert_names
from support.machines import KEY, link, report
from support.repository import ROOT
from support.stand_in_ssh import StandInSsh

from hearth.base.errors import HearthError
from hearth_controller.cli import init, use
from hearth_controller.cli.place import IN_USE, Place
from hearth_controller.discover import sources

CONFIG = """
Host tower laptop nas
  User lab
Host tower
  HostName 192.168.1.40
Host laptop
  HostName 192.168.1.41
Host nas
  HostName 192.168.1.50
Host ex*ra
  HostName 192.168.1.60
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout that may be written into, with a home of its own."""
    repository = tmp_path / "hearth"
    (repository / "inventory").mkdir(parents=True)
    for name in ("ansible.cfg", "playbooks", "plugins", "roles", "training"):
        (repository / name).symlink_to(ROOT / name)
    for name in ("homelab.example", "local"):
        shutil.copytree(ROOT / "inventory" / name, repository / "inventory" / name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    return Place(repository, None, tmp_path)


@pytest.fixture
def home(place, tmp_path, monkeypatch):
    """Two machines with GPUs, one refusing every key, and one without."""
    ssh = StandInSsh(tmp_path / ".ssh", monkeypatch, CONFIG)
    ssh.answers("tower", report=reported("tower", 40, cards=["2c05"]), key=pin("192.168.1.40"))
    ssh.denies("laptop", key=pin("192.168.1.41"))
    ssh.answers("nas", report=reported("nas", 50), key=pin("192.168.1.50"))
    ssh.denies("extra")
    monkeypatch.setattr(sources, "listen", lambda: ([], "no network to listen at"))
    return ssh


def pin(address):
    return f"{address} {KEY.type} {KEY.text}"


def reported(host, number, **more):
    nic = link("eno1", f"192.168.1.{number}/24", mac=f"02:00:00:00:02:{number:02x}")
    return report(host, [nic], came_in=f"192.168.1.{number}", **more)


def call(module, place, *words):
    """Do what `hearth` does with these words."""
    parser = argparse.ArgumentParser()
    parser.set_defaults(inventory=None)
    module.add_arguments(parser)
    try:
        return module.run(parser.parse_args(words), place)
    except HearthError as error:
        print(error, file=sys.stderr)
        return 2


def answered(monkeypatch, *answers):
    """Type these answers; return the prompts that were shown."""
    left, prompts = deque(answers), []

    def typed(prompt=""):
        prompts.append(prompt)
        if not left:
            raise EOFError
        answer = left.popleft()
        if isinstance(answer, type):
            raise answer
        return answer

    monkeypatch.setattr(builtins, "input", typed)
    return prompts


def hosts(place, folder="inventory/home"):
    text = (place.repository / folder / "hosts.yml").read_text()
    return yaml.safe_load(text)["cluster"]["hosts"]


# -- init ------------------------------------------------------------------------------------------


def test_without_questions_the_likely_machines_are_written_and_used(place, home, capsys):
    assert call(init, place, "--yes", "--not-here") == 0
    assert list(hosts(place)) == ["tower", "laptop"]
    machines = yaml.safe_load(
        (place.repository / "inventory/home/group_vars/cluster/machines.yml").read_text()
    )
    assert machines == {
        "ansible_user": "lab",
        "network_mode": "static",
        "driver_repo": "nvidia",
    }
    pinned = (place.repository / "inventory/home/known_hosts").read_text()
    assert [line.split()[0] for line in pinned.splitlines()] == ["tower", "laptop"]
    assert (place.repository / IN_USE).read_text() == "inventory/home\n"
    screen = capsys.readouterr().out
    assert_names(screen, "hearth provision -kK --check --diff", "no network to listen at")


def test_the_answers_decide(place, home, monkeypatch, capsys):
    prompts = answered(
        monkeypatch, "me", "laptop 9", "laptop, box=extra nas", "3 1 4", "no", "verify", "y", "no"
    )
    assert call(init, place, "inventory/mine", "--no-mdns", "--not-here") == 0
    assert list(hosts(place, "inventory/mine")) == ["nas", "tower", "box"]
    assert hosts(place, "inventory/mine")["box"]["ansible_user"] == "me"
    assert not (place.repository / IN_USE).exists()
    screen = capsys.readouterr().out
    assert_names(screen, "there is no machine 9", "hearth -i")
    assert not any("\n" in prompt for prompt in prompts)


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([], 2),
        ([KeyboardInterrupt], 130),
        (["lab", "1"], 2),
        (["lab", "1", KeyboardInterrupt], 130),
        (["lab", "1", "static", "n"], 1),
    ],
)
def test_whoever_stops_has_nothing_written(place, home, monkeypatch, answers, status):
    answered(monkeypatch, *answers)
    assert call(init, place, "--not-here") == status
    assert sorted(path.name for path in (place.repository / "inventory").iterdir()) == [
        "homelab.example",
        "local",
    ]


@pytest.mark.parametrize(("last", "status"), [([], 2), ([KeyboardInterrupt], 130)])
def test_whoever_stops_at_the_last_question_is_told_that_it_is_written(
    place, home, monkeypatch, capsys, last, status
):
    answered(monkeypatch, "lab", "1", "", "", *last)
    assert call(init, place, "--not-here") == status
    assert_names(capsys.readouterr().err, "home is written")
    assert list(hosts(place)) == ["tower"]
    assert not (place.repository / IN_USE).exists()


def test_machines_that_are_named_are_taken_in_their_order_and_none_is_searched(place, home):
    machines = ["--machine", "b=extra,user=other,port=2222", "--machine", "a=tower"]
    assert call(init, place, "--yes", "--mode", "verify", *machines, "--not-here") == 0
    assert hosts(place) == {
        "b": {"cluster_address": "192.168.1.60", "ansible_port": 2222},
        "a": {"cluster_address": "192.168.1.40", "ansible_user": "lab"},
    }
    assert home.call("laptop") is None


def test_this_computer_takes_part_without_ssh(place, home, monkeypatch):
    monkeypatch.setattr(
        init.search.probe, "facts", lambda _: reported("desk", 2, user="me", cards=["2482"])
    )
    assert call(init, place, "--yes", "--here", "--no-mdns") == 0
    assert hosts(place)["desk"] == {
        "cluster_address": "192.168.1.2",
        "ansible_connection": "local",
        "ansible_user": "me",
    }


def test_an_inventory_is_never_overwritten_without_a_word(place, home, monkeypatch, capsys):
    assert call(init, place, "--yes", "--not-here") == 0
    old = (place.repository / "inventory/home/hosts.yml").read_text()
    (place.repository / "inventory/home/hosts.yml").write_text(f"{old}# mine\n")
    assert call(init, place, "--yes") == 2
    assert_names(capsys.readouterr().err, "--force")
    answered(monkeypatch, "")
    assert call(init, place) == 2
    assert "# mine" in (place.repository / "inventory/home/hosts.yml").read_text()
    assert call(init, place, "--yes", "--force", "--not-here") == 0
    assert "# mine" in (place.repository / "inventory/home.1/hosts.yml").read_text()
    assert "# mine" not in (place.repository / "inventory/home/hosts.yml").read_text()
    answered(monkeypatch, "y", "lab", "1", "", "", "")
    assert call(init, place, "--not-here") == 0
    assert (place.repository / "inventory/home.2/hosts.yml").exists()


def test_json_shows_what_was_found_and_writes_only_with_yes(place, home, capsys):
    assert call(init, place, "--json", "--not-here") == 0
    found = json.loads(capsys.readouterr().out)
    by_host = {each["host"]: each for each in found["machines"]}
    assert by_host["tower"]["facts"]["gpus"][0]["name"] == "GeForce RTX 5070 Ti"
    assert by_host["laptop"]["login"] == "password"
    assert found["left_out"] == [{"entry": "mDNS", "why": "no network to listen at"}]
    assert not (place.repository / "inventory/home").exists()
    assert call(init, place, "--json", "--yes", "--not-here") == 0
    assert json.loads(capsys.readouterr().out) == found
    assert list(hosts(place)) == ["tower", "laptop"]


@pytest.mark.parametrize("machine", ["=192.168.1.40,usr=me", "a=-oX", "a=b,port=x", "a=", "a=b,c"])
def test_a_machine_that_cannot_be_one_is_refused(place, home, machine, capsys):
    assert call(init, place, "--yes", f"--machine={machine}") == 2
    assert_names(capsys.readouterr().err, "NAME=ADDRESS")


def test_no_machine_at_all_is_said(place, home, capsys):
    (home.folder / "config").write_text("")
    assert call(init, place, "--yes", "--not-here") == 2
    assert_names(capsys.readouterr().err, "--machine")


def test_an_inventory_that_the_plays_refuse_is_kept_and_said(place, home, capsys):
    example = place.repository / "inventory/homelab.example/group_vars/cluster/machines.yml"
    example.write_text(example.read_text() + "network_mod: static\n")
    assert call(init, place, "--yes", "--not-here") == 1
    assert_names(capsys.readouterr().out, "network_mod")
    assert list(hosts(place)) == ["tower", "laptop"]
    assert not (place.repository / IN_USE).exists()


# -- use -------------------------------------------------------------------------------------------


def test_an_inventory_is_remembered_by_name_or_path_and_forgotten(place, capsys):
    for text in ("homelab.example", "inventory/homelab.example"):
        assert call(use, place, text) == 0
        assert (place.repository / IN_USE).read_text() == "inventory/homelab.example\n"
    assert call(use, place, "local") == 0
    assert not (place.repository / IN_USE).exists()


def test_an_inventory_elsewhere_is_remembered_by_its_whole_path(place, tmp_path):
    shutil.copytree(ROOT / "inventory/homelab.example", tmp_path / "mine")
    assert call(use, place, "mine") == 0
    assert (place.repository / IN_USE).read_text() == f"{tmp_path / 'mine'}\n"


@pytest.mark.parametrize("text", ["nowhere", "playbooks", "ansible.cfg"])
def test_what_is_no_inventory_is_refused(place, text, capsys):
    assert call(use, place, text) == 2
    assert_names(capsys.readouterr().err, text)
    assert not (place.repository / IN_USE).exists()


def test_a_broken_file_is_named_with_its_line(place, capsys):
    broken = place.repository / "inventory/homelab.example/hosts.yml"
    broken.write_text("cluster:\n  hosts: [\n")
    assert call(use, place, "homelab.example") == 2
    assert_names(capsys.readouterr().err, "hosts.yml:3")


def test_without_a_word_it_says_which_one_is_in_use_and_why(place, monkeypatch, capsys):
    def shown(place, inventory=None):
        assert use.run(argparse.Namespace(target=None, inventory=inventory), place) == 0
        return capsys.readouterr().out

    assert_names(shown(place), "inventory/local", "ansible.cfg")
    remembered = Place(place.repository, "/x/home", place.folder)
    assert_names(shown(remembered), "/x/home", "hearth use")
    monkeypatch.setenv("ANSIBLE_INVENTORY", "/x/other")
    assert_names(shown(remembered), "ANSIBLE_INVENTORY")
    assert_names(shown(remembered, inventory="/x/home"), "-i")
