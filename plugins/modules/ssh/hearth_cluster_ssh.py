#!/usr/bin/python
"""Ansible module: set up rank 0's SSH login on the workers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_cluster_ssh
short_description: A key of rank 0's own, and what its SSH knows of the workers
description:
  - The private key is made on rank 0 and never leaves it.
  - With O(workers), C(ssh NAME) on rank 0 knows where each worker is, as whom to log in, and which
    host keys it has; whoever else answers there is refused.
  - The action plugin of the same name works O(workers) and O(attempt) out of the inventory.
  - Belongs to the user that Ansible logs in as, and is done with that user's rights. A file that is
    not the user's, such as one of root's behind a link, is an error.
  - Needs root, for the record of changes.
options:
  workers:
    description: >-
      C(name), C(address), C(port), C(user) (empty for the same) and C(keys) (host keys, as type and
      text) of each; left out, only the key is made.
    type: list
    elements: dict
  attempt:
    description: Names of the workers that a login is tried on.
    type: list
    elements: str
    default: []
"""

import os
import pwd
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Change, Journal, RecordError, result
from ansible.module_utils.hearth_node.system.user import acting_as, in_ssh, links_of, login_user

KEY = "hearth_cluster"
KNOWN = "hearth_known_hosts"


def config_of(workers: list[dict[str, Any]], known_hosts: str, key: str) -> str:
    """Return the ssh configuration for the workers."""
    blocks = []
    for worker in workers:
        lines = [
            f"Host {worker['name']}",
            f"  HostName {worker['address']}",
            *([f"  Port {worker['port']}"] if worker.get("port") else []),
            *([f"  User {worker['user']}"] if worker.get("user") else []),
            f'  IdentityFile "{key}"',
            "  IdentitiesOnly yes",
            f"  HostKeyAlias {worker['name']}",
            f'  UserKnownHostsFile "{known_hosts}"',
            "  StrictHostKeyChecking yes",
        ]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def known_hosts_of(workers: list[dict[str, Any]]) -> str:
    """Return the known_hosts file of the workers."""
    return "".join(f"{worker['name']} {key}\n" for worker in workers for key in worker["keys"])


def make_key(user: pwd.struct_passwd, record: Journal) -> str:
    """Create the key pair and return its public part."""
    with tempfile.TemporaryDirectory() as folder:
        pair = os.path.join(folder, KEY)
        comment = f"{user.pw_name}@{os.uname().nodename} (hearth rank 0)"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", pair]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        for name, mode in ((KEY, 0o600), (f"{KEY}.pub", 0o644)):
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            record.write(in_ssh(user, name), content, mode=mode)
    return content.decode().strip()


def public_key(user: pwd.struct_passwd) -> str:
    """Return the public part of the key, or '' if there is no key yet."""
    key = in_ssh(user, KEY)
    with acting_as(user.pw_uid, user.pw_gid):
        if not (os.path.lexists(key) and os.path.lexists(f"{key}.pub")):
            return ""
        with open(f"{key}.pub", encoding="utf-8") as file:
            return file.read().strip()


def refusals(user: pwd.struct_passwd, names: list[str]) -> list[str]:
    """Try a login on each worker, as the user; return a sentence for each that failed."""

    def attempt(name: str) -> str:
        command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8", name, "true"]
        given: dict[str, Any] = {"env": {"HOME": user.pw_dir, "PATH": os.defpath}}
        if os.geteuid() != user.pw_uid:
            given |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=15,
                cwd=user.pw_dir,
                **given,
            )
        except subprocess.TimeoutExpired:
            return f"`ssh {name}` did not end within 15 s"
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"`ssh {name}` does not work yet: {said}" if done.returncode else ""

    with ThreadPoolExecutor(max(1, len(names))) as threads:
        return [said for said in threads.map(attempt, names) if said]


def main() -> None:
    """Run the module.

    It returns the `public` key ('' in check mode if there is none yet), and `findings` on workers
    that refused it.
    """
    module = AnsibleModule(
        argument_spec={
            "workers": {"type": "list", "elements": "dict"},
            "attempt": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    check, workers = module.check_mode, module.params["workers"]
    user = login_user()
    key, known = in_ssh(user, KEY), in_ssh(user, KNOWN)
    os.umask(0o077)  # only the owner may read a new .ssh
    changes = []
    findings = []
    try:
        record = Journal("ssh", check, user)
        public = public_key(user)
        if not public:
            public = "" if check else make_key(user, record)
            changes.append(Change(True))
        if workers:
            text, config = known_hosts_of(workers), in_ssh(user, "config")
            changes += [
                record.write(known, text.encode(), mode=0o644),
                record.block(config, "workers", config_of(workers, known, key)),
            ]
            if not check:
                findings = refusals(user, module.params["attempt"])
    except (RecordError, OSError, subprocess.SubprocessError) as error:
        name, links = user.pw_name, links_of(user, [KEY, f"{KEY}.pub", KNOWN, "config"])
        module.fail_json(
            msg=f"the SSH files of {name} cannot be read and written as {name}: {error}{links}"
        )
    module.exit_json(public=public, findings=findings, **result(changes))


if __name__ == "__main__":
    main()
