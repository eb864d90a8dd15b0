"""An incomplete reset still counts its finished parts."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_node.changes.record import RecordError, Undone
from support.plugins import load

reset = load("modules", "hearth_reset")


def test_what_is_back_counts_also_where_another_path_cannot_be_put_back(
    tmp_path, open_record, monkeypatch
):
    record = open_record()
    told = tmp_path / "told"
    record.write(str(tmp_path / "hosts"), b"ours")
    record.write(str(tmp_path / "logind"), b"ours", then=[["/bin/touch", str(told)]])
    restore = record.restore

    def immutable(path, plain):
        if path.endswith("hosts"):
            raise RecordError("hosts may not be changed")
        return restore(path, plain)

    monkeypatch.setattr(record, "restore", immutable)
    with pytest.raises(RecordError, match="hosts"):
        reset.undo(record, [])
    assert not (tmp_path / "logind").exists()
    assert told.exists()


def test_what_one_that_was_cut_off_has_put_back_counts_after_the_next(tmp_path, open_record):
    told, logind = tmp_path / "told", str(tmp_path / "logind")
    open_record().write(logind, b"ours", then=[["/bin/touch", str(told)]])
    open_record().restore(logind)  # and no more: its machine lost the power
    assert not told.exists()
    assert reset.undo(open_record(check=True), []) == ([], [])
    assert not told.exists()
    assert reset.undo(open_record(), []) == ([], [])
    assert told.exists()
    told.unlink()
    assert reset.undo(open_record(), []) == ([], [])
    assert not told.exists()


def test_what_is_to_be_undone_is_said_first_and_what_stays_last():
    lines = reset.predicted(
        [Undone("/etc/a", "removed"), Undone("/etc/b", "left", "it was changed since")],
        [["ufw", "delete", "allow", "from", "10.0.0.2"]],
        ["package x"],
    )
    assert reset.announcement(lines, ["/home/me/ai-cluster"]).splitlines() == [
        "to be undone:",
        "remove /etc/a",
        "leave /etc/b (it was changed since)",
        "remove the rule `ufw allow from 10.0.0.2`",
        "leave package x",
        "keep /home/me/ai-cluster",
    ]
    assert reset.announcement([], []) == "nothing to undo"
