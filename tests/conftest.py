"""Set up import paths and the lab's name before any test is imported.

Hearth's module_utils lie where Ansible would put them, for tests of what runs on a node. A worker
of a parallel run has a lab of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible.module_utils
import hypothesis
import pytest

# Before a test imports more of Ansible, which replaces sys.intern: torch would then refuse to be.
import torch._dynamo  # noqa: F401
from support import played
from support.modules import MODULE_UTILS
from support.rotated import ALL, waits
from support.touched import WIDE, changed, touched_by

ansible.module_utils.__path__ += MODULE_UTILS

# An example takes as long as a busy computer lets it.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

failed: set[str] = set()

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["HEARTH_LAB"] = "-".join(filter(None, [os.environ.get("HEARTH_LAB"), worker]))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_model import make_model

    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_model import make_dataset

    return make_dataset(tmp_path_factory.mktemp("data") / "words.jsonl")


@pytest.fixture(scope="session")
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where transformers keeps code that comes with models, in this process: none of a person's."""
    from transformers import dynamic_module_utils

    folder = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
        yield folder


def pytest_configure() -> None:
    played.begin()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes, and leave out what this call does not play.

    Workers take whole files in this order (scripts/test), not those with the most tests first, and
    no worker ends with a long one alone. Only a call of scripts/test without names leaves any out:
    long tests of other days, save those of a few files that a change touches. A resumed
    `scripts/test --all` leaves out the files that passed.
    """
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    left: list[pytest.Item] = []
    if "HEARTH_SEED" in os.environ and not ALL:
        left = [item for item in items if waits(item)]
        touched = touched_by(changed(), {item.path for item in left})
        if len(touched) <= WIDE:
            left = [item for item in left if item.path not in touched]
    if done := played.earlier():
        files = played.whole_files((item.nodeid for item in items), done)
        left += [item for item in items if played.file_of(item.nodeid) in files]
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [item for item in items if item not in gone]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record for `scripts/test --all` which tests passed, or were skipped, in all their phases."""
    if report.failed:
        failed.add(report.nodeid)
    if report.when == "teardown" and report.nodeid not in failed and not worker:
        played.passed(report.nodeid)


@pytest.hookimpl(optionalhook=True)  # without xdist there is one process
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide the tests among workers."""
    from support.by_file import ByFile

    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time went, by room: seconds of all workers together."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder, _, file = report.nodeid.split("::")[0].rpartition("/")
                lab = file.startswith("test_lab")
                seconds[f"{folder}: lab" if lab else folder] += report.duration
    if sum(seconds.values()) > 60:
        terminalreporter.section("seconds by room")
        for room, total in seconds.most_common():
            if total >= 1:
                terminalreporter.write_line(f"{total:6.0f}  {room}")
