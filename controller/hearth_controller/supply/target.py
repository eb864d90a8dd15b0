"""The platform of a node, in the words in which wheels and pip speak of it."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags

ONE_BUILD = ((3, 11), "x86_64")
"""Python and processor of the one build of torch that `cpu.lock` has a hash for."""

_OLDEST_GLIBC = 5
# Names that wheels had before PEP 600, by the glibc 2.x that they stand for.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Target:
    """A Linux machine and its Python.

    Attributes:
        python: version, major and minor.
        machine: processor, such as `x86_64`.
        glibc: minor version of glibc 2.
    """

    python: tuple[int, int]
    machine: str
    glibc: int

    @property
    def interpreter(self) -> str:
        """CPython as tags name it, such as `cp311`."""
        return "cp{}{}".format(*self.python)

    @property
    def platforms(self) -> list[str]:
        """Platform tags that run here, the best first."""
        names = []
        for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1):
            names.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _OLD_NAMES:
                names.append(f"{_OLD_NAMES[minor]}_{self.machine}")
        return [*names, f"linux_{self.machine}"]

    @property
    def tags(self) -> frozenset[Tag]:
        """All tags of wheels that run here."""
        abis = [self.interpreter]
        return frozenset(
            [
                *cpython_tags(self.python, abis, self.platforms),
                *compatible_tags(self.python, self.interpreter, self.platforms),
            ]
        )

    @property
    def pip_options(self) -> list[str]:
        """Options with which `pip download` fetches for this machine instead of its own."""
        words = ["--python-version", "{}.{}".format(*self.python), "--implementation", "cp"]
        for abi in (self.interpreter, "abi3", "none"):
            words += ["--abi", abi]
        for platform in self.platforms:
            words += ["--platform", platform]
        return words
