"""Ubuntu's archives, as apt reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache

import pytest
from support.ubuntu import Archive


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> Callable[[str], Archive]:
    """Return a function that opens the archive of a release."""
    if not shutil.which("apt-get"):
        pytest.skip("needs apt")
    return cache(lambda version: Archive(version, tmp_path_factory.mktemp("archive") / version))
