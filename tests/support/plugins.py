"""Ansible's plugins of the controller as Python modules."""

from __future__ import annotations

import sys
from importlib import util
from types import ModuleType

from support.modules import PLUGINS


def load(kind: str, name: str) -> ModuleType:
    """Return a plugin of any concern as a module; Ansible loads them by path, too."""
    (path,) = (PLUGINS / kind).rglob(f"{name}.py")
    spec = util.spec_from_file_location(f"plugins_{kind}_{name}", path)
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look themselves up
    spec.loader.exec_module(module)
    return module
