"""Nodes as the verification of a cluster sees them."""

from __future__ import annotations

from typing import Any

CARD = {
    "name": "NVIDIA GeForce RTX 5070 Ti",
    "memory_mib": 16303,
    "driver": "580.126.09",
    "capability": "12.0",
}


def facts(**changes: Any) -> dict[str, Any]:
    """Return the facts of a node with a card and a cable, without a fault."""
    return {
        "python": "3.11.9",
        "torch": "2.13.0",
        "cuda": "13.0",
        "nccl": "2.28.3",
        "arch": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
        "devices": 1,
        "gpus": [CARD],
        "cards": 1,
        "interface": "enp5s0",
        "nic_mbit": 1000,
        "wireless": False,
        "busy": None,
        "build_packages": [],
        "lockable": None,
        "rdma": False,
        **changes,
    }


def talk(*others: str, mbit: float = 940.0) -> dict[str, Any]:
    """Return the measurements of a node with these others."""
    return {
        "milliseconds": dict.fromkeys(others, 0.2),
        "mbit": dict.fromkeys(others, mbit),
        "failed": {},
    }
