"""Unsloth beside everything else of a run: memory that runs out, answers, cards of other ages."""

from __future__ import annotations

import json

import pytest
import torch
from support.ranks import succeeded

from hearth.fit.capacity import GIB
from hearth.model.unsloth_environment import LOGITS

pytestmark = pytest.mark.long

LAYERS = 2


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.rotated
@pytest.mark.parametrize("verb", ["out-of-memory", "generation"])
def test_gradients_are_the_same_after_memory_ran_out_and_after_an_answer(computed, llama, verb):
    offloads = {"sequence_length": 512, "packing": False, "gradient_checkpointing": True}
    found = computed(verb, "unsloth", "bf16", llama, 1, 1, **offloads)
    assert same(found["after"], found["before"])
    assert found.get("layers", LAYERS) == LAYERS


@pytest.mark.rotated
@pytest.mark.parametrize(("cards", "best"), [("7.5,8.9", "bf16"), ("8.9,7.5", "fp16")])
def test_a_rank_computes_in_what_its_own_card_has_and_writes_nothing_where_it_starts(
    tmp_path, stood_in, cards, best
):
    code = (
        "import json, sys, torch\n"
        "from hearth.config import resolve\n"
        "from hearth.config.layout import Layout\n"
        "from hearth.model import load, precision\n"
        "settings = resolve({'model': 'smollm2-135m', 'backend': 'unsloth'}).settings\n"
        "load.prime_backend(settings, Layout.from_environment())\n"
        "import unsloth_zoo.compiler as compiler\n"
        "from unsloth_zoo.fused_losses import cross_entropy_loss\n"
        "print(json.dumps([\n"
        "    precision.supported(torch.device('cuda', torch.cuda.current_device()))[0],\n"
        "    list({vars(module)['SUPPORTS_BFLOAT16'] for name, module in sys.modules.items()\n"
        "          if name.startswith('unsloth') and 'SUPPORTS_BFLOAT16' in vars(module)}),\n"
        "    compiler.get_compile_folder()[0],\n"
        "    cross_entropy_loss.TARGET_GB]))\n"
    )
    done = succeeded(stood_in(code, cards, LOCAL_RANK="1"))
    precision, bf16, folder, gib = json.loads(done.stdout.splitlines()[-1])
    assert (precision, bf16) == (best, [best == "bf16"])
    assert float(gib) * GIB == LOGITS  # what the estimate of a run's memory counts with
    assert folder == str(tmp_path / "cache/hearth/data/unsloth")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
