"""Copies of a run's result in S3, against a stand-in on loopback, by the packages of `stores`."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.stand_in_bucket import stand_in_bucket

from hearth.after import finished
from hearth.after.copies import check_copy
from hearth.after.request import ResultRequest, by_command
from hearth.base.errors import SupplyError
from hearth.config import read_run
from hearth.config.run import RUN_FILE

AGAIN = by_command("hearth", "evening")
PLACE = "s3://home/runs"


@pytest.fixture
def bucket(monkeypatch):
    """A stand-in of S3 that this process has the keys of."""
    with stand_in_bucket() as store:
        for name, text in store.variables.items():
            monkeypatch.setenv(name, text)
        yield store


def copied(folder, say=print):
    return finished.afterwards(folder, ResultRequest(copy_to=PLACE), AGAIN, say)


def test_a_bucket_gets_the_whole_result_with_its_mark_last(folder, bucket):
    check_copy(PLACE, read_run(folder / RUN_FILE), print)
    assert bucket.objects == {}
    for _ in range(2):
        assert copied(folder)
    names = [name.removeprefix("home/runs/evening/") for name in bucket.objects]
    assert names[-1] == RUN_FILE
    assert bucket.objects["home/runs/evening/adapter/adapter_model.safetensors"] == b"weights"
    assert {"README.md", "metrics.jsonl", "adapter/adapter_config.json"} <= {*names}


def test_a_bucket_that_refuses_is_named_and_keeps_nothing_of_it(folder, bucket):
    bucket.refuses, said = RUN_FILE, []
    assert not copied(folder, said.append)
    assert_names("\n".join(said), PLACE, "privileges", "hearth share")
    assert "secret" not in "".join(said)
    assert bucket.objects == {}
    bucket.refuses = ""
    assert copied(folder)


def test_a_bucket_that_may_not_be_written_is_found_before_the_run(folder, bucket, monkeypatch):
    monkeypatch.setattr(bucket, "refuses", "")
    bucket.objects[f"home/runs/evening/{RUN_FILE}"] = b"created: other"
    with pytest.raises(SupplyError, match="another run"):
        check_copy(PLACE, read_run(folder / RUN_FILE), print)
    monkeypatch.setattr("hearth.after.copies.secrets.token_hex", lambda _: "probe")
    bucket.refuses = "probe"
    with pytest.raises(SupplyError, match="privileges"):
        check_copy(PLACE, read_run(folder / RUN_FILE), print)
