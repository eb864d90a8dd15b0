"""Install a lock for 64-bit Arm in an emulated Debian and train there, beside this computer.

    python -m tests.bench.arm64 --lock gpu

downloads the lock's wheels for aarch64 as the stage python does, installs them by their hashes in
a chroot of Debian 12 for arm64, whose programs qemu-user runs, and trains two steps of a tiny
model there and here. --lock cpu needs PyTorch's own index. Needs root, mmdebstrap,
qemu-user-static 10 (as of Debian 13 or bookworm-backports; with 7.2 torch crashes), 15 GB below
/var/tmp, Debian's mirror and the package index; takes a quarter of an hour. This computer's own
list of binary formats stays as it is: the chroot has a namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.ranks import arguments_of, metrics, train_forked
from support.tiny_model import make_model

from hearth_controller.supply.locks import as_requirements, lock_in
from hearth_controller.supply.target import Target
from hearth_controller.supply.wheelhouse import Wheelhouse
from tests.bench.command import Bench
from tests.bench.lab import ROOT, CommandFailed
from tests.bench.paper import aim, measured

NODE = Target((3, 11), "aarch64", 36)
MIRROR, INDEX = "http://deb.debian.org/debian", "https://download.pytorch.org/whl/cpu"
LOSS_WITHIN = 1e-4
SETTINGS = {
    "dataset": "homelab-qa",
    "sequence_length": 512,
    "global_batch": 2,
    "micro_batch": 1,
    "split": "equal",
    "max_steps": 2,
    "precision": "fp32",
    "optimizer": "adamw",
    "backend": "transformers",
    "eval_held_out": False,
    "wandb": "off",
}
# The format of arm64's programs, as Debian's qemu-user-static registers it. F: the kernel opens the
# interpreter now, so that the chroot need not hold it.
_FORMAT = (
    r":arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:%s:F"
)
_INSIDE = """
read -r _
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$FORMAT" >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""


_CHROOT = """
for each in proc dev sys; do mount --rbind /$each "$0/$each"; done
exec chroot "$0" env -i LC_ALL=C.UTF-8 HOME=/root PATH=/usr/bin:/bin HF_HUB_OFFLINE=1 "$@"
"""


def emulated(*command: object) -> str:
    """Run a command in a namespace of its own, where arm64's programs start; return its output.

    Raises:
        CommandFailed: It ended with an error, or a program that it needs is missing.
    """
    for program in ("qemu-aarch64-static", "mmdebstrap"):
        if not shutil.which(program):
            raise CommandFailed(f"there is no {program}: install the Debian package that has it")
    environment = os.environ | {"FORMAT": _FORMAT % shutil.which("qemu-aarch64-static")}
    with subprocess.Popen(
        ["unshare", "--user", "--mount", "sh", "-ec", _INSIDE, "sh", *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        space = Path(f"/proc/{process.pid}/ns/user")
        while process.poll() is None and space.readlink() == Path("/proc/self/ns/user").readlink():
            time.sleep(0.01)
        for ids in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{ids}").write_text("0 0 65536\n")
        said, _ = process.communicate("\n")
    if process.returncode:
        raise CommandFailed(f"{command[0]} in the chroot: {said[-2000:]}")
    return said


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the seconds that installing and training took, and the losses there and here."""
    if os.geteuid() != 0:
        raise CommandFailed("it needs root")
    root, pins = folder / "arm64", lock_in(ROOT / "requirements", given.lock).values()
    wheels = Wheelhouse(given.cache).fetch(pins, NODE, INDEX, lambda *_: None)
    print(f"bench: {len(wheels)} wheels for aarch64", flush=True)
    (folder / "here").mkdir()
    model = make_model(folder / "model")
    done = train_forked(
        folder / "here",
        1,
        *arguments_of({"model": model, "run_name": "two-steps", **SETTINGS}),
        timeout=600,
    )
    if done.returncode:
        raise CommandFailed(f"training on this computer: {done.stderr[-2000:]}")
    packages = "python3,python3-venv,libgomp1,libstdc++6"
    emulated(
        *("mmdebstrap", "--mode=root", "--architectures=arm64", "--variant=minbase"),
        *("--skip=check/qemu", f"--include={packages}", "bookworm", root, MIRROR),
    )
    print("bench: Debian 12 for arm64", flush=True)
    (root / "wheels").mkdir()
    for wheel in wheels.values():
        shutil.copy(wheel.path, root / "wheels")
    (root / "locked.txt").write_text(as_requirements(pins))
    shutil.copytree(ROOT / "training", root / "training")
    shutil.copytree(model, root / "model")
    began = time.monotonic()
    inside = ("sh", "-ec", _CHROOT, root)
    emulated(*inside, "python3", "-m", "venv", "/env")
    pip = ("/env/bin/python", "-m", "pip", "--isolated", "install", "--no-compile", "--quiet")
    emulated(
        *(*inside, *pip, "--no-index", "--find-links", "/wheels"),
        *("--no-deps", "--require-hashes", "-r", "/locked.txt"),
    )
    installed = time.monotonic() - began
    shutil.rmtree(root / "wheels")
    print("bench: the lock is installed", flush=True)
    emulated(
        *(*inside, "/env/bin/python", "/training/train_distributed.py"),
        *arguments_of({"model": "/model", "run_name": "two-steps", **SETTINGS}),
    )
    trained = time.monotonic() - began - installed
    runs = {"arm64": root / "runs", "here": folder / "here/runs"}
    return {
        "lock": given.lock,
        "wheels": len(wheels),
        "mebibytes": sum(wheel.size for wheel in wheels.values()) >> 20,
        "python": emulated(*inside, "/env/bin/python", "--version").strip(),
        # The last line: before it torch complains of what qemu does not have.
        "torch": emulated(
            *inside, "/env/bin/python", "-c", "import torch; print(torch.__version__)"
        ).split()[-1],
        "install_seconds": round(installed),
        "train_seconds": round(trained),
        "losses": {
            name: [step["loss"] for step in metrics(run / "two-steps", "step")]
            for name, run in runs.items()
        },
    }


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of tests/bench/README.md."""
    there, here = (figures["losses"][name] for name in ("arm64", "here"))
    apart = max(abs(one / other - 1) for one, other in zip(there, here, strict=True))
    return "\n".join(
        [
            f"{measured(figures)} {figures['lock']}.lock, {figures['wheels']} wheels for aarch64 "
            f"({figures['mebibytes']} MiB), installed by their hashes with {figures['python']} in "
            f"{figures['install_seconds']} s; torch {figures['torch']} trained {len(there)} steps "
            f"on the emulated CPU in {figures['train_seconds']} s, imports included.",
            "",
            aim(
                f"The losses of x86-64 within {LOSS_WITHIN:g}", apart <= LOSS_WITHIN, f"{apart:.1e}"
            ),
        ]
    )


if __name__ == "__main__":
    bench = Bench("arm64", __doc__, table)
    bench.option("--lock", choices=["cpu", "gpu"], default="cpu", help="lock (default: cpu)")
    bench.option(
        "--cache",
        type=Path,
        default=Path("~/.cache/hearth/wheels").expanduser(),
        help="folder that keeps the wheels",
    )
    bench.run(measure)
