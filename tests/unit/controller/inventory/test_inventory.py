"""Findings of the inventory check, and the shipped inventories without any."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.programs import run
from support.repository import ROOT
from support.rotated import in_turn
from support.words import VERBS

from hearth_controller.inventory.nodes import far_apart, read_nodes
from hearth_controller.inventory.values import misfit
from hearth_controller.inventory.variables import (
    OF_INVENTORY,
    Given,
    check,
    role_options,
    stray,
    template_names,
)

OPTIONS = {
    "cluster_address": {"type": "str", "required": True},
    "network_mode": {"type": "str", "choices": ["verify", "static"]},
    "network_gateway": {"type": "str"},
    "power_keep_awake": {"type": "bool"},
}
OWNERS = {"network": "the role network", "power": "the role power", "bake": "Hearth"}
ANSIBLE = ["ansible_user", "ansible_password", "ansible_host"]


# -- nodes -----------------------------------------------------------------------------------------


def members(**hosts):
    return {
        name: {"cluster_address": f"10.0.0.{i}"} | more
        for i, (name, more) in enumerate(hosts.items(), 1)
    }


def test_rank_is_the_position_in_the_group():
    nodes, findings = read_nodes(members(b={}, a={}, c={}))
    assert [(node.name, node.rank) for node in nodes] == [("b", 0), ("a", 1), ("c", 2)]
    assert not findings


@given(st.permutations([0, 1, "2", "3", 4]))
def test_any_order_of_ranks_is_taken(order):
    nodes, findings = read_nodes(members(**{f"n{rank}": {"node_rank": rank} for rank in order}))
    assert [(node.name, node.rank) for node in nodes] == [(f"n{rank}", rank) for rank in range(5)]
    assert not findings


def at(**addresses):
    return {name: {"cluster_address": address} for name, address in addresses.items()}


FIRST = {"first_address": "x.lan"}


@pytest.mark.parametrize(
    ("hosts", "facts"),
    [
        ({}, ["cluster"]),
        (members(a={"node_rank": 1}, b={}), ["a and b", "rank 1"]),
        (members(a={"node_rank": 3}), ["3", "1 nodes", "0 to 0"]),
        (members(a={"node_rank": True}), ["a", "node_rank", "True"]),
        (members(a={"node_rank": "first"}), ["a", "node_rank", "first"]),
        (members(a={"power_limit": -220}), ["a", "power_limit is -220", "watts", "0"]),
        ({"a": {}}, ["a", "cluster_address"]),
        (at(a="10.0.0.1/24"), ["a", "cluster_address", "10.0.0.1/24"]),
        (at(a="127.0.1.1", b="10.0.0.2"), ["a", "127.0.1.1"]),
        (at(a="10.0.0.1", b="::1"), ["b", "::1"]),
        (at(a="224.0.0.9"), ["a", "224.0.0.9"]),
        (at(a="10.0.0.1", b="192.0.2.41"), ["b", "192.0.2.41", "example", "ip -brief address"]),
        (at(a="0.0.0.0"), ["a", "0.0.0.0"]),
        (at(a="169.254.3.4"), ["a", "169.254.3.4", "link-local", "network_interface"]),
        (at(a="fe80::1%eth0", b="fe80::2"), ["a", "fe80::1%eth0", "b", "fe80::2", "fd00::"]),
        (at(a="FD00:0::12"), ["a", "FD00:0::12", "write it fd00::12"]),
        (at(a="fd00::1", b="fd00:0::1"), ["a and b", "cluster_address fd00::1"]),
        (at(a="10.0.0.1", b="fd00::1"), ["b are IPv6"]),
        (members(a={}, **{"../../evil": {}}), ["../../evil"]),
        (members(**{"a b": {}, "-x": {}, "a..b": {}, "a\n": {}}), ["a b", "-x", "a..b", "a\\n"]),
        (members(**{"n" * 64: {}, ".".join(["n" * 63] * 4): {}}), ["n" * 64, "n" * 63 + "."]),
        (
            members(a={}, b={"first_address": "10.0.0.1"}),
            ["b", "10.0.0.1", "cluster_address of a", "move b first", "third"],
        ),
        (members(a=FIRST, b=FIRST), ["a and b", "first_address x.lan"]),
        (
            members(
                a={"lend_when": "idel", "lend_after": -1, "lend_command": "a\nb"},
                b={"lend_when": "idle", "lend_hours": "23:00-7", "lend_after": 1.5},
            ),
            [
                *("a: lend_when: must be 'idle'", "a: lend_after", "-1", "a: lend_command"),
                "b: lend_hours: '23:00-7' is no span",
            ],
        ),
    ],
)
def test_what_is_wrong_with_nodes_is_said(hosts, facts):
    _, findings = read_nodes(hosts)
    assert findings
    assert_names("\n".join(findings), *facts)


@pytest.mark.parametrize("given", [{"lend_after": "long"}, {"lend_when": ["idle"]}])
def test_terms_of_another_type_are_left_to_the_check_of_all_options(given):
    assert read_nodes(members(a=given))[1] == []


@pytest.mark.parametrize(
    "named", [{"network_interface": "enp1s0f0np0"}, {"network_mac": "02:00:00:00:00:01"}]
)
def test_an_address_that_a_machine_gave_itself_is_taken_where_its_nic_is_named(named):
    cable = at(a="169.254.3.4", b="169.254.3.5")
    assert read_nodes({name: each | named for name, each in cable.items()})[1] == []
    assert read_nodes(members(a={"first_address": "fe80::1%eth0"}))[1] == []


def test_a_host_name_of_labels_and_underscores_is_taken():
    assert read_nodes(members(**{"Old_Box.lan": {}, "3070": {}, "n" * 63: {}}))[1] == []


def test_loopback_of_one_computer_and_a_first_address_that_is_kept_are_let_be():
    nodes, findings = read_nodes(at(a="127.0.0.1", b="127.0.5.2"))
    assert not findings
    assert not far_apart(nodes)
    assert read_nodes(members(a={"first_address": "10.0.0.1"}))[1] == []


def test_addresses_that_are_far_apart_are_remarked_upon_only():
    nodes, findings = read_nodes(members(a={}, b={"cluster_address": "10.0.7.2"}))
    assert not findings
    assert "a 10.0.0.1, b 10.0.7.2" in far_apart(nodes)
    assert far_apart(read_nodes(members(a={}, b={}))[0]) == ""


# -- variables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("clustr_address", ["'cluster_address'?"]),
        ("netwrok_mode", ["'network_mode'?"]),
        ("network_gatway", ["role network", "'network_gateway'?"]),
        ("network_colour_of_cable", ["role network", "network_"]),
        ("bake_slowly", ["Hearth", "bake_"]),
        ("ansible_usr", ["'ansible_user'?"]),
    ],
)
def test_a_misspelt_variable_is_named(name, facts):
    assert_names(stray(name, OPTIONS, OWNERS, ANSIBLE), *facts)


@pytest.mark.parametrize(
    "name",
    ["my_backup_path", "ansible_user", "ansible_ssh_common_args", "mode", "networks", "lab_state"],
)
def test_variables_of_ones_own_are_let_be(name):
    assert stray(name, OPTIONS, OWNERS, ANSIBLE) == ""


@pytest.mark.parametrize(
    ("value", "option", "facts"),
    [
        ("false", {"type": "bool"}, ['"false"', "quotes", "write off"]),
        ("Yes", {"type": "bool"}, ['"Yes"', "quotes", "write on"]),
        ("maybe", {"type": "bool"}, ["maybe", "on or off"]),
        (2, {"type": "bool"}, ["2", "on or off"]),
        (True, {"type": "int"}, ["True", "whole number"]),
        ("many", {"type": "int"}, ["many", "whole number"]),
        (1.5, {"type": "int"}, ["1.5", "whole number"]),
        ("fast", {"type": "float"}, ["fast", "number"]),
        (True, {"type": "float"}, ["True", "number"]),
        (False, {"type": "str"}, ["quotes"]),
        (["a"], {"type": "path"}, ["text", "list"]),
        ({"a": 1}, {}, ["text", "mapping"]),
        ("a,b", {"type": "list"}, ["a,b", "list"]),
        ("a=b", {"type": "dict"}, ["a=b", "mapping"]),
        ("statc", {"choices": ["verify", "static"]}, ["statc", "verify or static"]),
        (None, {"type": "int"}, ["no value"]),
    ],
)
def test_a_value_that_does_not_fit_is_named(value, option, facts):
    assert_names(misfit(value, option), *facts)


@pytest.mark.parametrize(
    ("value", "option"),
    [
        (True, {"type": "bool"}),
        (1, {"type": "bool"}),
        (False, {"choices": ["off", "on", "auto"]}),
        (3, {"type": "int"}),
        ("3", {"type": "int"}),
        (-1, {"type": "int"}),
        (2, {"type": "float"}),
        ("2.5", {"type": "float"}),
        (12.10, {"type": "str"}),
        ("static", {"choices": ["verify", "static"]}),
        ([1], {"type": "list"}),
        ({}, {"type": "dict"}),
        ("anything", {"type": "raw"}),
    ],
)
def test_a_value_that_fits_is_let_be(value, option):
    assert misfit(value, option) == ""


@pytest.mark.parametrize(
    ("price", "fits"), [(0, True), ("0.32", True), (-0.1, False), ("inf", False), ("nan", False)]
)
def test_a_price_is_zero_or_more(price, fits):
    given = {"a": {"electricity_price": Given(price, "-e", True)}}
    findings = check(given, {"electricity_price": {"type": "float"}}, {}, [])
    assert findings == (
        [] if fits else [f"electricity_price (-e): {price} is no price; 0 or more is wanted"]
    )


def test_what_is_typed_is_text_and_may_be():
    assert misfit("false", {"type": "bool"}, typed=True) == ""
    assert misfit("perhaps", {"type": "bool"}, typed=True)


def test_a_secret_that_does_not_fit_is_not_shown():
    said = misfit("hunter2", {"type": "int", "no_log": True})
    assert said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("variables", "facts"),
    [
        ({"RANK": "1"}, ["RANK"]),
        ({"HEARTH_NODE": "b"}, ["HEARTH_NODE"]),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, ["NCCL_SOCKET_IFNAME", "cluster_address"]),
        ({"OMP_NUM_THREADS": 4}, ["OMP_NUM_THREADS", "hearth_threads"]),
        ({"NCCL_TIMEOUT": 60}, ["NCCL_TIMEOUT", "collective_timeout", "NCCL_IB_TIMEOUT"]),
        ({"HF_TOKEN": "hidden"}, ["HF_TOKEN", "shell"]),
        ({"A-B": "hidden"}, ["'A-B'"]),
        ({"FOO": True}, ["FOO", "quotes"]),
        ({"FOO": None}, ["FOO"]),
        ({"FOO": ["hidden"]}, ["FOO"]),
        ({"FOO": "hidden\nBAR=1"}, ["FOO", "control character"]),
    ],
)
def test_a_variable_of_the_environment_that_cannot_be_given_is_named(variables, facts):
    option = {"hearth_environment": {"type": "dict"}}
    given = {"hearth_environment": Given({"NCCL_DEBUG": "INFO", "N": 1.5, **variables}, "h.yml:3")}
    (finding,) = check({"a": given, "b": {}}, option, OWNERS, ANSIBLE)
    assert_names(finding, "a", "hearth_environment (h.yml:3)", *facts)
    assert "hidden" not in finding


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("", None),
        ("ntfy://hidden json://user:hidden@host/", None),
        (["ntfy://hidden", "mailto://hidden@example.com"], None),
        ("hidden", "address 1 of 1"),
        (["ntfy://hidden", "hidden"], "address 2 of 2"),
        ("ntfy://a password with hidden blanks", "address 2, 3, 4, 5 of 5"),
        (["ntfy://hidden", 7], "no list of addresses"),
        ({"ntfy": "hidden"}, "no list of addresses"),
    ],
)
def test_an_address_of_messages_that_is_none_is_told_and_not_shown(value, fact):
    option = {"hearth_notify": {"type": "raw", "no_log": True}}
    found = check({"a": {"hearth_notify": Given(value, "all.yml:3")}}, option, OWNERS, ANSIBLE)
    assert len(found) == bool(fact)
    if fact:
        assert_names(found[0], "hearth_notify (all.yml:3)", fact)
    assert "hidden" not in str(found)


def test_one_mistake_of_a_group_is_said_once_with_its_file_and_line():
    everywhere = Given("verfy", "inventory/home/group_vars/all.yml:7")
    hosts = {
        "a": {"network_mode": everywhere, "power_keep_awake": Given("no", "hosts.yml:3")},
        "b": {"network_mode": everywhere},
    }
    findings = check(hosts, OPTIONS, OWNERS, ANSIBLE)
    of_all, of_one = findings
    assert_names(of_all, "network_mode", "inventory/home/group_vars/all.yml:7", "verfy")
    assert not of_all.startswith("a")
    assert_names(of_one, "a", "power_keep_awake", "hosts.yml:3", '"no"')
    unknown_origin = {"a": {"network_mod": Given(1)}, "b": {"network_mod": Given(1)}}
    assert_names(check(unknown_origin, OPTIONS, OWNERS, ANSIBLE)[0], "a, b", "network_mod")


# -- what is shipped -------------------------------------------------------------------------------

OF_VERBS = VERBS[OF_INVENTORY]
DECLARED = role_options([ROOT / "roles"]).keys() | OF_VERBS.keys()


def test_the_example_names_every_option():
    shown = "\n".join(
        path.read_text() for path in sorted((ROOT / "inventory/homelab.example").rglob("*.yml"))
    )
    missing = [
        name for name in DECLARED if not re.search(rf"^\s*(# )?{name}:", shown, re.MULTILINE)
    ]
    assert sorted(missing) == []


def test_the_example_names_no_option_that_is_none():
    """Options that are commented out count too: they must be right once enabled."""
    prefixes = [*(path.name for path in (ROOT / "roles").iterdir()), "launch", "lend"]
    owners = dict.fromkeys(prefixes, "it")
    for path in (ROOT / "inventory/homelab.example").rglob("*.yml"):
        for name in re.findall(r"^\s*(?:# )?([a-z][a-z_]+): *\S", path.read_text(), re.MULTILINE):
            if name not in DECLARED:
                assert stray(name, DECLARED, owners, []) == "", f"{path}: {name}"


def test_every_option_of_a_verb_has_a_default():
    defaults = yaml.safe_load((ROOT / "playbooks/group_vars/all.yml").read_text())
    defaults.pop("ansible_python_interpreter")  # Ansible's own
    assert OF_VERBS.keys() == defaults.keys()


def played(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Play as a person would from the checkout, or from another folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return run("ansible-playbook", *words, cwd=cwd, PATH=path)


@pytest.mark.parametrize("name", ["local", "lab"])
def test_the_shipped_inventories_pass_their_check(name):
    done = played("-i", f"inventory/{name}", "playbooks/inventory.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_names(done.stdout, "rank")


def test_an_untouched_copy_of_the_example_is_told_what_to_fill_in():
    done = played("-i", "inventory/homelab.example", "playbooks/inventory.yml")
    assert done.returncode == 2
    machines = "inventory/homelab.example/group_vars/cluster/machines.yml"
    assert re.search(rf"^ansible_user \({machines}:\d+\): 'you'", done.stdout, re.MULTILINE)
    for name, address in (("tower", 40), ("laptop", 41), ("oldbox", 42)):
        assert_names(done.stdout, f"{name}: cluster_address '192.0.2.{address}'")
    assert len(re.findall(r"example", done.stdout.replace("homelab.example", ""))) == 4


@pytest.mark.parametrize("play", ["train.yml", *in_turn("provision.yml", "playbooks/status.yml")])
def test_a_play_that_finds_no_configuration_says_why(tmp_path, play):
    """In a folder that everybody may write to Ansible reads none, and knows no module of Hearth."""
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks")
    for name in ("train.yml", "provision.yml", "ansible.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    tmp_path.chmod(0o777)
    done = played(play, cwd=tmp_path)
    assert done.returncode != 0
    assert_names(
        done.stdout + done.stderr, "ansible.cfg", "chmod o-w", "/mnt/c", "docs/machines.md"
    )


def test_what_a_variable_is_made_of_is_known_however_deep_it_lies():
    value = {"a": ["{{ vault_tower | default(other) }}", 3], "b": "plain", "c": "{{ broken"}
    assert template_names(value) == {"vault_tower", "other"}


def test_a_typed_variable_that_only_the_inventorys_templates_use_is_let_be(tmp_path):
    hosts = tmp_path / "hosts.yml"
    tower = {"cluster_address": "10.0.0.1", "ansible_password": "{{ vaulted }}"}
    hosts.write_text(yaml.safe_dump({"cluster": {"hosts": {"tower": tower}}}))
    secrets = tmp_path / "secrets.yml"
    secrets.write_text("vaulted: open sesame\nvaultd: another\n")
    for name, words in (("status", []), ("launch", ["-e", "model=smollm2-135m"])):
        done = played("-i", hosts, f"playbooks/{name}.yml", *words, "-e", f"@{secrets}")
        assert done.returncode == 2
        assert re.search(r"-e vaultd: .*'vaulted'\?", done.stdout)
        assert "-e vaulted" not in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "logs",
        "status",
        *in_turn(
            *("attach", "dashboard", "doctor", "lend", "models"),
            *("reboot", "reset", "runs", "stop"),
        ),
    ],
)
def test_a_playbook_refuses_a_word_that_it_does_not_know(name):
    done = played(f"playbooks/{name}.yml", "-e", "rnu=third", "-e", "ansible_user=me")
    assert done.returncode == 2
    assert_names(done.stdout, "-e rnu")
    assert "No machine was touched" in done.stdout
    assert "ansible_user" not in done.stdout


@pytest.mark.parametrize(
    ("name", "words", "facts"),
    [
        ("logs", ["lines=many", "follow=on"], ["-e lines: 'many'", "whole number"]),
        ("lend", ["lend=maybe", "nodes=lapto"], ["off, on or auto", "'laptop'?", "desk, laptop"]),
        *in_turn(
            ("lend", ["lend_hours=7-8", "lend_wen=idle"], ["lend_hours: '7-8'", "-e lend_wen"]),
            ("lend", ["lend=on", "untl=07:00"], ["-e untl", "'until'?"]),
            ("lend", ["lend_after=soon"], ["lend_after", "'soon'", "a number"]),
            ("chat", ["nodes=desk,laptop"], ["desk,laptop", "one is wanted"]),
            ("export", [], ["-e to=", "gguf, ollama or merged"]),
            ("eval", ["best=perhaps"], ["-e eval=", "-e best", "on or off"]),
        ),
    ],
)
def test_words_that_cannot_be_are_refused_before_a_machine_is_touched(name, words, facts):
    typed = (part for word in words for part in ("-e", word))
    done = played(f"playbooks/{name}.yml", *typed)
    assert done.returncode == 2
    assert_names(done.stdout, *facts, "No machine was touched")
    assert "-e follow" not in done.stdout


def test_ansible_does_not_warn_of_a_words_name():
    done = played("playbooks/lend.yml", "-e", "until=07:00", "-e", "port=7")
    assert_names(done.stdout, "-e port")
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("play", ["playbooks/provision/time.yml", *in_turn("provision.yml")])
def test_a_stage_is_of_the_named_nodes_and_refuses_another_name(play):
    shown = played(play, "--list-hosts", "-e", "nodes=laptop", "--tags", "all,time").stdout
    assert "laptop" in shown
    stage = shown[shown.index("Clocks") :]
    assert "desk" not in stage.partition("play #")[0]
    done = played(play, "-e", "nodes=lapto,desk")
    assert done.returncode != 0
    assert_names(done.stdout + done.stderr, "-e nodes", "lapto", "'laptop'?", "desk, laptop")


def test_an_inventory_overrides_a_verbs_default_wherever_it_sets_it(tmp_path):
    here = {"cluster_address": "10.0.0.1"}
    inline = {"vars": {"lend_after": "long"}}
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(yaml.safe_dump({"all": inline, "cluster": {"hosts": {"tower": here}}}))
    (tmp_path / "group_vars").mkdir()
    everywhere = tmp_path / "group_vars" / "all.yml"
    everywhere.write_text("launch_silence_timeout: often\nlaunch_return_timeout: 5\n")
    done = played("-i", tmp_path, "playbooks/inventory.yml")
    assert done.returncode == 2
    assert_names(done.stdout, f"lend_after ({hosts}:3): 'long'")
    assert_names(done.stdout, f"launch_silence_timeout ({everywhere}:1): 'often'")
    assert "launch_return_timeout" not in done.stdout


def test_several_faults_come_at_once_with_file_and_line(tmp_path):
    here = {"cluster_address": "10.0.0.1"}
    hosts = {
        "tower": here | {"clustr_address": "10.0.0.1"},
        "laptop": here | {"power_keep_awake": "false"},
    }
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False))
    wrong = ("-e", "python_bas=python3.11", "-e", '{"hearth_environment": {"RANK": 1}}')
    done = played("-i", file, "playbooks/inventory.yml", *wrong)
    assert done.returncode == 2
    assert_names(
        done.stdout,
        *(f"tower: clustr_address ({file}:5)", "'cluster_address'?", "tower and laptop"),
        *(
            f"laptop: power_keep_awake ({file}:8)",
            "'python_base'?",
            "RANK",
            "No machine was touched",
        ),
    )
