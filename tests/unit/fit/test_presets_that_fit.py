"""The tables of presets."""

from __future__ import annotations

from support.facts import assert_names

from hearth.config import preset_names
from hearth.fit.capacity import GIB, Room
from hearth.fit.catalogue import describe_rooms, fitting_lines, fittings, listing
from hearth.fit.home import Candidate

HOME = {
    "tower": Room(16 * GIB, "RTX 5070 Ti"),
    "laptop": Room(8 * GIB, "RTX 4070"),
    "oldbox": Room(8 * GIB, "RTX 3070 Ti"),
}


def table(rooms: dict[str, Room], each: int = 1) -> list[str]:
    """Return the table for nodes with this many ranks each."""
    ranks = [Candidate(*node) for node in rooms.items() for _ in range(each)]
    return fitting_lines(fittings(ranks), ranks)


def line_of(lines: list[str], preset: str) -> list[str]:
    return next(line for line in lines if line.startswith(f"{preset} ")).split()


def test_the_listing_has_a_line_a_preset_the_smallest_first():
    title, *lines = listing().splitlines()
    assert title.split() == ["preset", "parameters", "licence", "gated", "sequence", "length"]
    assert sorted(line.split()[0] for line in lines) == preset_names()
    assert line_of(lines, "llama2-7b") == ["llama2-7b", "6.7B", "llama2", "yes", "1024"]
    assert line_of(lines, "smollm2-135m") == ["smollm2-135m", "135M", "apache-2.0", "no", "256"]
    assert lines[0].startswith("gpt2-124m")


def test_each_preset_says_where_it_fits():
    lines = table(HOME)
    assert_names(lines[0], "16 bits", "8 bits", "4 bits")
    assert line_of(lines, "qwen3-0.6b")[4:7] == ["all", "all", "all"]
    assert line_of(lines, "mistral-7b")[4:7] == ["tower", "tower", "all"]
    assert line_of(lines, "llama2-13b")[4:7] == ["–", "tower", "tower"]
    assert line_of(lines, "gpt2-124m")[4:7] == ["all", "–", "–"]  # all of its weights learn


def test_each_preset_says_in_how_many_bits_it_fits_over_all_nodes():
    lines = table(HOME)
    assert line_of(lines, "llama2-13b")[7:] == ["in", "16", "bits"]
    assert line_of(lines, "qwen3-32b")[4:] == ["–"] * 4
    assert line_of(lines, "qwen3-30b-a3b")[4:] == ["–", "–", "–", "in", "4", "bits"]
    assert line_of(lines, "llama3.1-70b")[4:] == ["–"] * 4
    assert line_of(lines, "gpt2-124m")[7:] == ["–"]  # a pipeline trains adapters
    four = HOME | {"attic": HOME["oldbox"]}
    assert line_of(table(four), "qwen3-32b")[4:] == ["–", "–", "–", "in", "4", "bits"]
    larger = {name: Room(24 * GIB, "RTX 3090") for name in HOME}
    assert line_of(table(larger), "llama3.1-70b")[7:] == ["in", "4", "bits"]
    assert line_of(table({"tower": HOME["tower"]}), "qwen3-32b")[4:] == ["–", "–", "–"]


def test_the_cards_of_one_node_count_as_they_are_used():
    box = {"box": Room(24 * GIB, "RTX 3090")}
    lines = table(box, each=3)
    assert_names(lines[0], "over all ranks")
    assert line_of(lines, "llama3.1-70b")[4:] == ["–", "–", "–", "in", "4", "bits"]
    assert line_of(table(box), "llama3.1-70b")[4:] == ["–", "–", "–"]


def test_experts_are_never_said_to_fit_in_8_bits():
    large = {name: Room(80 * GIB, "H100") for name in ("one", "two")}
    assert line_of(table(large), "qwen3-30b-a3b")[4:7] == ["all", "–", "all"]


def test_ranks_on_cpus_train_in_32_bits():
    lines = table({"desk": Room(64 * GIB), "laptop": Room(GIB // 4)})
    assert_names(lines[0], "32 bits", "8 bits", "4 bits")
    assert line_of(lines, "qwen3-0.6b")[4:7] == ["desk", "desk", "desk"]


def test_what_the_table_goes_by_is_said():
    ranks = [Candidate(node, room) for node, room in HOME.items()]
    ranks.append(Candidate("laptop", Room(24 * GIB, "RTX 3090")))
    said = " ".join(describe_rooms(ranks, 78))
    assert_names(said, "not verified", "RTX 4070 has 8.0 GiB, RTX 3090 has 24.0 GiB", "RTX 5070 Ti")
    assert "not verified" not in " ".join(describe_rooms([Candidate("desk", Room(GIB))], 78))
