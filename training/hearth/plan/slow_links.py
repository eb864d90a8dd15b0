"""Links that became slow: the messages on every screen and the record of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hearth.base.text import plain

SLOW_MBIT = 50.0
"""Mbit/s below which a link is slow, whatever it carried when the run began."""


@dataclass(frozen=True)
class LinkAdvice:
    """A way out, and the predicted tokens a second of the run with it; None if not predictable."""

    what: str
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class SlowLinks:
    """The links that hold up the exchange of a run.

    Attributes:
        part: of a step that the exchange takes.
        hops: sender and receiver of each; () if the carrier of the exchange shows none.
        mbit: speed of the slowest of them, in Mbit/s.
        began: its speed when the run began; None if that was not measured.
        advice: the fastest first.
    """

    part: float
    hops: tuple[tuple[str, str], ...]
    mbit: float
    began: float | None
    advice: tuple[LinkAdvice, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> SlowLinks | None:
        """Return the slow links in the record of a step, None without any."""
        if record is None:
            return None
        hops = tuple((plain(sender), plain(receiver)) for sender, receiver in record["hops"])
        advice = tuple(
            LinkAdvice(plain(each["what"]), each["tokens_per_second"]) for each in record["advice"]
        )
        return cls(record["part"], hops, record["mbit"], record["began"], advice)

    @property
    def record(self) -> dict[str, Any]:
        """These links as JSON."""
        return {
            "part": round(self.part, 3),
            "hops": self.hops,
            "mbit": round(self.mbit, 3),
            "began": self.began and round(self.began, 3),
            "advice": [asdict(each) for each in self.advice],
        }

    @property
    def text(self) -> str:
        """A sentence that names the links and their speed."""
        return f"the exchange takes {self.part:.0%} of a step; {self.links}"

    @property
    def brief(self) -> str:
        """The same for a narrow screen, with the links and their speed first."""
        names = f"link{'s' * (len(self.hops) > 1)} {', '.join(map(hop_text, self.hops))}"
        names = names if self.hops else "slowest link"
        return f"{names}: {self.carried}; exchange {self.part:.0%} of a step"

    @property
    def carried(self) -> str:
        """The speed of the slowest of the links, now and when the run began."""
        was = f", {mbit_text(self.began)} when the run began" if self.began else ""
        return f"{mbit_text(self.mbit)} Mbit/s{was}"

    @property
    def links(self) -> str:
        """The part of that sentence about the links."""
        if not self.hops:
            return (
                f"its slowest link carries {self.carried} (`hearth provision --tags verify` "
                "measures each)"
            )
        names = " and ".join(map(hop_text, self.hops))
        return f"the link{'s' * (len(self.hops) > 1)} {names} " + (
            f"carries {self.carried}" if len(self.hops) == 1 else f"carry {self.carried}"
        )

    @property
    def advised(self) -> str:
        """A sentence with the advice, '' without any."""
        if not self.advice:
            return ""
        return "predicted: " + "; ".join(
            each.what + (f": {speed:,.0f} tokens/s" if (speed := each.tokens_per_second) else "")
            for each in self.advice
        )


def hop_text(hop: Sequence[str]) -> str:
    """Return the name of a hop, from its sender to its receiver."""
    return " → ".join(hop)


def mbit_text(mbit: float) -> str:
    """Return a speed with two digits where they matter."""
    return f"{mbit:.0f}" if mbit >= 9.95 else f"{mbit:.1f}" if mbit >= 0.95 else f"{mbit:.2f}"
