"""A mixture of data sets: its syntax, the refusals, and the run's record of it."""

from __future__ import annotations

import pytest
import yaml
from support.facts import assert_names

from hearth.config import ConfigError, read_run, resolve, resolve_run, shown, write_run

MODEL = {"model": "smollm2-135m"}


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
    settings = resolve(MODEL | {"dataset": typed}).settings
    assert settings.dataset == {f"{tmp_path}/a.txt": 0.7, "owner/b:c": 0.3}
    again = resolve(MODEL | {"dataset": shown(settings.dataset)}).settings
    assert again.dataset == settings.dataset


def test_a_file_with_an_equals_sign_in_its_name_is_one_file(tmp_path):
    (tmp_path / "lr=0.1,b=2.txt").write_text("a lamp")
    assert resolve(MODEL | {"dataset": "lr=0.1,b=2.txt"}).settings.dataset.endswith("b=2.txt")


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
        resolve_run(MODEL | {"dataset": typed}, tmp_path)
    (finding,) = caught.value.findings
    assert_names(finding, *facts)


def test_all_that_is_missing_is_named_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        resolve_run(MODEL | {"dataset": "no.txt=1,nor.txt=2"}, tmp_path)
    assert len(caught.value.findings) == 2


def test_the_run_file_has_shares_and_the_checksum_of_each_file(tmp_path):
    run = resolve_run(MODEL | {"run": "night", "dataset": "a.txt=1,homelab-qa=2,b.txt=1"}, tmp_path)
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
