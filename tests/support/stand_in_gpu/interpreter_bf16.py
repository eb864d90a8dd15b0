"""bfloat16 in Triton's interpreter, as a GPU computes it.

Version 3.7 adds and multiplies its bits as integers, and cuts bits off where a GPU rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl


def install(interpreter: ModuleType) -> None:
    """Have the builder of `interpreter` compute in float32 and round each result to bfloat16."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    plain_convert = interpreter._convert_float

    def convert(data: np.ndarray, before: Any, after: Any, rounding: Any) -> np.ndarray:
        if (before, after) == (tl.float32, tl.bfloat16):
            exact = torch.from_numpy(np.ascontiguousarray(data).view(np.float32))
            return exact.to(torch.bfloat16).view(torch.uint16).numpy()
        return plain_convert(data, before, after, rounding)

    interpreter._convert_float = convert

    def widened(value: Any) -> tuple[Any, bool]:
        if not (isinstance(value, handle) and value.dtype.scalar == tl.bfloat16):
            return value, False
        wide = convert(np.atleast_1d(value.data), tl.bfloat16, tl.float32, None)
        return handle(wide.view(np.float32).reshape(np.shape(value.data)), tl.float32), True

    def narrowed(value: Any) -> Any:
        if value.data.dtype != np.float32:  # a comparison
            return value
        narrow = convert(np.atleast_1d(value.data), tl.float32, tl.bfloat16, None)
        return handle(narrow.view(np.uint16).reshape(np.shape(value.data)), tl.bfloat16)

    def wrapped(plain: Callable[..., Any]) -> Callable[..., Any]:
        def operation(self: Any, *values: Any) -> Any:
            pairs = [widened(value) for value in values]
            found = plain(self, *(value for value, _ in pairs))
            return narrowed(found) if any(was for _, was in pairs) else found

        return operation

    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, wrapped(getattr(builder, name)))
