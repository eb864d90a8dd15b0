"""Settings with forms of their own: columns, mixtures, and places for a copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.facts import assert_names, refuses
from support.repository import ROOT
from support.words import TRAIN

from hearth.after.request import ResultRequest
from hearth.config import (
    ConfigError,
    Settings,
    read_run,
    resolve,
    resolve_run,
    run_of,
    run_text,
    shown,
    write_run,
)
from hearth.config.cli import parse_command_line
from hearth.config.run import describe_settings
from hearth_controller.inventory.words import parsed
from hearth_controller.launch.resolve import requested

MODEL = {"model": "smollm2-135m", "run": "night"}
NAMED = {"question": "frage", "answer": "antwort"}


@pytest.mark.parametrize(
    ("typed", "columns"),
    [
        ("question=frage,answer=antwort", NAMED),
        (" question = frage , answer=antwort ", NAMED),
        ("{question: frage, answer: antwort}", NAMED),
        (NAMED, NAMED),
        ("text=a=b", {"text": "a=b"}),
        ("", {}),
        ("none", {}),
        ({}, {}),
    ],
)
def test_columns_are_read_in_every_form(tmp_path, typed, columns):
    run = resolve_run(MODEL | {"columns": typed}, tmp_path)
    assert run.settings.columns == columns
    write_run(run, tmp_path / "night" / "run.yml")
    assert read_run(tmp_path / "night" / "run.yml") == run


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("questoin=frage", ["'questoin'", "did you mean 'question'"]),
        ("frage=question", ["'frage'", "question", "answer"]),
        ("frage", ["'frage'", "question=frage"]),
        ("question=", ["question"]),
        ("question=a,answer=a", ["'a'", "question", "answer"]),
        ("question=a,question=b", ["question", "twice"]),
        ("{question: a", ["mapping"]),
        (17, ["columns"]),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(tmp_path, typed, facts):
    with refuses(ConfigError, "columns", *facts):
        resolve_run(MODEL | {"columns": typed}, tmp_path)


def test_the_command_line_and_the_table_of_settings_show_them_as_typed(tmp_path):
    typed = "question=frage,answer=antwort"
    given = parse_command_line(["--model", "smollm2-135m", "--columns", typed]).given
    assert typed in describe_settings(resolve_run(given, tmp_path))


def test_a_resumed_run_keeps_its_columns(tmp_path):
    write_run(resolve_run(MODEL | {"columns": NAMED}, tmp_path), tmp_path / "night" / "run.yml")
    assert resolve_run({"resume": "night"}, tmp_path).settings.columns == NAMED
    with refuses(ConfigError, "columns", "resumed"):
        resolve_run({"resume": "night", "columns": "text=frage"}, tmp_path)


PRESET = {"model": "smollm2-135m"}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Two data files in the working folder, and one with the content of the first."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": "a lamp", "b": "a cable", "copy": "a lamp"}.items():
        (tmp_path / f"{name}.txt").write_text(text)


@pytest.mark.parametrize(
    "typed",
    [
        "a.txt=0.7,owner/b:c=0.3",
        " a.txt=0.7, owner/b:c=.3 ".strip(),
        "{a.txt: 0.7, 'owner/b:c': 0.3}",
        {"a.txt": 0.7, "owner/b:c": "0.3"},
    ],
)
def test_a_mixture_is_typed_as_text_or_as_a_mapping(tmp_path, typed):
    settings = resolve(PRESET | {"dataset": typed}).settings
    assert settings.dataset == {f"{tmp_path}/a.txt": 0.7, "owner/b:c": 0.3}
    again = resolve(PRESET | {"dataset": shown(settings.dataset)}).settings
    assert again.dataset == settings.dataset


def test_a_file_with_an_equals_sign_in_its_name_is_one_file(tmp_path):
    (tmp_path / "lr=0.1,b=2.txt").write_text("a lamp")
    assert resolve(PRESET | {"dataset": "lr=0.1,b=2.txt"}).settings.dataset.endswith("b=2.txt")


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("a.txt=0,b.txt=1", ["a.txt", "'0'"]),
        ("a.txt=1,b.txt=-2", ["b.txt", "'-2'"]),
        ("a.txt=1,b.txt=inf", ["b.txt", "'inf'"]),
        ({"a.txt": True, "b.txt": None}, ["a.txt", "True", "b.txt", "None"]),
        ({"a.txt": 1}, ["a.txt", "two data sets"]),
        ("a.txt=1,a.txt=2", ["a.txt", "twice"]),
        ("a.txt=1,./a.txt=2", ["./a.txt", "twice"]),
        ("a.txt=1,copy.txt=2", ["a.txt", "copy.txt", "same file"]),
        ("{a.txt:", ["{a.txt:", "a=0.7,b=0.3"]),
        ("{a.txt:1,b.txt:2}", ["a.txt:1", "a=0.7,b=0.3"]),
        ("a.txt=1,no.txt=2", ["no.txt"]),
    ],
)
def test_a_wrong_mixture_is_refused_by_name(tmp_path, typed, facts):
    with pytest.raises(ConfigError) as caught:
        resolve_run(PRESET | {"dataset": typed}, tmp_path)
    (finding,) = caught.value.findings
    assert_names(finding, *facts)


def test_all_that_is_missing_is_named_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        resolve_run(PRESET | {"dataset": "no.txt=1,nor.txt=2"}, tmp_path)
    assert len(caught.value.findings) == 2


def test_the_run_file_has_shares_and_the_checksum_of_each_file(tmp_path):
    run = resolve_run(
        PRESET | {"run": "night", "dataset": "a.txt=1,homelab-qa=2,b.txt=1"}, tmp_path
    )
    write_run(run, tmp_path / "night" / "run.yml")
    written = yaml.safe_load((tmp_path / "night" / "run.yml").read_text())
    assert list(written["settings"]["dataset"].values()) == [1, 2, 1]
    assert read_run(tmp_path / "night" / "run.yml") == run
    sums = run.data_checksums
    assert set(sums) == {f"{tmp_path}/a.txt", f"{tmp_path}/b.txt", "homelab-qa"}
    assert [name for name, sha256 in sums.items() if sha256 is None] == ["homelab-qa"]
    assert resolve_run({"resume": "night"}, tmp_path).settings.dataset == run.settings.dataset
    (tmp_path / "b.txt").write_text("another")
    with pytest.raises(ConfigError) as caught:
        resolve_run({"resume": "night"}, tmp_path)
    (finding,) = caught.value.findings
    assert_names(finding, f"{tmp_path}/b.txt", "changed")


PASSWORD = "Geheim7Wort"
PLACES = [
    place.replace("P", PASSWORD)
    for place in (
        "simplecache::ftp://u:P@h/x",
        "zip://x::ftp://u:P@h",
        "ftp://u:pa/P@h",
        "ftp://u:p#P@h",
        "https://h/x?sig=P",
        "az://c/x?sas=P",
        "sftp://u%3AP@h",
        "memory://x?key=P",
        "/mnt::ftp://u:P@h",
        "ada:P@nas:/runs",
        "h/x?sig=P",
    )
]


def refusals(place: str, tmp_path: Path):
    """Yield what each way in says of a place."""
    file = tmp_path / "mine.yml"
    file.write_text(yaml.safe_dump({"copy_to": place}))
    given = {"model": "smollm2-135m"}
    for attempt in (
        lambda: resolve(given | {"copy_to": place}),
        lambda: resolve(given, file=file),
        lambda: resolve_run(given | {"copy_to": place}, tmp_path),
        lambda: ResultRequest.typed(copy_to=place),
        lambda: run_of(recorded(place), "run.yml"),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        yield from caught.value.findings
    typed = given | {"copy_to": "/mnt/nas", "train": {"copy_to": place}}
    for words in (given | {"copy_to": place}, typed):
        found = requested(words, tmp_path, TRAIN, [], ["desk"], resume=False)
        assert found.findings
        yield from found.findings


def recorded(place: str) -> str:
    """Return the run.yml of a run that an earlier version let have this place."""
    content = yaml.safe_load(run_text(resolve_run({"model": "smollm2-135m"}, Path("/nowhere"))))
    content["settings"]["copy_to"] = place
    return yaml.safe_dump(content)


@pytest.mark.parametrize("place", PLACES)
def test_a_place_with_a_credential_is_refused_by_every_way_in_and_not_shown(place, tmp_path):
    for finding in refusals(place, tmp_path):
        assert "copy_to" in finding
        assert PASSWORD not in finding


@pytest.mark.parametrize("place", PLACES)
def test_a_verb_refuses_it_before_a_node_gets_it(place):
    words = {"copy_to": {"type": "str"}}
    values, (finding,) = parsed({"copy_to": place}, words)
    assert not values and PASSWORD not in finding
    for plain in ("", "/mnt/nas", "s3://bucket/runs"):
        assert parsed({"copy_to": plain}, words) == ({"copy_to": plain}, [])


def test_a_dry_run_shows_no_credential(tmp_path):
    for script, words in (
        ("train_distributed.py", ["--dry-run", "--model", "smollm2-135m"]),
        ("share.py", ["evening"]),
    ):
        done = subprocess.run(
            [sys.executable, ROOT / "training" / script, *words, "--copy-to", PLACES[0]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )
        assert done.returncode == 2
        assert PASSWORD not in done.stdout + done.stderr
        assert "copy_to" in done.stderr


@pytest.mark.parametrize(
    "place",
    ["/mnt/nas", "~/copies", "/mnt/a:b@c/key=1", "s3://bucket/runs", "simplecache::s3://bucket/x"],
)
def test_a_place_without_one_is_kept_as_it_was_typed(place):
    assert Settings(model="any", copy_to=place).copy_to == place


def test_a_run_with_a_plain_place_is_read_again(tmp_path):
    run = resolve_run({"model": "smollm2-135m", "copy_to": "s3://bucket/runs"}, tmp_path)
    (tmp_path / "run.yml").write_text(run_text(run))
    assert read_run(tmp_path / "run.yml") == run
