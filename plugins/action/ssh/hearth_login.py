"""Action plugin: set up this controller's login by key on a machine."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hearth.base.errors import HearthError
from hearth_controller.base.options import argument_spec
from hearth_controller.inventory.hostkeys import PublicKey
from hearth_controller.inventory.login import prepare_key, refused

DOCUMENTATION = r"""
module: hearth_login
short_description: Log in by key, with the key that the user has
description:
  - Tries a login without a password first; where that works nothing else is done or looked at.
  - Else the user's key is added to the machine's C(authorized_keys) through the connection that
    there is, and the login is tried again. The key is C(ansible_ssh_private_key_file) if the
    inventory names one, else the first of the agent, else C(~/.ssh/id_ed25519), C(id_ecdsa) or
    C(id_rsa). Where there is none it is made. A key that is there is never overwritten.
  - Without SSH (C(ansible_connection=local)) there is nothing to do.
options:
  timeout:
    description: Seconds that a login may take.
    type: int
    default: 8
"""


class ActionModule(ActionBase):
    """Runs on the controller; on the machine the module hearth_authorized."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return whether the machine was changed; fail if a key does not log in after all."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        option, timeout = self._connection.get_option, arguments["timeout"]
        if self._connection.transport != "ssh" or not refused(option, timeout):
            return result
        check = self._task.check_mode
        try:
            public, note = prepare_key(option("private_key_file") or "", check)
        except HearthError as error:
            raise AnsibleActionFail(str(error)) from None
        if check and not public:
            return result | {"changed": True, "note": note}
        fingerprint = PublicKey.from_line(public).fingerprint
        answer = self._execute_module(
            "hearth_authorized",
            {"line": public, "marker": f"controller {fingerprint}"},
            task_vars=task_vars,
        )
        if answer.get("failed") or answer.get("unreachable"):
            return answer
        answer["note"] = f"logs in by key {fingerprint}{note}"
        if not check and (said := refused(option, timeout)):
            answer |= {
                "failed": True,
                "msg": f"the key {fingerprint} is in ~/.ssh/authorized_keys of "
                f"{answer['user']}, but SSH still refuses it ({said}). On the machine see "
                "`sudo sshd -T | grep -iE 'pubkey|authorizedkeys|allow|deny'` and "
                "`journalctl -u ssh`",
            }
        return answer
