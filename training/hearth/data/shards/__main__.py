"""Makes token shards of a text corpus: `python -m hearth.data.shards --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.base.entry import print_findings
from hearth.base.errors import DataError, HearthError
from hearth.base.text import brief

_DESCRIPTION = """\
Tokenise a text corpus into token shards (.bin, as llm.c and modded-nanogpt read them), for
training from scratch. Each document begins with the tokenizer's border token.

    python -m hearth.data.shards corpus/*.parquet --tokenizer openai-community/gpt2 --out data/mine
    ... hearth train --dataset 'data/mine/*_train_*.bin' --validation 'data/mine/*_val_*.bin'"""


def _count(text: str) -> int:
    count = int(text.replace("_", ""))
    if not 8 <= count < 2**31:
        raise ValueError
    return count


def _fraction(text: str) -> float:
    fraction = float(text)
    if not 0 <= fraction < 1:
        raise ValueError
    return fraction


def main() -> int:
    """Run the command line; return the exit status: 0, or 2 for an error of the user's."""
    parser = argparse.ArgumentParser(
        prog="python -m hearth.data.shards",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        help=".txt (documents separated by blank lines), .jsonl, .csv or .parquet file with the "
        "column text, or Hub name[:config]",
    )
    parser.add_argument(
        "--tokenizer", required=True, metavar="MODEL", help="Hub id or folder of the model"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder to be made for the shards"
    )
    parser.add_argument(
        "--name", help="first part of the names of the shards (default: the name of --out)"
    )
    parser.add_argument(
        "--shard-tokens",
        type=_count,
        default=100_000_000,
        metavar="N",
        help="tokens per shard (default: 100000000)",
    )
    parser.add_argument(
        "--held-out",
        type=_fraction,
        default=0.01,
        metavar="X",
        help="fraction of the documents for validation shards, unless the files mark them by a "
        "column split (default: 0.01)",
    )
    given = parser.parse_args()
    # Imported late, so that --help is answered soon.
    from transformers import AutoTokenizer

    from hearth.base.entry import hush
    from hearth.data.shards.make import Order, make_shards

    hush()
    out = given.out.expanduser().absolute()
    try:
        try:
            tokenizer = AutoTokenizer.from_pretrained(given.tokenizer, trust_remote_code=False)
        except Exception as error:  # the Hub, tokenizers and Transformers raise their own
            raise DataError(
                f"--tokenizer: {given.tokenizer} cannot be loaded ({brief(error)}); give a Hub id "
                "(owner/name), or a folder with tokenizer.json"
            ) from error
        order = Order(
            tuple(given.corpus), out, given.name or out.name, given.shard_tokens, given.held_out
        )
        shards = make_shards(order, tokenizer, print)
    except HearthError as error:
        return print_findings(error)
    for name, tokens in shards.items():
        print(f"{given.out / name}: {tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
