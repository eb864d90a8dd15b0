"""The models that a node has whole in its cache."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.hearth.base.files import read_object
from ansible.module_utils.hearth.base.places import MANIFEST


def whole_models(models: str) -> list[str]:
    """Return the folders of the cache `models` that lack no weights of their model, sorted."""
    found = []
    for manifest in sorted(Path(models).glob(f"*/{MANIFEST}")):
        content = read_object(manifest)  # None if it is not Hearth's, or is being written
        if content is not None and not content.get("absent"):
            found.append(manifest.parent.name)
    return found
