"""Data pipeline: from files and Hub data sets to rows of tokens.

The entry point is `load_data` (module `load`). The other modules: `locate` (setting to file or Hub
data set), `formats` and `hub_rows` (to records), `columns` (records to examples), `findings`
(errors in records), `template` (examples to tokens), `documents` (all tokens of a data set),
`cache` (tokens on disk), `split` (held-out documents), `packing` (documents to rows), `rows` (rows
and micro-batches).
"""
