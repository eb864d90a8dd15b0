"""The setup of most tutorials: DistributedDataParallel and equal small batches on each rank.

Hearth's way of training is compared with this one. Called by torchrun with a model's
folder, a file of texts, the rows of a rank a step, the rows at once and the number of steps; rank
0 prints the seconds of each step as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

Batch = dict[str, torch.Tensor]


def batches(path: Path, tokenizer: PreTrainedTokenizerBase, at_once: int) -> Iterator[Batch]:
    """Yield this rank's padded batches of the texts, again and again."""
    texts = [json.loads(line)["text"] + tokenizer.eos_token for line in path.open()]

    def collate(some: list[str]) -> Batch:
        batch = tokenizer(some, return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return {**batch, "labels": labels}

    sampler: DistributedSampler[str] = DistributedSampler(texts)  # type: ignore[arg-type]
    loader = DataLoader(texts, at_once, sampler=sampler, collate_fn=collate, drop_last=True)  # type: ignore[arg-type]
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main(model_folder: str, data: str, rows: int, at_once: int, steps: int) -> None:
    """Train `steps` steps, and print the seconds of each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    lora = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    ddp = DistributedDataParallel(get_peft_model(model, lora))
    learns = [parameter for parameter in ddp.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr=2e-4)
    source = batches(Path(data), tokenizer, at_once)
    pieces = rows // at_once
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        for _ in range(pieces):  # each of which sends all gradients: nobody says no_sync
            (ddp(**next(source)).loss / pieces).backward()
        torch.nn.utils.clip_grad_norm_(learns, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(json.dumps(seconds), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
