"""The declared words of each playbook."""

from __future__ import annotations

from hearth_controller.inventory.variables import verb_options
from support.repository import ROOT

VERBS = verb_options(ROOT / "playbooks")
TRAIN = VERBS["train"]
