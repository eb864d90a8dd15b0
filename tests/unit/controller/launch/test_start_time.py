"""The start time of a run, as a person types it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.facts import assert_names
from support.words import TRAIN

from hearth_controller.launch.resolve import requested


def resolution(tmp_path, **typed):
    return requested({"model": "smollm2-135m", **typed}, tmp_path, TRAIN, [], ["desk"], False)


def test_a_run_with_a_time_or_behind_others_is_one_for_the_queue(tmp_path):
    assert resolution(tmp_path).request.options.queue == {}
    assert resolution(tmp_path, queue="false").request.options.queue == {}
    queue = resolution(tmp_path, queue="true").request.options.queue
    assert queue["at"] is None
    assert datetime.fromisoformat(queue["submitted"]).tzinfo
    at = resolution(tmp_path, at="23:00").request.options.queue["at"]
    assert datetime.fromisoformat(at) > datetime.now(UTC)
    (finding,) = resolution(tmp_path, at="soon", queue="yes").findings
    assert_names(finding, "-e at", "'soon'")
    (finding,) = resolution(tmp_path, queue="last").findings
    assert_names(finding, "-e queue", "'last'", "on or off")


@pytest.mark.parametrize("queue", [{"queue": "true"}, {"at": "23:00"}])
def test_two_runs_of_a_queue_never_meet_at_the_same_port(tmp_path, queue):
    (finding,) = resolution(tmp_path, meeting_port=4444, **queue).findings
    assert_names(finding, "-e meeting_port", "same port", "leave it out")
    assert resolution(tmp_path, meeting_port=0, **queue).findings == []
    assert resolution(tmp_path, meeting_port=4444, queue="false").findings == []
