"""A reset that cannot put everything back still has what is back count."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_record import Record, RecordError
from support.plugins import load

reset = load("modules", "hearth_reset")


def test_what_is_back_counts_also_where_another_path_cannot_be_put_back(tmp_path, monkeypatch):
    record = Record(str(tmp_path / "record"), str(tmp_path / "originals"))
    told = tmp_path / "told"
    record.write(str(tmp_path / "hosts"), b"ours", stage="names")
    record.write(str(tmp_path / "logind"), b"ours", stage="power", then=[["/bin/touch", str(told)]])
    restore = record.restore

    def immutable(path, **how):
        if path.endswith("hosts"):
            raise RecordError("hosts may not be changed")
        return restore(path, **how)

    monkeypatch.setattr(record, "restore", immutable)
    with pytest.raises(RecordError, match="may not be changed"):
        reset.undo(record, [], check=False)
    assert not (tmp_path / "logind").exists()
    assert told.exists()
