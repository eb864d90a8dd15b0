"""List the checks of doctor, each with its good state: `python -m hearth_controller.doctor`."""

from hearth.base.text import wrapped
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.examine import CHECKS

if __name__ == "__main__":
    for check in CHECKS:
        print(*wrapped(f"{check.name:<15}{check.good}", TABLE_WIDTH, " " * 15), sep="\n")
