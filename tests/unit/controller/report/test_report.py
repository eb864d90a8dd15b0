"""The report of a run, made from what a run of three nodes has left and from less than that.

`fixtures/run/evening` is a real run of a tiny model: three nodes on one computer, and one was
slowed down on the way and another one's rank killed. Only its paths were shortened.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import programs
from support.facts import assert_names
from support.metric_lines import slow_links, start_line, step_line, story_of, written
from support.repository import ROOT

from hearth.config import Settings, in_parallel, read_run, resolve, resolve_run, write_run
from hearth.config.adapter import Ancestor, StartAdapter
from hearth.config.cli import parse_command_line
from hearth.config.run import PlannedPipeline
from hearth.record.story import read_story
from hearth.record.windows import thinned, totals
from hearth_controller.cli.parser import parse
from hearth_controller.cli.paths import Paths
from hearth_controller.cli.verbs import VERBS
from hearth_controller.cli.words import read_words, typed_words
from hearth_controller.report.__main__ import main
from hearth_controller.report.page import (
    fact_rows,
    launch_rows,
    node_rows,
    page,
    setting_rows,
    team_rows,
    write_report,
)
from hearth_controller.report.read import read
from hearth_controller.report.repeat import repeat_command
from hearth_controller.runs.outcome import Outcome
from hearth_controller.watch.rows import happenings

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening"
NODES = ["desk", "laptop", "oldbox"]
TEXT = (RECORDED / "metrics.jsonl").read_text(encoding="utf-8")
SCRIPT = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def known():
    return read(RECORDED)


@pytest.fixture(scope="module")
def html(known):
    return page(known)


@pytest.fixture
def run(tmp_path):
    """A folder of the test's own with the recorded run."""
    return Path(shutil.copytree(RECORDED, tmp_path / "evening"))


class Elements(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data

    def all(self, *names: str) -> list[str]:
        return [value for name, value in self.attributes if name in names]


# -- what the metrics tell -------------------------------------------------------------------------


def test_the_story_of_a_run_that_was_launched_twice(known):
    story = known.story
    assert story.nodes == NODES
    assert [(each.generation, each.step) for each in story.launches] == [(0, 0), (1, 40)]
    assert [(each.step, each.steps) for each in story.windows] == [(n, 1) for n in range(1, 81)]
    assert [each.launch for each in story.windows] == [0] * 40 + [1] * 40
    assert [each.when for each in story.evaluations] == ["before", "during", "during", "after"]
    assert story.perplexity == (story.evaluations[0].perplexity, story.evaluations[-1].perplexity)
    assert story.sample.question == "say 1"
    assert story.sample.before != story.sample.after
    assert [mark.step for mark in story.checkpoints] == [20, 40, 60, 80, 80]
    assert (story.state, story.step, story.steps) == ("finished", 80, 80)
    assert story.length > story.seconds > sum(each.seconds for each in story.windows)
    first = story.replans[0]
    assert (first.step, first.text) == (3, "rows a step: desk 8, laptop 10, oldbox 6")


def test_a_run_has_reached_its_newest_checkpoint_wherever_that_stands():
    assert story_of().reached is None
    # A run that went on from step 20 writes 30 anew, behind an older 40.
    lines = [{"kind": "checkpoint", "step": step} for step in (20, 40, 30)]
    assert story_of(*lines).reached == 40


def test_a_short_round_and_what_its_steps_make_up_for_are_no_new_split():
    def plan(step: int, *rows: int, of_round: tuple[int, int]) -> dict:
        return {"kind": "plan", "step": step, "rows": rows, "rows_of_round": of_round}

    story = story_of(
        start_line("desk", "laptop"),
        plan(1, 5, 2, of_round=(9, 5)),
        plan(2, 4, 3, of_round=(9, 5)),
        plan(3, 2, 1, of_round=(2, 1)),
        plan(4, 5, 2, of_round=(9, 5)),
        plan(5, 6, 1, of_round=(11, 3)),
    )
    (mark,) = story.replans
    assert (mark.step, mark.text) == (5, "rows a round: desk 11, laptop 3")


def test_a_split_before_any_launch_is_on_record_tells_nothing():
    step = {"kind": "step", "step": 5, "steps": 9}
    assert story_of({"kind": "plan", "step": 1, "rows": [4, 2]}, step).step == 5


@pytest.mark.parametrize("most", [1, 7, 30, 1000])
def test_fewer_points_tell_the_same_in_sum(known, most):
    windows = known.story.windows
    fewer = thinned(windows, most)
    assert len(fewer) <= most + len(known.story.launches)
    assert sum(each.steps for each in fewer) == 80
    loss, whole_loss = (sum(each.loss * each.steps for each in some) for some in (fewer, windows))
    assert loss == pytest.approx(whole_loss)
    for node, (part, seconds) in totals(fewer).items():
        whole, whole_seconds = totals(windows)[node]
        assert seconds == pytest.approx(whole_seconds)
        assert part.tokens == pytest.approx(whole.tokens)
        assert (part.rows, part.peak_memory_mib) == (whole.rows, whole.peak_memory_mib)


def test_ranks_of_one_node_are_put_together():
    ranks = {
        "rows_by_rank": [5, 4, 1],
        "compute_seconds_by_rank": [1.0, 2.0, 0.5],
        "wait_seconds_by_rank": [1.0, 0.0, 1.5],
        "peak_memory_mib_by_rank": [70, 90, 30],
    }
    lines = [
        start_line("big", "big", "small"),
        step_line(50.0, 40.0, 10.0, step=4, loss=None, **ranks),
    ]
    (window,) = story_of(*lines).windows
    big = window.parts["big"]
    assert (window.steps, window.seconds, window.loss) == (4, 10.0, None)
    assert (big.tokens, big.rows, big.compute_seconds, big.wait_seconds) == (900, 9, 6.0, 2.0)
    assert big.peak_memory_mib == 90


def test_the_limit_on_a_gpus_power_stands_with_its_rank_and_what_it_costs(known):
    usual = {"limit": 290.0, "default": 290.0, "slower": None, "measured": None}
    limited = {"limit": 220.0, "default": 300.0, "slower": 0.08, "measured": "2026-11-20"}
    start = start_line("tower", "oldbox", "desk")
    for number, (rank, power) in enumerate(zip(start["ranks"], (limited, usual), strict=False)):
        rank |= {"rank": number, "device": "cuda:0", "power": power}
    start["ranks"][2] |= {"rank": 2, "device": "cpu"}
    rows = dict(fact_rows(replace(known, story=story_of(start))))
    cost = "8% slower than at 300 W (measured 2026-11-20)"
    assert rows["rank 0"] == f"tower, cuda:0, limited to 220 of 300 W, {cost}"
    assert rows["rank 1"] == "oldbox, cuda:0, limited to 290 W"
    assert rows["rank 2"] == "desk, cpu"


@settings(max_examples=60)
@given(cut=st.integers(0, len(TEXT)), other=st.text(max_size=30))
def test_a_record_that_is_cut_short_anywhere_still_tells_what_came_before(
    tmp_path_factory, cut, other
):
    metrics = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    metrics.write_text(TEXT[:cut] + other, encoding="utf-8")
    story = read_story(metrics.parent)
    whole = TEXT[:cut].rpartition("\n")[0]
    assert len(story.windows) >= whole.count('"kind": "step"')


LINES = {line["kind"]: line for line in map(json.loads, TEXT.splitlines())}
READ = {name for line in LINES.values() for name in line} - {"kind", "expected", "when"}
CHANGED = [
    LINES[kind] | {name: value}
    for kind in LINES
    for name in LINES[kind].keys() & READ
    for value in ([[]], {"a": []}, True, float("nan"), float("inf"), 10**400, "\ud800")
]
STEP = LINES["step"]
FALSE = [
    *map(json.dumps, CHANGED),
    json.dumps(STEP | {"tokens": 0, "step": 81}),
    json.dumps(STEP | {"rows_by_rank": [0, 0, 0], "step": 81}),
    json.dumps(STEP),  # no step since the one before
    json.dumps(STEP | {"step": 81})[:-9],
    f'{{"kind": "step", "step": {"9" * 5000}}}',
    f'{{"kind": "start", "ranks": {"[" * 100_000}',
    *("[]", "5", '"kind"', "null", "{}", '{"kind": ["step"]}', '{"kind": "unheard of"}', "\0"),
]


def test_what_the_trainer_cannot_have_written_changes_nothing(run, html):
    with (run / "metrics.jsonl").open("ab") as metrics:
        metrics.write("\n".join(FALSE).encode())
        metrics.write(b'\n\xff\xfe{"kind": "step"}\n')
    assert page(read(run)) == html


# -- the page --------------------------------------------------------------------------------------


def test_the_page_begins_with_how_it_ended(html):
    head = Elements(html[: html.index("<main>")]).text
    head = re.sub(r"(?<=[a-z])(?=\d)", " ", " ".join(head.split()))
    assert_names(head, "evening finished", "80 of 80", "266.81 → 179.35 -33%", "restarts 1")


def test_the_page_says_first_that_a_run_got_worse(run, html):
    assert "WORSE" not in html
    metrics = run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "evaluate" and line["when"] == "after":
            line |= {"loss": 50.0, "perplexity": 1e21}
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    header = page(read(run)).partition("</header>")[0]
    assert header.index("<h1>") < header.index("WORSE") < header.index("<dl>")


def test_a_link_that_held_up_the_exchange_stands_with_its_steps(run, html):
    assert "5.0 Mbit/s" not in html
    metrics = run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    for line in steps[3:6]:
        line["slow_links"] = slow_links(("oldbox", "laptop"))
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    slow, well = read(run).story.links
    assert (slow.step, well.step) == (steps[3]["step"], steps[6]["step"])
    text = Elements(page(read(run))).text
    assert_names(text, "oldbox → laptop", "5.0 Mbit/s", "940", "sync_every=16", "640 tokens/s")
    assert any(
        "oldbox → laptop" in text and alarm for _, text, alarm in happenings(read(run).story)
    )


def test_the_page_needs_nothing_but_itself(html):
    elements = Elements(html)
    assert elements.tags["script"] == elements.tags["img"] == 0
    assert elements.tags["svg"] == 6
    assert all(value.startswith(("#", "data:,")) for value in elements.all("href", "xlink:href"))
    assert not re.findall(r"@import|url\((?!#)", html)
    ids = elements.all("id")
    assert len(ids) == len(set(ids))
    used = [value[1:] for value in elements.all("xlink:href")] + re.findall(r"url\(#(.*?)\)", html)
    assert used
    assert set(used) <= set(ids)


def test_figures_have_the_colours_of_the_page_and_no_other(html):
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--node-2)" in drawn
    assert not re.findall(r"#[0-9a-f]{6}\b", drawn)
    style = html[html.index("<style>") : html.index("</style>")]
    for name in set(re.findall(r"var\(--([\w-]+)\)", html)):
        assert style.count(f"--{name}:") == 2, name  # in light and in dark


def test_the_page_says_what_ended_a_launch(known, html):
    first, second = launch_rows(known)
    assert first["reason"] == ""
    assert_names(second.pop("reason"), "laptop", "rank 1", "signal 9 (SIGKILL)")
    del second["began"]
    assert second == {"generation": 1, "step": 40, "nodes": "desk, laptop, oldbox"}
    assert_names(html, "laptop: rank 1", "signal 9")


def warmest(html: str) -> dict[str, str]:
    """Return the last column of the table of nodes."""
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", html)]
    return {re.sub(r"<.*?>", "", row[0]): row[-1] for row in cells if len(row) == 8}


LEFT = {"laptop": f"no sign of life for 6 s {SCRIPT}"}


def with_regroups(times: int = 1) -> list[dict]:
    """Return the recorded lines as if the laptop had left this often, each time for ten steps."""
    lines, generation = [], 0
    for line in map(json.loads, TEXT.splitlines()):
        first = line.get("step", 0) == 0
        if line["kind"] == "start" and not first:
            continue
        step = line.get("step", 0)
        away = step > 10 and (step - 1) // 10 % 2 and step <= 20 * times
        if line["kind"] == "step" and away:
            line |= {
                name: [numbers[0], 0, numbers[2]]
                for name, numbers in line.items()
                if name.endswith("_by_rank")
            }
        lines.append(line)
        if line["kind"] == "step" and step % 10 == 0 and step <= 20 * times:
            generation += 1
            back = step % 20 == 0
            team = {
                "nodes": NODES if back else ["desk", "oldbox"],
                "left": {} if back else LEFT,
                "joined": ["laptop"] if back else [],
                "waited": 0.5 if back else 6.25,
            }
            common = {"time": line["time"], "step": step, "generation": generation}
            lines.append({"kind": "team", **common, **team})
    return lines


def test_the_page_lists_who_left_and_who_joined_and_what_it_cost(run):
    (run / "metrics.jsonl").write_text(written(*with_regroups()))
    assert "killed by signal 9" in team_rows(read(run))[0]["changes"]  # as a supervisor has it
    (run / "ends.json").unlink()
    left, joined = team_rows(read(run))
    del left["at"], joined["at"]
    assert left == {
        "step": 10,
        "changes": f"laptop left ({LEFT['laptop']})",
        "nodes": "desk, oldbox",
        "waited": "6.2 s",
    }
    assert joined == {
        "step": 20,
        "changes": "laptop joined",
        "nodes": "desk, laptop, oldbox",
        "waited": "0.5 s",
    }
    elements = Elements(page(read(run)))
    text = " ".join(elements.text.split())
    assert_names(
        text, "regroups2 the others waited 6.8 s", "Who left and who joined", LEFT["laptop"]
    )
    assert elements.tags["script"] == 0
    (_, laptop, _) = node_rows(read(run))
    whole = sum(row["rows"] for row in node_rows(read(run)))
    assert laptop["rows"] / whole == laptop["share"] < 0.4


def test_leaves_and_joins_stand_on_the_curves(run, html):
    (run / "metrics.jsonl").write_text(written(*with_regroups()))
    drawn = re.findall(r"<svg.*?</svg>", page(read(run)), re.DOTALL)
    assert len(drawn) == 6
    for figure in drawn[:4]:
        assert "laptop left" in figure
        assert "laptop joined" in figure
    assert all("left, joined" in figure for figure in drawn[2:4])
    assert "left, joined" not in html


def test_many_regroups_are_drawn_without_names(run):
    (run / "metrics.jsonl").write_text(written(*with_regroups(times=4)))
    many = [{**line, "step": 80} for line in with_regroups() if line["kind"] == "team"] * 100
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(written(*many))
    html = page(read(run))
    assert "laptop left" not in "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert len(team_rows(read(run))) == 208


def test_the_page_shows_how_warm_it_was_where_somebody_could_tell(run, html):
    assert warmest(html) == dict.fromkeys(NODES, "–")
    lines = [json.loads(line) for line in TEXT.splitlines()]
    for line in lines:
        if line["kind"] == "step":
            line["celsius_by_rank"] = [50.0 + line["step"] / 4, 81.0, None]
    (run / "metrics.jsonl").write_text(written(*lines))
    warm = page(read(run))
    assert warmest(warm) == {"desk": "70", "laptop": "81", "oldbox": "–"}
    assert warm.count("<path") > html.count("<path")  # a curve for each that could tell


def test_the_page_tells_energy_and_cost_where_somebody_could_measure_it(run, html):
    assert "kWh" not in html
    by_rank = [1.2e5, 6e4, 0.0]
    lines = [json.loads(line) for line in TEXT.splitlines()]
    for line in lines:
        if line["kind"] == "step":
            joules = {"energy_joules": 1.8e5 * line["step"]}
            line |= joules | {"energy_joules_by_rank": by_rank}
    (run / "metrics.jsonl").write_text(written(*lines))
    replace(Outcome.read(run), electricity_price=0.3).write(run)
    told = page(read(run))
    text = re.sub(r"\s+", " ", Elements(told).text)
    assert "energy4.00 kWh" in text
    assert "cost of energy1.20 at 0.3 a kWh" in text
    assert_names(text, "Wh per million tokens")
    by_node = {
        re.sub(r"<.*?>", "", cells[0]): cells[-1]
        for row in re.findall(r"<tr>.*?</tr>", told)
        if len(cells := re.findall(r"<td[^>]*>(.*?)</td>", row)) == 9
    }
    assert by_node == {"desk": "2.67", "laptop": "1.33", "oldbox": "–"}
    assert "Not measured" not in text


def test_the_highest_tick_of_the_memory_is_above_its_curves(html):
    lines = map(json.loads, TEXT.splitlines())
    most = max(max(line.get("peak_memory_mib_by_rank", [0])) for line in lines)
    panel = html[html.index("share of the rows") : html.index("most memory used")]
    assert max(map(int, re.findall(r">(\d+)</text>", panel))) >= most


def test_settings_stand_with_their_origins_those_that_were_given_first(known):
    rows = setting_rows(known)
    assert [name for name, *_ in rows] != list(Settings.model_fields)
    assert sorted(name for name, *_ in rows) == sorted(Settings.model_fields)
    typed = [name for name, _, _, given_ in rows if given_]
    assert typed == [name for name, *_ in rows][: len(typed)]
    assert ("global_batch", "24", "-e", True) in rows
    assert ("seed", "1", "default", False) in rows


def test_the_page_has_the_whole_chain_of_runs_that_one_is_on_top_of(known):
    chain = (Ancestor("two", "dpo", "likes", 30), Ancestor("one", "sft", "homelab-qa", 120))
    start = StartAdapter("/mine/two/adapter/weights", "ab" * 32, 5, lineage=chain)
    run = replace(
        known.run,
        start=start,
        settings=known.run.settings.model_copy(update={"onto": "two"}),
        origins=known.run.origins | {"onto": "-e", "model": "onto two", "lora_rank": "onto two"},
    )
    on_top = replace(known, run=run)
    assert dict(fact_rows(on_top))["its adapter, sha256"] == start.sha256
    assert_names(page(on_top), "two (dpo on likes, 30 steps)", "one (sft on homelab-qa, 120 steps)")
    words = shlex.split(repeat_command(run, "hearth"))
    assert words[words.index("--onto") + 1] == "two"
    assert not {"--lora-rank", run.settings.model} & {*words}


def test_versions_and_fingerprints_are_told(known):
    facts = dict(fact_rows(known))
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["hearth"] == "0.1.0"
    assert re.fullmatch(r"[0-9a-f]{16}", facts["data fingerprint (rows as tokens)"])
    assert re.fullmatch(r"[0-9a-f]{64}", facts["data file, sha256"])
    assert facts["rank 2"] == "oldbox, cpu"


def test_the_stages_of_a_pipeline_are_told_and_the_predicted_step_beside_the_measured_one(known):
    planned = PlannedPipeline(((1, 20), (0, 10)), micro_batch=1, step_seconds=1.5)
    rows = dict(fact_rows(replace(known, run=in_parallel(known.run, "pipeline", planned))))
    assert_names(rows["stages"], "rank 1 layers 1-20", "rank 0 layers 21-30")
    assert_names(rows["seconds of a step"], "1.50 s predicted", "s measured")
    assert "stages" not in dict(fact_rows(known))


def test_a_resolved_setting_is_not_repeated(tmp_path):
    run = in_parallel(resolve_run(GIVEN, tmp_path, "-e"), "ddp")
    assert run.settings.parallel == "ddp"
    assert "parallel" not in repeat_command(run, "hearth")


def test_a_run_that_failed_after_two_steps_names_node_and_cause(run):
    message = f"OSError: No space left on device\n{SCRIPT}"
    lines = TEXT.splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if '"step": 2, "steps"' in line)
    (run / "metrics.jsonl").write_text("".join(lines[: second + 1]))
    end = {"state": "failed", "cause": {"node": "laptop", "rank": 1, "message": message}}
    Outcome({node: end | {"rank": n} for n, node in enumerate(NODES)}).write(run)
    elements = Elements(write_report(run).read_text(encoding="utf-8"))
    assert "evening failed" in " ".join(elements.text.split())
    assert f"laptop: {message}\ncause: " in elements.text
    assert "\ncure: " in elements.text
    assert (elements.tags["svg"], elements.tags["script"]) == (6, 0)


def test_whatever_a_model_says_stays_text(run):
    text = TEXT.replace('"answer": "', f'"answer": "{SCRIPT} & ').replace("say 1", SCRIPT)
    (run / "metrics.jsonl").write_text(text)
    elements = Elements(write_report(run).read_text(encoding="utf-8"))
    assert elements.tags["script"] == 0
    assert elements.text.count(f"{SCRIPT} & ") == 2
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", elements.text)


def test_without_a_step_there_is_a_page_without_figures(run):
    (run / "metrics.jsonl").unlink()
    (run / "run.yml").write_text("run: [torn")
    elements = Elements(write_report(run).read_text(encoding="utf-8"))
    assert (elements.tags["svg"], elements.tags["table"]) == (0, 0)
    assert "evening finished" in " ".join(elements.text.split())


def test_a_run_by_hand_has_no_end_but_the_one_in_its_metrics(run):
    (run / "ends.json").unlink()
    assert read(run).state == "finished"
    (run / "metrics.jsonl").write_text(TEXT[: len(TEXT) // 2])
    assert read(run).state == "without an end"
    text = " ".join(Elements(page(read(run))).text.split())
    assert "evening finished" not in text
    assert "python training/train_distributed.py" in text


# -- the command that repeats it -------------------------------------------------------------------

GIVEN = {
    "model": "smollm2-135m",
    "max_steps": "50",
    "learning_rate": "1e-4",
    "split": "4:2:1",
    "packing": "false",
    "lora_targets": "q_proj,v_proj",
    "wandb_project": "my project's",
    "run": "first",
}


def test_the_command_of_the_play_means_the_same_settings(tmp_path):
    file = tmp_path / "my.yml"
    file.write_text("lora_rank: 4\n")
    write_run(resolve_run(GIVEN, tmp_path, "-e", file=file), tmp_path / "run.yml")
    run = read_run(tmp_path / "run.yml")
    words = shlex.split(repeat_command(run, "hearth -i inventory/home"))
    assert words[:4] == ["hearth", "-i", "inventory/home", "train"]
    table = read_words(ROOT)
    given = parse(VERBS["train"], table, words[4:])
    typed = typed_words(given, table["train"], Paths(tmp_path, tmp_path))
    assert typed.keys() == GIVEN.keys() - {"run"} | {"lora_rank"}
    assert resolve(typed | {"run": "first"}).settings == run.settings


def test_the_command_by_hand_means_the_same_settings(tmp_path):
    run = resolve_run(GIVEN, tmp_path)
    words = shlex.split(repeat_command(run, None))
    assert words[:2] == ["python", "training/train_distributed.py"]
    typed = parse_command_line(words[2:]).given
    assert resolve(typed | {"run": "first"}).settings == run.settings


def test_the_nodes_and_the_options_of_the_launch_are_repeated(tmp_path):
    words = {"nodes": "desk,laptop", "elastic": True, "min_nodes": 2, "launch_return_timeout": "90"}
    run = replace(resolve_run(GIVEN, tmp_path, "-e"), launch=words | {"hearth_names": ["a b"]})
    write_run(run, tmp_path / "run.yml")
    command = repeat_command(read_run(tmp_path / "run.yml"), "hearth")
    assert command.endswith(
        " --nodes desk,laptop --elastic on --min-nodes 2 "
        """-e '{"launch_return_timeout": "90"}' -e '{"hearth_names": ["a b"]}'"""
    )
    assert "nodes" not in repeat_command(run, None)  # by hand it is torchrun that has them


def test_on_demand_it_is_written_into_the_folder_of_the_run(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["report", str(run)])
    assert main() == 0
    assert capsys.readouterr().out == f"{run}/report.html\n"
    assert "hearth train " in (run / "report.html").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path)])
    assert main() == 2
    assert_names(capsys.readouterr().err, "hearth: error", tmp_path)


def test_the_report_does_without_torch():
    code = "import sys, hearth_controller.report.__main__; sys.exit('torch' in sys.modules)"
    done = programs.run(sys.executable, "-c", code, PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 0, done.stderr
