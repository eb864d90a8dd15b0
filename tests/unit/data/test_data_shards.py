"""Token shards: read as they were written, cut into rows without loss, and refused if not whole."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses
from support.shards import GPT2, LLAMA3
from support.shards import write_shard as write

from hearth.base.errors import DataError
from hearth.base.files import sha256_of
from hearth.data.locate import locate
from hearth.data.rows import IGNORED
from hearth.data.shards import files
from hearth.data.shards.files import ShardRows, open_shard
from hearth.data.shards.load import load_shards


@pytest.fixture
def load(tmp_path):
    """Return a function that loads shards; `said` has its messages."""

    def load(train, validation=(), **changes):
        settings = {"sequence_length": 8, "validation_tokens": 1000, "vocabulary": 300} | changes
        load.said = []
        return load_shards(
            train, validation, cache=tmp_path / "cache", say=load.said.append, **settings
        )

    return load


@pytest.mark.parametrize("kind", [GPT2, LLAMA3, ".npy"])
def test_what_was_written_is_read(tmp_path, kind):
    tokens = [0, 1, 65535, 7] if kind != LLAMA3 else [0, 128_255, 2**31, 7]
    path = tmp_path / "a.bin"
    if kind == ".npy":
        path = path.with_suffix(".npy")
        np.save(path, np.array(tokens, dtype="uint16"))
    else:
        write(path, tokens, kind)
    read = open_shard(path)
    assert isinstance(read, np.memmap)
    assert read.tolist() == tokens
    (facts,) = files.examine([path], tmp_path, lambda _: None).values()
    assert facts.sha256 == sha256_of(path)
    assert (facts.least, facts.largest) == (0, max(tokens))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(8, 20))
def test_each_token_of_a_shard_is_predicted_once_up_to_its_last_whole_row(counts, length):
    shards = [np.arange(n) + 1000 * number for number, n in enumerate(counts)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder, f"{n}.bin"), list(s)) for n, s in enumerate(shards)]
        rows = ShardRows(paths, length)
        batch = rows.batch(np.arange(len(rows)))
        places = [rows.sources(row) for row in range(len(rows))]
    if not len(rows):
        assert rows.left_out == sum(counts)
        return
    assert (rows.tokens == length).all()
    assert (batch.position_ids == np.arange(length)).all()
    assert batch.packed_seq_lengths == [length] * len(rows)
    learned = batch.labels[batch.labels != IGNORED]
    assert len(learned) == rows.label_tokens.sum()
    whole = [(n - 1) // (length - 1) * (length - 1) for n in counts]
    wanted = np.concatenate([s[1 : 1 + n] for s, n in zip(shards, whole, strict=True)])
    assert learned.tolist() == wanted.tolist()
    assert rows.left_out == sum(n - (w and w + 1) for n, w in zip(counts, whole, strict=True))
    for (place,), first in zip(places, batch.input_ids[:, 0], strict=True):
        name, _, at = place.rpartition(":")
        assert shards[int(Path(name).stem)][int(at)] == first


def test_rows_of_many_shards_are_in_the_order_of_the_names_and_take_no_memory(tmp_path, load):
    for number in (10, 2, 1):
        write(tmp_path / f"fine_train_{number:03}.bin", [number] * 15)
    write(tmp_path / "fine_val_000.bin", [7] * 150)
    shards = locate(str(tmp_path / "*_train_*.bin"))
    data = load(shards.paths, [tmp_path / "fine_val_000.bin"], validation_tokens=24)
    assert data.train.batch(range(6)).input_ids[:, 0].tolist() == [1, 1, 2, 2, 10, 10]
    assert (len(data.held_out), data.report.held_out_rows) == (3, 3)
    assert data.train.tokens.strides == data.train.label_tokens.strides == (0,)
    assert_names(load.said[-1], "3 token shards", "6 rows", "48 tokens", "42 learned")
    assert load(shards.paths).question() is None


def test_the_fingerprint_sees_contents_order_and_row_length(tmp_path, load):
    a, b = (write(tmp_path / f"{n}.bin", [n] * 30) for n in (1, 2))
    prints = [load(*given).report.fingerprint for given in ([[a]], [[b]], [[a, b]], [[b, a]])]
    prints += [load([a], [b]).report.fingerprint]
    prints += [load([a], sequence_length=9).report.fingerprint]
    assert len(set(prints)) == len(prints)
    moved = a.rename(tmp_path / "moved.bin")
    assert load([moved]).report.fingerprint == prints[0]


def test_a_shard_is_read_once_and_again_if_it_changed(tmp_path, load, monkeypatch):
    read = []
    whole = files._facts_of
    monkeypatch.setattr(files, "_facts_of", lambda path: read.append(path.name) or whole(path))
    a, b = (write(tmp_path / f"{n}.bin", [n] * 30) for n in (1, 2))
    load([a])
    load([a, b])
    assert read == ["1.bin", "2.bin"]
    status = a.stat()
    write(a, [3] * 30)
    os.utime(a, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    load([a, b])
    assert read == ["1.bin", "2.bin", "1.bin"]


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda path: path.write_bytes(b"x" * 1000), ("1000 bytes", "1024")),
        (lambda path: path.write_bytes(struct.pack("<3000H", *range(3000))), ("65536", "20240520")),
        (lambda path: write(path, [1], (20240520, 2, "H")), ("20240520 version 2", "version 1")),
        (lambda path: write(path, [1] * 30, count=31), ("31 tokens", "1086", "1084")),
        (lambda path: write(path, [1] * 30, count=-1), ("-1 tokens", "1084")),
        (lambda path: write(path, [1] * 5) and os.truncate(path, 1033), ("within a token", "1033")),
        (lambda path: write(path, []), ("no tokens",)),
        (lambda path: write(path, [1, 300, 2] * 9), ("token 300", "vocab_size")),
        (lambda path: write(path, [1] * 7), ("sequence_length 8",)),
        (lambda path: path.mkdir(), ("folder",)),
    ],
)
def test_a_bin_file_that_is_no_whole_shard_is_named_with_the_reason(tmp_path, load, make, facts):
    path = tmp_path / "bad.bin"
    make(path)
    with refuses(DataError, path, *facts):
        load(locate(str(path)).paths)


@pytest.mark.parametrize(
    ("array", "facts"),
    [
        (np.zeros((2, 30), "uint16"), ("(2, 30)",)),
        (np.zeros(30), ("float64",)),
        (np.zeros(0, "int32"), ("no tokens",)),
        (np.array([1, -1] * 30), ("token -1",)),
        (np.array([{}], object), ("numpy.save",)),
        (b"\x93NUMPY\x01", ("numpy.save",)),
    ],
)
def test_an_npy_file_that_is_no_shard_is_named_with_the_reason(tmp_path, load, array, facts):
    path = tmp_path / "bad.npy"
    path.write_bytes(array) if isinstance(array, bytes) else np.save(path, array)
    with refuses(DataError, path, *facts):
        load([path])


def test_the_problems_of_all_shards_are_found_at_once_and_before_any_is_read(tmp_path, load):
    paths = [tmp_path / f"{number}.bin" for number in range(8)]
    for path in paths[:-1]:
        path.write_bytes(b"short")
    write(paths[-1], [1] * 30)
    with pytest.raises(DataError) as caught:
        load(paths)
    assert len(caught.value.findings) == 6
    assert_names(caught.value.findings[-1], "2 more")
    assert not load.said


@pytest.mark.parametrize(
    ("pattern", "facts"),
    [
        ("*_train_*.bin", ("*_train_*.bin", "words.txt")),
        ("none/*.bin", ("none/*.bin", "missing")),
        ("*", ("words.md", ".bin")),
    ],
)
def test_a_pattern_that_gives_no_shards_is_refused(tmp_path, monkeypatch, pattern, facts):
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("a lamp")
    Path("words.md").write_text("a lamp")
    with refuses(DataError, *facts):
        locate(pattern)
