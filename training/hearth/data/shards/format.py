"""The files of token shards: `.bin` as llm.c and modded-nanogpt write them, and `.npy`.

A `.bin` file begins with 256 int32, little-endian: a magic number, a version, the number of tokens,
and zeros. The tokens follow, as uint16 or uint32 by magic number and version. A `.npy` file holds
one row of integers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hearth.base.errors import DataError

_HEADER = 256
_HEADER_BYTES = 4 * _HEADER
KINDS = {(20240520, 1): np.dtype("<u2"), (20240801, 7): np.dtype("<u4")}
"""Type of the tokens by magic number and version: of llm.c's GPT-2 and Llama 3 files."""


def open_shard(path: Path) -> np.memmap:
    """Return the tokens in `path`, one-dimensional and memory-mapped; only its header is read.

    Raises `DataError` if the file is not a token shard, or is not whole.
    """
    try:
        return _open_npy(path) if path.suffix.lower() == ".npy" else _open_bin(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; bring it back") from None
    except OSError as error:
        raise DataError(f"{path}: this shard cannot be read ({error.strerror or error})") from error


def bin_header(count: int, dtype: np.dtype) -> np.ndarray:
    """Return the header of a `.bin` shard of `count` tokens of this type."""
    header = np.zeros(_HEADER, dtype="<i4")
    header[:2] = next(kind for kind, known in KINDS.items() if known == dtype)
    header[2] = count
    return header


def _open_bin(path: Path) -> np.memmap:
    size = path.stat().st_size
    header = np.fromfile(path, dtype="<i4", count=_HEADER).tolist()
    if len(header) < _HEADER:
        raise DataError(
            f"{path}: {size} bytes are less than the {_HEADER_BYTES} of a token shard's header; "
            "it was cut short, so fetch or make it again"
        )
    magic, version, count = header[:3]
    if (magic, version) not in KINDS:
        known = " or ".join(f"{a} version {b}" for a, b in KINDS)
        raise DataError(
            f"{path}: its header begins with {magic} version {version}, not with {known}, so it is "
            "no token shard of llm.c; save tokens without a header (nanoGPT's) with numpy.save "
            "as .npy"
        )
    dtype = KINDS[magic, version]
    if size != _HEADER_BYTES + count * dtype.itemsize or count < 0:
        within = "; it ends within a token" if (size - _HEADER_BYTES) % dtype.itemsize else ""
        raise DataError(
            f"{path}: its header counts {count} tokens of {dtype.itemsize} bytes, which with the "
            f"header take {_HEADER_BYTES + count * dtype.itemsize} bytes, and the file has {size}"
            f"{within}; fetch or make it again"
        )
    if not count:
        raise _no_tokens(path)
    return np.memmap(path, dtype, "r", _HEADER_BYTES, (count,))


def _open_npy(path: Path) -> np.memmap:
    try:
        tokens = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path}: this is not a whole .npy file ({reason}); write it again with numpy.save"
        ) from None
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or tokens.ndim != 1:
        found = (
            f"{tokens.dtype} of shape {tokens.shape}"
            if isinstance(tokens, np.ndarray)
            else "no array"
        )
        raise DataError(
            f"{path}: token shards hold one row of integers, and this holds {found}; save the "
            "tokens end to end, such as array.astype('uint16').ravel()"
        )
    if not len(tokens):
        raise _no_tokens(path)
    return tokens


def _no_tokens(path: Path) -> DataError:
    return DataError(f"{path}: this shard holds no tokens; leave it out")
