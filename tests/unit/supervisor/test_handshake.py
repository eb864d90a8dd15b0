"""Two supervisors prove to each other that they know the token of the run."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.supervisor.messages import (
    Hello,
    ProtocolError,
    challenge,
    hello_proof,
    present,
    refuse,
    same,
    welcome,
    welcome_proof,
)

HELLO = Hello("laptop", "10.0.0.2", "nonce")


# HMAC pads a key with zero bytes; the tokens of runs have none.
TOKENS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(TOKENS, TOKENS)
def test_only_the_token_proves_membership(token, other):
    proof = hello_proof(token, HELLO, "challenge")
    assert same(proof, hello_proof(other, HELLO, "challenge")) == (token == other)


@pytest.mark.parametrize("change", [{"node": "desk"}, {"source": "10.0.0.9"}, {"nonce": "old"}])
def test_a_proof_fits_one_hello_and_one_challenge(change):
    proof = hello_proof("token", HELLO, "challenge")
    assert not same(proof, hello_proof("token", dataclasses.replace(HELLO, **change), "challenge"))
    assert not same(proof, hello_proof("token", HELLO, "another"))
    assert not same(proof, welcome_proof("token", HELLO, "127.0.0.1"))
    assert "token" not in proof


async def meet(caller: str, answerer: str, refusal: str = ""):
    """Have a caller and an answerer meet who know these tokens; return what became of each."""
    done = asyncio.get_running_loop().create_future()

    async def answer(reader, writer):
        try:
            hello = await challenge(reader, writer, answerer, "first")
            if refusal:
                await refuse(writer, refusal)
            welcome(writer, answerer, hello, "127.0.0.2")
            done.set_result(hello.node)
        except Exception as error:
            done.set_result(error)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            said = await present(reader, writer, caller, "laptop", "127.0.0.1")
        except Exception as error:
            said = error
        writer.close()
        return said, await done


def test_who_knows_the_token_is_welcome():
    assert asyncio.run(meet("token", "token")) == ("127.0.0.2", "laptop")


def test_who_does_not_is_told_so():
    said, heard = asyncio.run(meet("another", "token"))
    assert isinstance(said, ProtocolError)
    assert str(said) == str(heard) == "the token is not that of run 'first'"


def test_a_refusal_is_for_good():
    said, heard = asyncio.run(meet("token", "token", "it ended"))
    assert type(said) is ProtocolError
    assert str(heard) == "it ended"
