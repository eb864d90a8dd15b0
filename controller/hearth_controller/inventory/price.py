"""Validation of `electricity_price`: what a kWh costs."""

from __future__ import annotations

import math
from typing import Any

OPTION = "electricity_price"


def impossible(value: Any) -> list[str]:
    """Return a finding if a number is no price; 0 is one that is not known."""
    if 0 <= float(value) < math.inf:
        return []
    return [f"{value} is no price; 0 or more is wanted"]
