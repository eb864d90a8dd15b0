"""Quiet imports: warnings of torchao and bitsandbytes are not shown, their errors are."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from support.supervisors import TRAINING
from support.waiting import HANG

from hearth.base.entry import hush
from hearth.config import Settings
from hearth.config.layout import Layout
from hearth.model import load

_BITSANDBYTES_SPEAKS = """
import logging
import sys


class Speaking:
    def find_spec(self, name, *_):
        if name == "bitsandbytes":
            logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
            logger.warning("pip install kernels")
            logger.error("a real error")


sys.meta_path.insert(0, Speaking())
"""


@pytest.mark.parametrize("by", ["hush", "prime_backend"])
def test_torchao_warns_nobody(monkeypatch, caplog, by):
    torchao = logging.getLogger("torchao")
    monkeypatch.setattr(torchao, "level", logging.NOTSET)
    torchao.manager._clear_cache()

    def imported(name: str) -> None:
        torchao.warning("Failed to load %s: libcudart.so.12", name)

    if by == "hush":
        hush()
        imported("torchao")
    else:
        monkeypatch.setattr(load, "has_nvidia_gpu", lambda: True)
        monkeypatch.setattr(load, "backend_here", lambda settings, device: "unsloth")
        monkeypatch.setattr(load, "prepare_environment", lambda folder: None)
        monkeypatch.setattr(load.importlib, "import_module", imported)
        load.prime_backend(Settings(model="tiny", dataset="x.jsonl"), Layout.from_environment())
    assert caplog.messages == []


def test_imports_of_the_trainer_show_errors_of_libraries_and_no_warnings(tmp_path):
    # A CPU with AVX512-BF16 is needed for bitsandbytes' own warning.
    (tmp_path / "sitecustomize.py").write_text(_BITSANDBYTES_SPEAKS)
    imports = (
        "from hearth.base.entry import loading\nwith loading():\n  import hearth.trainer.assembly"
    )
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{TRAINING}"}
    ended = subprocess.run(
        [sys.executable, "-c", imports],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert ended.returncode == 0, ended.stderr
    assert "a real error" in ended.stderr
    assert "pip install" not in ended.stdout + ended.stderr
