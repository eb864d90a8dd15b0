"""The models that a node has whole in its cache."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.hearth.base.places import MANIFEST


def whole_models(models: str) -> list[str]:
    """Return the folders of the cache `models` that lack no weights of their model, sorted."""
    found = []
    for manifest in sorted(Path(models).glob(f"*/{MANIFEST}")):
        with suppress(OSError, ValueError, AttributeError):  # not Hearth's, or being written
            if not json.loads(manifest.read_text(encoding="utf-8")).get("absent"):
                found.append(manifest.parent.name)
    return found
