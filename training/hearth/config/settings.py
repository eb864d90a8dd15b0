"""Every setting of a run: its type, default and meaning.

This table is the only place that defines training defaults; `--help`, the run file and the table
of a report are made from it. Presets and people override it (see `resolve`). To add a setting, add
a field, add its name to `FREE_ON_RESUME` and `TIMED` below if it belongs there, and read it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hearth.base.places import RUN_NAME
from hearth.base.text import on_off
from hearth.config.problems import secret_value
from hearth.config.types import (
    MOST,
    REPOSITORY,
    Auto,
    Columns,
    Count,
    DataSet,
    OptionalCount,
    OptionalFraction,
    OptionalSize,
    OptionalText,
    OptionalThreads,
    Shares,
    Split,
    Switch,
    Targets,
    Tasks,
    is_anywhere,
    secret_in,
    takes_switch,
)


def for_run_name(text: str, fallback: str) -> str:
    """Turn `text` into a run-name prefix that leaves room for a timestamp.

    Returns `fallback` if nothing is left of it.
    """
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:60] or fallback


def is_file(task: str) -> bool:
    """Return whether an entry of `eval` is the file of a task, and not a name that lm-eval has."""
    return task.endswith((".yaml", ".yml"))


def _setting(group: str, help_: str, default: Any = ..., **constraints: Any) -> Any:
    """Return a pydantic field with the `group` that is its heading in `--help`."""
    return Field(default, description=help_, json_schema_extra={"group": group}, **constraints)


class Settings(BaseModel):
    """All settings of one run. Frozen; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = _setting("Run", "preset name, Hub id (owner/name) or local folder", min_length=1)
    dataset: DataSet = _setting(
        "Run",
        "shipped data set, .jsonl/.json/.txt/.csv/.tsv/.parquet file (text files also as .gz), "
        "folder of them, token shards (.bin/.npy), pattern in quotes for several files such as "
        "'data/*_train_*.bin', or Hub name[:config]; a mixture is a=0.7,b=0.3: shares of the "
        "learned tokens",
        "homelab-qa",
    )
    run: OptionalText = _setting("Run", "name of the run; by default model and time", None)
    resume: OptionalText = _setting(
        "Run", "name of an earlier run to resume from its newest checkpoint", None
    )
    onto: OptionalText = _setting(
        "Run",
        "name of an earlier run, or folder with an adapter in PEFT's format: go on training that "
        "adapter, which determines model, lora_rank, lora_alpha, lora_targets, rslora and dora",
        None,
    )
    scratch: Switch = _setting(
        "Run",
        "start from random weights; only config.json and the tokenizer of the model are used",
        False,
    )
    trust_remote_code: Switch = _setting(
        "Run",
        "run Python code that comes with the model, as your user on every node, if Transformers "
        "does not know the model; read the code first",
        False,
    )
    seed: int = _setting("Run", "seed of the data order and of random weights", 1, ge=0, le=MOST)

    streaming: Switch = _setting(
        "Data",
        "read a Hub data set while training instead of storing it; needs max_steps",
        False,
    )
    columns: Columns = _setting(
        "Data",
        "the data's own names for columns that Hearth reads, such as question=frage,answer=antwort",
        {},
    )
    sequence_length: Annotated[int, Field(ge=8)] | Auto = _setting(
        "Data",
        "maximum tokens per row; auto: 1024, or fewer where the data are few and all examples fit",
        "auto",
    )
    packing: Switch | Auto = _setting(
        "Data",
        "pack several examples into a row, isolated from each other; auto: unless the data are few",
        "auto",
    )
    held_out: float = _setting(
        "Data",
        "fraction held out for evaluation, unless the file marks examples itself; not of token "
        "shards (see validation)",
        0.1,
        ge=0,
        lt=1,
    )
    validation: OptionalText = _setting(
        "Data", "token shards for evaluation, such as 'data/*_val_*.bin'", None
    )
    validation_tokens: Count = _setting(
        "Data", "tokens evaluated, from the beginning of the validation shards", 10_485_760
    )

    epochs: Annotated[float, Field(gt=0)] | Auto = _setting(
        "Steps",
        "passes over the data, if max_steps is not set; auto: 1, of few data up to 5 (not with "
        "scratch, nor of token shards)",
        "auto",
    )
    max_steps: OptionalCount = _setting("Steps", "stop after this many steps", None)
    global_batch: Count | Auto = _setting(
        "Steps",
        "rows per step, over all ranks; auto: 16, or fewer where the data are few",
        "auto",
    )
    micro_batch: Count | Literal["auto"] = _setting(
        "Steps",
        "maximum rows that a rank computes at once; auto: the fastest measured (1 with fsdp)",
        "auto",
    )
    split: Split = _setting(
        "Steps",
        "auto: by measured speed, adjusted during the run (equal with fsdp); equal; or one share "
        "per rank, such as 4:2:1 (0: idle): of the rows, with pipeline of the layers",
        "auto",
    )
    replay: OptionalText = _setting(
        "Steps", "name of an earlier run; repeat its split in every step", None
    )
    compress: Literal["none", "bf16"] = _setting(
        "Steps", "bf16: half the traffic, approximate gradients", "none"
    )
    sync_every: Count = _setting(
        "Steps",
        "for slow links: number of local steps between two averagings; above 1 the result is "
        "approximate",
        1,
    )

    objective: Literal["sft", "dpo", "orpo", "kto"] = _setting(
        "Preferences",
        "sft: learn answers, or texts; dpo and orpo: from pairs of a chosen and a rejected answer; "
        "kto: from answers that are judged good or bad (docs/preferences.md)",
        "sft",
    )
    beta: float = _setting(
        "Preferences",
        "strength of the tie to the model as it was (dpo, kto), or of the odds ratio (orpo)",
        0.1,
        gt=0,
    )
    dpo_loss: Literal["sigmoid", "ipo"] = _setting(
        "Preferences", "ipo: a bounded margin, for few data or labels without doubt", "sigmoid"
    )
    label_smoothing: float = _setting(
        "Preferences",
        "fraction of pairs that are labelled the wrong way round (dpo)",
        0.0,
        ge=0,
        lt=0.5,
    )
    sft_weight: float = _setting(
        "Preferences", "weight of learning the chosen answers as sft does (dpo)", 0.0, ge=0
    )

    learning_rate: float = _setting("Optimizer", "peak learning rate", 2e-4, gt=0)
    schedule: Literal["linear", "cosine", "constant", "constant_with_warmup", "wsd"] = _setting(
        "Optimizer",
        "learning-rate schedule; wsd: warm-up, stable, then decay to 0 in the last steps",
        "cosine",
    )
    warmup_steps: Annotated[int, Field(ge=0, le=MOST)] | Auto = _setting(
        "Optimizer",
        "steps before the peak learning rate; auto: a tenth of all steps, at most 100",
        "auto",
    )
    decay_fraction: float = _setting(
        "Optimizer", "fraction of all steps that the decay of schedule=wsd takes", 0.2, gt=0, le=1
    )
    optimizer: Literal["auto", "adamw", "adamw_8bit", "muon"] = _setting(
        "Optimizer",
        "auto: adamw_8bit (needs bitsandbytes) if every rank has an NVIDIA GPU, else adamw; muon: "
        "for the hidden matrices of a whole model, adamw for the rest",
        "auto",
    )
    weight_decay: float = _setting("Optimizer", "decoupled weight decay", 0.0, ge=0)
    beta2: float = _setting(
        "Optimizer", "decay of AdamW's average of squared gradients", 0.999, ge=0, lt=1
    )
    clip_norm: float = _setting(
        "Optimizer", "maximum norm of the gradient; 0: no clipping", 1.0, ge=0
    )
    neftune: float = _setting(
        "Optimizer",
        "noise on the embeddings while training (NEFTune), at most neftune / sqrt(tokens of the "
        "document * width of the model), such as 5; 0: none",
        0.0,
        ge=0,
    )

    lora: Switch = _setting(
        "LoRA",
        "train an adapter; off: train all weights, kept in float32 whatever the precision, which "
        "takes 16 bytes per weight and at most a tenth of LoRA's learning rate",
        True,
    )
    lora_rank: Count = _setting("LoRA", "rank of the adapter matrices", 16)
    lora_alpha: float = _setting("LoRA", "the adapter is scaled by alpha / rank", 32.0, gt=0)
    lora_dropout: float = _setting(
        "LoRA",
        "dropout before the adapter; above 0 the result depends on the split",
        0.0,
        ge=0,
        lt=1,
    )
    lora_targets: Targets = _setting(
        "LoRA", "module names separated by commas, or all-linear", "all-linear"
    )
    rslora: Switch = _setting(
        "LoRA", "scale the adapter by alpha / sqrt(rank) instead, for high ranks (rsLoRA)", False
    )
    dora: Switch = _setting(
        "LoRA",
        "also train the magnitude of each adapted weight (DoRA): slower, takes more memory",
        False,
    )

    dropout: OptionalFraction = _setting(
        "Model",
        "dropout of the model's own layers, by default as its config.json says; above 0 the result "
        "depends on the split",
        None,
    )

    parallel: Literal["auto", "ddp", "fsdp", "pipeline"] = _setting(
        "Machine",
        "ddp: the whole model on each rank; pipeline: consecutive layers on each rank, for models "
        "that fit no single card; fsdp: weights sharded over the ranks; slow, since every "
        "micro-batch fetches the other shards; auto: ddp or, under train.yml, pipeline where that "
        "fits or is faster",
        "auto",
    )
    backend: Literal["auto", "unsloth", "transformers"] = _setting(
        "Machine", "auto: Unsloth on NVIDIA GPUs if installed, else Transformers", "auto"
    )
    precision: Literal["auto", "bf16", "fp16", "fp32", "fp64"] = _setting(
        "Machine", "auto: bf16 if every rank supports it, else fp16 on GPUs, fp32 on CPUs", "auto"
    )
    load_in_4bit: Switch = _setting("Machine", "store the frozen weights in 4 bits (QLoRA)", False)
    load_in_8bit: Switch = _setting(
        "Machine", "store the frozen weights in 8 bits (LLM.int8)", False
    )
    compile: Switch = _setting(
        "Machine",
        "compile the layers with torch.compile, by Transformers: the first step takes a minute "
        "more, the others somewhat less",
        False,
    )
    gradient_checkpointing: Switch = _setting(
        "Machine", "recompute activations: slower, but far less memory", False
    )
    memory_limit: OptionalSize = _setting(
        "Machine", "GiB that a rank on a CPU may use; by default the free memory", None
    )
    fit: Literal["refuse", "warn"] = _setting(
        "Machine", "reaction, before the download, if the model seems not to fit a node", "refuse"
    )
    threads: OptionalThreads = _setting(
        "Machine", "CPU threads per rank; by default from the environment", None
    )

    collective_timeout: float = _setting(
        "Machine",
        "seconds after which ranks give up an exchange; longer than any waits for the slowest. "
        "0: a day under train.yml, which finds a lost node itself, and half an hour by hand",
        0.0,
        ge=0,
    )

    eval_held_out: Switch = _setting(
        "Record", "measure held-out perplexity and show a sample, before and after", True
    )
    eval_every: OptionalCount = _setting(
        "Record", "steps between two held-out evaluations; best/ holds the best weights", None
    )
    early_stop: OptionalCount = _setting(
        "Record",
        "finish the run after this many evaluations in a row without a lower held-out loss (needs "
        "eval_every)",
        None,
    )
    log_every: Count = _setting("Record", "steps between two lines of metrics", 1)
    checkpoint_every: Count = _setting("Record", "steps between two checkpoints", 50)
    checkpoint_minutes: float = _setting(
        "Record", "maximum minutes between two checkpoints; 0: no limit", 10.0, ge=0
    )
    checkpoint_keep: Count = _setting("Record", "checkpoints kept per node", 2)
    wandb: Literal["auto", "off", "offline", "online"] = _setting(
        "Record", "auto: online if WANDB_API_KEY is set, else offline", "auto"
    )
    wandb_project: str = _setting("Record", "project name in Weights & Biases", "hearth")

    eval: Tasks = _setting(
        "Afterwards",
        "tasks of lm-eval by name, or .yaml files of your own, such as hellaswag,arc_easy: scores "
        "before and after, once the training is over",
        (),
    )
    eval_limit: OptionalCount = _setting(
        "Afterwards", "examples per task of eval; by default all", None
    )
    push: OptionalText = _setting(
        "Afterwards", "repository on the Hub (owner/name) for what was trained and its card", None
    )
    private: Switch = _setting(
        "Afterwards",
        "keep a new repository private: what was trained on your data can give them away",
        True,
    )
    copy_to: OptionalText = _setting(
        "Afterwards",
        "folder, or address that fsspec knows such as s3://bucket/runs, for a copy of what was "
        "trained, with card, settings and metrics",
        None,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: Any) -> Any:
        """Refuse a switch for a number: Python would read it as 1 or 0."""
        annotation = cls.model_fields[info.field_name].annotation
        if value is False and "off" in get_args(annotation):
            return "off"  # YAML reads a bare `off` as false.
        if isinstance(value, bool) and not takes_switch(annotation):
            raise ValueError("on and off are not accepted here")
        return value

    @field_validator("run", "resume", "replay")
    @classmethod
    def _safe_name(cls, value: str | None) -> str | None:
        """Refuse names that are not one plain path component."""
        if value is not None and not RUN_NAME.fullmatch(value):
            raise ValueError(
                "use letters, digits, '.', '_' and '-' only, starting with a letter or digit"
            )
        return value

    @field_validator("push")
    @classmethod
    def _repository(cls, value: str | None) -> str | None:
        """Refuse a name that the Hub does not accept for a repository."""
        if value is not None and not REPOSITORY.fullmatch(value):
            raise ValueError(
                "write owner/name: each of letters, digits, '.', '_' and '-', not beginning or "
                "ending with '.' or '-', at most 96 characters"
            )
        return value

    @field_validator("copy_to")
    @classmethod
    def _same_everywhere_and_no_secret(cls, value: str | None) -> str | None:
        """Refuse a folder relative to where the command was typed, and an address with a secret.

        The folder may be on another machine, and settings are recorded and printed.
        """
        if value is not None and (reason := secret_in(value)):
            raise secret_value(reason)
        if value is not None and not is_anywhere(value):
            raise ValueError(
                "write the whole path as the node of rank 0 sees it, such as /mnt/nas/runs, or an "
                "address such as s3://bucket/runs"
            )
        return value

    @field_validator("split")
    @classmethod
    def _someone_works(cls, value: Shares | str) -> Shares | str:
        """Refuse a split that gives no rank any rows."""
        if not isinstance(value, str) and sum(value) == 0:
            raise ValueError("at least one rank needs a share above 0")
        return value

    def at_most(self) -> Settings:
        """Return these settings with the largest steps that `auto` can be resolved to.

        They are for estimates that are made before the data are known.
        """
        unknown = LARGEST.keys() & set(self.automatic_steps)
        return self.model_copy(update={name: LARGEST[name] for name in unknown})

    @property
    def automatic_steps(self) -> tuple[str, ...]:
        """The settings of the steps that are `auto`."""
        names = (*LARGEST, "warmup_steps")
        return tuple(name for name in names if getattr(self, name) == "auto")

    @property
    def data_sets(self) -> dict[str, float]:
        """The share of each data set by name; a single one has all."""
        return {self.dataset: 1.0} if isinstance(self.dataset, str) else self.dataset

    @property
    def compares(self) -> bool:
        """Whether answers are compared with those of the model as it was before the first step."""
        return self.objective in ("dpo", "kto")

    @property
    def goes_on_afterwards(self) -> bool:
        """Whether anything is to be done once the training is over."""
        return bool(self.eval or self.push or self.copy_to)

    @property
    def suits_unsloth(self) -> bool:
        """Whether `backend: auto` takes Unsloth on a GPU.

        Only Transformers' layers can be sharded, divided, compiled or given another dropout,
        Unsloth's kernels are made for LoRA, and Unsloth does not support a model that brings its
        own code.
        """
        other = self.trust_remote_code or self.compile or self.dropout is not None
        return self.lora and self.holds_all and not other

    @property
    def holds_all(self) -> bool:
        """Whether each rank holds the whole model; `auto` means that until it is resolved."""
        return self.parallel in ("auto", "ddp")

    @property
    def in_stages(self) -> bool:
        """Whether each rank computes some of the layers."""
        return self.parallel == "pipeline"

    @property
    def wants_speeds(self) -> bool:
        """Whether anything in this run depends on the speed of its ranks.

        With `parallel: fsdp` nothing does: ranks compute in lockstep, so none is faster than the
        others, and the network is slower than all of them.
        """
        by_speed = self.replay is None and "auto" in (self.split, self.micro_batch)
        return by_speed and self.holds_all


LARGEST = {
    "sequence_length": 1024,
    "packing": True,
    "global_batch": 16,
    "epochs": 1.0,
}
"""Settings that can be `auto` until the data are known, with their values for many data.

`hearth.plan.steps` resolves them, and `warmup_steps`."""

FREE_ON_RESUME = (
    *("run", "resume"),
    *("epochs", "max_steps", "micro_batch", "split", "replay"),
    *("parallel", "backend", "gradient_checkpointing", "memory_limit", "fit", "threads"),
    "collective_timeout",
    *("compile", "eval_held_out", "eval_every", "early_stop", "log_every"),
    *("checkpoint_every", "checkpoint_minutes", "checkpoint_keep"),
    *("wandb", "wandb_project"),
    *("eval", "eval_limit", "push", "private", "copy_to"),
)
"""Settings that may differ when a run is resumed: none of them changes which rows make up a step
or the result of training on them."""

TIMED = (
    *("sequence_length", "packing"),
    *("lora", "lora_rank", "lora_dropout", "lora_targets", "dora", "dropout"),
    *("load_in_4bit", "load_in_8bit", "compile"),
    *("gradient_checkpointing", "memory_limit", "threads"),
)
"""Settings that change how long a row takes: a speed measured with other values does not count."""


def shown(value: Any) -> str:
    """Format a setting's value as a person would type it."""
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, bool):
        return on_off(value)
    if isinstance(value, dict):
        each = {name: to if isinstance(to, str) else f"{to:g}" for name, to in value.items()}
        return ",".join(f"{name}={to}" for name, to in each.items())
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
