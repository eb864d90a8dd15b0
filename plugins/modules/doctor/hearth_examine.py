#!/usr/bin/python
"""Ansible module: gather a node's facts that training depends on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_examine
short_description: Look at a node as a doctor does, and tidy up after runs that have ended
description:
  - Needs neither the environment nor the training code of the node, and root for V(claims) only.
  - M(hearth_doctor) judges the facts (C(hearth_controller.doctor)).
options:
  verb:
    description:
      - V(look) gathers all facts.
      - V(health) measures the load of the node; takes a second, since a rate needs two readings.
      - V(claims) asks the network which machines claim the nodes' addresses. Needs root.
      - V(tidy) removes units and scratch folders of runs that have ended.
    type: str
    choices: [look, health, claims, tidy]
    required: true
  address:
    description: The cluster address of the node.
    type: str
    required: true
  peers:
    description: Cluster addresses of the other nodes, by name.
    type: dict
    default: {}
  workspace:
    description: The workspace of the node. May start with C(~).
    type: str
    required: true
  models:
    description: The node's model cache; empty is C(models/) in the workspace.
    type: str
    default: ""
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base import taken_address
from ansible.module_utils.hearth.base.nvidia import NVIDIA
from ansible.module_utils.hearth_node.base import absolute, run_under_way, text_of
from ansible.module_utils.hearth_node.doctor import copies, health, surroundings
from ansible.module_utils.hearth_node.driver.inspect import inspect_driver
from ansible.module_utils.hearth_node.network.neighbours import claimants
from ansible.module_utils.hearth_node.network.nics import see
from ansible.module_utils.hearth_node.runs import digest, leftovers
from ansible.module_utils.hearth_node.system.memory import host_memory


def inspect_node(given: dict) -> dict:
    """Return all facts: those of `surroundings.home`, and more.

    The `driver`, `card` of the cluster address, its `network`, `paths` to the peers, `disks`,
    `memory`, `identity`, the run that is `busy`, the `slow_links` that hold it up, its `orphans`
    (processes of no run) and `leftovers` (paths), `models`, `data` (names), the `damaged` ones, and
    files too large to read (`unread`). For data sets of the Hub, `hub_data` (names) and `hub_sums`.
    """
    workspace, models = given["workspace"], given["models"]
    own, reader = surroundings.card(given["address"]), copies.Reader()
    staged, damaged = copies.data(workspace, reader)
    hub_data, hub_sums = copies.hub_data(workspace, reader)
    return {
        **surroundings.home(workspace),
        "driver": driver(),
        "card": own,
        "paths": surroundings.paths(own["mtu"], given["peers"] if own["name"] != "lo" else {}),
        "network": taken_address.network_view(given["peers"].values()),
        "disks": surroundings.disks({"workspace": workspace, "models": models}),
        "memory": host_memory(text_of("/proc/meminfo")),
        "identity": surroundings.identity(),
        "busy": run_under_way(workspace),
        "slow_links": digest.slow_links(workspace),
        "orphans": leftovers.processes(workspace)[1],
        "leftovers": leftovers.files(workspace),
        "models": copies.models(models, reader),
        "data": staged,
        "damaged": damaged,
        "hub_data": hub_data,
        "hub_sums": hub_sums,
        "unread": reader.unread,
    }


def driver() -> dict:
    """Return a summary of the driver; `cards` are the PCI device ids of the NVIDIA cards."""
    said = inspect_driver()
    cards = [each["device"] for each in said["cards"] if each["vendor"] == NVIDIA]
    names = (
        *("works", "restart", "next_boot", "remedy", "loaded", "modules", "library", "answers"),
        *("secure_boot", "signer", "signer_enrolled", "prime_off", "system"),
        *("next_kernel", "lockout", "lockout_remedy"),
    )
    return {"cards": cards, **{name: said[name] for name in names}}


def claims(given: dict) -> dict:
    """Return the MACs by address of the other machines that claim the addresses of nodes."""
    nics = see()
    nic = next((each for each in nics if each.has(given["address"])), None)
    addresses = [given["address"], *given["peers"].values()]
    return {"claimants": claimants(nic, nics, addresses, probes=2) if nic else {}}


def tidy(module: AnsibleModule, workspace: str) -> None:
    """Remove the leftovers of ended runs, and exit the module."""
    try:
        gone = (leftovers.files if module.check_mode else leftovers.tidy)(workspace)
    except OSError as error:
        module.fail_json(msg=f"not all that is left of ended runs could be removed: {error}")
    module.exit_json(changed=bool(gone), removed=gone)


def main() -> None:
    """Run the module; return the `facts`, or with `tidy` the `removed` paths."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"choices": ["look", "health", "claims", "tidy"], "required": True},
            "address": {"type": "str", "required": True},
            "peers": {"type": "dict", "default": {}},
            "workspace": {"type": "str", "required": True},
            "models": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = dict(module.params)
    given["workspace"] = absolute(given["workspace"])
    given["models"] = absolute(given["models"] or os.path.join(given["workspace"], "models"))
    if given["verb"] == "tidy":
        tidy(module, given["workspace"])
    if given["verb"] == "health":
        speeds = os.path.join(given["workspace"], "data", "speeds")
        module.exit_json(changed=False, facts=health.load_of_node(given["address"], speeds))
    facts = {"look": inspect_node, "claims": claims}[given["verb"]](given)
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
