"""Another run in the folder of a run is refused."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth.node.inspection import another_run

NIGHT = "2026-11-25T03:00:00Z"


@pytest.mark.parametrize("there", [None, f"created: '{NIGHT}'\n".encode()], ids=["none", "own"])
def test_its_own_files_and_an_empty_folder_are_fine(tmp_path, there):
    if there:
        (tmp_path / "run.yml").write_bytes(there)
    assert another_run(tmp_path, NIGHT, in_workspace=True) == []


@pytest.mark.parametrize(
    "there",
    [b"created: '2026-11-24T03:00:00Z'\n", b"", b"\xff\xfe"],
    ids=["other", "empty", "torn"],
)
def test_the_files_of_another_run_are_not_mixed_with_it(tmp_path, there):
    (tmp_path / "run.yml").write_bytes(there)
    (finding,) = another_run(tmp_path, NIGHT, in_workspace=True)
    assert_names(finding, tmp_path.name, tmp_path)
