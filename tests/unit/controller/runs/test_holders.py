"""The node that merges or loads a run's model."""

from __future__ import annotations

import pytest
from support.digests import digest, run_file

from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.pages import holders


@pytest.mark.parametrize(
    ("curves", "whole", "best"),
    [
        (["desk"], {}, ["desk", "laptop"]),  # a folder of one's own, or laptop is off
        (["laptop"], {}, ["laptop", "desk"]),  # rank 0's node was lost
        (["desk"], {"laptop": ["{model}"]}, ["laptop", "desk"]),
        (["desk"], {"laptop": ["another"]}, ["desk", "laptop"]),
        (["desk"], {"desk": ["{model}"], "laptop": ["{model}"]}, ["desk", "laptop"]),
    ],
)
def test_a_node_with_the_whole_model_is_asked_first(tmp_path, curves, whole, best):
    text = run_file(tmp_path, "evening")
    nodes = {node: [digest(node, run_file=text)] for node in ("desk", "laptop")}
    (run,) = observed_runs(nodes)
    own = {
        node: [name.format(model=run.run.source.folder) for name in names]
        for node, names in whole.items()
    }
    assert holders(run, curves, own) == best
