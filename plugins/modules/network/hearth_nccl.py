#!/usr/bin/python
"""Ansible module: set the network interface for NCCL and Gloo on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_nccl
short_description: Tell NCCL and Gloo which network interface is the cluster's
description:
  - Finds the interface that carries the cluster address, and names it, exactly, in
    C(/etc/nccl.conf) (a block; other lines stay), in C(/etc/default/hearth) (lines that
    systemd and a shell both read) and, through C(/etc/profile.d/hearth.sh), in the environment of
    every login shell.
  - Every file goes into the record of this machine; C(playbooks/reset.yml) undoes it from there.
  - The launcher of a run sets the same variables itself, from the same address, and does not take
    them from here.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  address:
    description: The cluster address of this node.
    type: str
    required: true
  variables:
    description: >-
      Further environment variables of this node; those of NCCL, such as C(NCCL_IB_HCA), go into the
      files too.
    type: dict
    default: {}
"""

import ipaddress
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.changes.record import Change, Journal, recorded, result
from ansible.module_utils.hearth_node.network.nics import nic_with, see

NCCL = "/etc/nccl.conf"
VARIABLES = "/etc/default/hearth"
PROFILE = "/etc/profile.d/hearth.sh"

_MARKER = "the cluster's network"
_HEAD = "# Hearth: the network interface of the cluster, exactly.\n"
# Root's shells read this too, so it must not source a file that a user can change. POSIX syntax,
# since some shells that read profile.d are not bash.
_SCRIPT = f"""\
{_HEAD}if [ -r {VARIABLES} ]; then
    set -a
    . {VARIABLES}
    set +a
fi
"""


def variables(interface: str, address: str) -> dict[str, str]:
    """Return the environment variables for NCCL and Gloo.

    NCCL treats a name as a prefix unless it starts with `=`; Gloo takes the bare name.
    """
    version = ipaddress.ip_address(address).version
    return {
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "NCCL_SOCKET_FAMILY": "AF_INET6" if version == 6 else "AF_INET",
        "GLOO_SOCKET_IFNAME": interface,
    }


def misfits(extra: dict[str, str]) -> list[str]:
    """Return findings on variables of NCCL with text that a shell, root's too, must not read."""
    return [
        f"hearth_environment: {name} goes to login shells too; give it a value of letters, digits "
        "and . , : = ^ / + - _ only"
        for name, value in extra.items()
        if not (re.fullmatch(r"NCCL_[A-Z0-9_]+", name) and re.fullmatch(r"[\w.,:=^/+-]*", value))
    ]


def overruled(text: str, wanted: dict[str, str]) -> list[str]:
    """Return the lines of an /etc/nccl.conf above Hearth's block that override it.

    NCCL uses the first line that sets a variable.
    """
    above = text.partition(f"# hearth: {_MARKER} begin\n")[0]
    settings = [(line, *line.partition("=")) for line in above.splitlines() if "=" in line]
    return [line for line, name, _, value in settings if wanted.get(name, value) != value]


def main() -> None:
    """Run the module.

    It returns `findings`, the `interface` that carries the address ('' for none), and the
    `variables`.
    """
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "variables": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    address = module.params["address"]
    nics = see()
    interface = nic_with(nics, address)
    if not interface and module.check_mode:
        # Check mode: the earlier stage, which sets the address, has not set it either.
        module.exit_json(changed=True, findings=[], interface="", variables={})
    if not interface:
        known = ", ".join(f"{nic.name} {' '.join(nic.addresses)}" for nic in nics if nic.ordinary)
        why = (
            f"no interface of this machine carries the cluster address {address} (there is "
            f"{known or 'none with an address'}): set cluster_address of this host in the inventory"
        )
        module.exit_json(changed=False, findings=[why], interface="", variables={})
    given = module.params["variables"].items()
    extra = {name: str(value) for name, value in given if name.startswith("NCCL_")}
    findings = misfits(extra)
    own = variables(interface, address)
    settings = own | extra | own
    findings += [
        f"{NCCL} has the line `{line}`, which overrules the cluster's: remove it"
        for line in overruled(text_of(NCCL), settings)
    ]
    changes: list[Change] = []
    if not findings:
        with recorded(module, "the files for NCCL cannot be changed"):
            changes = write(settings, module.check_mode)
    module.exit_json(findings=findings, interface=interface, variables=settings, **result(changes))


def write(settings: dict[str, str], check: bool) -> list[Change]:
    """Write the variables to the three files."""
    record = Journal("nccl", check)
    # NCCL reads lines verbatim, and knows no Gloo variables.
    block = [f"{name}={value}" for name, value in settings.items() if name.startswith("NCCL_")]
    # Quoted, since some shells expand a word that begins with = to a command's path.
    lines = [f'{name}="{value}"' for name, value in settings.items()]
    return [
        record.block(NCCL, _MARKER, "\n".join(block)),
        record.write(VARIABLES, (_HEAD + "\n".join([*lines, ""])).encode(), mode=0o644),
        record.write(PROFILE, _SCRIPT.encode(), mode=0o644),
    ]


if __name__ == "__main__":
    main()
