"""The lines that supervisors exchange."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearth.supervisor.messages import ProtocolError, decode


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda x: str(x).encode()))
@example(b"[" * 60_000)
@example(b"{}")
@example(b'{"type": "Nonsense"}')
@example(b'{"type": "Hello", "node": "a", "source": "", "nonce": "", "proof": "\\ud800"}')
@example(b'{"type": "NotAdmitted", "reason": "\\uDFFF"}')
@example(b'{"type": ["Challenge"]}')
@example(b'{"type": "Challenge"}')
@example(b'{"type": "Challenge", "nonce": "1", "more": 2}')
def test_anything_else_is_a_protocol_error(line):
    with pytest.raises(ProtocolError):
        decode(line)
