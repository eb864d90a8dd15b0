"""The ranges that packages of the GPU's lock declare, as a table that tests read without a network.

pip download --no-deps -d WHEELS unsloth==… unsloth_zoo==… trl==… peft==…
python -m tests.support.declared WHEELS/*.whl
"""

from __future__ import annotations

import json
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

TABLE = Path(__file__).parents[1] / "fixtures" / "declared.json"


def declared(wheel: Path) -> tuple[str, dict[str, object]]:
    """Return the package of a wheel, its version and its requirements without extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    wanted = sorted(
        each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each
    )
    return metadata["Name"], {"version": metadata["Version"], "requires": wanted}


if __name__ == "__main__":
    found = dict(declared(Path(each)) for each in sys.argv[1:])
    TABLE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
