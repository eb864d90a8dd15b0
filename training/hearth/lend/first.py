"""The first question to a node, at the launch of a run: is it away now, and can it be asked?"""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from hearth.base.clock import local_time
from hearth.base.systems import under_windows
from hearth.lend.command import NOT_FOUND, answer
from hearth.lend.lender import Lender, likely_use
from hearth.lend.sensors import BLIND, Sensors
from hearth.lend.terms import IDLE, Terms, faults

AGAIN = 1.0
"""Seconds until a second look, where the first one shows a use that may be a peak."""


def away_now(given: Mapping[str, Any], workspace: Path) -> tuple[str, list[str]]:
    """Return the reason why a node with these terms is away now, "" if it lends, and findings.

    The load of a processor takes ten seconds to measure, and is left to the supervisor.
    """
    if found := faults(given):
        return "", found
    terms, no = Terms.of(given), ""
    if terms.when == IDLE and under_windows(platform.release()):
        return "", [
            f"{BLIND}; set lend_hours or lend_command, or switch by hand (hearth-lend off), and "
            "leave lend_when out"
        ]
    if terms.command:
        try:
            status, no = answer(terms.command, workspace)
        except OSError as error:
            return "", [f"lend_command: it cannot be started: {error.strerror}"]
        if status in NOT_FOUND:
            return "", [f"lend_command: {terms.command!r}: {no}; correct it, or leave it out"]
    lender, why = Lender(terms), ""
    with closing(Sensors(dataclasses.replace(terms, command=""), workspace)) as sensors:
        for last in (False, True):
            reading = dataclasses.replace(sensors.read(), command=no)
            why = lender.decide(time.monotonic(), local_time(), reading)
            if last or why or not likely_use(reading):
                break
            time.sleep(AGAIN)
    return why, []
