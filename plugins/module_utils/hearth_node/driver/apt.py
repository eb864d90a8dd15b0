"""Ask apt and dpkg about packages, simulate installations, and install."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ansible.module_utils.hearth.base.commands import output, run

_SECONDS = 120
_OPTIONS = (
    "--yes",
    *("-o", "DPkg::Lock::Timeout=300"),
    *("-o", "Dpkg::Options::=--force-confdef"),
    *("-o", "Dpkg::Options::=--force-confold"),
)
_NEED = re.compile(r" (?:(\S+) :)? *(\S+: \S.*)")
_STEP = re.compile(r"^(Inst|Remv) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Simulation:
    """The outcome of a simulated `apt-get install`: the names it brings and removes, or its error.

    `brings` are the packages that are new or get another version.
    """

    brings: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    error: str = ""


class Apt:
    """The packages of this machine, or of the system that `options` and `database` point to.

    `options` are those of apt's programs, `database` is dpkg's folder.
    """

    def __init__(self, options: Sequence[str] = (), database: str = "/var/lib/dpkg") -> None:
        self._options, self._database = tuple(options), database
        self.depends = lru_cache(maxsize=None)(self._depends)
        self.simulate = lru_cache(maxsize=None)(self._simulate)

    @cached_property
    def _states(self) -> list[tuple[str, str, str]]:
        """The state, name and version of each package that dpkg knows."""
        form = "${db:Status-Abbrev} ${Package} ${Version}\\n"
        text = output(
            "dpkg-query", f"--admindir={self._database}", "--show", f"--showformat={form}"
        )
        lines = (line.split() for line in text.splitlines())
        return [(words[0], words[1], words[2]) for words in lines if len(words) == 3]

    @cached_property
    def installed(self) -> dict[str, str]:
        """The versions of the installed packages by name."""
        return {name: version for state, name, version in self._states if state in ("ii", "hi")}

    @cached_property
    def held(self) -> frozenset[str]:
        """The installed packages that `apt-mark hold` keeps at their version."""
        return frozenset(name for state, name, _ in self._states if state == "hi")

    def _depends(self, name: str) -> tuple[str, ...] | None:
        """Return the packages that the newest version of a package needs; None if there is none.

        Of alternatives the first counts.
        """
        text = output("apt-cache", *self._options, "show", "--no-all-versions", name)
        if not re.search(rf"^Package: {re.escape(name)}$", text, re.MULTILINE):
            return None
        needed = re.search(r"^Depends: (.*)$", text, re.MULTILINE)
        return tuple(each.split()[0] for each in needed[1].split(",")) if needed else ()

    def has(self, name: str) -> bool:
        """Return whether a package of this name is installed or can be."""
        return self.depends(name) is not None

    def _simulate(self, names: tuple[str, ...]) -> Simulation:
        """Simulate the installation of packages in one call."""
        command = ("apt-get", *self._options, "--simulate", "--yes", "install", *names)
        done = run(*command, seconds=_SECONDS)
        if done.returncode != 0:
            return Simulation(error=reason(done.stdout, done.stderr))
        steps = _STEP.findall(done.stdout)
        brings = frozenset(name for verb, name in steps if verb == "Inst")
        # A package that apt takes away for a moment and installs again stays.
        removes = frozenset(name for verb, name in steps if verb == "Remv") - brings
        return Simulation(brings, removes)

    def after(self, simulation: Simulation) -> frozenset[str]:
        """Return the names of all packages that are installed after a simulated installation."""
        return frozenset(self.installed) - simulation.removes | simulation.brings


def reason(output: str, errors: str) -> str:
    """Return apt's reason for a failure in one line: its explanation, the unmet needs or its error.

    Of the unmet needs the first three count: the others mostly follow from them.
    """
    said = re.findall(r"^E: (.+(?:\n {2,}.+)*)", errors, re.MULTILINE)
    explained = [each for each in said if "\n" in each]
    needs, package = [], ""
    for line in output.partition("unmet dependencies:\n")[2].splitlines():
        if found := _NEED.fullmatch(line):
            package = found[1] or package
            needs.append(f"{package}: {found[2]}")
    chosen = explained or needs[:3] or said or ["apt-get gave no reason"]
    return "; ".join(" ".join(each.split()) for each in chosen)


def install(words: Sequence[str]) -> str:
    """Install and remove packages in one call; return its end if it fails, else ''."""
    command = ("apt-get", *_OPTIONS, "install", *words)
    done = run(*command, seconds=None, DEBIAN_FRONTEND="noninteractive")
    if done.returncode == 0:
        return ""
    last = (done.stdout + done.stderr).strip().splitlines()[-12:]
    return "\n".join([f"apt-get install {' '.join(words)}:", *last])
