"""Which program keeps a node's clock."""

from __future__ import annotations

import pytest
from support.plugins import load

module = load("modules", "hearth_time")

# LoadState, ActiveState, UnitFileState, ConditionResult, ConditionTimestampMonotonic
OFF = ("not-found", "inactive", "", "no", 0)
ON = ("loaded", "active", "enabled", "yes", 77)
NEVER = ("loaded", "inactive", "disabled", "no", 0)
SKIPPED = ("loaded", "inactive", "enabled", "no", 77)
NOT_YET = ("loaded", "inactive", "enabled", "no", 0)
STOPPED = ("loaded", "inactive", "enabled", "yes", 77)
FAILED = ("loaded", "failed", "enabled", "yes", 77)
MASKED = ("masked", "inactive", "masked", "no", 0)


def shown(name: str, load: str, active: str, file: str, condition: str, tried: int) -> str:
    """Return the output of `systemctl show` for a unit."""
    return (
        f"Id={name}.service\nLoadState={load}\nActiveState={active}\nUnitFileState={file}\n"
        f"ConditionResult={condition}\nConditionTimestampMonotonic={tried}\n"
    )


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
    choice = module.choose(
        module.parse("\n".join(shown(name, *states) for name, states in units.items()))
    )
    assert (choice.do, choice.unit) == (do, f"{unit}.service")
    assert finding in choice.finding
    assert bool(finding) == bool(choice.finding)
