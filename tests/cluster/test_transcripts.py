"""The pages show of a run's life exactly the lines that a play prints today.

With the tiny model on the local inventory: what differs by model, data or chance is named here. The
tests build on each other, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.local_cluster import LocalCluster
from support.repository import ROOT
from support.transcripts import Block, blocks, differences

pytestmark = [pytest.mark.cluster, pytest.mark.rotated("transcripts of the pages")]

SHOWN: dict[str, Block] = {
    block.name: block
    for page in (ROOT / "docs").glob("*.md")
    for block in blocks(page.read_text(encoding="utf-8"))
}
BY_CHANCE = (
    *("WARNING", "auto", "step 0/0", "all nodes are ready", "the ranks load", "the split follows"),
    *(
        "held-out",
        "before",
        "after",
        "third is at",
        "they hold",
        "Prepare the node",
        "Keep the run",
    ),
    *(
        "RUN",
        "look",
        "Bring the training code",
        "together 0",
        "desk",
        "laptop",
        "the files are here",
        "best",
    ),
)
"""Beginnings of lines that depend on the model, the settings or the speed of a computer."""


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster that trains the run `third`."""
    with closing(LocalCluster(tmp_path_factory.mktemp("pages"), tiny_model, tiny_data)) as local:
        local.play("train.yml", *local.tiny(run="third", max_steps=400), "-e", "wait=off")
        local.until_step("third", 3)
        yield local


@pytest.mark.parametrize("verb", ["stop", "resume", "runs"])
def test_a_page_shows_what_a_verb_prints(home, verb):
    words = {"resume": ["--max-steps", "12"]}.get(verb, [])
    if verb == "resume":
        home.until_step("third", 3)
    done = home.hearth(verb, *words)
    assert done.returncode in (0, 1), done.stderr
    block = SHOWN[verb]
    assert not differences(block.body, block.part(f"$ hearth {verb}\n{done.stdout}"), BY_CHANCE)
