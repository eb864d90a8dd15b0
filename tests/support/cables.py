"""A switch with a cable to each of several nodes on this computer, which can be cut: needs root.

Each node has a network namespace of its own, and so has the switch, so that nothing of this
computer's network changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress

import pytest

_SECONDS = 20
"""Bound of one call of `ip`, which takes a few milliseconds."""


def need_cables() -> None:
    """Skip the test where there can be no cables; in CI it fails instead."""
    reason = ""
    if os.geteuid() != 0:
        reason = "network namespaces need root"
    elif not shutil.which("ip"):
        reason = "iproute2 is missing; ./scripts/test as root installs it"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: in CI this must run")
    elif reason:
        pytest.skip(f"CABLES ARE NOT TESTED: {reason}")


class Cables:
    """Cables of `nodes` to one switch. `close` removes all of it."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = list(nodes)
        self._name = f"h{os.getpid()}"
        try:
            self._lay()
        except BaseException:
            self.close()
            raise

    def _lay(self) -> None:
        _ip("netns", "add", self._switch)
        self._in_switch("link", "add", "together", "type", "bridge")
        self._in_switch("link", "set", "together", "up")
        for number, node in enumerate(self._nodes, 1):
            _ip("netns", "add", self._space(node))
            port = (self._port(node), "netns", self._switch)
            card = ("eth0", "netns", self._space(node))
            _ip("link", "add", *port, "type", "veth", "peer", "name", *card)
            self._in_switch("link", "set", self._port(node), "master", "together", "up")
            for words in (
                ("link", "set", "lo", "up"),
                ("address", "add", f"10.99.0.{number}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
            ):
                _ip("-netns", self._space(node), *words)

    @property
    def addresses(self) -> list[str]:
        """The cluster addresses of the nodes, in their order."""
        return [f"10.99.0.{number}" for number in range(1, len(self._nodes) + 1)]

    def words(self, node: str) -> list[str]:
        """Return the words that begin a command on a node."""
        return ["ip", "netns", "exec", self._space(node)]

    def cut(self, node: str) -> None:
        """Cut the cable of a node: both of its ends lose their signal."""
        self._in_switch("link", "set", self._port(node), "down")

    def join(self, node: str) -> None:
        """Mend the cable of a node; no harm if it is whole."""
        self._in_switch("link", "set", self._port(node), "up")

    def close(self) -> None:
        """Remove the namespaces, and their content."""
        for name in (*map(self._space, self._nodes), self._switch):
            with suppress(subprocess.CalledProcessError):  # it was not made
                _ip("netns", "delete", name)

    @property
    def _switch(self) -> str:
        return f"{self._name}-switch"

    def _space(self, node: str) -> str:
        return f"{self._name}-{node}"

    def _port(self, node: str) -> str:
        return f"port{self._nodes.index(node)}"

    def _in_switch(self, *words: str) -> None:
        _ip("-netns", self._switch, *words)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_SECONDS)
