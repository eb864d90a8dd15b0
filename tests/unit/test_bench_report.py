"""The table that the bench of provisioning writes."""

from __future__ import annotations

from bench.provision.report import BEGIN, END, aims, put, table


def sitting(machines: int, second: float, ping: float) -> dict:
    def cost(*walls: float) -> list[dict]:
        return [{"wall": wall, "cpu": wall / 2} for wall in walls]

    return {
        "machines": machines,
        "first": cost(90.0),
        "second": cost(second - 1, second, second + 5),
        "second_with_sum": [],
        "ping": cost(ping, ping, ping * 9),
    }


def test_medians_are_shown_and_what_was_not_measured_is_left_out():
    told = table(
        {
            "date": "2026-11-20",
            "computer": "2 cores of X",
            "ansible": "2.19.0",
            "hearth": "abc",
            "sittings": [sitting(3, 30.0, 0.5)],
        }
    )
    assert "| 3 | first run | 1 | 90.0 | 45.0 | 180 | 30.00 s |" in told
    assert "| 3 | second run | 3 | 30.0 | 15.0 | 60 | 10.00 s |" in told
    assert "all-reduce |" not in told


def test_an_aim_that_is_not_met_says_so():
    few, many = sitting(3, 30.0, 0.5), sitting(10, 200.0, 1.0)
    assert ["**not met**" in line for line in aims([few, many])] == [False, True, True]
    assert ["**not met**" in line for line in aims([few, sitting(10, 90.0, 1.0)])] == [False] * 3


def test_the_table_takes_the_place_of_the_last_one():
    once = put("# Benchmarks\n", "old\n")
    assert once.count(BEGIN) == once.count(END) == 1
    again = put(f"{once}\nmore\n", "new")
    assert "old" not in again
    assert "new" in again
    assert again.startswith("# Benchmarks\n")
    assert again.endswith("\nmore\n")
