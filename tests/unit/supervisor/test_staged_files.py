"""A person's own data files on their way into a workspace, where a run is started by hand."""

from __future__ import annotations

from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.supervisor.by_hand import stage_files


def test_own_data_files_are_copied_once_to_where_the_run_looks_for_them(tmp_path):
    own = tmp_path / "mine.jsonl"
    own.write_text('{"text": "a"}\n')
    mixture = {str(own): 0.5, "homelab-qa": 0.5}
    run = resolve_run({"model": "owner/tiny", "dataset": mixture}, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "ws")})
    stage_files(run, tmp_path / "ws")
    (place,) = layout.data.iterdir()
    assert layout.datasets(run)[str(own)] == place
    assert place.read_bytes() == own.read_bytes()
    own.unlink()
    stage_files(run, tmp_path / "ws")
    assert [*layout.data.iterdir()] == [place]
