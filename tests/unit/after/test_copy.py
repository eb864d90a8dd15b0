"""Copies of a run's result: in a folder whole or not at all, in a bucket with run.yml last."""

from __future__ import annotations

import os
import shutil

import fsspec
import pytest
from support.facts import assert_names

from hearth.after import copies, finished
from hearth.after.copies import check_copy
from hearth.after.request import ResultRequest, by_command
from hearth.base.errors import HearthError, SupplyError
from hearth.config import read_run
from hearth.config.run import RUN_FILE
from hearth.record.events import SharedEvent, read_events
from hearth.record.lines import METRICS

AGAIN = by_command("hearth", "evening")
FILES = ["README.md", "adapter/adapter_config.json", "adapter/adapter_model.safetensors"]
FILES += ["metrics.jsonl", RUN_FILE]


@pytest.fixture
def nas(tmp_path):
    """A folder for copies."""
    place = tmp_path / "nas"
    place.mkdir()
    return place


@pytest.fixture
def bucket():
    """The address of an empty store in memory, which cannot rename."""
    system = fsspec.filesystem("memory")
    yield "memory://bucket/runs"
    system.rm("/bucket", recursive=True) if system.exists("/bucket") else None


def refusal(target, run):
    """Return the one finding on a place that cannot be used."""
    with pytest.raises(SupplyError) as caught:
        check_copy(str(target), run, print)
    (finding,) = caught.value.findings
    return finding


def copied(folder, target, say=print):
    return finished.afterwards(folder, ResultRequest(copy_to=str(target)), AGAIN, say)


def below(place):
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())


def test_a_folder_gets_everything_that_is_needed_to_use_it(folder, nas):
    check_copy(str(nas), read_run(folder / RUN_FILE), print)
    assert below(nas) == []
    assert copied(folder, nas)
    assert below(nas / "evening") == FILES
    assert copied(folder, nas)  # and again, in its place
    assert [path.name for path in nas.iterdir()] == ["evening"]


def test_places_that_cannot_be_used_are_found_before_the_run(folder, nas, monkeypatch):
    run = read_run(folder / RUN_FILE)
    assert_names(refusal(nas / "gone", run), "gone", "mount it")
    (nas / "evening").mkdir()
    assert_names(refusal(nas, run), "no copy of a run")
    other = (folder / RUN_FILE).read_text().replace("created: '2026-11-22", "created: '2026-11-21")
    (nas / "evening" / RUN_FILE).write_text(other)
    assert_names(refusal(nas, run), "another run named evening")
    shutil.rmtree(nas / "evening")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    assert_names(refusal(nas, run), "0 B left", "free some space")
    assert_names(refusal("nothing://bucket", run), "fsspec", "nothing")


def test_what_is_not_hearths_is_never_replaced(folder, nas):
    (nas / "evening").mkdir()
    (nas / "evening" / "thesis.txt").write_text("mine")
    assert not copied(folder, nas)
    assert below(nas) == ["evening/thesis.txt"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_nas_that_goes_in_the_middle_keeps_what_it_had(folder, nas, monkeypatch, earlier):
    if earlier:
        assert copied(folder, nas)
    real = shutil.copyfile

    def goes(source, to, **more):
        if os.path.basename(source) == "metrics.jsonl":
            raise OSError(5, "Input/output error")
        return real(source, to, **more)

    monkeypatch.setattr(shutil, "copyfile", goes)
    said = []
    assert not copied(folder, nas, said.append)
    assert_names("\n".join(said), "Input/output error", str(folder / "adapter"), "hearth share")
    assert below(nas) == ([f"evening/{name}" for name in FILES] if earlier else [])


def test_what_is_not_hearths_is_never_replaced_in_a_store_nor_removed(folder, bucket, monkeypatch):
    system, root = fsspec.core.url_to_fs(bucket)
    system.pipe_file(f"{root}/evening/thesis.txt", b"mine")
    assert_names(refusal(bucket, read_run(folder / RUN_FILE)), "evening", "no copy of a run")
    said = []
    assert not copied(folder, bucket, said.append)
    assert system.find(root) == [f"{root}/evening/thesis.txt"]


def test_a_copy_that_is_replaced_is_unmarked_until_it_is_whole_and_keeps_nothing_of_before(
    folder, bucket, monkeypatch
):
    assert copied(folder, bucket)
    system, root = fsspec.core.url_to_fs(bucket)
    system.pipe_file(f"{root}/evening/adapter/shard-2.safetensors", b"of before")
    kind, real = type(system), type(system).put_file

    def gone(self, source, key, **more):
        if key.endswith("metrics.jsonl"):
            raise OSError(5, "Input/output error")
        return real(self, source, key, **more)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "put_file", gone)
        assert not copied(folder, bucket)
    assert f"{root}/evening/{RUN_FILE}" not in system.find(root)
    assert copied(folder, bucket)
    assert [name.removeprefix(f"{root}/evening/") for name in system.find(root)] == FILES


def test_a_store_gets_its_mark_last_and_keeps_no_half_of_a_copy(folder, bucket, monkeypatch):
    check_copy(bucket, read_run(folder / RUN_FILE), print)
    system, root = fsspec.core.url_to_fs(bucket)
    assert system.find(root) == []
    kind, written = type(system), []
    real = kind.pipe_file

    def full(self, path, value, **more):
        if path.endswith(RUN_FILE):
            raise OSError(28, "No space left on device")
        return real(self, path, value, **more)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "pipe_file", full)
        assert not copied(folder, bucket)
    assert system.find(root) == []

    def note(self, path, value, **more):
        written.append(os.path.basename(path))
        return real(self, path, value, **more)

    monkeypatch.setattr(kind, "pipe_file", note)
    assert copied(folder, bucket)
    assert written[-1] == RUN_FILE
    assert [name.removeprefix(f"{root}/evening/") for name in system.find(root)] == FILES


@pytest.mark.parametrize(
    "error",
    [
        ValueError("cannot reach ftp://ada:Geheim7@nas/runs"),
        PermissionError(403, "https://nas/runs?X-Amz-Signature=Geheim7 is refused"),
        ImportError("no adlfs for az://runs?sas=Geheim7"),
        RuntimeError("530 login as ada with Geheim7-of-the-environment failed"),
        RuntimeError("x" * 185 + " zip::ftp://ada:Geheim7-of-the-environment@nas"),
    ],
)
def test_what_a_store_says_is_shown_without_credentials(folder, monkeypatch, error):
    def refuses(_):
        raise error

    monkeypatch.setenv("FSSPEC_FTP_PASSWORD", "Geheim7-of-the-environment")
    monkeypatch.setattr(copies.fsspec.core, "url_to_fs", refuses)
    finding = refusal("ftp://ada@nas/runs", read_run(folder / RUN_FILE))
    assert_names(finding, "ftp://ada@nas/runs")
    said = []
    assert not copied(folder, "ftp://ada@nas/runs", said.append)
    everything = [finding, *said, (folder / METRICS).read_text()]
    assert "Geheim" not in "\n".join(everything)


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_a_copy_goes_through_a_cache_in_front_of_a_store(folder, bucket, cache):
    place = f"{cache}::{bucket}"
    check_copy(place, read_run(folder / RUN_FILE), print)
    assert copied(folder, place)
    system, root = fsspec.core.url_to_fs(bucket)
    assert [name.removeprefix(f"{root}/evening/") for name in system.find(root)] == FILES


def test_what_an_early_end_leaves_undone_is_on_record_with_the_line_that_does_it(
    folder, nas, monkeypatch
):
    request = ResultRequest(eval=("a",), copy_to=str(nas), push="ada/x")

    def ends(*_):
        raise SystemExit(143)

    monkeypatch.setattr("hearth.after.scoring.evaluate_run", ends)
    with pytest.raises(SystemExit):
        finished.afterwards(folder, request, AGAIN, print)
    records = [each for each in read_events(folder) if isinstance(each, SharedEvent)]
    assert [each.what for each in records] == ["eval", "copy_to", "push"]
    assert [each.again for each in records] == [AGAIN(part) for part in request.parts]
    assert below(nas) == []


def test_a_disk_without_room_for_the_record_is_named_and_ends_nothing(folder, monkeypatch):
    (folder / METRICS).unlink()
    (folder / METRICS).symlink_to("/dev/full")

    def fails(*_):
        raise HearthError("no such task")

    monkeypatch.setattr("hearth.after.scoring.evaluate_run", fails)
    monkeypatch.setattr("hearth.after.push.push", lambda *_: "a page")
    said = []
    assert not finished.afterwards(
        folder, ResultRequest(eval=("a",), push="ada/x"), AGAIN, said.append
    )
    unwritten = [line for line in said if str(folder / METRICS) in line]
    assert ["no such task" in line for line in unwritten] == [True, False]
    assert_names(unwritten[1], "a page", "space")
