"""Facts of a node: its versions, its GPUs and the network card of its cluster address."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import runpy
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hearth.base import taken_address
from hearth.base.commands import output, run
from hearth.base.errors import LaunchError
from hearth.base.files import sha256_of
from hearth.base.interface import card, interface_of, kernel_text
from hearth.base.nvidia import gpus
from hearth.base.places import ADDED, LIBRARIES
from hearth.base.systemd import lockable_bytes
from hearth.base.systems import PROBE_HEADERS, missing_packages, nvcc_version
from hearth.supervisor.record import lock_holder

_PROBE = """
import json, torch
nccl = ".".join(map(str, torch.cuda.nccl.version()))
devices = torch.cuda.device_count()
print(json.dumps({"nccl": nccl, "arch": torch.cuda.get_arch_list(), "devices": devices}))
"""
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def facts_of_node(
    address: str, workspace: Path, peers: Sequence[str] = (), system: Path = Path("/sys")
) -> dict[str, Any]:
    """Return the facts of this node and all `findings`.

    Facts: `python`, `torch`, `cuda` and `nccl` versions (None: absent), those of the packages that
    the inventory `added`, CUDA of `nvcc`, `arch` that torch was built for, `devices` that torch can
    use, `gpus`, the number of NVIDIA `cards` on the bus, `interface`, its negotiated `nic_mbit`
    (None: unknown), whether it is `wireless` or does `rdma`, the bytes that a run may lock for that
    (`lockable`; None: any), the `network` around it with its `peers` (addresses), and `busy`, the
    run that occupies the node. `build_packages` would bring what Triton's kernels lack to be built.
    """
    findings: list[str] = []
    facts: dict[str, Any] = {"python": platform.python_version(), **_torch(findings)}
    facts["added"] = added_here()
    facts["nvcc"] = nvcc_version()
    facts["gpus"] = gpus()
    facts["lockable"] = lockable_bytes()
    facts["cards"] = nvidia_cards(system)
    facts["network"] = taken_address.network_view(peers)
    facts["build_packages"] = missing_packages(
        sys.version_info[:2], run(sys.executable, "-c", PROBE_HEADERS).returncode == 0
    )
    try:
        facts |= card(interface_of(address), system)
    except LaunchError as error:
        findings += error.findings
    holder = lock_holder(workspace)
    facts["busy"] = holder and holder["run"]
    return {"facts": facts, "findings": findings}


def _torch(findings: list[str]) -> dict[str, Any]:
    """Return torch's facts; a build without CUDA is not imported, since that takes seconds."""
    nothing = {"torch": None, "cuda": None, "nccl": None, "arch": [], "devices": 0}
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        findings.append(f"there is no torch for {sys.executable}: `hearth provision --tags python`")
        return nothing
    built = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    known = {**nothing, "torch": version("torch"), "cuda": built.get("cuda")}
    if known["cuda"] is None:
        return known
    said = output(sys.executable, "-c", _PROBE, seconds=120)
    try:
        return known | json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        findings.append("torch cannot be loaded: `hearth provision --tags python`")
        return known


def nvidia_cards(system: Path = Path("/sys")) -> int:
    """Count the NVIDIA display cards on the PCI bus, with or without a driver."""
    devices = (system / "bus/pci/devices").glob("*")
    return sum(
        kernel_text(device / "vendor") == _NVIDIA
        and kernel_text(device / "class").startswith(_DISPLAY)
        for device in devices
    )


def software_here() -> dict[str, str]:
    """Return the versions of the installed `LIBRARIES`, and of Hearth the checksum of its code."""
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name).split("+")[0]  # torch adds "+cpu"
    return found | {"Hearth": code_checksum()[:12]}


def added_here() -> dict[str, str]:
    """Return the versions of the packages that Hearth added to this environment on request."""
    path = Path(sys.prefix) / ADDED
    found = {}
    for name in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else ():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def code_checksum() -> str:
    """Return a checksum of the training code and the data sets that come with it."""
    folder = Path(__file__).resolve().parents[2]
    files = (path for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in sorted(path for path in files if "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(folder)} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
