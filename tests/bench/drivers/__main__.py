"""Simulate the driver stage on machines of Ubuntu with apt, over the real archives' lists.

    python -m tests.bench.drivers

plays each case of tests/support/ubuntu_matrix.py: a machine of a release with its kernels and
driver, where apt's own solver carries out the call that Hearth chooses. --fetch first makes the
package lists in tests/fixtures/ubuntu anew from Ubuntu's archives. Needs apt.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ansible.module_utils
from support.modules import MODULE_UTILS

ansible.module_utils.__path__ += MODULE_UTILS

from support.ubuntu import Archive  # noqa: E402
from support.ubuntu_index import made  # noqa: E402
from support.ubuntu_matrix import DESKTOP, DRIVERS, Case, Outcome, cases, play  # noqa: E402

from tests.bench.command import Bench  # noqa: E402
from tests.bench.drivers.cut import fetch  # noqa: E402
from tests.bench.paper import aim  # noqa: E402

Row = Mapping[str, Any]


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the outcome of each case, and the day of the package lists."""
    if given.fetch:
        fetch()
    archives: dict[str, Archive] = {}
    rows = []
    for number, case in enumerate(cases()):
        if case.release not in archives:
            archives[case.release] = Archive(case.release, folder / case.release)
        computer = case.computer(archives[case.release], folder / str(number))
        before = frozenset(computer.apt.installed)
        rows.append(row(case, play(case, computer), before, archives[case.release]))
    return {"lists": made(), "cases": rows}


def row(case: Case, its: Outcome, before: frozenset[str], archive: Archive) -> dict[str, Any]:
    """Return the call of apt for the machine of a case, and the state that it leaves."""
    extra = f"linux-modules-extra-{its.kernel}"
    needs = {extra} if case.kernels != "virtual" and archive.has(extra) else set()
    needs |= {f"linux-image-{its.kernel}", f"linux-modules-{its.kernel}"}
    return {
        "release": case.release,
        "kernels": case.kernels,
        "running": case.installed[-1].release,
        "driver": case.driver,
        "kind": case.kind,
        "secure_boot": case.secure_boot,
        "words": its.choice.words,
        "notes": its.choice.notes,
        "kernel": its.kernel,
        "boots": needs <= its.packages,
        "driven": any(
            name.startswith("linux-modules-nvidia-580-open-") and name.endswith(its.kernel)
            for name in its.packages
        ),
        "keeps_desktop": not before.intersection(DESKTOP) - its.packages,
    }


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of tests/bench/README.md."""
    rows: list[Row] = figures["cases"]
    called = [each for each in rows if each["words"]]
    asked = [each for each in rows if each["driver"] != ".run"]
    solved = sum(1 for each in called if each["driven"])
    network = sum(1 for each in called if each["boots"])
    kept = sum(1 for each in rows if each["keeps_desktop"])
    states = list(dict.fromkeys((each["release"], each["kernels"]) for each in rows))
    return "\n".join(
        [
            f"Simulated by apt on {figures['date']}, on the package lists of Ubuntu's archives of "
            f"{figures['lists']} (amd64), cut to {len(rows)} cases; Hearth {figures['hearth']}. "
            "The driver does not work and is to be installed.",
            "",
            f"| Ubuntu | kernel | runs | restart takes | {' | '.join(DRIVERS)} |",
            f"|---|---|---|---|{'---|' * len(DRIVERS)}",
            *(_line([each for each in rows if _state(each) == state]) for state in states),
            "",
            "D desktop, S server, * with Secure Boot. `.run`: NVIDIA's own installer brought 535; "
            "Hearth installs nothing over it and names the command that removes it. –: prebuilt "
            "modules come with the package of a flavour.",
            "",
            aim(
                "apt can carry out every call, and it brings the next kernel its module",
                solved == len(asked),
                f"{solved} of {len(asked)}",
            ),
            aim(
                "The next kernel has the package of its network drivers",
                network == len(called),
                f"{network} of {len(called)}",
            ),
            aim("No desktop is removed", kept == len(rows), f"{kept} of {len(rows)}"),
        ]
    )


def _state(row: Row) -> tuple[str, str]:
    return row["release"], row["kernels"]


def _line(rows: Sequence[Row]) -> str:
    """Return the line of the table on a machine's kernels, with a cell for each driver."""
    first = rows[0]
    cells = {each["driver"]: _cell(each) for each in rows}
    after = next(each["kernel"] for each in rows if each["words"])
    head = f"{first['release']} | {first['kernels']} | {first['running']} | {after}"
    return f"| {head} | {' | '.join(cells.get(name, '–') for name in DRIVERS)} |"


def _cell(row: Row) -> str:
    where = f"{row['kind'][0].upper()}{'*' if row['secure_boot'] else ''}"
    if not row["words"]:
        return f"refused {where}"
    return f"{'✓' if row['driven'] and row['boots'] else '✗'} {where}"


if __name__ == "__main__":
    bench = Bench("drivers", __doc__, table)
    bench.option("--fetch", action="store_true", help="make the package lists anew first")
    bench.run(measure)
