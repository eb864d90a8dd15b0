"""Quantises a GGUF file by llama.cpp's library, in a process of its own: an error there ends it.

python -m hearth.after.quantise LIBRARIES FROM TO FILE_TYPE
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


class _Parameters(ctypes.Structure):
    """llama.h's llama_model_quantize_params: its first two members, and room for the others.

    llama.cpp fills in all of them, and a caller that has more room than it fills does no harm.
    """

    _fields_ = (
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int32),
        ("others", ctypes.c_ubyte * 504),
    )


def quantise(libraries: Path, source: Path, to: Path, file_type: int) -> int:
    """Write `source` to `to` as `file_type`, llama.h's llama_ftype; return 0 if that worked."""
    library = ctypes.CDLL(str(libraries / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = _Parameters
    library.llama_model_quantize.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(_Parameters),
    )
    library.llama_model_quantize.restype = ctypes.c_uint32
    library.llama_backend_init()
    parameters = library.llama_model_quantize_default_params()
    parameters.ftype = file_type
    parameters.nthread = len(os.sched_getaffinity(0))
    return library.llama_model_quantize(
        os.fsencode(source), os.fsencode(to), ctypes.byref(parameters)
    )


if __name__ == "__main__":
    sys.exit(quantise(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
