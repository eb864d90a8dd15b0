#!/usr/bin/python
"""Ansible module: check this node's address, or change it without locking anyone out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_network
short_description: The address of this node in the cluster
description:
  - With O(state=inspect) nothing is changed, whatever O(mode) says. Reasons against the change come
    back as RV(findings) and do not fail the task (see M(hearth_verdict)).
  - The action plugin of the same name carries out O(state=apply). It arms a change on the node
    (O(state=arm)), reconnects at the new address and confirms it (O(state=confirm)). Without that
    the node takes the change back by itself, and O(state=after) returns the outcome.
options:
  state:
    description: What to do. V(apply) is the action plugin's; it calls the others in turn.
    choices: [inspect, apply, arm, confirm, after]
    default: inspect
    type: str
  mode:
    description:
      - V(verify) checks only. V(static) sets O(address) on the NIC for good.
      - V(original) restores the setup from before Hearth, from the record of changes.
    choices: [verify, static, original]
    default: verify
    type: str
  address:
    description: The cluster address.
    type: str
    required: true
  interface:
    description: Name of the NIC for it; by default the one in use.
    type: str
    default: ""
  mac:
    description: Its MAC, instead of or beside its name.
    type: str
    default: ""
  gateway:
    description: The gateway; by default the one in force.
    type: str
    default: ""
  dns:
    description: Name servers; by default those in force.
    type: list
    elements: str
    default: []
  mtu:
    description: Largest packet in bytes; 0 is the one in force.
    type: int
    default: 0
  force:
    description: Whether to arm a change that would be refused. For tests of the undo.
    type: bool
    default: false
  reached:
    description: Addresses of this node that the controller connects to. From the action plugin.
    type: list
    elements: str
    default: []
  peers:
    description: Addresses of the other nodes, by name. From the action plugin.
    type: dict
    default: {}
  busy:
    description: The run under way on this node, which V(static) then does not move.
    type: str
    default: ""
  seconds:
    description: Time for the confirmation; then the node takes the change back.
    type: int
    default: 120
  token:
    description: What O(state=arm) returned.
    type: str
    default: ""
"""

import os
import time
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Journal, RecordError
from ansible.module_utils.hearth_node.network import armed, inspect, neighbours, plan
from ansible.module_utils.hearth_node.network.change import (
    CONFIGURATION,
    NetworkChange,
    fingerprint,
    forget_past,
    keep_past,
    load_past,
)
from ansible.module_utils.hearth_node.network.nics import see

_PATIENCE = 10  # seconds within which gateway and peers must answer at a new address


def addresses(nics: list) -> list:
    """Return the IPv4 addresses of the NICs, without programs' virtual NICs."""
    return [held.address for nic in nics if nic.ordinary for held in nic.held]


def verdict_of(options: dict, nics: list) -> inspect.NetworkVerdict:
    """Return the findings and the required change in the requested mode."""
    names = ("address", "interface", "mac", "gateway", "mtu")
    request = plan.AddressRequest(
        **{name: options[name] for name in names},
        dns=tuple(options["dns"]),
        reached=tuple(options["reached"]),
    )
    if options["mode"] == "original":
        return inspect.original(nics)
    if options["mode"] == "verify":
        return inspect.verify(request, nics, options["peers"])
    verdict = inspect.static(request, nics, options["peers"], force=options["force"])
    if verdict.candidate and options["busy"] and not options["force"]:
        verdict.findings.append(
            f"run '{options['busy']}' is under way on this node, and another address would cut it "
            "off: wait for it, or stop it with `hearth stop`"
        )
    return verdict


def inspect_only(options: dict) -> dict:
    """Return findings, and the pending change."""
    nics = see()
    verdict = verdict_of(options, nics)
    candidate = verdict.candidate
    answer = {
        "findings": verdict.findings,
        "pending": candidate is not None,
        "addresses": addresses(nics),
    }
    if candidate:
        answer["diff"] = diff(candidate)
    if note := armed.unreported_undo():
        answer["note"] = note
        armed.mark_reported()
    return answer


def diff(candidate: NetworkChange) -> dict:
    """Return the output of `--diff` for a change."""
    return {
        "before": candidate.before,
        "after": candidate.after,
        "before_header": candidate.target,
        "after_header": candidate.target,
    }


def arm(options: dict) -> dict:
    """Arm the required change, unless there are findings."""
    nics = see()
    verdict = verdict_of(options, nics)
    candidate = verdict.candidate
    if verdict.findings or candidate is None:
        return {"findings": verdict.findings, "token": "", "addresses": addresses(nics)}
    past = load_past() if options["mode"] == "original" else None
    wanted = verdict.wanted
    leads_anew = bool(wanted and wanted.gateway and wanted.gateway != verdict.nic.gateway)
    servers = neighbours.outside_servers(wanted) if leads_anew else {}
    facts = {
        "nic": candidate.nic,
        "wanted": asdict(wanted) if wanted else None,
        "outside": neighbours.reached_through(candidate.nic, servers),
        "peers": neighbours.reachable(verdict.nic, nics, options["peers"]),
        "addresses": addresses(nics),
        # Addresses at which the changed node should answer.
        "goals": past.addresses if past else verdict.goals,
    }
    digest = fingerprint(*CONFIGURATION)
    try:
        Journal()  # raises early if the change could not be kept
        token = armed.arm(candidate, options["seconds"], facts)
    except (armed.NotArmed, RecordError) as error:
        return {"findings": [str(error)], "token": "", "addresses": addresses(nics)}
    return {
        "findings": [],
        "token": token,
        **facts,
        "unproved": leads_anew and not facts["outside"],
        "target": candidate.target,
        "digest": digest,
        "diff": diff(candidate),
    }


def confirm(options: dict) -> dict:
    """Keep the change if the network works with it; undo it at once if it does not."""
    try:
        change = armed.load(options["token"])
    except armed.NotArmed as error:
        return {"findings": [], "confirmed": False, "stranger": True, "why": [str(error)]}
    if armed.kept():
        return {"findings": [], "confirmed": True, "changed": True, "why": []}
    end = time.monotonic() + _PATIENCE
    while (why := missing(change.facts)) and time.monotonic() < end:
        time.sleep(0.5)
    if not why:
        why = keep(change)
    if why:
        armed.undo_now(change, why)
    return {"findings": [], "confirmed": not why, "changed": not why, "why": why}


def missing(facts: dict) -> list:
    """Return findings on the network with the tried change applied."""
    nics = see()
    nic = next((each for each in nics if each.name == facts["nic"]), None)
    if nic is None:
        return [f"there is no NIC {facts['nic']}"]
    if facts["wanted"]:
        wanted = plan.Wanted(**facts["wanted"])
        if why := plan.not_in_force(nic, wanted):
            return why
        address, gateway = wanted.address, wanted.gateway
    elif nic.held:
        address, gateway = nic.held[0].address, nic.gateway
    else:
        return [f"{nic.name} got no address"]
    answers = neighbours.listen(nic, nics, address, [gateway] if gateway else [])
    there = neighbours.reachable(nic, nics, {name: [at] for name, at in facts["peers"].items()})
    silent = {name: at for name, at in facts["peers"].items() if name not in there}
    why = plan.around(nic, address, gateway, answers, {}) + plan.silent(silent)
    if facts["outside"] and not neighbours.reached_through(nic.name, facts["outside"]):
        why.append(plan.no_way_out(gateway, facts["outside"]))
    return why


def keep(change: armed.Armed) -> list:
    """Make the change permanent, on the record of changes; return reasons if that fails."""
    candidate = change.candidate
    try:
        record = Journal("network")
        if not armed.disarm():
            return ["the time for the confirmation was over"]
        if change.facts["wanted"] is None:
            record.restore(candidate.target)
            forget_past()
        else:
            keep_past(candidate, change.facts["addresses"])
            record.write(
                candidate.target,
                candidate.content.encode(),
                mode=None if os.path.exists(candidate.target) else 0o600,
                then=candidate.then,
            )
            for path, content in candidate.also.items():
                record.write(path, content.encode())
    except (OSError, RecordError, ValueError) as error:  # ValueError: invalid file content
        return [f"{candidate.target} could not be written: {error}"]
    armed.finish(change)
    return []


def after(options: dict) -> dict:
    """Return the outcome of an unconfirmed change."""
    try:
        change = armed.load(options["token"])
    except armed.NotArmed:
        change = None
    undone = change is None or armed.wait_undone(options["seconds"])
    nics = see()
    if change and undone:
        armed.mark_reported()
        end = time.monotonic() + _PATIENCE  # a lease takes a moment
        while not set(change.facts["addresses"]) <= set(addresses(nics)) and time.monotonic() < end:
            time.sleep(0.5)
            nics = see()
    return {
        "findings": [],
        "undone": undone,
        "restarted": change is None,
        "digest": fingerprint(*CONFIGURATION),
        "addresses": addresses(nics),
        "why": change.why if change else [],
        "said": armed.errors(),
    }


def main() -> None:
    """Run the module.

    It returns `findings` and the IPv4 `addresses` of the node. `state=inspect` also whether a
    change is `pending`; `state=arm` the `token` that confirms it; `state=confirm` whether it is
    `confirmed` and, as `state=after`, `why` not.
    """
    text = {"type": "str", "default": ""}
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["inspect", "arm", "confirm", "after"], "default": "inspect"},
            "mode": {"choices": ["verify", "static", "original"], "default": "verify"},
            "address": {"type": "str", "required": True},
            "interface": text,
            "mac": text,
            "gateway": text,
            "dns": words,
            "mtu": {"type": "int", "default": 0},
            "force": {"type": "bool", "default": False},
            "reached": words,
            "peers": {"type": "dict", "default": {}},
            "busy": text,
            "seconds": {"type": "int", "default": 120},
            "token": text | {"no_log": False},
        },
        supports_check_mode=True,
    )
    states = {"inspect": inspect_only, "arm": arm, "confirm": confirm, "after": after}
    state = "inspect" if module.check_mode else module.params["state"]
    module.exit_json(**{"changed": False} | states[state](module.params))


if __name__ == "__main__":
    main()
