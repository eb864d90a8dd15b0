"""The transfer plan, the division into pieces, and the detection of pieces already present."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cached_model import make_cached
from support.facts import assert_names, refuses
from support.shards import write_shard

import datasets
from hearth.base.errors import ModelError, SupplyError
from hearth.base.files import sha256_of
from hearth.base.places import MANIFEST
from hearth.config import resolve_run
from hearth.config.adapter import StartAdapter
from hearth.config.layout import Layout, staged_adapter, staged_of
from hearth.data.findings import Findings
from hearth.data.formats import open_records
from hearth.data.hub_rows import keep_hub_rows
from hearth.data.locate import HubDataset, locate
from hearth.model.cache import unfinished_of
from hearth.transfer import own_copies
from hearth.transfer.chain import (
    SPARE,
    NodeCopies,
    NodePart,
    describe_transfer,
    givers,
    no_room,
    order_of,
)
from hearth.transfer.holding import Holding, arrived_bytes, arriving
from hearth.transfer.pieces import Item, Table, cut
from hearth.transfer.relay import made

WANTED = {"model": ""}


def copies_of(name: str, model: str = "", place: str = "", **more: object) -> NodeCopies:
    return NodeCopies(
        name,
        holds={"model": model, "data": ""},
        folders={"model": f"/{name}/models", "data": f"/{name}/data"},
        places={"model": place or f"{name}:models", "data": f"{name}:data"},
        disks={"model": "1", "data": "1"},
        free={"model": 1 << 40, "data": 1 << 40},
        arrived={"model": 0, "data": 0},
        **more,
    )


# -- the order -------------------------------------------------------------------------------------


KINDS = st.tuples(
    st.sampled_from(["", "old", "new"]), st.sampled_from([None, 100, 1000]), st.booleans()
)
nodes_of_any_kind = st.lists(KINDS, min_size=1, max_size=8).map(
    lambda kinds: [
        copies_of(f"n{number}", model, mbit=mbit, wireless=wireless)
        for number, (model, mbit, wireless) in enumerate(kinds)
    ]
)


@given(nodes_of_any_kind)
def test_everybody_who_has_not_what_the_sender_has_is_in_the_chain_once(nodes):
    order = order_of(nodes, WANTED)
    by_name = {node.name: node for node in nodes}
    model = by_name[order.source].holds["model"]
    lacking = {n.name for n in nodes if not model or n.holds["model"] != model} - {order.source}
    assert order.chain[0] == order.source
    assert sorted(order.chain[1:]) == sorted(lacking)


def test_a_node_of_a_pipeline_lacks_nothing_where_its_layers_are(tmp_path):
    some = {"model": "new", "pieces": [1, 2, 3, 4]}
    nodes = [
        copies_of("whole", "new"),
        copies_of("middle", pieces=some),
        copies_of("older", pieces=some | {"model": "old"}),
        copies_of("tail", pieces=some),
        copies_of("head", pieces=some),
    ]
    layers = {"whole": (2, 3), "middle": (1, 2), "older": (1, 2), "tail": (3, 4), "head": (0, 1)}
    parts = {name: NodePart([each], 4) for name, each in layers.items()}
    assert set(order_of(nodes, WANTED, parts).lacks) == {"older", "head"}
    assert set(order_of(nodes, WANTED).lacks) == {"middle", "older", "tail", "head"}


@given(nodes_of_any_kind)
def test_the_sender_is_the_first_that_has_the_model_else_rank_0(nodes):
    having = [node.name for node in nodes if node.holds["model"]]
    assert order_of(nodes, WANTED).source == (having or [nodes[0].name])[0]


@given(nodes_of_any_kind)
def test_a_slow_link_is_never_before_a_fast_one(nodes):
    by_name = {node.name: node for node in nodes}
    links = [by_name[name] for name in order_of(nodes, WANTED).lacks]
    keys = [(node.wireless, -(node.mbit or 0)) for node in links]
    assert keys == sorted(keys)


def test_whoever_is_asked_comes_before_the_nearest_first():
    assert givers(["sender", "b", "c", "d"], "c") == ["b", "sender"]


def test_nodes_that_share_a_disk_are_served_once():
    nodes = [
        copies_of("a", "m"),
        copies_of("b", place="nfs"),
        copies_of("c", place="nfs"),
        copies_of("d", "m", "a"),
    ]
    order = order_of(nodes, WANTED)
    assert order.lacks == {"b": ("model",)}
    assert order.alike == {"c": "b"}
    chain, shared = describe_transfer(order, {"model": "tiny"}, fetches=[])
    assert chain == "tiny: a → b"
    assert_names(shared, "c shares", "with b")


def test_a_data_file_goes_to_those_that_have_another_one_or_none():
    nodes = [copies_of("a", "m"), copies_of("b", "m"), copies_of("c")]
    order = order_of(nodes, {"model": "", "data": "d"})
    assert order.lacks == {"b": ("data",), "c": ("model", "data")}


def test_what_nobody_has_is_said_to_be_downloaded_once():
    order = order_of([copies_of("a"), copies_of("b")], WANTED)
    fetched, chain = describe_transfer(order, {"model": "tiny"}, fetches=["model"])
    assert_names(fetched, "tiny", "a downloads", "once")
    assert chain == "tiny: a → b"


def below(free: int, data_disk: str, arrived: int) -> NodeCopies:
    """Return a node whose two folders have `free` bytes each, and a model that arrives."""
    return replace(
        copies_of("a"),
        disks={"model": "1", "data": data_disk},
        free={"model": free, "data": free},
        arrived={"model": arrived, "data": 0},
    )


def test_things_on_one_disk_need_room_together_and_what_has_arrived_needs_none():
    node = below(free=SPARE + 100, data_disk="1", arrived=50)
    assert no_room(node, {"model": 100, "data": 50}) == []
    (finding,) = no_room(node, {"model": 100, "data": 51})
    assert_names(finding, "the model", "the data", "268.4 MB", "/a/models")


def test_each_disk_without_room_is_a_finding():
    assert len(no_room(below(0, data_disk="2", arrived=0), {"model": 1, "data": 1})) == 2


# -- pieces ----------------------------------------------------------------------------------------


@given(st.binary(max_size=200), st.integers(1, 50))
def test_the_pieces_make_the_file(content, piece):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_bytes(content)
        file = cut(path, piece)
    assert file.size == len(content)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    parts = [content[at : at + piece] for at in range(0, len(content), piece)]
    assert list(file.pieces) == [hashlib.sha256(part).hexdigest() for part in parts]


def test_a_table_travels_as_text_and_cannot_name_a_file_elsewhere(tmp_path):
    folder = make_cached(tmp_path, 3 << 20)
    table = made(["model"], {"model": str(folder)})
    assert Table.of(table.text()) == table
    assert Table.of(table.text()).digest == table.digest
    assert table.items[0].about == {"id": "owner/bulky", "origin": "hub", "revision": "0123abcd"}
    item = table.items[0]
    for name in ("../config.json", "..", ".", "", "a\0b"):
        file = replace(item.files[0], name=name)
        for odd in (replace(item, name=name), replace(item, files=(file,))):
            with refuses(SupplyError, repr(name)):
                Table.of(replace(table, items=(odd,)).text())
    for name in (".a", "..a", "...", "a..b"):
        assert Table.of(replace(table, items=(replace(item, name=name),)).text())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"piece": 1, "items": [{}]}'])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(SupplyError):
        Table.of(text)


def test_a_model_that_was_changed_is_not_sent(tmp_path):
    folder = make_cached(tmp_path, 1 << 20)
    (folder / "config.json").write_text("{}")
    with refuses(SupplyError, "config.json changed"):
        made(["model"], {"model": str(folder)})


# -- what is here ----------------------------------------------------------------------------------


PIECE = 8


def data_item(content: bytes, folder: Path) -> Item:
    path = folder / "words.jsonl"
    path.write_bytes(content)
    return Item("data", path.name, (cut(path, PIECE),), {})


@given(st.binary(min_size=1, max_size=100), st.integers(0, 100), st.data())
def test_what_arrived_counts_up_to_the_first_piece_that_is_not_whole_and_good(
    content, length, data
):
    """The bytes after it may be cut off or damaged."""
    with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as here:
        item = data_item(content, Path(there))
        target = Path(here, item.name)
        kept = bytearray(content[:length])
        at = data.draw(st.none() | st.integers(0, len(kept) - 1)) if kept else None
        if at is not None:
            kept[at] ^= 1
        arriving(target).mkdir()
        (arriving(target) / item.name).write_bytes(kept)
        assert arrived_bytes(target) == len(kept)

        holding = Holding(item, PIECE, target)
        good = len(kept) if len(kept) == len(content) else len(kept) // PIECE * PIECE
        if at is not None:
            good = min(good, at // PIECE * PIECE)
        assert holding.resume() == good
        for number, piece in holding.missing():
            assert not target.exists()
            holding.add(number, content[piece * PIECE :][:PIECE])
        holding.land()
        assert target.read_bytes() == content
        assert sorted(path.name for path in target.parent.iterdir()) == [target.name]


def test_the_files_of_an_old_model_stay_until_all_of_the_new_one_are_there(tmp_path):
    new = make_cached(tmp_path / "there", 2 << 20)
    old = make_cached(tmp_path / "here", 1 << 20)
    table = made(["model"], {"model": str(new)})
    holding = Holding(table.items[0], table.piece, old)
    assert not holding.is_whole()
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    holding.resume()
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    for number, piece in holding.missing():
        path = new / table.items[0].files[number].name
        holding.add(number, path.read_bytes()[piece * table.piece :][: table.piece])
    holding.land()
    assert holding.is_whole()
    assert sorted(p.name for p in old.iterdir()) == sorted(p.name for p in new.iterdir())
    assert not arriving(old).exists()
    (old / MANIFEST).unlink()
    assert not holding.is_whole()


@pytest.mark.parametrize("mixed", [False, True])
def test_a_node_says_which_files_of_a_folder_it_has(tmp_path, mixed):
    (tmp_path / "chats").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "chats" / name).write_text(name)
    (tmp_path / "c.txt").write_text("a lamp")
    dataset = f"{tmp_path}/chats" + (f"=1,{tmp_path}/c.txt=1" if mixed else "")
    run = resolve_run({"model": "owner/tiny", "dataset": dataset}, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "node")})
    staged = [staged_of(file) for file in run.shards]
    layout.data.mkdir(parents=True)
    (tmp_path / "chats" / "a.txt").rename(layout.data / staged[0])
    (tmp_path / "chats" / "b.txt").unlink()
    facts = own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]
    assert facts["files"] == [staged[0]]
    assert facts["holds"].get("data", "") == ""
    (layout.data / staged[1]).write_text("b.txt")
    facts = own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]
    assert facts["files"] == sorted(staged)
    whole = "" if mixed else run.dataset_sha256[: own_copies.DIGITS]
    assert facts["holds"].get("data", "") == whole


def test_a_node_says_whether_it_has_a_copy_of_its_own_of_the_adapter(tmp_path):
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(b"weights")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "node")})
    layout.data.mkdir(parents=True)
    start = StartAdapter(str(weights), sha256_of(weights), len(b"weights"))
    run = replace(resolve_run({"model": "smollm2-135m"}, tmp_path), start=start)

    def files():
        return own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]["files"]

    assert files() == []
    staged = layout.data / staged_adapter(start)
    staged.write_bytes(b"cut")
    assert files() == []
    staged.write_bytes(b"weights")
    assert files() == [staged.name]


@pytest.mark.parametrize("late", [False, True], ids=["before", "while it arrives"])
def test_a_folder_of_the_models_name_that_hearth_did_not_make_stays(tmp_path, late):
    new, own = make_cached(tmp_path / "there", 1 << 20), tmp_path / "models" / "bulky"
    table = made(["model"], {"model": str(new)})
    holding = Holding(table.items[0], table.piece, own)
    if late:
        holding.resume()
        for number, piece in holding.missing():
            path = new / table.items[0].files[number].name
            holding.add(number, path.read_bytes()[piece * table.piece :][: table.piece])
    own.mkdir(parents=True)
    (own / "model.safetensors").write_bytes(b"mine")
    with refuses(ModelError, own, "HEARTH_MODELS"):
        holding.land() if late else holding.resume()
    assert [path.read_bytes() for path in own.iterdir()] == [b"mine"]
    assert arriving(own).exists() == late


def test_what_the_disk_made_of_it_is_read_again_before_it_counts(tmp_path):
    content = b"0123456789abcdef"
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    item = data_item(content, tmp_path / "there")
    target = tmp_path / "here" / item.name
    holding = Holding(item, PIECE, target)
    holding.resume()
    for number, piece in holding.missing():
        holding.add(number, content[piece * PIECE :][:PIECE])
    (arriving(target) / item.name).write_bytes(b"0123456789abcdeF")
    with refuses(SupplyError, item.name, "its disk"):
        holding.land()
    assert not target.exists()
    assert holding.resume() == 0


def test_of_many_shards_only_those_arrive_that_are_not_here(tmp_path):
    there, here, owner = (tmp_path / name for name in ("there", "here", "owner"))
    for folder in (there, here, owner):
        folder.mkdir()
    contents = {f"{name}-fine_{name}.bin": name.encode() * 20 for name in "abc"}
    for name, content in contents.items():
        (there / name).write_bytes(content)
    (owner / "fine_b.bin").write_bytes(contents["b-fine_b.bin"])
    (here / "c-fine_c.bin").write_bytes(b"damaged")
    sent = {name: str(there / name) for name in contents}
    table = made(["data"], {"data": str(there / "0123-shards")}, sent)
    assert table.items[0].size == 60
    at_owner = {"b-fine_b.bin": owner / "fine_b.bin"}
    holding = Holding(table.items[0], table.piece, here / "0123-shards", at_owner)
    assert not holding.is_whole()
    assert holding.resume() == 20
    assert {number for number, _ in holding.missing()} == {0, 2}
    assert holding.read(1, 0, 1) == contents["b-fine_b.bin"]
    for number, piece in holding.missing():
        assert piece == 0
        holding.add(number, (there / table.items[0].files[number].name).read_bytes())
    holding.land()
    assert holding.is_whole()
    arrived = {path.name: path.read_bytes() for path in here.iterdir()}
    assert arrived == {name: contents[name] for name in ("a-fine_a.bin", "c-fine_c.bin")}
    assert holding.read(1, 0, 1) == contents["b-fine_b.bin"]
    assert holding.read(2, 0, 1) == contents["c-fine_c.bin"]


def test_a_node_says_which_shards_it_has_and_what_they_need_no_room_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = [write_shard(tmp_path / f"fine_{n}.bin", [n] * 30) for n in (1, 2)]
    given = {"model": "owner/tiny", "dataset": f"{tmp_path}/*.bin"}
    run = resolve_run(given, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "node")})
    staged = [staged_of(shard) for shard in run.shards]
    layout.data.mkdir(parents=True)
    paths[0].rename(layout.data / staged[0])
    facts = own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]
    assert facts["files"] == sorted(staged)
    assert facts["holds"]["data"] == run.dataset_sha256[: own_copies.DIGITS]
    paths[1].unlink()
    facts = own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]
    assert (facts["files"], facts["holds"]["data"]) == ([staged[0]], "")
    assert facts["arrived"]["data"] == 1024 + 60


def test_a_node_holds_a_data_file_only_with_the_content_that_the_run_began_with(tmp_path):
    own = tmp_path / "mine.jsonl"
    own.write_text('{"text": "a"}\n')
    run = resolve_run({"model": "owner/tiny", "dataset": str(own)}, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "node")})
    target = own_copies.targets_of(run, layout)["data"]
    target.parent.mkdir(parents=True)
    for content, held in ((own.read_text(), run.dataset_sha256[: own_copies.DIGITS]), ("b", "")):
        target.write_text(content)
        facts = own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"]
        assert facts["holds"]["data"] == held


def test_a_folder_of_the_models_name_that_hearth_did_not_make_is_found_beforehand(tmp_path):
    run = resolve_run({"model": "owner/tiny"}, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    folder = layout.models / run.source.folder
    folder.mkdir(parents=True)
    assert own_copies.inspect_copies(run, layout, "127.0.0.1", shared="")["findings"] == []
    (folder / "model.safetensors").write_text("mine")
    (finding,) = own_copies.inspect_copies(run, layout, "127.0.0.1", shared="")["findings"]
    assert_names(finding, folder, MANIFEST)


def test_a_shared_folder_is_marked_once_and_known_by_its_mark(tmp_path):
    with refuses(SupplyError, tmp_path / "none", "no folder"):
        own_copies.mark(tmp_path / "none")
    with refuses(SupplyError, tmp_path, "first node"):
        own_copies.mark_of(tmp_path)
    assert own_copies.mark(tmp_path)
    assert not own_copies.mark(tmp_path)
    assert own_copies.mark_of(tmp_path) == own_copies.mark_of(tmp_path)


def test_a_hub_data_sets_rows_are_kept_as_a_file_and_read_from_it_as_from_the_hub(
    tmp_path, monkeypatch
):
    rows = datasets.Dataset.from_list(
        [{"prompt": f"say {n}", "completion": "x" * n} for n in range(1, 9)]
    )
    monkeypatch.setattr("hearth.data.hub_rows._probe", lambda data: True)  # stands in for the Hub
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    path = layout.kept("owner/words:small")
    keep_hub_rows(HubDataset("owner/words", "small"), path)
    assert [file.name for file in path.parent.iterdir()] == ["owner--words--small.parquet"]

    def records(data):
        opened = open_records(data)
        return [record.fields for record in opened.read(Findings(opened.name))]

    assert records(locate(path)) == records(HubDataset("owner/words", "small"))


def test_what_a_download_left_behind_counts_for_the_node_that_downloads(tmp_path):
    run = resolve_run({"model": "owner/tiny"}, tmp_path / "runs")
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    left = unfinished_of(tmp_path / "models" / "owner--tiny") / ".cache" / "model.incomplete"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 123)
    seen = NodeCopies.of("a", own_copies.inspect_copies(run, layout, "127.0.0.1", "")["facts"])
    assert (seen.arrived["model"], seen.downloaded["model"]) == (0, 123)
