"""The number of knobs: names that a person may set, each counted once."""

from __future__ import annotations

from support.repository import ROOT
from support.words import VERBS

from hearth.config import Settings
from hearth_controller.inventory.variables import role_options


def test_there_are_at_most_154_knobs():
    """Settings of a run, words after -e, and options of an inventory."""
    words_and_options = {name for each in VERBS.values() for name in each}
    of_roles = role_options([ROOT / "roles"]).keys()
    assert len(Settings.model_fields.keys() | words_and_options | of_roles) <= 154
