#!/usr/bin/python
"""Ansible module: keep a node from going to sleep."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_power
short_description: Keep a node awake, also with its lid closed, or let it sleep again
description:
  - Three drop-ins and masks in one. logind no longer acts on the lid nor on idleness;
    systemd offers no kind of sleep, so that a desktop's own idle suspend is not even tried;
    and what starts a sleep all the same meets a masked target.
  - logind reports the settings in force. Another file that overrules these is a finding, and
    fails.
options:
  keep_awake:
    description: V(false) takes back what an earlier call has done.
    type: bool
    default: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Journal, recorded, run_all

_LOGIND = {
    "HandleLidSwitch": "ignore",
    "HandleLidSwitchExternalPower": "ignore",
    "HandleLidSwitchDocked": "ignore",
    "IdleAction": "ignore",
}
_SLEEP = {
    "AllowSuspend": "no",
    "AllowHibernation": "no",
    "AllowHybridSleep": "no",
    "AllowSuspendThenHibernate": "no",
}
_TARGETS = ("sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate")
# HUP makes logind reload its settings; a restart would end sessions in older versions.
_AGAIN = [
    ["systemctl", "daemon-reload"],
    ["systemctl", "kill", "--signal=HUP", "systemd-logind.service"],
]
_MANAGER = (
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
)


def drop_in(section: str, settings: dict[str, str]) -> bytes:
    """Return a drop-in for a systemd configuration file."""
    lines = [f"[{section}]", *(f"{key}={value}" for key, value in settings.items())]
    return ("# A node stays awake (Hearth).\n" + "\n".join(lines) + "\n").encode()


def keep_awake(record: Journal) -> list[dict]:
    """Write drop-ins and masks; return the differences."""
    changes = [
        record.write(
            "/etc/systemd/logind.conf.d/50-hearth.conf", drop_in("Login", _LOGIND), then=_AGAIN
        ),
        record.write(
            "/etc/systemd/sleep.conf.d/50-hearth.conf", drop_in("Sleep", _SLEEP), then=_AGAIN
        ),
    ]
    for name in _TARGETS:
        changes.append(record.link(f"/etc/systemd/system/{name}.target", "/dev/null", then=_AGAIN))
    return [change.diff for change in changes if change.changed]


def overruled(module: AnsibleModule) -> list[str]:
    """Return a finding for each logind setting that differs from the drop-in."""
    status, out, _ = module.run_command(["busctl", "get-property", *_MANAGER, *_LOGIND])
    if status != 0:
        return []  # without logind, nothing reacts to the lid
    answers = [line.partition('"')[2].rstrip('"') for line in out.splitlines()]
    return [
        f"logind has {key}={value} from another file than Hearth's 50-hearth.conf; "
        "`systemd-analyze cat-config systemd/logind.conf` shows which: remove it there"
        for (key, wanted), value in zip(_LOGIND.items(), answers, strict=False)
        # On external power an empty value means: use HandleLidSwitch.
        if value not in (wanted, "")
    ]


def main() -> None:
    """Run the module; return also whether an earlier limit on power is set (`limits_power`)."""
    module = AnsibleModule(
        argument_spec={"keep_awake": {"type": "bool", "default": True}},
        supports_check_mode=True,
    )
    awake = module.params["keep_awake"]
    with recorded(module, "sleep cannot be switched"):
        record = Journal("power", module.check_mode)
        diff = keep_awake(record) if awake else record.restore_stage()
        limited = bool(Journal("power_limit", check=True).restore_stage())
    findings = []
    if not awake and not module.check_mode:
        findings += record.settle()
    elif diff and not module.check_mode:
        findings += run_all(_AGAIN)
    if awake and not module.check_mode:
        others = overruled(module)
        if others and not diff:  # an earlier call may have been interrupted before logind reloaded
            findings += run_all(_AGAIN)
            others = overruled(module)
        findings += others
    if findings:
        module.fail_json(msg="\n".join(findings), findings=findings, changed=bool(diff))
    module.exit_json(changed=bool(diff), diff=diff, limits_power=limited)


if __name__ == "__main__":
    main()
