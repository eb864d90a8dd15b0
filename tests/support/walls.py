"""A firewall on one node of several on loopback: packets to its listening sockets are dropped.

Like a firewall that comes up in the middle of a run it leaves connections alone that were made
before, and those of the supervisors' mesh. The kernel drops the packets: a connection times out.
"""

from __future__ import annotations

from pathlib import Path

from support.supervisors import TRAINING, Nodes

_HOOK = """
import os, threading, time
from hearth.base import packet_filter

real, wall = packet_filter.listening, os.environ["WALL"]


def listening(address, port, allowed):
    listener = real(address, port, allowed)
    if not 20000 <= port < 32000:  # a port of the mesh (support.supervisors.free_port)
        threading.Thread(target=watch, args=(listener, address, allowed), daemon=True).start()
        time.sleep(0.01)  # it is up before anybody hears of the port
    return listener


def watch(listener, address, allowed):
    there = False
    while listener.fileno() >= 0:
        if os.path.exists(f"{wall}-{address}") != there:
            there = not there
            packet_filter.admit_only(listener, () if there else allowed)
        time.sleep(0.005 if there else 0.02)


packet_filter.listening = listening
"""


class Walls:
    """Firewalls of the nodes of a run that has not started yet."""

    def __init__(self, folder: Path, run: Nodes) -> None:
        self._file = folder / "wall"
        hooks = folder / "hooks"
        hooks.mkdir()
        (hooks / "sitecustomize.py").write_text(_HOOK)
        found = {"PYTHONPATH": f"{hooks}:{TRAINING}", "WALL": str(self._file)}
        run.variables |= found
        for node in run.names:
            run.change(node, environment={"OMP_NUM_THREADS": "1", **found})
        self._addresses = dict(zip(run.names, (f"127.0.0.{n}" for n in range(1, 9)), strict=False))

    def raise_on(self, node: str) -> None:
        """Let a firewall come up on a node."""
        self._of(node).touch()

    def take_down(self, node: str) -> None:
        """Switch the firewall of a node off."""
        self._of(node).unlink()

    def _of(self, node: str) -> Path:
        return Path(f"{self._file}-{self._addresses[node]}")
