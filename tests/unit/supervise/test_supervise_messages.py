"""The lines that supervisors exchange, and the proof that they belong together."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearth.supervise.messages import (
    Hello,
    Message,
    ProtocolError,
    decode,
    encode,
    hello_proof,
    same,
    welcome_proof,
)

HELLO = Hello("laptop", "10.0.0.2", "nonce")


@given(st.from_type(Message))
def test_every_message_is_one_line_and_reads_back(message):
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1
    assert decode(line) == message


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda x: str(x).encode()))
@example(b"[" * 60_000)
@example(b"{}")
@example(b'{"type": "Nonsense"}')
@example(b'{"type": ["Go"]}')
@example(b'{"type": "Go"}')
@example(b'{"type": "Go", "port": 1, "more": 2}')
@example(b'{"type": "LaunchOutcome", "state": "failed", "cause": {"node": "desk"}}')
def test_anything_else_is_a_protocol_error(line):
    with pytest.raises(ProtocolError):
        decode(line)


@given(st.text(), st.text())
def test_only_the_token_proves_membership(token, other):
    proof = hello_proof(token, HELLO, "challenge")
    assert same(proof, hello_proof(other, HELLO, "challenge")) == (token == other)


@pytest.mark.parametrize("change", [{"node": "desk"}, {"source": "10.0.0.9"}, {"nonce": "old"}])
def test_a_proof_fits_one_hello_and_one_challenge(change):
    proof = hello_proof("token", HELLO, "challenge")
    assert not same(proof, hello_proof("token", dataclasses.replace(HELLO, **change), "challenge"))
    assert not same(proof, hello_proof("token", HELLO, "another"))
    assert not same(proof, welcome_proof("token", HELLO))
    assert "token" not in proof
