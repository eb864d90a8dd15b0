"""Data pipeline, from files and Hub data sets to rows of tokens; `load` is the entry point."""
