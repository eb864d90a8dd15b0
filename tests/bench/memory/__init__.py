"""Compare estimated and measured memory of a run: `python -m tests.bench.memory --help`.

sizes.py    the models and what they are trained with
rank.py     one rank that says what it took
report.py   from raw figures to the table in docs/measurements.md
"""
