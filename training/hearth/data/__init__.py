"""Data pipeline: from files and Hub data sets to rows of tokens.

The entry point is `load_data` (module `load`). The other modules: `locate` (setting to file or Hub
data set), `formats` and `hub_rows` (to records), `columns` (records to examples), `findings`
(errors in records), `template` (examples to tokens), `documents` (all tokens of a data set),
`cache` (tokens on disk), `split` (held-out documents), `packing` (documents to rows), `rows` (rows
and micro-batches).
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
    """Import an exported name on first access (PEP 562).

    The controller resolves settings with `hearth.data.locate` and lacks the libraries that the rest
    of this package needs.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
