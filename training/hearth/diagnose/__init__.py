"""From the logs of a run to what went wrong, where, why and what helps: no torch.

Here is what the supervisors use, in the standard library alone. `catalogue` and `logs` need more.
"""

from hearth.diagnose.log import (
    RankError,
    first_failure,
    is_echo,
    killed_by,
    last_error,
    last_launch,
)

__all__ = ["RankError", "first_failure", "is_echo", "killed_by", "last_error", "last_launch"]
