"""Commands that measure. Each is a package of its own; `python -m tests.bench.NAME --help`.

lab.py       machines of a bench's own, and the plays over them
cluster.py   the same with shares of a core and links of a speed, and runs over them
paper.py     from raw figures to tests/bench/README.md
"""

import sys
from pathlib import Path

# What the tests find by pyproject.toml: tests/support and scripts/hearth_lab.
_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / folder) for folder in ("tests", "scripts")]
