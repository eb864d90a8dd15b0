"""The node that merges or loads a run's model."""

from __future__ import annotations

import pytest
from support.digests import digest, run_file

from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.holders import holders


@pytest.mark.parametrize(
    ("curves", "partial", "best"),
    [
        ([], {}, ["desk", "laptop"]),
        (["laptop"], {}, ["laptop", "desk"]),  # rank 0's node was lost
        (["desk"], {"desk": ["{model}"]}, ["laptop", "desk"]),
        (["desk"], {"desk": ["another"]}, ["desk", "laptop"]),
        (["desk"], {"desk": ["{model}"], "laptop": ["{model}"]}, ["desk", "laptop"]),
    ],
)
def test_a_node_with_some_layers_only_is_asked_last(tmp_path, curves, partial, best):
    text = run_file(tmp_path, "evening")
    nodes = {node: [digest(node, run_file=text)] for node in ("desk", "laptop")}
    (run,) = observed_runs(nodes)
    own = {
        node: [name.format(model=run.run.source.folder) for name in names]
        for node, names in partial.items()
    }
    assert holders(run, curves, own) == best
