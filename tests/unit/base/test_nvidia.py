"""NVIDIA's GPUs as people call them, and those that a build of torch runs on."""

from __future__ import annotations

import pytest
from support.nodes import CARD

from hearth.base.nvidia import short_gpu, supports
from hearth.base.text import card_memory, link_speed


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        (["sm_75", "sm_80", "sm_86"], "8.9", True),  # later minor, same major
        (["sm_90"], "8.9", False),
        (["sm_80"], "9.0", False),
        (["sm_80", "compute_80"], "12.0", True),  # PTX
        (["sm_90a"], "9.0", True),
        (["sm_100a"], "10.3", False),  # its own version only
        (["sm_100f"], "10.3", True),
        (["compute_90"], "8.9", False),
        ([], "8.9", False),
        (["sm_75", "sm_80"], "6.1", False),
        (["sm_100", "sm_120"], "12.0", True),
        (["sm_100", "sm_120"], "12.1", True),  # a DGX Spark
    ],
)
def test_what_a_torch_supports(arch, capability, runs):
    assert supports(arch, capability) is runs


def test_gpus_are_called_as_people_call_them():
    assert short_gpu([CARD, CARD]) == "2× RTX 5070 Ti"
    assert short_gpu([{"name": "NVIDIA GeForce RTX 4070 Laptop GPU"}]) == "RTX 4070 Laptop"
    assert short_gpu([]) == ""
    assert (card_memory(16303), card_memory(8188)) == ("16 GB", "8 GB")
    assert (link_speed(94.1), link_speed(2350.0), link_speed(None)) == (
        "94 Mbit/s",
        "2.4 Gbit/s",
        "–",
    )
