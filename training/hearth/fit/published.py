"""Read the shape of a model from the Hub if it is not known locally.

The play does so on one node, since the controller may know less and need not reach the Hub; a run
by hand does it on its own computer.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub.utils import disable_progress_bars

from hearth.base.errors import ModelError
from hearth.base.files import read_object
from hearth.base.hub import PROBE_SECONDS, hub_api
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.config.presets import ModelSource, known_shape
from hearth.config.shape import Shape, shape_of
from hearth.model.code import code_of, code_problems


def shape_beforehand(run: Run, layout: Layout) -> Shape | None:
    """Return the shape of the model of `run`, or None if it is unknown before the download.

    Raises `ModelError` if the model needs code that is not allowed to run.
    """
    if known := known_shape(run.settings.model, run.source, layout.models):
        return known
    config = published_config(run.source) or {}
    allowed = run.settings.trust_remote_code
    if problems := code_problems(code_of(config), run.source.id, allowed, None):
        raise ModelError(*problems)
    return shape_of(config)


def config_beforehand(run: Run, layout: Layout, hub: bool) -> dict[str, Any]:
    """Return the content of config.json of the model of `run`, {} if it is not known yet.

    It is read from the model's folder, or with `hub` from the Hub.
    """
    source = run.source
    folder = Path(source.id) if source.kind == "folder" else layout.models / source.folder
    published = published_config if hub else lambda _: None
    return read_object(folder / "config.json") or published(source) or {}


def published_config(source: ModelSource) -> dict[str, Any] | None:
    """Return the content of config.json of a model on the Hub.

    None if it cannot be fetched, for any reason: the download that follows reports it.
    """
    if source.kind != "hub":
        return None
    disable_progress_bars()
    api = hub_api()
    with tempfile.TemporaryDirectory() as folder:
        try:
            # Probe the Hub first: a download retries for long if the Hub does not answer.
            revision = api.model_info(
                source.id, revision=source.revision, timeout=PROBE_SECONDS
            ).sha
            path = api.hf_hub_download(
                source.id, "config.json", revision=revision, local_dir=folder
            )
            return read_object(Path(path))
        except Exception:  # HTTP, DNS, TLS, proxies: each has its own error classes
            return None
