"""Two processes that want the same tokens: one makes them, the other waits."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from support.waiting import HANG

from hearth.data.documents import Documents, cache_key, cached_documents
from hearth.data.findings import Note


def documents() -> Documents:
    remarks = {"notes": (Note("odd", 2, (1, 3)),), "unused": ("id",)}
    return Documents(**{field.name: np.arange(5) for field in fields(Documents)} | remarks)


def ask(cache: Path, results: multiprocessing.Queue) -> None:
    def make() -> Documents:
        time.sleep(1)
        results.put("made")
        return documents()

    results.put(cached_documents(cache, "key", make, lambda _: None).ids.tolist())


def test_two_processes_at_once_do_the_work_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=ask, args=(tmp_path, results)) for _ in range(2)]
    try:
        for process in processes:
            process.start()
        told = [results.get(timeout=HANG) for _ in range(3)]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    assert sorted(map(str, told)) == ["[0, 1, 2, 3, 4]", "[0, 1, 2, 3, 4]", "made"]
    assert results.empty()


def test_a_failure_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    def fail() -> Documents:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cached_documents(tmp_path, "key", fail, print)
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]
    made = cached_documents(tmp_path, "key", documents, print)
    assert (len(made), made.notes, made.unused) == (5, documents().notes, ("id",))


def test_the_key_depends_on_every_part_and_its_place():
    assert len({cache_key("a", "b"), cache_key("b", "a"), cache_key("ab"), cache_key("a")}) == 4
