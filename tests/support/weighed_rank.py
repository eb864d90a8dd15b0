"""One rank of a real run, in a process of its own, that prints the memory it took.

    python tests/support/weighed_rank.py --model FOLDER ...     as training/train_distributed.py

Prints one line of JSON: the resident bytes before the run, everything imported, and at their peak.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

TRAINING = Path(__file__).resolve().parents[2] / "training"

# What a run imports on its way, so that it counts as imported and not as the run's.
_LATER = (
    "hearth.node.speed",
    "hearth.trainer.assembly",
    "peft.tuners.lora",
    "torch.utils.tensorboard",
    "transformers.models.llama.modeling_llama",
    "transformers.optimization",
)


def resident(what: str) -> int:
    """Return a figure of this process in bytes: `VmRSS` is now, `VmHWM` the peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{what}:"))
    return int(line.split()[1]) << 10


def main() -> int:
    sys.path[0] = str(TRAINING)
    for name in _LATER:
        importlib.import_module(name)
    import train_distributed

    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here: proc(5)
    status = train_distributed.main()
    print(json.dumps({"before": before, "peak": resident("VmHWM")}), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
