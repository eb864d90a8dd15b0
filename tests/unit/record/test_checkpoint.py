"""Checkpoints are whole or not there at all."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
from support.facts import assert_names, refuses
from support.several import on_ranks

from hearth.base.errors import CheckpointError
from hearth.record import checkpoint, folders
from hearth.record.checkpoint import newest, save, share_newest
from hearth.record.history import forget_after, restore
from hearth.record.lines import METRICS
from hearth.trainer.training_state import save_parts


def write_something(folder):
    (folder / "state.pt").write_bytes(b"state" * 100)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "weights").write_bytes(b"weights")


def keep(folder, step, write=write_something, kept=2, launch="first", **facts):
    return save(folder, step, {"created": "today", "launch": launch, **facts}, kept, write)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_found_with_its_step_and_facts(tmp_path):
    keep(tmp_path, 5)
    found = newest(tmp_path, warn=pytest.fail)
    assert (found.step, found.facts["created"], found.path.name) == (5, "today", "step-00000005")
    assert found.facts["files"].keys() == {"state.pt", "adapter/weights"}


def on_record(*steps):
    return "".join(json.dumps({"kind": "step", "step": step}) + "\n" for step in steps)


def with_record(folder, metrics, steps=(5, 10)):
    """Keep checkpoints after `steps` of a run whose record grows meanwhile and afterwards."""
    for step in steps:
        with metrics.open("a") as file:
            file.write(on_record(step))
        save(folder, step, {"created": "today"}, 2, write_something, metrics)
    with metrics.open("a") as file:
        file.write(on_record(99))


def test_checkpoints_have_the_record_of_their_time_without_a_copy_of_it(tmp_path):
    metrics = tmp_path / METRICS
    with_record(tmp_path / "checkpoints", metrics)
    found = newest(tmp_path / "checkpoints", warn=pytest.fail)
    assert (found.path / METRICS).samefile(metrics)
    for lost in (metrics.unlink, lambda: metrics.write_text(on_record(5))):
        lost()
        restore(metrics, found.path / METRICS, found.step, found.recorded)
        assert metrics.read_text() == on_record(5, 10)
    assert (found.path / METRICS).read_text() == on_record(5, 10, 99)


def test_a_run_that_begins_again_leaves_older_checkpoints_their_record(tmp_path):
    metrics = tmp_path / METRICS
    with_record(tmp_path / "checkpoints", metrics)
    forget_after(metrics, 5)
    assert metrics.read_text() == on_record(5)
    found = newest(tmp_path / "checkpoints", warn=pytest.fail)
    restore(metrics, found.path / METRICS, found.step, found.recorded)
    assert metrics.read_text() == on_record(5, 10)


def test_where_a_disk_has_no_links_the_record_is_copied(tmp_path, monkeypatch):
    def refuse(*paths):
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr("os.link", refuse)
    metrics = tmp_path / METRICS
    with_record(tmp_path / "checkpoints", metrics)
    found = newest(tmp_path / "checkpoints", warn=pytest.fail)
    assert (found.path / METRICS).read_text() == on_record(5, 10)
    restore(tmp_path / "other", found.path / METRICS, found.step, found.recorded)
    assert (tmp_path / "other").read_text() == on_record(5, 10)


@pytest.mark.parametrize("recorded", [None, "many", True])
def test_of_a_checkpoint_with_a_copy_of_the_record_all_counts(tmp_path, recorded):
    """As of an earlier version."""
    keep(tmp_path, 10, recorded=recorded)
    found = newest(tmp_path, warn=pytest.fail)
    (found.path / METRICS).write_text(on_record(5, 10))
    restore(tmp_path / METRICS, found.path / METRICS, found.step, found.recorded)
    assert (tmp_path / METRICS).read_text() == on_record(5, 10)


@pytest.mark.parametrize("own", [None, (5,), (5, 10, 11)])
def test_a_node_without_a_checkpoint_gets_the_record_with_it(tmp_path, own):
    folders = [tmp_path / f"node{rank}" for rank in range(2)]
    for folder in folders:
        (folder / "checkpoints").mkdir(parents=True)
    with_record(folders[0] / "checkpoints", folders[0] / METRICS)
    if own:
        (folders[1] / METRICS).write_text(on_record(*own))

    def resume(world):
        folder = folders[world.rank]
        found = share_newest(folder / "checkpoints", "today", world, pytest.fail)
        restore(folder / METRICS, found.path / METRICS, found.step, found.recorded)
        forget_after(folder / METRICS, found.step)

    on_ranks(2, resume)
    assert {(folder / METRICS).read_text() for folder in folders} == {on_record(5, 10)}


def test_the_newest_ones_are_kept(tmp_path):
    for step in (5, 10, 15, 100):
        keep(tmp_path, step)
    assert names(tmp_path) == ["step-00000015", "step-00000100"]


def test_only_checkpoints_up_to_the_new_one_make_room_for_it(tmp_path):
    for step in (450, 500):
        keep(tmp_path, step)
    assert keep(tmp_path, 50).exists()
    assert names(tmp_path) == ["step-00000050", "step-00000450", "step-00000500"]


def test_a_checkpoint_of_another_run_of_the_same_name_is_passed_over(tmp_path):
    keep(tmp_path, 5)
    said = []
    assert newest(tmp_path, said.append, created="yesterday") is None
    assert_names(said[0], "step-00000005", "another run")
    assert newest(tmp_path, pytest.fail, created="today").step == 5


def test_a_folder_without_checkpoints_has_no_newest(tmp_path):
    assert newest(tmp_path, warn=pytest.fail) is None
    assert newest(tmp_path / "not there", warn=pytest.fail) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "state.pt").write_bytes(b"other"),
        lambda path: (path / "state.pt").unlink(),
        lambda path: (path / "checkpoint.json").write_text('{"step": 10, "fi'),
        lambda path: (path / "checkpoint.json").write_text(json.dumps({"step": 10})),
        lambda path: (path / "checkpoint.json").unlink(),
    ],
    ids=["altered", "file gone", "torn manifest", "no sums", "no manifest"],
)
def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path, damage):
    keep(tmp_path, 5)
    damage(keep(tmp_path, 10))
    said = []
    assert newest(tmp_path, warn=said.append).step == 5
    (line,) = said
    assert_names(line, "step-00000010")


def test_a_full_disk_leaves_the_last_good_one_and_says_so(tmp_path):
    def fill(folder):
        (folder / "state.pt").write_bytes(b"x")
        Path("/dev/full").write_bytes(b"x")

    keep(tmp_path, 5)
    with refuses(CheckpointError, "step 10", "full", "step-00000005"):
        keep(tmp_path, 10, write=fill)
    assert names(tmp_path) == ["step-00000005"]


@pytest.mark.parametrize("numbers", [10, 1_000_000])
def test_a_disk_that_fills_up_under_the_optimizers_state_is_named(tmp_path, numbers):
    def fill(folder):
        (folder / "state.pt").symlink_to("/dev/full")
        save_parts(folder, {"optimizer": {"mean": torch.zeros(numbers)}})

    keep(tmp_path, 5)
    with refuses(CheckpointError, "step 10", "full", "step-00000005"):
        keep(tmp_path, 10, write=fill)
    assert names(tmp_path) == ["step-00000005"]


def test_a_file_that_may_not_grow_is_an_error_of_the_disk_though_it_closes_well(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            save_parts(tmp_path, {"optimizer": {"mean": torch.zeros(1_000_000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses(CheckpointError, tmp_path / "file", "no checkpoint"):
        keep(tmp_path / "file", 5)


def removing(tmp_path, times):
    """Return a writer that loses the run's checkpoints during its first calls."""
    left = [None] * times

    def write(folder):
        if left:
            left.pop()
            shutil.rmtree(tmp_path)
        write_something(folder)

    return write


def test_checkpoints_that_somebody_removes_meanwhile_are_written_again(tmp_path):
    keep(tmp_path, 5)
    keep(tmp_path, 10, write=removing(tmp_path, 1))
    assert names(tmp_path) == ["step-00000010"]
    with refuses(CheckpointError, "step 15", "removed", "this node", "any node") as refused:
        keep(tmp_path, 15, write=removing(tmp_path, 2))
    assert "space" not in str(refused.value)


def test_a_bug_keeps_its_traceback_and_leaves_nothing_behind(tmp_path):
    def broken(folder):
        raise ZeroDivisionError

    keep(tmp_path, 5)
    with pytest.raises(ZeroDivisionError):
        keep(tmp_path, 10, write=broken)
    assert names(tmp_path) == ["step-00000005"]


def test_what_a_crash_left_half_written_goes_with_the_next(tmp_path):
    (tmp_path / ".writing-step-00000005").mkdir()
    keep(tmp_path, 10)
    assert names(tmp_path) == ["step-00000010"]


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The folder of a run that was ended while its only checkpoint was replaced."""
    keep(tmp_path, 5)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keep(tmp_path, 5, lambda folder: (folder / "said").write_text("judged"))
    assert names(tmp_path) == [".writing-step-00000005"]
    return tmp_path


def test_an_end_while_a_checkpoint_takes_the_place_of_the_only_one_loses_nothing(judged):
    ((found, _),) = shared([judged])
    assert (found.step, (found.path / "said").read_text()) == (5, "judged")
    assert names(judged) == ["step-00000005"]


def test_what_was_kept_from_its_name_counts_among_those_kept(judged):
    keep(judged, 10)
    assert names(judged) == ["step-00000005", "step-00000010"]


def shared(nodes):
    """Share the newest checkpoint over these nodes; return what each found and heard."""

    def act(world):
        found = share_newest(nodes[world.rank], "today", world, pytest.fail)
        return found, world.sent

    return on_ranks(len(nodes), act)


def test_the_newest_checkpoint_of_any_node_reaches_all_of_them_in_small_pieces(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(folders, "_PIECE", 64)
    nodes = [tmp_path / str(rank) for rank in range(3)]
    keep(nodes[0], 5)
    keep(nodes[1], 10, lambda folder: (write_something(folder), (folder / "empty").touch()))

    for node, (found, sent) in zip(nodes, shared(nodes), strict=True):
        assert (found.step, found.path.parent) == (10, node)
        assert (found.path / "state.pt").read_bytes() == b"state" * 100
        assert (found.path / "empty").read_bytes() == b""
        assert max(len(piece) for piece in sent if isinstance(piece, bytes)) == 64
    assert names(nodes[0]) == ["step-00000005", "step-00000010"]


def test_nodes_that_all_hold_the_newest_checkpoint_send_nothing(tmp_path):
    nodes = [tmp_path / str(rank) for rank in range(2)]
    for node in nodes:
        keep(node, 5)

    assert [(found.step, sent) for found, sent in shared(nodes)] == [(5, []), (5, [])]


def test_of_checkpoints_of_one_step_from_unlike_launches_all_take_the_lowest_ranks(tmp_path):
    nodes = [tmp_path / str(rank) for rank in range(4)]
    keep(nodes[0], 5)
    for node, launch in zip(nodes[1:], ("second", "third", "second"), strict=True):
        keep(node, 5)
        keep(node, 10, lambda folder, said=launch: (folder / "said").write_text(said), 2, launch)

    for node, (found, _) in zip(nodes, shared(nodes), strict=True):
        assert (found.step, found.facts["launch"]) == (10, "second")
        assert found.path == node / "step-00000010"
        assert (found.path / "said").read_text() == "second"


def test_of_checkpoints_of_one_step_from_unlike_groups_all_take_the_lowest_ranks(tmp_path):
    nodes = [tmp_path / str(rank) for rank in range(3)]
    for node, generation in zip(nodes, (4, 5, 5), strict=True):
        said = str(generation)
        keep(
            node,
            10,
            lambda folder, said=said: (folder / "said").write_text(said),
            generation=generation,
        )
    for found, _ in shared(nodes):
        assert (found.facts["generation"], (found.path / "said").read_text()) == (4, "4")


def test_of_one_launchs_checkpoints_of_one_step_all_take_the_same_best(tmp_path):
    nodes = [tmp_path / str(rank) for rank in range(2)]
    keep(nodes[0], 10, best=2.0)
    keep(nodes[1], 10, best=2.5)

    assert [found.facts["best"] for found, _ in shared(nodes)] == [2.0, 2.0]


@pytest.mark.parametrize("name", ["/evil", "../evil", "adapter/../../evil", "", ".", "a\0b"])
def test_a_file_that_another_node_names_outside_the_checkpoint_is_refused(tmp_path, name):
    folder = tmp_path / "checkpoints"
    keep(folder, 5)
    name = name.replace("/evil", f"{tmp_path}/evil") if name.startswith("/") else name
    with refuses(CheckpointError, repr(name), "step-00000010"):
        checkpoint._store(folder, 10, [("state.pt", b"state"), (name, b"evil")])
    assert not list(tmp_path.rglob("evil"))
    keep(folder, 15)
    assert names(folder) == ["step-00000005", "step-00000015"]
    manifest = folder / "step-00000015" / "checkpoint.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"files": {name: "0" * 64}}))
    said = []
    assert newest(folder, said.append).step == 5
    assert_names(said[0], repr(name))


@pytest.mark.parametrize(
    "manifest",
    ["[]", "5", '{"step": 3, "files": []}', '{"step": [3], "files": {}}', '{"step": 3}', "\xff"],
)
def test_a_checkpoint_whose_record_is_damaged_is_skipped_and_named(tmp_path, manifest):
    (tmp_path / "step-00000003").mkdir()
    (tmp_path / "step-00000003" / "checkpoint.json").write_text(manifest, encoding="latin-1")
    said = []
    assert newest(tmp_path, said.append) is None
    assert_names(said[0], "step-00000003")
