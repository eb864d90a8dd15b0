"""A replica group of one rank under torchft, run by a Python that has it (`engines.py`).

    python replica.py NUMBER MODEL DATA RECORD LIGHTHOUSE LOAD

trains a LoRA with all of torchft's defaults, and adds a line of JSON to RECORD for each step that
counts. It sleeps LOAD seconds before it loads the model, as if that were large. The gradients go
through `Manager.allreduce`: torchft 0.2.0's own `DistributedDataParallel` over gloo does not
outlive a loss. There `allreduce(…).wait()` swallows gloo's error and leaves the future unset,
whereupon `_comm_hook` ends the survivors with `assert fut._fut`.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.distributed import TCPStore
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torchft import Manager, Optimizer, ProcessGroupGloo
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = 1
LEAST = 2


def batches(model: str, data: str, first: int) -> Iterator[torch.Tensor]:
    """Yield rows of the data without end, each replica from another place on."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = [json.loads(line)["text"] for line in Path(data).read_text().splitlines()]
    rows = torch.tensor(tokenizer(texts)["input_ids"])
    at = first
    while True:
        yield rows[[(at + each) % len(rows) for each in range(ROWS)]]
        at += ROWS


def main(number: str, model: str, data: str, record: str, lighthouse: str, load: str) -> None:
    # torchft tells the others to fetch a checkpoint at this name, which may be one of the network.
    socket.gethostname = lambda: "localhost"
    torch.manual_seed(0)
    time.sleep(float(load))
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    network = get_peft_model(AutoModelForCausalLM.from_pretrained(model), lora)
    trained = [each for each in network.parameters() if each.requires_grad]
    adamw = torch.optim.AdamW(trained, 1e-4)

    def state() -> dict[str, Any]:
        return {"adapter": get_peft_model_state_dict(network), "optimizer": adamw.state_dict()}

    def restore(state: dict[str, Any]) -> None:
        set_peft_model_state_dict(network, state["adapter"])
        adamw.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(),
        load_state_dict=restore,
        state_dict=state,
        min_replica_size=LEAST,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"node{number}",
        hostname="127.0.0.1",
    )
    optimizer = Optimizer(manager, adamw)
    done = 0
    with Path(record).open("a", encoding="utf-8") as file:
        for rows in batches(model, data, int(number) * 1000):
            optimizer.zero_grad()
            network(input_ids=rows, labels=rows).loss.backward()
            gradients = [each.grad for each in trained]
            flat = parameters_to_vector(gradients)
            manager.allreduce(flat).wait()
            vector_to_parameters(flat, gradients)
            optimizer.step()
            if manager.current_step() > done:
                done = manager.current_step()
                line = {"at": time.time(), "number": done, "together": manager.num_participants()}
                print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
