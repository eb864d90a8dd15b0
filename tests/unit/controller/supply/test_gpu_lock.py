"""The GPU's lock: inside the ranges that its packages declare, without what loads nothing."""

from __future__ import annotations

import json

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.declared import TABLE
from support.repository import ROOT

from hearth_controller.supply.locks import lock_in

LOCK = lock_in(ROOT / "requirements", "gpu")
DECLARED = json.loads(TABLE.read_text())
NODE = {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "implementation_name": "cpython",
    "platform_system": "Linux",
}
LEFT_OUT = {"xformers"}
"""Built for another torch; Unsloth does without it (scripts/lock)."""


def test_what_is_left_out_is_not_in_the_lock():
    assert not LEFT_OUT & LOCK.keys()


@pytest.mark.parametrize("name", ["unsloth", "unsloth_zoo", "trl", "peft"])
def test_the_lock_is_inside_the_ranges_that_its_packages_declare(name):
    """After another version was locked, `python -m tests.support.declared` reads its ranges."""
    assert DECLARED[name]["version"] == LOCK[canonicalize_name(name)].version
    wanted = [Requirement(each) for each in DECLARED[name]["requires"]]
    outside = [
        str(each)
        for each in wanted
        if (each.marker is None or each.marker.evaluate(NODE))
        and (pin := canonicalize_name(each.name)) not in LEFT_OUT
        and (pin not in LOCK or LOCK[pin].version not in each.specifier)
    ]
    assert outside == []
