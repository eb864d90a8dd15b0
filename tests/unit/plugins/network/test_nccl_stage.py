"""Which network NCCL and Gloo are told to use: for the machine, and by the launcher of a run."""

from __future__ import annotations

import pytest
import yaml
from support.facts import assert_names
from support.modules import call
from support.plugins import load
from support.repository import ROOT

from hearth.ranks.control_protocol import Form
from hearth.supervisor import workers
from hearth.supervisor.spec import Spec

nccl = load("modules", "hearth_nccl")


@pytest.mark.parametrize("address", ["192.168.1.40", "fd00::28"])
def test_the_launcher_and_the_machine_say_the_same(tmp_path, address, monkeypatch):
    """The launcher's own values win over those of the shell or the unit that starts a run."""
    place = ("python3", tmp_path, "a token", "enp5s0")
    spec = Spec("r", "tower", 0, ("tower",), (address,), 1, *place)
    told = nccl.variables("enp5s0", address)
    for name in told:
        monkeypatch.setenv(name, "of another machine")
    launched = workers.environment(
        spec, Form(0, ("tower",), address, 29501, (address,), fresh=True)
    )
    assert told == {name: launched[name] for name in told}


def test_a_line_above_the_block_that_says_otherwise_is_found():
    wanted = nccl.variables("enp5s0", "192.168.1.40")
    block = "# hearth: the cluster's network begin\nNCCL_SOCKET_IFNAME==old\n"
    text = "NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME==enp5s0\nNCCL_SOCKET_FAMILY=AF_INET6\n"
    assert nccl.overruled(text + block, wanted) == ["NCCL_SOCKET_FAMILY=AF_INET6"]
    assert nccl.overruled(block + "NCCL_SOCKET_IFNAME=eth0\n", wanted) == []
    assert nccl.overruled("# NCCL_SOCKET_IFNAME=eth0\n", wanted) == []


ROCE = {"NCCL_IB_HCA": "rocep1s0f0:1", "NCCL_IB_GID_INDEX": 3, "FOO": "no matter of NCCL's"}


def test_variables_of_a_node_stand_beside_those_of_its_interface():
    answer = call("hearth_nccl", check=True, address="127.0.0.1", variables=ROCE)
    assert answer["findings"] == []
    own = nccl.variables("lo", "127.0.0.1")
    assert answer["variables"] == own | {"NCCL_IB_HCA": "rocep1s0f0:1", "NCCL_IB_GID_INDEX": "3"}


def test_doctor_asks_what_provisioning_asks():
    """With other arguments a node would never be as provisioning leaves it."""
    asked = yaml.safe_load((ROOT / "playbooks" / "vars" / "doctor.yml").read_text())
    stage = yaml.safe_load((ROOT / "roles" / "nccl" / "tasks" / "main.yml").read_text())
    assert asked["_doctor_rooted"]["hearth_nccl"] == stage[0]["hearth_nccl"]


@pytest.mark.parametrize("value", ["INFO\nA=b", "$(id)", "a b", '"', "`id`"])
def test_a_variable_that_could_command_a_shell_is_refused(value):
    given = {"NCCL_DEBUG": value}
    answer = call("hearth_nccl", check=True, address="127.0.0.1", variables=given)
    (finding,) = answer["findings"]
    assert_names(finding, "hearth_environment", "NCCL_DEBUG")
    assert not answer["changed"]


def test_check_mode_does_not_ask_for_an_address_that_is_still_to_be_set():
    answer = call("hearth_nccl", check=True, address="198.51.100.250")
    assert answer["findings"] == []
    assert answer["changed"]
