"""Provisioning's downloads for the nodes: lock files, platforms and wheels."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.tags import parse_tag
from support.facts import assert_names, refuses
from support.programs import run
from support.repository import ROOT
from support.stand_in_index import lock_line, make_wheel, stand_in_index
from support.waiting import until

from hearth.base.errors import SupplyError
from hearth_controller.supply.extra import ExtraLock, contradictions, malformed
from hearth_controller.supply.locks import Pin, as_requirements, lock_in, not_for, read_lock
from hearth_controller.supply.missing import supply
from hearth_controller.supply.target import PROCESSORS, PYTHONS, Target
from hearth_controller.supply.wheelhouse import Wheelhouse

NODE = Target((3, 11), "x86_64", 36)
ARM = Target((3, 11), "aarch64", 36)
NEWER = Target((3, 12), "x86_64", 39)
NEWEST = Target((3, 15), "x86_64", 42)


def quiet(*_: object) -> None:
    """Take progress and say nothing."""


def test_a_lock_is_read_with_all_hashes_and_written_as_pip_wants_it():
    a, b, c = (f"--hash=sha256:{letter * 64}" for letter in "abc")
    pins = read_lock(
        "# made by pip-compile\n"
        f"PyYAML==6.0.3 \\\n    {a} \\\n    {b}\n    # via -r x.in\nSome_Thing.else==1.0 {c}\n"
    )
    assert list(pins) == ["pyyaml", "some-thing-else"]
    assert [each[7] for each in pins["pyyaml"].hashes] == ["a", "b"]
    assert read_lock(as_requirements(pins.values())) == pins


@pytest.mark.parametrize(
    ("lock", "target", "lacks"),
    [
        *((lock, target, []) for lock in ("cpu", "gpu") for target in (NODE, ARM, NEWER)),
        *((("cpu", each, ["torch"])) for each in (replace(NODE, machine="riscv64"), NEWEST)),
    ],
)
def test_the_cpu_lock_has_torch_for_some_pythons_on_two_processors(lock, target, lacks):
    pins = lock_in(ROOT / "requirements", lock)
    assert [pin.name for pin in not_for(pins.values(), target)] == lacks
    assert len(pins["torch"].hashes) >= len(PYTHONS) * len(PROCESSORS)


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", True),
        ("cp311-cp311-manylinux2014_x86_64", True),
        ("cp39-abi3-manylinux_2_17_x86_64", True),
        ("py2.py3-none-any", True),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp311-cp311-manylinux_2_39_x86_64", False),
        ("cp311-cp311-manylinux_2_28_aarch64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", False),
    ],
)
def test_a_wheel_fits_a_node_or_not(tag, fits):
    assert bool(parse_tag(tag) & NODE.tags) is fits


@pytest.fixture
def index(tmp_path, monkeypatch):
    with stand_in_index() as server:
        monkeypatch.delenv("PIP_NO_INDEX", raising=False)
        for name, value in server.variables(tmp_path / "pip").items():
            monkeypatch.setenv(name, value)
        yield server


def offer(index, name: str, version: str, *tags: str, size: int = 0) -> Pin:
    """Put a package on the index and return its pin."""
    files: dict[str, bytes] = {}
    for tag in tags or ("py3-none-any",):
        files |= make_wheel(name, version, tag, size)
    index.files |= files
    return read_lock(lock_line(name, version, *files.values()))[name]


def test_each_wheel_is_fetched_once(index, tmp_path):
    pins = [offer(index, "one", "1.0"), offer(index, "two", "2.0")]
    house, shown = Wheelhouse(tmp_path / "wheels"), []
    assert house.find(pins, NODE) == {}
    wheels = house.fetch(pins, NODE, "", lambda *said: shown.append(said))
    assert sorted(path.name for path in (tmp_path / "wheels").glob("*.whl")) == sorted(index.files)
    files = {"one": "one-1.0-py3-none-any.whl", "two": "two-2.0-py3-none-any.whl"}
    assert {name: wheel.path.name for name, wheel in wheels.items()} == files
    assert wheels["one"].unpacked > 0
    assert any(re.search(r"\b2 of 2\b.*\btwo\b", text) for text, _ in shown)
    assert {tenth for _, tenth in shown} == {0, 5}
    index.asked.clear()
    assert house.fetch(pins, NODE, "", quiet) == wheels
    assert index.asked == []


def test_a_desktop_and_a_spark_get_the_builds_of_their_own_processors_by_one_lock(index, tmp_path):
    machines = {"tower": "x86_64", "spark": "aarch64"}
    builds: dict[str, bytes] = {}
    for machine in machines.values():
        builds |= make_wheel("torch", "2.0", f"cp311-cp311-manylinux_2_17_{machine}")
    index.files |= builds
    (tmp_path / "gpu.lock").write_text(lock_line("torch", "2.0", *builds.values()))
    inspections = {
        name: {
            "kind": "gpu",
            "differing": [{"name": "torch", "has": "", "wants": "2.0"}],
            "target": {"python": [3, 11], "machine": machine, "glibc": 36},
        }
        for name, machine in machines.items()
    }
    extra = ExtraLock(tmp_path / "python_extra.lock")
    found = supply(inspections, tmp_path, extra, tmp_path / "cache", "", quiet)
    assert {name: [each["name"] for each in wheels] for name, wheels in found.items()} == {
        name: [f"torch-2.0-cp311-cp311-manylinux_2_17_{machine}.whl"]
        for name, machine in machines.items()
    }


def test_a_wheel_that_was_spoilt_is_fetched_again(index, tmp_path):
    pin, house = offer(index, "one", "1.0"), Wheelhouse(tmp_path)
    path = house.fetch([pin], NODE, "", quiet)["one"].path
    path.write_bytes(b"PK spoilt")
    assert house.find([pin], NODE) == {}
    house.fetch([pin], NODE, "", quiet)
    assert path.read_bytes() == index.files[path.name]


def test_a_download_that_breaks_off_goes_on_where_it_was(index, tmp_path):
    pin = offer(index, "big", "1.0", size=3_000_000)
    index.breaks |= index.files.keys()
    Wheelhouse(tmp_path).fetch([pin], NODE, "", quiet)
    begins = [begin for _, begin in index.asked]
    assert begins[0] == 0
    assert begins[-1] > 1_000_000


def test_a_download_that_is_killed_loses_no_more_than_the_file_on_its_way(index, tmp_path, start):
    """Whole files are not asked for again, and nothing of the killed download stays behind."""
    pins = [offer(index, "first", "1.0", size=1000), offer(index, "second", "1.0", size=1000)]
    index.stalls.add("second-1.0-py3-none-any.whl")
    program = (
        "import sys; from pathlib import Path\n"
        "from hearth_controller.supply.locks import read_lock\n"
        "from hearth_controller.supply.target import Target\n"
        "from hearth_controller.supply.wheelhouse import Wheelhouse\n"
        "pins = read_lock(sys.argv[1]).values(); node = Target((3, 11), 'x86_64', 36)\n"
        "Wheelhouse(Path(sys.argv[2])).fetch(pins, node, '', lambda *_: None)"
    )
    process = start(
        f"import os; os.setsid()\n{program}", as_requirements(pins), tmp_path / "wheels"
    )
    until(lambda: any(name.startswith("second") for name, _ in index.asked))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    index.stalls.clear()
    assert list((tmp_path / "wheels").glob(".new-*"))
    index.asked.clear()
    wheels = Wheelhouse(tmp_path / "wheels").fetch(pins, NODE, "", quiet)
    assert set(wheels) == {"first", "second"}
    assert [name for name, _ in index.asked] == ["second-1.0-py3-none-any.whl"]
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == {".lock", *index.files}


def stored(folder: Path) -> int:
    """Return the bytes of all files below a folder; one with two names counts once."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({each.st_ino: each.st_size for each in files}.values())


def test_a_wheel_that_was_fetched_is_stored_once(index, tmp_path):
    pin = offer(index, "big", "1.0", size=3_000_000)
    Wheelhouse(tmp_path / "wheels").fetch([pin], NODE, "", quiet)
    assert 3_000_000 < stored(tmp_path) < 3_100_000


@pytest.mark.parametrize("other_disk", [False, True])
def test_a_wheel_in_pips_own_cache_is_taken_if_it_is_on_this_disk_and_stays_there(
    index, tmp_path, monkeypatch, other_disk
):
    pin = offer(index, "big", "1.0", size=3_000_000)
    wanted, cache = tmp_path / "wanted.txt", tmp_path / "pip"  # as the fixture names it
    wanted.write_text(as_requirements([pin]))
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest")
    done = run(*pip, tmp_path / "mine", "-r", wanted)
    assert done.returncode == 0, done.stderr
    before = stored(cache)
    assert before > 3_000_000
    index.asked.clear()
    if other_disk:
        monkeypatch.setattr(os, "link", refuse_to_link)
    Wheelhouse(tmp_path / "wheels").fetch([pin], NODE, "", quiet)
    assert [name for name, _ in index.asked] == (list(index.files) if other_disk else [])
    assert stored(cache) == before
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == {".lock", *index.files}


def refuse_to_link(source: object, target: object) -> None:
    """Do as os.link does between two disks."""
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))


def test_wheels_are_fetched_where_pip_keeps_no_cache(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    pin = offer(index, "one", "1.0")
    assert set(Wheelhouse(tmp_path / "wheels").fetch([pin], NODE, "", quiet)) == {"one"}


def test_a_build_that_the_index_lacks_comes_from_the_one_of_its_makers(index, tmp_path):
    with stand_in_index() as makers:
        pin = offer(makers, "torch", "2.0+cpu")
        wheels = Wheelhouse(tmp_path).fetch([pin], NODE, f"{makers.url}/simple", quiet)
    assert wheels["torch"].path.name == "torch-2.0+cpu-py3-none-any.whl"


def test_a_file_with_another_hash_is_refused_and_not_kept(index, tmp_path):
    pin = offer(index, "one", "1.0")
    index.files |= make_wheel("one", "1.0", size=7)
    with refuses(SupplyError, "1 packages") as caught:
        Wheelhouse(tmp_path).fetch([pin], NODE, "", quiet)
    assert "hash" in str(caught.value).lower()
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize("written", [None, 3, "", "../x", "-r x", "--index-url=http://x", "a b"])
def test_what_is_no_package_is_refused_with_all_others(written):
    given = ["jupyterlab>=4", written, "x @ https://x/y.whl", "JupyterLab"]
    no_name, address, twice = malformed(given)
    assert repr(written) in no_name
    assert_names(address, "https://x/y.whl")
    assert_names(twice, "JupyterLab", "twice")
    assert malformed(["jupyterlab>=4", "rich[jupyter]"]) == []


def test_a_package_that_contradicts_the_lock_is_named_with_the_locks_version():
    lock = read_lock(lock_line("torch", "2.0+cpu", b"x") + lock_line("numpy", "1", b"y"))
    first, second = contradictions(["torch==3", "torch==2.0", "Numpy>1", "rich", "torch"], lock)
    assert_names(first, "torch==3", "torch==2.0+cpu")
    assert_names(second, "Numpy>1", "numpy==1")


@pytest.fixture
def extra(index, tmp_path):
    """The packages of an inventory, whose lock has `one` and a build that no index has."""
    build = lock_line("torch", "2.0+cpu", b"x")
    lock = read_lock(build) | {"one": offer(index, "one", "1.0")}
    offer(index, "one", "3.0")
    offer(index, "helper", "1.0")
    needs = "helper>=1\nRequires-Dist: one\nRequires-Dist: torch>=2"
    index.files |= make_wheel("lab", "1.0", requires=needs)
    index.files |= make_wheel("greedy", "1.0", requires="one>2")
    return ExtraLock(tmp_path / "python_extra.lock"), lock


def test_a_users_packages_come_in_versions_that_fit_the_lock_and_stay_the_same(extra, index):
    resolved, lock = extra
    assert resolved.pins("cpu", NODE, ["lab"], lock) is None
    resolved.resolve("cpu", NODE, ["lab"], lock, {})
    pins = resolved.pins("cpu", NODE, ["lab"], lock)
    assert sorted(map(str, pins.values())) == ["helper==1.0", "lab==1.0"]
    (wheel,) = make_wheel("helper", "1.0").values()
    assert pins["helper"].hashes == (f"sha256:{hashlib.sha256(wheel).hexdigest()}",)
    # A node of another kind, later: the same versions, though there are newer ones.
    offer(index, "helper", "2.0")
    resolved.resolve("gpu", ARM, ["lab"], lock, {})
    assert resolved.pins("gpu", ARM, ["lab"], lock) == pins
    # What the node has by other means stays, where it fits.
    resolved.resolve("cpu", NODE, ["helper"], lock, {"helper": "1.0"})
    assert resolved.pins("cpu", NODE, ["helper"], lock)["helper"].version == "1.0"
    # A list that asks for more, or another lock, is resolved anew.
    newer = ["lab", "helper>1"]
    assert resolved.pins("cpu", NODE, newer, lock) is None
    assert resolved.pins("cpu", NODE, ["lab"], {}) is None
    resolved.resolve("cpu", NODE, newer, lock, {})
    assert resolved.pins("cpu", NODE, newer, lock)["helper"].version == "2.0"


def test_packages_that_no_index_has_are_all_named_and_those_that_do_not_fit_the_lock(extra):
    resolved, lock = extra
    with pytest.raises(SupplyError) as error:
        resolved.resolve("cpu", NODE, ["labb", "lab", "hellper"], lock, {})
    assert_names(str(error.value), "labb", "hellper", "Python 3.11", "x86_64")
    with pytest.raises(SupplyError) as error:
        resolved.resolve("cpu", NODE, ["greedy", "lab"], lock, {})
    assert_names(str(error.value), "greedy", "one")
    assert "index has no" not in str(error.value)
