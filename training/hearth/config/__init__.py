"""Typed run settings: one table, one resolver, one file per run.

settings.py   the table: every setting, its type, default and meaning
presets.py    known facts about a model
resolve.py    layers: defaults < preset < file < command line
run.py        a run and its file, run.yml
cli.py        the script's command line, made from the table
problems.py   errors as sentences
"""

from hearth.base.errors import ConfigError
from hearth.config.presets import Preset, load_preset, preset_names
from hearth.config.resolve import Resolved, resolve
from hearth.config.run import (
    Run,
    describe_settings,
    newest_run,
    pinned,
    read_run,
    resolve_run,
    run_of,
    run_text,
    shown,
    write_run,
)
from hearth.config.settings import Settings
