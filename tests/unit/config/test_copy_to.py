"""The place of copies: no credential is accepted in it, recorded or shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.repository import ROOT
from support.words import TRAIN

from hearth.after.request import ResultRequest
from hearth.base.errors import ConfigError
from hearth.config import Settings, read_run, resolve, resolve_run, run_of, run_text
from hearth_controller.inventory.words import parsed
from hearth_controller.launch.request import requested

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
        assert found["findings"]
        yield from found["findings"]


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
