"""Typed run settings: one table, one resolver, one file per run."""

from hearth.base.errors import ConfigError
from hearth.config.presets import Preset, load_preset, preset_names
from hearth.config.resolve import Resolved, resolve
from hearth.config.run import (
    Run,
    describe_settings,
    in_parallel,
    in_precision,
    in_steps,
    newest_run,
    pinned,
    read_run,
    resolve_run,
    run_of,
    run_text,
    write_run,
)
from hearth.config.settings import Settings, shown
