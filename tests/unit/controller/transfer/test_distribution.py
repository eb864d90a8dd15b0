"""Distribution on the controller: the keys to relay, the findings of a node, the progress."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.facts import assert_names
from support.shards import write_shard

from hearth.config import resolve_run
from hearth_controller.transfer import receive
from hearth_controller.transfer.distribution import DataFile, Distribution, wanted_of


@pytest.mark.parametrize(
    ("dataset", "direct", "wanted"),
    [
        ("homelab-qa", 0, {"model"}),
        ("owner/words", 1e9, {"model", "data"}),
        ("words.jsonl", 10, {"model", "data"}),
        ("words.jsonl", 1e9, {"model"}),
        ("words.jsonl=1,owner/words=2", 0, {"model"}),
        ("*.bin", 2000, {"model", "data"}),
        ("*.bin", 3000, {"model"}),
        ("chats", 10, {"model", "data"}),
        ("chats", 1e9, {"model"}),
        ("chats=1,words.jsonl=1", 10, {"model"}),
    ],
)
def test_what_is_sent_at_all(tmp_path, monkeypatch, dataset, direct, wanted):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    Path("words.jsonl").write_text('{"text": "a lamp"}\n')
    Path("chats").mkdir()
    Path("chats/a.jsonl").write_text('{"text": "a cable"}\n')
    for number in (1, 2):
        write_shard(Path(f"{number}.bin"), [number] * 20)
    given = {"model": "owner/bulky", "dataset": dataset}
    assert set(wanted_of(resolve_run(given, tmp_path), direct)) == wanted


def test_each_node_gets_the_data_files_that_it_lacks_where_it_looks_for_them(tmp_path):
    files = [{"source": f"/mine/{n}.bin", "staged": f"{n}{n}-{n}.bin"} for n in "ab"]
    copies = {
        "tower": {"files": ["aa-a.bin", "bb-b.bin"], "data": "/home/me/ai-cluster/data"},
        "laptop": {"files": ["aa-a.bin"], "data": "/tmp/home/ai-cluster/data"},
    }
    names = ["tower", "laptop", "oldbox"]
    run = resolve_run({"model": "owner/bulky"}, tmp_path)
    distribution = Distribution(run, files, dict.fromkeys(names, "10.0.0.1"), copies)
    assert distribution.lacked(names) == {
        "laptop": [DataFile("/mine/b.bin", "/tmp/home/ai-cluster/data/bb-b.bin")],
        "oldbox": [DataFile("/mine/a.bin"), DataFile("/mine/b.bin")],  # it was not reached
    }


def test_an_adapter_comes_to_every_node_though_one_alone_gets_the_data(tmp_path):
    data = {"source": "/mine/words.jsonl", "staged": "aa-words.jsonl"}
    adapter = {"source": "/mine/night/adapter_model.safetensors", "staged": "bb-adapter"}
    run = resolve_run({"model": "owner/bulky"}, tmp_path)
    addresses = dict.fromkeys(["tower", "laptop", "oldbox"], "10.0.0.1")
    copies = {"oldbox": {"files": ["bb-adapter"]}}
    distribution = Distribution(run, [data], addresses, copies, adapters=[adapter])
    lacked = distribution.lacked(["tower"])
    assert {name: [each.source for each in files] for name, files in lacked.items()} == {
        "tower": [data["source"], adapter["source"]],
        "laptop": [adapter["source"]],
    }


RECORD = {
    "state": "taking",
    "sent": 60_000_000,
    "here": 40_000_000,
    "size": 200_000_000,
    "giver": "tower",
    "lost": [],
    "began": 0.0,
    "ended": 6.0,
}


def test_progress_says_how_much_from_whom_how_fast_and_how_long_still(monkeypatch):
    monkeypatch.setattr(receive.time, "time", lambda: 6.0)
    taking = receive.progress(RECORD, "oldbox, the last of 3")
    assert taking.startswith("oldbox, the last of 3: ")
    assert_names(taking, "100.0 MB of 200.0 MB", "tower", "10.0 MB/s", "10 s")
    assert receive.progress(RECORD | {"state": "proving"}, "oldbox") != taking
    assert_names(receive.progress(RECORD | {"size": 0}, "oldbox"), "oldbox", "tower")


def test_in_the_end_whoever_was_lost_is_named():
    lost = [{"name": "laptop", "why": "no answer on TCP (firewall?)"}]
    said = receive.arrived(RECORD | {"lost": lost})
    assert_names(said, "60.0 MB from tower", "6 s", "10.0 MB/s", "40.0 MB")
    assert said.rpartition("; ")[2].startswith("laptop ")
    assert said.endswith(f": {lost[0]['why']}")
