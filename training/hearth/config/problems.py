"""Sentences about settings that cannot be used, from the errors of pydantic and YAML.

An unknown setting may be one that had another name, or that other trainers call otherwise: then the
present name is given. Files of earlier runs are read with their old names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from hearth.base.addresses import hidden, without_credentials
from hearth.base.errors import did_you_mean
from hearth.base.text import cut

RENAMED: Mapping[str, str] = {
    "evaluate": "eval_held_out",
    "push_private": "private",
}
"""The present name of each setting by its old one."""

OTHERS: Mapping[str, str] = {
    other: name
    for name, others in {
        "model": "base_model model_name model_name_or_path model_id pretrained_model_name_or_path",
        "dataset": "datasets dataset_name dataset_path data data_path train_file train_dataset",
        "columns": "dataset_text_field text_field text_column",
        "run": "output_dir run_name experiment_name wandb_name wandb_run_name out_dir",
        "resume": "resume_from_checkpoint resume_from auto_resume_from_checkpoints",
        "seed": "data_seed random_seed",
        "scratch": "train_from_scratch init_from from_scratch",
        "sequence_length": "max_seq_length max_seq_len max_length sequence_len seq_length seq_len "
        "cutoff_len block_size context_length model_max_length",
        "packing": "sample_packing neat_packing pack_dataset",
        "held_out": "val_set_size val_size test_size validation_split eval_split",
        "validation": "validation_file eval_dataset val_file",
        "epochs": "num_train_epochs num_epochs n_epochs max_epochs",
        "max_steps": "max_iters num_steps total_steps train_steps num_train_steps max_train_steps",
        "global_batch": "batch_size train_batch_size global_batch_size total_batch_size "
        "gradient_accumulation_steps grad_accum accumulate_grad_batches",
        "micro_batch": "per_device_train_batch_size per_device_eval_batch_size micro_batch_size "
        "eval_batch_size device_batch_size",
        "learning_rate": "lr peak_lr max_lr base_lr",
        "schedule": "lr_scheduler_type lr_scheduler lr_schedule scheduler",
        "warmup_steps": "warmup_ratio warmup_iters num_warmup_steps lr_warmup_steps warmup",
        "optimizer": "optim optimizer_type optimizer_name",
        "weight_decay": "wd",
        "beta2": "adam_beta2",
        "clip_norm": "max_grad_norm gradient_clipping gradient_clip_val grad_clip max_norm",
        "neftune": "neftune_noise_alpha noisy_embedding_alpha",
        "lora": "adapter finetuning_type use_lora use_peft train_type",
        "lora_rank": "lora_r peft_lora_r r",
        "lora_alpha": "peft_lora_alpha",
        "lora_targets": "target_modules lora_target_modules lora_target lora_target_linear",
        "rslora": "use_rslora peft_use_rslora",
        "dora": "use_dora peft_use_dora",
        "parallel": "fsdp fsdp_config deepspeed distributed_type",
        "backend": "use_unsloth",
        "precision=bf16": "bf16 pure_bf16",
        "precision=fp16": "fp16",
        "precision": "mixed_precision dtype torch_dtype",
        "load_in_4bit": "quantization_bit use_4bit qlora quantization",
        "compile": "torch_compile",
        "gradient_checkpointing": "activation_checkpointing use_gradient_checkpointing",
        "threads": "num_threads torch_num_threads",
        "collective_timeout": "ddp_timeout",
        "eval_every": "eval_steps eval_strategy evaluation_strategy evals_per_epoch eval_interval "
        "val_check_interval",
        "early_stop": "early_stopping_patience",
        "log_every": "logging_steps logging_strategy log_interval log_every_n_steps",
        "checkpoint_every": "save_every save_steps save_strategy saves_per_epoch save_interval "
        "save_freq checkpoint_steps checkpoint_interval checkpointing_steps",
        "checkpoint_keep": "save_total_limit",
        "wandb": "report_to wandb_mode use_wandb",
        "push": "push_to_hub hub_model_id",
        "private": "hub_private_repo",
    }.items()
    for other in others.split()
}
"""The setting, or setting and value, by its name in TrainingArguments, TRL, PEFT, axolotl,
LLaMA-Factory and nanoGPT."""


def elsewhere(name: str, known: Iterable[str]) -> str:
    """Return the setting, of those `known`, that another trainer calls `name`, or ''."""
    setting = OTHERS.get(name.replace("-", "_").lower(), "")
    return setting if setting.partition("=")[0] in set(known) else ""


def hint(name: str, known: Iterable[str]) -> str:
    """Return the present name of an unknown setting, or the most similar of the `known` ones."""
    if name in RENAMED:
        return f"; it is called {RENAMED[name]} now"
    if setting := elsewhere(name, known):
        return f"; Hearth's is {setting}"
    return did_you_mean(name, known)


def with_present_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that an earlier version recorded, under the present names."""
    return {RENAMED.get(name, name): value for name, value in recorded.items()}


_SECRET = "secret_value"


def secret_value(reason: str) -> PydanticCustomError:
    """Return the error of a validator for a value that may be a secret: `describe` hides it."""
    return PydanticCustomError(_SECRET, "{reason}", {"reason": reason})


def describe(
    error: ValidationError | yaml.YAMLError, where: str | None, known: Iterable[str] = ()
) -> list[str]:
    """Return one sentence per problem.

    `where` names the file (None: only the setting is named) and `known` the setting names that an
    unknown one is compared with.
    """
    prefix = f"{where}: " if where else ""
    if isinstance(error, yaml.YAMLError):
        return [f"{prefix}this is not YAML: {error}"]
    findings = []
    # pydantic reports a value of a union, such as a number or a word, once for each alternative.
    reasons: dict[str, list[str]] = {}
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else "the file"
        if problem["type"] == "extra_forbidden":
            findings.append(f"{prefix}there is no setting '{name}'{hint(name, known)}")
        elif problem["type"] == "missing":
            findings.append(f"{prefix}{'.'.join(map(str, problem['loc']))} is required and not set")
        else:
            value = _shown(problem)
            wrong = f"{prefix}{name}: {value} cannot be used"
            reason = (
                problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            )
            reasons.setdefault(name, [wrong]).append(reason)
    for wrong, *several in reasons.values():
        findings.append(f"{wrong}; {', or '.join(dict.fromkeys(several))}")
    return findings


def _shown(problem: ErrorDetails) -> str:
    """Return the value of a problem as it may be shown."""
    if problem["type"] == _SECRET:
        return cut(repr(hidden(str(problem["input"]))))
    return cut(without_credentials(repr(problem["input"])))
