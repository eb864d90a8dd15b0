"""A run by hand that is scored, copied and pushed once it has finished, all without a network.

The task is a file of a person's own; the Hub is a stand-in. lm-eval is the real one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from support.facts import assert_names
from support.ranks import TRAINING, python, refused, succeeded, train, train_forked
from support.stand_in_hub import stand_in_hub
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.base.extras import ensure_extra
from hearth.base.places import user_cache

TASK = """\
task: quiz
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/quiz.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "Say {{word}}:"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
WORDS = ["loss", "step", "node", "rank", "token", "batch"]
ROWS = [
    {"word": word, "choices": [f" {word}", f" {word[::-1]}", " it"], "answer": number % 3}
    for number, word in enumerate(WORDS)
]
pytestmark = pytest.mark.rotated("after the training")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder to call from, with lm-eval in its cache and a task of its own."""
    place = tmp_path_factory.mktemp("home")
    ensure_extra("eval", "test")
    (place / "cache" / "hearth").mkdir(parents=True)
    (place / "cache" / "hearth" / "extras").symlink_to(user_cache() / "extras")
    (place / "quiz.yaml").write_text(TASK.replace("FOLDER", str(place)))
    (place / "quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (place / "nas").mkdir()
    return place


@pytest.fixture(scope="module")
def finished(home, tiny_model, tiny_data):
    """The folder of a run that has finished, and the files of the repository that it pushed to."""
    with stand_in_hub() as hub:
        more = ("--eval", home / "quiz.yaml", "--copy-to", home / "nas", "--push", "ada/night")
        # Not forked: what says where the Hub is is read when its library is imported.
        done = train(
            home,
            1,
            *("--run-name", "night", "--model", tiny_model, "--dataset", tiny_data),
            *("--sequence-length", 96, "--learning-rate", 0.05, "--max-steps", 4),
            *("--split", "equal", "--micro-batch", 1, "--wandb", "off", "--eval-held-out", "off"),
            *more,
            HF_TOKEN=hub.token,
            **hub.variables,
        )
        succeeded(done)
        assert hub.token not in done.stdout + done.stderr
        return home / "runs" / "night", hub.pushed


def accuracy(model, tokenizer):
    """Return the share of the rows whose answer the model finds the most likely of the choices."""
    right = 0
    for row in ROWS:
        prompt = tokenizer(f"Say {row['word']}:").input_ids
        sums = []
        for choice in row["choices"]:
            ids = prompt + tokenizer(choice).input_ids
            with torch.no_grad():
                chances = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            sums.append(sum(chances[at - 1, ids[at]].item() for at in range(len(prompt), len(ids))))
        right += max(range(3), key=sums.__getitem__) == row["answer"]
    return right / len(ROWS)


def test_scores_before_and_after_are_those_of_the_two_models(finished, tiny_model):
    folder, _ = finished
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ((score,),) = [each["scores"] for each in records if each["kind"] == "scores"]
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    base = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    assert score["before"] == pytest.approx(accuracy(base, tokenizer))
    adapted = PeftModel.from_pretrained(base, folder / "adapter").eval()
    assert score["after"] == pytest.approx(accuracy(adapted, tokenizer))
    assert (score["task"], score["metric"], score["examples"]) == ("quiz", "acc", len(ROWS))


def test_copy_and_push_have_weights_and_a_card_with_the_scores(finished, home):
    folder, pushed = finished
    weights = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    assert pushed["ada/night"]["adapter_model.safetensors"] == weights
    copy: Path = home / "nas" / "night"
    assert (copy / "adapter" / "adapter_model.safetensors").read_bytes() == weights
    for card in (pushed["ada/night"]["README.md"].decode(), (copy / "README.md").read_text()):
        assert_names(card, "quiz", "acc")


def test_what_is_wrong_is_said_before_anything_is_done(home, finished, tiny_model, tiny_data):
    wrong = train_forked(
        home,
        1,
        *("--run-name", "wrong", "--model", tiny_model, "--dataset", tiny_data, "--max-steps", 1),
        *("--eval", home / "gone.yaml", "--copy-to", home / "gone", "--push", "ada/x"),
        HF_TOKEN="",
    )
    refused(wrong, "gone.yaml", f"no folder {home}/gone", "no token")
    assert not (home / "runs" / "wrong").exists()


def test_a_finished_run_is_shared_and_scored_by_hand(home, finished):
    (home / "other").mkdir()
    again = python(home, TRAINING / "share.py", "night", "--copy-to", home / "other")
    assert_names(succeeded(again).stdout, home / "other" / "night")
    assert (home / "other" / "night" / "run.yml").is_file()
    nothing = python(home, TRAINING / "share.py", "night")
    refused(nothing, "--push", "--copy-to")
    stranger = python(home, TRAINING / "evaluate.py", "nihgt", "hellaswag")
    refused(stranger, "night")
