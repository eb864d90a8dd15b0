"""Each README of a role, and that of the playbooks, has the options that are declared beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses
from support.repository import ROOT
from support.role_pages import COMMAND, folders_in, main, page_of, with_options

from hearth.base.errors import HearthError

FOLDERS = folders_in(ROOT)
PLACE = f"""\
<!-- Made from meta/argument_specs.yml; do not edit:
     {COMMAND} -->
<!-- made up to here -->
"""
SPECS = {
    "main": {"options": {"kiln_mode": {"description": "Whether C(a|b) counts."}}},
    "cool": {"short_description": "Let it cool"},
}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_readme_has_the_options(folder):
    assert (folder / "README.md").read_text() == page_of(folder), f"make the tables anew: {COMMAND}"


def test_every_role_is_there():
    roles = [path.parent for path in (ROOT / "roles").glob("*/README.md")]
    assert [ROOT / "playbooks", *sorted(roles)] == FOLDERS
    assert len(roles) > 10


def test_no_cell_is_split_and_each_entry_has_its_table():
    assert with_options(PLACE, SPECS).endswith(
        """\
| `kiln_mode` | str | – | Whether `a\\|b` counts. |

With `tasks_from: cool` (let it cool):

There are no options.

<!-- made up to here -->
"""
    )


@given(before=st.text(), after=st.text())
def test_what_stands_around_the_table_stays_and_a_second_time_changes_nothing(before, after):
    once = with_options(f"{before}\n{PLACE}{after}", SPECS)
    assert once.startswith(f"{before}\n<!-- Made")
    assert once.endswith(f"<!-- made up to here -->\n{after}")
    assert with_options(once, SPECS) == once


@pytest.mark.parametrize("readme", ["# kiln\n", PLACE * 2, PLACE.replace("made up", "up")])
def test_a_readme_without_one_place_for_it_is_refused(readme):
    with refuses(HearthError, "<!-- made up to here -->"):
        with_options(readme, SPECS)


def test_the_command_writes_what_differs_and_names_it(tmp_path, capsys):
    role = tmp_path / "roles" / "kiln"
    (role / "meta").mkdir(parents=True)
    (role / "meta" / "argument_specs.yml").write_text(
        "argument_specs: {main: {short_description: x, options: {kiln_on: {description: On.}}}}"
    )
    readme = role / "README.md"
    readme.write_text(PLACE)
    main(tmp_path)
    assert "| `kiln_on` | str | – | On. |" in readme.read_text()
    assert capsys.readouterr().out == f"{readme}\n"
    main(tmp_path)
    assert capsys.readouterr().out == ""
    readme.write_text("# kiln\n")
    with pytest.raises(SystemExit, match=str(readme)):
        main(tmp_path)
    assert readme.read_text() == "# kiln\n"
