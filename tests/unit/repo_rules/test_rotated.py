"""Which long tests a call plays: by the day, by changed files, by passed files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support import played
from support.repository import ROOT
from support.rotated import DAYS, day_of, of_today
from support.touched import module_of, touched_by

UNIT = ROOT / "tests" / "unit"


def test_the_days_of_tests_stay_as_they_were_chosen():
    names = ("queue here", "export", "tests/training/test_export.py::test_a")
    assert [day_of(name) for name in names] == [3, 2, 6]


def test_every_day_has_its_share():
    days = [day_of(f"test {number}") for number in range(700)]
    assert all(70 < days.count(day) < 130 for day in range(DAYS))


@given(st.integers(1, 30), st.data(), st.integers(0, 10**6))
def test_each_thing_has_its_turn_before_any_comes_again(size, data, day):
    things = list(range(size))
    count = data.draw(st.integers(1, size))
    rounds = -(-size // count)
    drawn = [thing for later in range(rounds) for thing in of_today(things, count, day + later)]
    assert set(drawn) == set(things)
    assert len(drawn[: size // count * count]) == len(set(drawn[: size // count * count]))


def test_modules_have_the_names_by_which_tests_import_them():
    assert module_of("training/hearth/plan/__init__.py") == "hearth.plan"
    assert module_of("tests/support/ranks.py") == "support.ranks"
    assert module_of("plugins/module_utils/x/hearth_node/network/nics.py") == (
        "ansible.module_utils.hearth_node.network.nics"
    )
    assert module_of("docs/start.md") == ""


def test_a_changed_file_touches_the_tests_that_import_or_name_it():
    here, other = UNIT / "repo_rules/test_rotated.py", UNIT / "repo_rules/test_links.py"
    for file in (
        "tests/unit/repo_rules/test_rotated.py",
        "tests/support/repository.py",  # support.touched imports it too
        "tests/support/rotated.py",
        "roles/no_such_role/tasks/main.yml",
        "playbooks/no_such_play.yml",
    ):
        assert here in touched_by([file], [here, other]), file
    assert touched_by(["tests/support/rotated.py"], [here, other]) == {here}
    assert touched_by([], [here, other]) == set()


def test_a_module_of_the_plugins_is_known_by_its_import_alone():
    users = {each for each in UNIT.rglob("test_*.py") if "pytest.mark" in each.read_text()}
    file = "plugins/module_utils/hearth_node/workspace/mark.py"
    assert len(touched_by([file], users)) < len(users) / 10


def test_modules_of_support_may_import_each_other():
    tests = set((ROOT / "tests").rglob("test_*.py"))
    found = touched_by(["tests/support/facts.py"], tests)
    assert 100 < len(found) < len(tests)


def test_a_name_that_a_package_passes_on_touches_its_users():
    users = [ROOT / "tests/cluster/conftest.py"]
    assert "from hearth.config import load_preset" in users[0].read_text()
    assert touched_by(["training/hearth/config/presets.py"], users) == set(users)
    assert touched_by(["training/hearth/config/renamed.py"], users) == set()


def test_a_file_is_left_out_once_all_its_tests_have_passed(tmp_path, monkeypatch):
    monkeypatch.setattr(played, "RECORD", str(tmp_path / "played"))
    monkeypatch.delenv("HEARTH_PLAYED_SIZE", raising=False)
    played.begin()
    assert played.earlier() == set()
    for test in ("a.py::one", "a.py::two", "b.py::one"):
        played.passed(test)
    assert played.earlier() == set()  # what this call records changes nothing within it
    monkeypatch.delenv("HEARTH_PLAYED_SIZE")
    played.begin()
    every = ["a.py::one", "a.py::two", "b.py::one", "b.py::two"]
    assert played.whole_files(every, played.earlier()) == {"a.py"}
