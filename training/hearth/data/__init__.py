"""Data: from files and Hub data sets to rows of tokens.

`load_data` is the way in. Behind it, one subject a module: `locate` (what does the setting name),
`formats` and `hub` (files and Hub data sets to records), `columns` (records to examples),
`template` (examples to tokens), `documents` (all tokens of a data set), `cache` (kept on disk),
`split` (what is held out), `packing` (which documents share a row), `rows` (rows and
micro-batches).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearth.data.load import DataReport, Question, TokenData, load_data
    from hearth.data.rows import IGNORED, Batch, Rows
    from hearth.data.template import encode_prompt, ensure_chat_template

_HOMES = {
    "DataReport": "load",
    "Question": "load",
    "TokenData": "load",
    "load_data": "load",
    "IGNORED": "rows",
    "Batch": "rows",
    "Rows": "rows",
    "encode_prompt": "template",
    "ensure_chat_template": "template",
}
__all__ = [
    "IGNORED",
    "Batch",
    "DataReport",
    "Question",
    "Rows",
    "TokenData",
    "encode_prompt",
    "ensure_chat_template",
    "load_data",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for (PEP 562).

    The controller resolves settings with `hearth.data.locate` and has none of the libraries that
    the rest of this package needs.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
