"""When a node is lost the others go on in place, and the result is that of one process."""

from __future__ import annotations

import shutil

import pyarrow
import pyarrow.parquet
import pytest
from support.facts import assert_names
from support.preferences import write_judged, write_pairs
from support.ranks import (
    Origin,
    arguments_of,
    figures,
    furthest,
    trained,
)
from support.rotated import in_turn
from support.stand_in_hub import stand_in_hub
from support.team import (
    BARRIER,
    CHECKPOINT,
    COMMIT,
    MICRO_BATCH,
    PROPOSE,
    SHARE,
    SUM,
    Fault,
    Team,
    timeless,
)
from support.waiting import until

from hearth.ranks.control_protocol import FOR_OTHERS, Alive, Leave, LoadAlone, Waiting

STEPS = 6


@pytest.fixture(scope="module")
def settings(tiny_model, tiny_data):
    """Return the settings of every run here."""
    return {
        **{"model": str(tiny_model), "dataset": str(tiny_data), "sequence_length": 96},
        **{"packing": True, "epochs": 1},
        **{"learning_rate": 0.01, "global_batch": 7, "max_steps": STEPS, "split": "equal"},
        **{"micro_batch": 1, "precision": "fp64", "wandb": "off", "eval_held_out": False},
    }


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory, settings):
    """Return a function that trains with more settings by hand, once for each."""
    known = {}

    def run(ranks=1, **more):
        key = (ranks, *sorted(more.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("by-hand")
            typed = arguments_of({**settings, **more})
            known[key] = trained(folder, "by-hand", ranks, *typed)
        return known[key]

    return run


def of_kind(team, node, kind):
    return [each for each in team.records(node) if each["kind"] == kind]


def steps(team, node):
    return [each["step"] for each in of_kind(team, node, "step")]


def teams(team, node):
    return of_kind(team, node, "team")


def join(team, new, stopped, *nodes):
    """Begin with `nodes`, and let another one join while a fault has stopped one of them."""
    choices = team.begin_slowly(stopped, *nodes)
    (rank,) = team.ranks.ranks(new)
    team.ranks.start(new)
    team.ranks.hear(Waiting, rank)
    team.ranks.order(LoadAlone(choices), rank)
    (loaded,) = team.ranks.hear(Waiting, rank, where=lambda told: told.loaded)
    assert (loaded.message.why, loaded.message.step) == ("new", 0)
    ranks = team.ranks.ranks(*nodes)
    team.ranks.pause(*ranks)
    team.wake(stopped)
    paused = team.ranks.hear(Waiting, *ranks, where=lambda told: told.loaded)
    assert {each.message.why for each in paused} == {"paused"}
    team.regroup(*sorted({new, *nodes}))


def assert_ended_alike(team, nodes, expected, within=1e-9):
    """Require that these nodes ended with the same record, each step once, and `expected`."""
    team.end(*nodes)
    first, *others = (timeless(team.records(node)) for node in nodes)
    assert all(each == first for each in others)
    assert steps(team, nodes[0]) == list(range(1, STEPS + 1))
    for node in nodes:
        assert furthest(team.learned(node), expected) < within
        assert team.records(node)[-1]["kind"] == "end"


# The fault, and the steps that the others have done then. Of 7 rows, b has 2 in a step.
KILLED = {
    "before it has computed its rows": (Fault("b", MICRO_BATCH, 4, before=True), 1),
    "before the sum": (Fault("b", SUM, 3, before=True), 2),
    "after the sum": (Fault("b", SUM, 3), 3),
    "who leads": (Fault("a", SUM, 3, before=True), 2),
    "who leads, after the sum": (Fault("a", SUM, 3), 3),
}


@pytest.mark.rotated
@pytest.mark.parametrize("when", KILLED)
def test_the_others_go_on_when_one_is_killed(tmp_path, settings, trained_by, when):
    fault, done = KILLED[when]
    others = [node for node in "abc" if node != fault.node]
    with Team(tmp_path, settings, fault) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by())
        (change,) = teams(team, others[0])
        assert (change["nodes"], [*change["left"]]) == (others, [fault.node])
        assert (change["step"], change["joined"]) == (done, [])


def test_the_last_one_goes_on_when_both_others_are_killed(tmp_path, settings, trained_by):
    faults = Fault("a", SUM, 2, before=True), Fault("b", SUM, 4)
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("b", "c")
        team.regroup("c")
        assert_ended_alike(team, ["c"], trained_by())
        assert [each["step"] for each in teams(team, "c")] == [1, 3]


@pytest.mark.rotated
@pytest.mark.parametrize("behind", [["a"], ["c"], ["a", "b"]], ids="".join)
def test_who_lacks_the_sum_gets_it_from_who_has_it(tmp_path, settings, trained_by, behind):
    faults = [Fault(node, SUM, 3, act="break") for node in behind]
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by())
        (change,) = teams(team, "a")
        assert (change["step"], change["left"], change["joined"]) == (3, {}, [])


@pytest.mark.rotated
def test_a_sum_that_nobody_has_is_made_again(tmp_path, settings, trained_by):
    faults = [Fault(node, SUM, 3, act="break") for node in "abc"]
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by())
        assert [each["step"] for each in teams(team, "a")] == [2]


@pytest.mark.parametrize(
    "more",
    [{}, *in_turn({"lora": False, "log_every": 4})],
    ids=["adapter", "model"],
)
def test_a_node_that_comes_back_gets_the_state_and_joins_between_two_steps(
    tmp_path, settings, trained_by, more
):
    fault = Fault("b", SUM, 3, act="stop", before=True)
    with Team(tmp_path, {**settings, **more}, fault) as team:
        join(team, "a", "b", "b", "c")
        team.end()
        records = [timeless(team.records(node)) for node in "abc"]
        assert records[0] == records[1] == records[2]
        (change,) = teams(team, "a")
        assert (change["joined"], change["left"]) == (["a"], {})
        assert change["step"] < STEPS
        last = [each for each in team.records("a") if each["kind"] == "step"][-1]
        assert all(last["rows_by_rank"])
        for node in "abc":
            assert furthest(team.learned(node), trained_by(**more)) < 1e-9


EVALUATED = {"eval_held_out": True, "eval_every": 2, "held_out": 0.2}
LOSSES_OF_A_SET = "hearth.trainer.evaluation:Evaluator._mean"
SAMPLE = "hearth.trainer.evaluation:Evaluator._sample"
LOSSES = "hearth.trainer.evaluation:Evaluator._means"
FAULTS = {
    "before the first step": Fault("b", LOSSES, 1, before=True),
    "in the middle": Fault("b", LOSSES, 2, before=True),
    "with the best weights on the others": Fault("b", LOSSES, 3),
    "after the last step": Fault("a", LOSSES, 4, before=True),
    "at the sample answer": Fault("a", SAMPLE, 2, before=True),
    "in a checkpoint": Fault("a", CHECKPOINT, 1, before=True),
    "at the very end": Fault("a", BARRIER, 2, before=True),
}


@pytest.mark.rotated
@pytest.mark.parametrize("when", FAULTS)
def test_a_loss_outside_of_steps_repeats_and_loses_nothing(tmp_path, settings, trained_by, when):
    fault = FAULTS[when]
    others = [node for node in "abc" if node != fault.node]
    more = {**settings, **EVALUATED, "checkpoint_every": 2}
    with Team(tmp_path, more, fault) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by(**EVALUATED))
        for node in others:
            kinds = [each["kind"] for each in team.records(node)]
            assert kinds.count("evaluate") == 4
            assert kinds.count("sample") == 2
            checkpoints = team.folder(node) / "checkpoints"
            assert (checkpoints / f"step-{STEPS:08}" / "best").exists()
            assert (team.folder(node) / "best").exists()


@pytest.mark.rotated
@pytest.mark.parametrize("number", [1, 3, 4])
def test_who_lacks_an_evaluation_gets_it_with_the_best_weights(
    tmp_path, settings, trained_by, number
):
    fault = Fault("a", LOSSES, number, act="break")
    with Team(tmp_path, {**settings, **EVALUATED}, fault) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by(**EVALUATED))
        assert [each["kind"] for each in team.records("a")].count("evaluate") == 4


@pytest.mark.rotated
def test_who_hears_last_that_all_is_done_has_finished_too(tmp_path, settings, trained_by):
    with Team(tmp_path, settings, Fault("b", BARRIER, 2, "break")) as team:
        team.begin()
        team.end("a", "c")
        team.ranks.hear(Waiting, 1, where=lambda told: told.why == "broken")
        team.ranks.order(Leave(save=True), 1)
        assert_ended_alike(team, ["a", "b", "c"], trained_by())
        assert [each["state"] for each in of_kind(team, "b", "end")] == ["finished"]


MUON = {"lora": False, "scratch": True, "optimizer": "muon", "weight_decay": 0.1}


@pytest.mark.rotated
@pytest.mark.parametrize(
    "fault",
    [Fault("a", SHARE, 3, "break"), Fault("b", SHARE, 3, before=True)],
    ids=["late", "lost"],
)
def test_muon_takes_the_step_that_a_loss_interrupted_once(tmp_path, settings, trained_by, fault):
    others = list("abc") if fault.act == "break" else ["a", "c"]
    with Team(tmp_path, {**settings, **MUON}, fault) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by(**MUON), within=1e-8)


QUICK_BEAT = "from hearth.trainer import work; work._BEAT = 0.1"
STUCK = """
import time
from hearth.trainer.training_state import TrainingState
TrainingState.set = lambda *arguments: time.sleep(1000)
"""
AT_REST = 4
"""A rank stands still after this many equal signs of life in a row."""


def until_at_rest(team, rank, what):
    """Wait until a rank stands still, and repeats its sign of life."""

    def rests():
        said = [said.message for said in team.ranks.said if said.rank == rank]
        return {getattr(each, "what", type(each)) for each in said[-AT_REST:]} == {what}

    until(rests)


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("call", "number", "more"),
    [
        pytest.param(SHARE, 2, MUON, id="in the optimizer"),
        pytest.param(BARRIER, 2, {}, id="at the end of a group"),
        pytest.param(BARRIER, 3, {}, id="at the very end"),
    ],
)
def test_who_waits_for_a_rank_that_hangs_says_so(tmp_path, settings, call, number, more):
    """Else its own supervisor would end it, too, and no rank would have the run's state."""
    slow, hangs = Fault("b", COMMIT, 1, "stop"), Fault("b", call, number, "stop", before=True)
    layout, prelude = {"a": 1, "b": 1}, QUICK_BEAT
    with Team(tmp_path, settings | more, slow, hangs, layout=layout, prelude=prelude) as team:
        team.begin_slowly("b")
        if (call, number) == (BARRIER, 2):
            team.ranks.pause(0, 1)
        team.wake("b")
        name = call.rpartition(".")[2]
        until((team.ranks.place("b") / f"fault-{number}-{name}-stop-0").exists)
        until_at_rest(team, 0, FOR_OTHERS)


def test_who_waits_for_a_rank_that_is_slow_to_begin_the_record_says_so(tmp_path, settings):
    slow = Fault("a", "hearth.trainer.reports:Reports.start", 1, "stop", before=True)
    layout = {"a": 1, "b": 1}
    with Team(tmp_path, settings, slow, layout=layout, prelude=QUICK_BEAT) as team:
        team.begin_slowly("a")
        until_at_rest(team, 1, FOR_OTHERS)
        team.wake("a")
        team.end()


DEAF = """
import time, wandb
from hearth.trainer import online
online.AT_END = 1
wandb.init = lambda **how: time.sleep(1000)
"""


def test_weights_and_biases_that_never_answers_stops_nobody(tmp_path, settings, trained_by):
    layout, online = {"a": 1, "b": 1}, {"wandb": "online"}
    with Team(tmp_path, settings | online, layout=layout, prelude=DEAF) as team:
        team.begin()
        assert_ended_alike(team, ["a", "b"], trained_by())
        assert team.ranks.log(0).count("wandb: ") == 1


NUDGED = """
if os.environ["HEARTH_NODE"] == "b":
    import torch
    from hearth.trainer.optimizer_step import Learner
    commit, calls = Learner.commit, []

    @torch.no_grad()
    def commit_and_nudge(self):
        commit(self)
        calls.append(1)
        if len(calls) == 3:
            self._parameters[0].view(-1)[0] += 1e-3

    Learner.commit = commit_and_nudge
"""


def test_a_replica_that_has_drifted_is_mended_at_the_checkpoint(tmp_path, settings, trained_by):
    layout, often = {"a": 1, "b": 1}, {"checkpoint_every": 3}
    with Team(tmp_path, settings | often, layout=layout, prelude=NUDGED) as team:
        team.begin()
        assert_ended_alike(team, ["a", "b"], trained_by())
        (drift,) = of_kind(team, "a", "drift")
        assert (drift["step"], drift["tensors"], drift["nodes"]) == (3, 1, ["b"])
        assert "drifted" in team.ranks.log(0)


SHUFFLED = """
if os.environ["HEARTH_NODE"] == "b":
    from hearth.plan import row_order
    order = row_order._order_of_epoch
    row_order._order_of_epoch = lambda *arguments: order(*arguments)[::-1]
"""


def test_a_rank_with_another_order_of_the_rows_is_refused_before_the_first_step(tmp_path, settings):
    with Team(tmp_path, settings, layout={"a": 1, "b": 1}, prelude=SHUFFLED) as team:
        team.begin()
        assert all(team.ranks.wait(0, 1))
        for rank in (0, 1):
            assert_names(team.ranks.log(rank), "order of the rows", "rank 1 (b)", "rank 0 (a)")
        assert not list(tmp_path.glob("*/runs/*/metrics.jsonl"))


@pytest.mark.rotated
def test_who_hangs_while_it_takes_over_the_state_does_not_say_that_it_waits(tmp_path, settings):
    """Else nothing would bound that, as with a stuck driver."""
    layout, late = {"a": 1, "b": 1}, Fault("a", SUM, 2, "break")
    with Team(tmp_path, settings, late, layout=layout, prelude=QUICK_BEAT + STUCK) as team:
        team.begin()
        team.ranks.hear(Waiting, 0, 1, where=lambda told: told.why == "broken")
        team.ranks.form("a", "b")
        until_at_rest(team, 0, Alive)
        until_at_rest(team, 1, FOR_OTHERS)


ROUNDS = {"sync_every": 2}


@pytest.mark.rotated
@pytest.mark.parametrize("late", ["c", "abc"])
def test_an_interrupted_round_is_undone_and_taken_again(tmp_path, settings, trained_by, late):
    faults = [Fault(node, SUM, 2, "break") for node in late]
    with Team(tmp_path, {**settings, **ROUNDS}, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        team.end()
        whole = trained_by(ranks=3, **ROUNDS)
        for node in "abc":
            assert furthest(team.learned(node), whole) < 1e-12
            assert steps(team, node) == [2, 4, 6]


@pytest.mark.rotated
def test_a_rank_that_leaves_keeps_its_state_and_the_run_can_be_resumed(
    tmp_path, settings, trained_by
):
    fault = Fault("b", SUM, 3, act="stop", before=True)
    with Team(tmp_path, settings, fault) as team:
        team.begin_slowly("b")
        team.ranks.pause()
        team.wake("b")
        team.ranks.hear(Waiting, where=lambda told: told.loaded)
        team.ranks.order(Leave(save=True))
        team.end()
        (end,) = (each for each in team.records("c") if each["kind"] == "end")
        assert end["state"] == "stopped"
        team.begin()
        assert_ended_alike(team, ["a", "b", "c"], trained_by())


@pytest.mark.rotated
def test_ranks_that_all_loaded_alone_begin_together(tmp_path, settings, trained_by):
    with Team(tmp_path, settings) as team:
        team.ranks.start("a", "c")
        team.ranks.hear(Waiting, 0, 2)
        team.ranks.order(LoadAlone({"precision": "fp64", "optimizer": "adamw"}))
        team.regroup("a", "c")
        assert_ended_alike(team, ["a", "c"], trained_by())


@pytest.mark.rotated
def test_a_rank_whose_group_breaks_while_it_loads_asks_to_be_started_again(tmp_path, settings):
    fault = Fault("b", "hearth.trainer.components:Learning.__init__", 1, before=True)
    with Team(tmp_path, settings, fault) as team:
        team.begin("a", "b")
        assert team.ranks.wait(0, 1) == [75, -9]


IN_FP16 = """
import torch, hearth.model.precision, hearth.node.prepare
for module in (hearth.model.precision, hearth.node.prepare):
    module.supported = lambda device: ("fp32", "fp16")
hearth.model.precision.loss_scaler = lambda _, device: torch.amp.GradScaler(device.type, 2.0**26)
"""


@pytest.mark.rotated
def test_the_loss_scale_is_found_once_whoever_is_lost_meanwhile(tmp_path, settings):
    more = {**settings, "precision": "fp16", "max_steps": 16, "clip_norm": 0.5}
    with Team(tmp_path / "alone", more, layout={"a": 1}, prelude=IN_FP16) as team:
        team.begin()
        team.end()
        expected = team.learned("a")
        searched = [each["scaler_skipped"] for each in of_kind(team, "a", "step")]
    assert searched[:4] == [1] * 4
    assert 0 in searched
    faults = [
        Fault("c", SUM, 3, "break"),
        Fault("b", COMMIT, 4, before=True),
        # In the same step: c has missed one.
        *(Fault(node, PROPOSE, number, "break") for node, number in (("a", 14), ("c", 13))),
    ]
    with Team(tmp_path / "team", more, *faults, prelude=IN_FP16) as team:
        team.begin()
        team.regroup("a", "b", "c")
        team.regroup("a", "c")
        team.regroup("a", "c")
        team.end("a", "c")
        for node in "ac":
            found = [each["scaler_skipped"] for each in of_kind(team, node, "step")]
            assert found == searched
            assert furthest(team.learned(node), expected) < 1e-4


@pytest.mark.rotated
def test_a_mixture_goes_on_with_the_same_rows(tmp_path, settings, trained_by, tiny_data):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"a lamp and cable {n} " * (1 + n % 6) for n in range(60)))
    mixed = {"dataset": f"{tiny_data}=0.6,{texts}=0.4", **EVALUATED}
    faults = Fault("b", LOSSES_OF_A_SET, 4), Fault("a", SUM, 4)
    with Team(tmp_path, {**settings, **mixed}, *faults) as team:
        team.begin()
        team.regroup("a", "c")
        team.regroup("c")
        assert_ended_alike(team, ["c"], trained_by(**mixed))


@pytest.mark.rotated
def test_a_stream_goes_on_at_the_row(tmp_path, settings):
    folder = tmp_path / "words"
    folder.mkdir()
    table = pyarrow.table({"text": [f"a lamp {n} " * (1 + n % 3) for n in range(2100)]})
    pyarrow.parquet.write_table(table, folder / "train-00000-of-00001.parquet")
    more = {
        **settings,
        **{"dataset": "owner/words", "streaming": True, "held_out": 0.05, "global_batch": 120},
        **{"sequence_length": 128, "micro_batch": 16, "schedule": "constant", "max_steps": 5},
    }
    with stand_in_hub() as hub:
        hub.datasets["owner/words"] = folder
        variables = tuple(hub.variables.items())
        origin = Origin(imports=(*Origin().imports, "datasets"), variables=variables)
        expected = trained(tmp_path, "alone", 1, *arguments_of(more), origin=origin)
        stop = Fault("b", SUM, 2, "stop", before=True)
        imports = ("datasets",)
        with Team(tmp_path, more, stop, imports=imports, imported_with=variables) as team:
            join(team, "a", "b", "b", "c")
            team.end()
            for node in "abc":
                assert [each["step"] for each in of_kind(team, node, "step")] == [1, 2, 3, 4, 5]
                assert furthest(team.learned(node), expected) < 1e-9


@pytest.mark.rotated
def test_a_run_that_lost_a_node_can_be_replayed(tmp_path, settings):
    with Team(tmp_path, settings, Fault("a", SUM, 3)) as team:
        team.begin()
        team.regroup("b", "c")
        team.end("b", "c")
        expected = team.learned("b")
        shutil.copytree(team.folder("b"), tmp_path / "runs" / "night", dirs_exist_ok=True)
    typed = arguments_of({**settings, "replay": "night"})
    assert furthest(trained(tmp_path, "again", 3, *typed), expected) < 1e-9
    again, night = (figures(tmp_path / "runs" / run, "step", "loss") for run in ("again", "night"))
    assert again == pytest.approx(night, rel=1e-9)


@pytest.mark.rotated
def test_a_node_of_two_ranks_is_lost_with_both(tmp_path, settings, trained_by):
    fault = Fault("a", SUM, 3, before=True)
    with Team(tmp_path, settings, fault, layout={"a": 2, "b": 2}) as team:
        team.begin()
        team.regroup("b")
        assert_ended_alike(team, ["b"], trained_by())


@pytest.mark.rotated
def test_the_record_of_a_node_is_not_behind_its_ranks(tmp_path, settings, trained_by):
    """Of two nodes, only ranks that write no record have the sum; all make it again."""
    faults = [Fault(node, SUM, 3, "break", local_rank=0) for node in "ab"]
    with Team(tmp_path, settings, *faults, layout={"a": 2, "b": 2}) as team:
        team.begin()
        team.regroup("a", "b")
        assert_ended_alike(team, ["a", "b"], trained_by())


@pytest.fixture(params=["dpo", "kto"])
def preferences(request, tmp_path, settings):
    """Return the settings of a run of preferences, and the adapter of one process."""
    write = write_judged if request.param == "kto" else write_pairs
    data = str(write(tmp_path / "data.jsonl"))
    more = {"dataset": data, "objective": request.param, "sequence_length": 160, "packing": False}
    (tmp_path / "alone").mkdir()
    given = {**settings, **more}
    return given, trained(tmp_path / "alone", "alone", 1, *arguments_of(given))


@pytest.mark.rotated("preferences in place")
def test_preferences_go_on_when_one_is_killed(tmp_path, preferences):
    settings, expected = preferences
    with Team(tmp_path, settings, Fault("b", SUM, 3, before=True)) as team:
        team.begin()
        team.regroup("a", "c")
        assert_ended_alike(team, ["a", "c"], expected)


@pytest.mark.rotated("preferences in place")
def test_a_node_that_joins_gets_the_reference_of_preferences(tmp_path, preferences):
    settings, expected = preferences
    with Team(tmp_path, settings, Fault("b", SUM, 3, act="stop", before=True)) as team:
        join(team, "a", "b", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], expected)
