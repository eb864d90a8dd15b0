"""Inspect, prepare, measure or verify this node, as the play asks. Prints one line of JSON.

Each verb reads a JSON file (`--spec`), those of a run also its run file. What a verb needs is
imported by it: an inspection of the node does not wait for torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearth.base.entry import hush, loading, run_verb
from hearth.base.interface import Peer, free_port
from hearth.config import Settings, read_run
from hearth.config.layout import Layout

if TYPE_CHECKING:
    import torch

_OF_FREE = 0.8
"""Fraction of a computer's free memory that all its CPU ranks together may use for probing."""


def _inspect(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Inspect this node before a run, see `hearth.node.inspection`."""
    from hearth.node.inspection import inspect_node

    return inspect_node(run_file, wanted)


def config(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the content of config.json of the run's model, {} if it is not known yet.

    The spec says whether to ask the `hub` for one that is not here.
    """
    from hearth.fit.published import config_beforehand  # with the Hub's library: 0.3 s

    run, layout = read_run(run_file), Layout.from_environment()
    return {"facts": {"config": config_beforehand(run, layout, wanted["hub"])}}


def _preview(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a preview of `examples` for the play."""
    from hearth.node.preview import preview

    found = preview(read_run(run_file), Layout.from_environment(), wanted["examples"], print)
    return {"facts": dataclasses.asdict(found)}


def _prepare(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Prepare this node for the run; return the facts about it, and the speed of its ranks.

    The spec says whether to `fetch` missing parts (else the node is only checked), the number of
    ranks (`nproc`, 0: one per GPU), the `gpus` that the driver lists, whether to `measure`, else
    whether speeds that were `kept` count, and for the link tests this node's `address` and the
    addresses that it answers (`allowed`).
    """
    run, layout = read_run(run_file), Layout.from_environment()
    with loading():
        from hearth.node.inspection import answering
        from hearth.node.outcome import outcome_file, write_outcome
        from hearth.node.prepare import check, prepare, prepared_facts
        from hearth.node.speed import kept_here, measured_here

    hush()
    if not wanted["fetch"]:
        check(run, layout)
        return {}
    prepared = prepare(run, layout, say=print)
    facts = prepared_facts(run, layout, prepared)
    facts["nproc"] = wanted["nproc"] or max(1, facts["gpus"])
    if wanted["measure"] or wanted["kept"]:
        get = partial(measured_here, say=print) if wanted["measure"] else kept_here
        find = partial(get, prepared.run, layout, prepared)
        speeds = run.settings.wants_speeds
        facts["ranks"] = of_each_rank(facts["nproc"], find) if speeds else []
        if speeds and not facts["ranks"]:
            return {"facts": facts}  # another launch is to measure it
    write_outcome(outcome_file(run, layout, wanted["nproc"], wanted["gpus"]), facts)
    return {"facts": facts | answering(wanted)}


def _layers(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the speed of this node's ranks for parts of the run's model, which need not be here.

    With it the step of this node's `checkpoint`: it may be left out for its speed, not for that.
    The spec has the content of the model's `config`; `measure`, else only kept speeds count; and
    `nproc`, `address` and `allowed` as for `_prepare`.
    """
    run, layout = read_run(run_file), Layout.from_environment()
    with loading():
        import torch

        from hearth.node.inspection import answering
        from hearth.node.prepare import reached
        from hearth.node.speed import kept_layers, layers_here

    get = partial(layers_here, say=print) if wanted["measure"] else kept_layers
    count = wanted["nproc"] or max(1, torch.cuda.device_count())
    facts = {
        "nproc": count,
        "layers": of_each_rank(count, partial(get, run, layout, wanted["config"])),
        "checkpoint": reached(run, layout),
    }
    return {"facts": facts | answering(wanted)}


def of_each_rank(count: int, find: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the measurement of each of `count` local ranks as a dict; none if one is None.

    `find` gets the `environment` of each, all at the same time, as they will train.
    """

    def of(rank: int) -> Any:
        own = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
        if count > 1:
            own["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")  # as torchrun does
        return find(environment=os.environ | own)

    with ThreadPoolExecutor(count) as pool:
        ranks = list(pool.map(of, range(count)))
    return [] if None in ranks else [dataclasses.asdict(rank) for rank in ranks]


def part_of_free(free: float, environment: Mapping[str, str]) -> float:
    """Return this rank's share of the `free` memory of its node, whose ranks measure at once."""
    return free * _OF_FREE / int(environment.get("LOCAL_WORLD_SIZE", "1"))


def _measure(run_file: Path, _: dict[str, Any]) -> dict[str, Any]:
    """Measure this rank for a run and cache the result."""
    run, layout = read_run(run_file), Layout.from_environment()
    with loading():
        from hearth.model.load import prime_backend

        prime_backend(run.settings, layout)  # before everything that imports transformers
        from hearth.model import precision
        from hearth.model.load import load_model
        from hearth.model.loaded import check_isolation
        from hearth.node import probe, speed
        from hearth.node.prepare import prepare
        from hearth.ranks.world import own_device

    prepared = prepare(run, layout, say=print)
    run, settings = prepared.run, prepared.run.settings
    device = own_device()
    case = speed.case_of(run, prepared)
    _limit(settings, device)
    chosen = str(case["precision"])
    model = load_model(settings, prepared.model.path, device, chosen)
    scaler = precision.loss_scaler(chosen, device)
    model.use_scaler(scaler)
    model.before_step()
    autocast = partial(precision.autocast, chosen, device)
    if run.packs_documents or model.joins_rows:
        # Each rank checks this, too: fail before they start.
        check_isolation(model, run.source.id, autocast)
    taken = probe.reserve((weight for _, weight in model.trainable()), settings.sync_every > 1)
    rows = prepared.data.train if prepared.data.sample is None else prepared.data.sample
    measured = probe.probe(model, rows, speed.most_rows(settings), autocast, scaler.scale)
    del taken
    speed.keep_speed(layout.speeds, case, measured)
    return {}


def _measure_layers(run_file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Measure the parts of a model on this rank and cache the result; see `_layers`."""
    run, layout = read_run(run_file), Layout.from_environment()
    settings = run.settings
    with loading():
        from hearth.model.load import import_backend

        import_backend("transformers")
        from hearth.model import precision
        from hearth.node import speed
        from hearth.node.layer_probe import probe_layers
        from hearth.ranks.world import own_device

    hush()
    device = own_device()
    case = speed.case_of_layers(run, wanted["config"])
    chosen, most = str(case["precision"]), speed.most_rows(settings)
    _limit(settings, device)
    autocast = partial(precision.autocast, chosen, device)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(wanted["config"]), encoding="utf-8")
        measured = probe_layers(settings, Path(folder), device, chosen, most, autocast)
    speed.keep_layers(layout.speeds, case, measured)
    return {}


def _limit(settings: Settings, device: torch.device) -> None:
    """Keep this process within the threads and the memory of the rank that it measures."""
    import torch

    from hearth.ranks.memory import free_gib, limit_memory

    if settings.threads:
        torch.set_num_threads(settings.threads)
    if device.type == "cpu":
        limit_memory(settings.memory_limit or part_of_free(free_gib(), os.environ))


def _facts(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Gather facts and start a listener; takes `address`, `allowed` and `idle` (s)."""
    from hearth.node.facts import facts_of_node
    from hearth.node.listener import start

    workspace = Path(os.environ["HEARTH_WORKSPACE"])
    answer = facts_of_node(given["address"], workspace, given["allowed"])
    if not answer["findings"]:
        answer["facts"]["port"] = start(given["address"], given["allowed"], given["idle"])
        answer["facts"]["meeting_port"] = free_port(given["address"])
    return answer


def _talk(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Test the links to `peers` (in rank order) but the `own` node, with `speed` also bandwidth."""
    from hearth.node.links import talk

    peers = [Peer(**peer) for peer in given["peers"]]
    return {"facts": dataclasses.asdict(talk(given["own"], peers, given["speed"]))}


def _ports(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Ask all `peers` but the `own` node for their ports, and answer on its own."""
    from hearth.node.links import ask

    return {"facts": {"failed": ask(given["own"], [Peer(**peer) for peer in given["peers"]])}}


def _all_reduce(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Take part in the all-reduce of the launch spec `launch`, for at most `limit` seconds.

    `secret` is the one that the supervisors share.
    """
    from hearth.node.all_reduce import all_reduce
    from hearth.supervisor.spec import spec_of

    own = {"workspace": os.environ["HEARTH_WORKSPACE"], "python": sys.executable}
    launch = given["launch"] | own | {"token": given["secret"]}
    return all_reduce(spec_of(launch, "the launch spec"), given["limit"])


def _single(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Examine this machine by itself; `install` is the command that installs its packages.

    While a run is under way here nothing is computed, since that would take its memory.
    """
    from hearth.node.single_gpu import examine
    from hearth.supervisor.record import held_by, lock_holder

    workspace = Path(os.environ["HEARTH_WORKSPACE"])
    if holder := lock_holder(workspace):
        return {"findings": [held_by(workspace, holder)]}
    examined = examine(workspace, given["install"])
    return {"facts": {"status": examined.status, **dataclasses.asdict(examined)}}


_VERBS = {
    "inspect": _inspect,
    "config": config,
    "preview": _preview,
    "prepare": _prepare,
    "layers": _layers,
    "measure": _measure,
    "measure-layers": _measure_layers,
    "facts": _facts,
    "talk": _talk,
    "ports": _ports,
    "all-reduce": _all_reduce,
    "single": _single,
}

if __name__ == "__main__":
    sys.exit(run_verb(_VERBS))
