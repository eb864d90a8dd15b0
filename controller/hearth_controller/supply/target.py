"""The platform of a node, as wheel tags and pip options."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags

PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
PROCESSORS = ("x86_64", "aarch64")
"""Pythons and processors whose builds of torch have a hash in `cpu.lock`."""

_OLDEST_GLIBC = 5
# Platform names from before PEP 600, by minor version of glibc 2.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Target:
    """A Linux machine and its Python.

    Attributes:
        python: Major and minor version.
        machine: Processor, such as `x86_64`.
        glibc: Minor version of glibc 2.
    """

    python: tuple[int, int]
    machine: str
    glibc: int

    @property
    def interpreter(self) -> str:
        """CPython's tag, such as `cp311`."""
        return "cp{}{}".format(*self.python)

    @property
    def platforms(self) -> list[str]:
        """Supported platform tags, best first."""
        names = []
        for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1):
            names.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _OLD_NAMES:
                names.append(f"{_OLD_NAMES[minor]}_{self.machine}")
        return [*names, f"linux_{self.machine}"]

    @property
    def tags(self) -> frozenset[Tag]:
        """All supported wheel tags."""
        abis = [self.interpreter]
        return frozenset(
            [
                *cpython_tags(self.python, abis, self.platforms),
                *compatible_tags(self.python, self.interpreter, self.platforms),
            ]
        )

    @property
    def pip_options(self) -> list[str]:
        """Options that make `pip download` fetch for this machine instead of the controller."""
        options = ["--python-version", "{}.{}".format(*self.python), "--implementation", "cp"]
        for abi in (self.interpreter, "abi3", "none"):
            options += ["--abi", abi]
        for platform in self.platforms:
            options += ["--platform", platform]
        return options
