"""Diagnosis of a failed run from its logs: node, error, cause and cure. No torch.

It exports the supervisors' part, standard library only; `catalogue` and `logs` need pydantic.
"""

from hearth.diagnose.log import (
    RankError,
    failed_status,
    first_failure,
    is_echo,
    killed_by,
    last_error,
    last_launch,
)
