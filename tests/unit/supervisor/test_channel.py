"""The socket between a supervisor and its ranks."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from support.rubbish import LITTLE, quick, rubbish, send, send_endlessly

from hearth.ranks.control_protocol import (
    SOCKET,
    Here,
    Interrupt,
    Leave,
    News,
    RankEnded,
    Waiting,
    connect_to_supervisor,
    decode,
    encode,
)
from hearth.supervisor.channel import Channel, Left, Said

NEW = Waiting("new", 0, 0, loaded=False)
HANG = 20


class Rank:
    """A rank's end of the socket."""

    @classmethod
    async def connect(cls, folder, local_rank: int | None = None) -> Rank:
        rank = cls()
        connection = connect_to_supervisor(folder)
        rank.reader, rank.writer = await asyncio.open_unix_connection(sock=connection)
        if local_rank is not None:
            rank.say(Here(local_rank, 1))
        return rank

    def say(self, message) -> None:
        self.writer.write(encode(message))

    async def order(self):
        """Return the next order, None at the end of the connection."""
        with suppress(ConnectionError):
            if line := await asyncio.wait_for(self.reader.readline(), HANG):
                return decode(line)
        return None


async def opened(folder) -> tuple[Channel, asyncio.Queue, list[str]]:
    events: asyncio.Queue = asyncio.Queue()
    log: list[str] = []
    channel = Channel(folder, 2, events, log.append)
    await channel.open()
    channel.expect(1)
    return channel, events, log


def play(scene) -> None:
    asyncio.run(asyncio.wait_for(scene, 60))


def test_ranks_are_heard_and_told_even_in_a_deep_folder(tmp_path):
    async def scene():
        deep = tmp_path / ("x" * 120)
        deep.mkdir()
        channel, events, log = await opened(deep)
        assert stat.S_IMODE((deep / SOCKET).stat().st_mode) == 0o600
        ranks = [await Rank.connect(deep, n) for n in range(2)]
        heard = [await events.get() for _ in range(2)]
        assert {(said.start, said.local_rank) for said in heard} == {(1, 0), (1, 1)}
        ranks[1].say(NEW)
        assert await events.get() == Said(1, 1, NEW)
        channel.tell(Interrupt(3, "laptop broke off"))
        for rank in ranks:
            assert await rank.order() == Interrupt(3, "laptop broke off")
        channel.close()
        assert not (deep / SOCKET).exists()
        assert [await rank.order() for rank in ranks] == [None, None]
        assert not log

    play(scene())


def test_nothing_is_heard_of_ranks_of_an_earlier_start(tmp_path):
    async def scene():
        channel, events, _ = await opened(tmp_path)
        old = await Rank.connect(tmp_path, 0)
        await events.get()
        channel.expect(2)
        old.say(RankEnded("finished", 3))
        assert await old.order() is None
        new = await Rank.connect(tmp_path, 0)
        assert await events.get() == Said(2, 0, Here(0, 1))
        channel.tell(Leave(save=False))
        assert await new.order() == Leave(save=False)
        assert events.empty()
        channel.close()

    play(scene())


def test_the_end_of_a_rank_is_heard_at_once(tmp_path):
    async def scene():
        channel, events, log = await opened(tmp_path)
        rank = await Rank.connect(tmp_path, 0)
        await events.get()
        rank.writer.transport.abort()
        assert await asyncio.wait_for(events.get(), HANG) == Left(1, 0)
        channel.close()
        assert not log

    play(scene())


def test_whoever_speaks_another_language_is_cut_off(tmp_path):
    async def scene():
        channel, events, log = await opened(tmp_path)
        for words in (b"GET / HTTP/1.1\r\n", encode(NEW), b"x" * 200_000 + b"\n"):
            stranger = await Rank.connect(tmp_path)
            stranger.writer.write(words)
            assert await stranger.order() is None
        assert len(log) == 3
        assert events.empty()
        channel.close()

    play(scene())


def test_whatever_a_rank_says_is_a_message_of_a_rank_or_ends_its_connection(tmp_path):
    async def scene():
        channel, events, _ = await opened(tmp_path)
        place = f"/proc/self/fd/{os.open(tmp_path, os.O_PATH)}/{SOCKET}"

        @quick
        @given(rubbish(Here, Waiting, RankEnded, Interrupt), st.sampled_from([-1, 0, 1, 2, 10**30]))
        def said(content: bytes, local_rank: int) -> None:
            send(place, encode(Here(local_rank, 1)) + content)

        await asyncio.to_thread(said)
        assert await asyncio.to_thread(send_endlessly, place) < LITTLE
        await asyncio.sleep(0.2)
        while not events.empty():
            event = events.get_nowait()
            assert event.local_rank in (0, 1)
            assert isinstance(event, Left) or isinstance(event.message, News)
        rank = await Rank.connect(tmp_path, 0)
        assert await asyncio.wait_for(events.get(), HANG) == Said(1, 0, Here(0, 1))
        rank.writer.close()
        channel.close()

    play(scene())
