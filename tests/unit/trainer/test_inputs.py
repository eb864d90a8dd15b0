"""Ranks with another model or other data than the others do not begin to train."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.facts import assert_names
from support.several import on_ranks

from hearth.base.errors import HearthError
from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.plan.speed import UNKNOWN
from hearth.trainer.assembly import assemble


@pytest.mark.parametrize("other", ["data", "model"])
def test_a_node_with_other_inputs_is_named_before_the_first_step(tmp_path, other):
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    run = resolve_run({"model": "smollm2-135m"}, layout.results)

    def rank(world):
        print_of = {"data": "a" * 16, "model": "a" * 16}
        if not world.leads:
            print_of[other] = "b" * 16
        data, model = (SimpleNamespace(fingerprint=print_of[name]) for name in ("data", "model"))
        prepared = SimpleNamespace(
            run=run, data=SimpleNamespace(train=None, report=data), model=model
        )
        with pytest.raises(HearthError) as refused:
            assemble(run, layout, prepared, SimpleNamespace(speed=UNKNOWN), world)
        return refused.value.findings

    for (finding,) in on_ranks(2, rank):
        assert_names(finding, f"{other}:", "node1", "b" * 16, "node0", "a" * 16)
