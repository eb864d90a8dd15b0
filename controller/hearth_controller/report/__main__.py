"""`python -m hearth_controller.report runs/RUN`: rewrite a run's report from its folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.base.entry import print_findings
from hearth.base.errors import HearthError
from hearth_controller.report.page import write_report


def main() -> int:
    """Run the command line; return the exit status: 0, or 2 if there is no report."""
    parser = argparse.ArgumentParser(prog="python -m hearth_controller.report", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="runs/RUN", help="the folder of the run")
    try:
        print(write_report(parser.parse_args().folder))
    except HearthError as error:
        return print_findings(error)
    except OSError as error:
        print(f"hearth: error: the report cannot be written: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
