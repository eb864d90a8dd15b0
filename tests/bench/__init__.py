"""Commands that measure. Each is a package of its own; `python -m tests.bench.NAME --help`.

lab.py       machines of a bench's own, and the plays over them
cluster.py   the same with shares of a core and links of a speed, and runs over them
paper.py     from raw figures to docs/benchmarks.md
"""
