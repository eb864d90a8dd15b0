"""Which program keeps a node's clock."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_node.system.clock import choose, parse

OFF = "LoadState=not-found ActiveState=inactive UnitFileState= ConditionResult=no"
ON = "LoadState=loaded ActiveState=active UnitFileState=enabled ConditionResult=yes"
NEVER = "LoadState=loaded ActiveState=inactive UnitFileState=disabled ConditionResult=no"
SKIPPED = (
    "LoadState=loaded ActiveState=inactive UnitFileState=enabled ConditionResult=no "
    "ConditionTimestampMonotonic=77"
)
NOT_YET = "LoadState=loaded ActiveState=inactive UnitFileState=enabled ConditionResult=no"
STOPPED = (
    "LoadState=loaded ActiveState=inactive UnitFileState=enabled ConditionResult=yes "
    "ConditionTimestampMonotonic=77"
)
FAILED = STOPPED.replace("inactive", "failed")
MASKED = "LoadState=masked ActiveState=inactive UnitFileState=masked ConditionResult=no"


def shown(**units: str) -> str:
    """Return the output of `systemctl show` for these units."""
    blocks = []
    for name, states in units.items():
        words = ["ConditionTimestampMonotonic=0", *states.split()]
        last = dict(word.split("=") for word in words)
        lines = [f"Id={name}.service", *(f"{key}={value}" for key, value in last.items())]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize(
    "units, do, unit, finding",
    [
        ({"systemd-timesyncd": ON, "chrony": OFF}, "keep", "systemd-timesyncd", ""),
        ({"systemd-timesyncd": OFF, "chrony": ON}, "keep", "chrony", ""),
        ({"systemd-timesyncd": NEVER, "ntpsec": ON}, "keep", "ntpsec", ""),
        ({"systemd-timesyncd": MASKED, "chrony": ON}, "keep", "chrony", ""),
        ({"systemd-timesyncd": SKIPPED}, "keep", "systemd-timesyncd", ""),  # a container
        ({"systemd-timesyncd": NEVER}, "enable", "systemd-timesyncd", ""),
        ({"systemd-timesyncd": NOT_YET}, "enable", "systemd-timesyncd", ""),
        ({"systemd-timesyncd": OFF, "chrony": OFF}, "install", "systemd-timesyncd", ""),
        ({"systemd-timesyncd": STOPPED}, "", "systemd-timesyncd", "does not run (inactive)"),
        ({"systemd-timesyncd": OFF, "chrony": FAILED}, "", "chrony", "does not run (failed)"),
        # Installing systemd-timesyncd would remove it.
        ({"systemd-timesyncd": OFF, "chrony": NEVER}, "", "chrony", "installed but off"),
        ({"systemd-timesyncd": MASKED}, "", "systemd-timesyncd", "is masked"),
    ],
)
def test_a_client_that_is_there_is_let_be(units, do, unit, finding):
    choice = choose(parse(shown(**{name.replace("_", "-"): said for name, said in units.items()})))
    assert (choice.do, choice.unit) == (do, f"{unit}.service")
    assert finding in choice.finding
    assert bool(finding) == bool(choice.finding)
