"""Choose the packages of one apt call that bring the driver and leave a kernel that boots with it.

On Ubuntu the modules of a kernel are packages of their own. They need the driver of the very
version they were built with, and they bring their kernel without `linux-modules-extra-…`, which
holds most network drivers. So the kernel's own packages belong in the same call, and apt
simulates the call before anything is changed.

`linux-image-generic-hwe-24.04` follows the flavour generic-hwe-24.04, whose kernels are packages
such as `linux-image-6.14.0-37-generic`. `linux-generic-hwe-24.04` brings the headers, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from ansible.module_utils.hearth.base.nvidia import THEN_AGAIN
from ansible.module_utils.hearth_node.driver.apt import Apt, Simulation
from ansible.module_utils.hearth_node.driver.inspect import release_key

_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(.+)")
_RELEASE = re.compile(r"\d+\.\d+\.\d+-\d+-.+")
# Packages that lead from one flavour to another: images, and images with their headers.
_LEADS_ON = re.compile(r"linux-(image-)?(?!headers-|modules-|main-modules-|tools-|firmware)\D.*")


def _images(packages: Iterable[str]) -> set[str]:
    """Return the flavours and releases of the image packages among `packages`."""
    return {found[1] for found in map(_IMAGE.fullmatch, packages) if found}


def releases(packages: Iterable[str]) -> list[str]:
    """Return the releases of the kernels in `packages`, such as 6.8.0-60-generic, oldest first."""
    return sorted(filter(_RELEASE.fullmatch, _images(packages)), key=release_key)


def flavours(packages: Iterable[str]) -> list[str]:
    """Return the flavours that the image packages among `packages` follow."""
    return sorted(name for name in _images(packages) if not name[:1].isdigit())


def unfollowed(packages: Iterable[str]) -> list[str]:
    """Return the releases in `packages` whose flavour none of them follows, oldest first."""
    names = list(packages)
    followed = {booted(flavour).split("-")[0] for flavour in flavours(names)}
    return [each for each in releases(names) if each.split("-", 2)[2].split("-")[0] not in followed]


def booted(flavour: str) -> str:
    """Return the flavour whose kernels this one boots: the virtual ones boot those of generic."""
    return re.sub(r"^virtual\b", "generic", flavour)


def family(flavour: str) -> tuple[str, str, str]:
    """Return the packages that follow a flavour: image and headers, the image, the headers."""
    return f"linux-{flavour}", f"linux-image-{flavour}", f"linux-headers-{flavour}"


def successor(
    flavour: str,
    installed: Collection[str],
    depends: Callable[[str], tuple[str, ...] | None],
) -> str:
    """Return the flavour that the packages of `flavour` lead to in the archive, usually itself.

    `depends` returns the dependencies of a package there. Left-over flavours lead to another one
    through transitional packages; `linux-lowlatency-hwe-24.04` does where its image does not.
    """
    whole, image, _ = family(flavour)
    for start in (whole, image):
        if start in installed and (goal := leads_to(start, depends)):
            return goal
    return flavour


def leads_to(name: str, depends: Callable[[str], tuple[str, ...] | None]) -> str:
    """Return the flavour at the end of a package's dependencies, or '' if there is none."""
    passed: set[str] = set()
    while name and name not in passed:
        passed.add(name)
        needed = depends(name) or ()
        if releases(needed):
            return name.removeprefix("linux-image-")
        onward = [each for each in needed if _LEADS_ON.fullmatch(each)]
        images = [each for each in onward if each.startswith("linux-image-")]
        name = next(iter(images or onward), "")
    return ""


MODULES = "linux-modules-nvidia-"

# Packages that bring a module or come with it, by its kind.
_OF_A_KIND = re.compile(
    r"(?:nvidia-(?:driver|dkms|kernel-source|headless|headless-no-dkms)"
    r"|linux-(?:modules|objects)-nvidia)-(\d+(?:-server)?(?:-open)?)(?:-.+)?"
)
# The driver's own packages, of any branch and distribution: the only ones that may go.
_DRIVER = re.compile(
    r"(?!linux-firmware).*nvidia.*|cuda-drivers.*|libcuda1(:.*)?|libcuda(debugger)?1|libnvcuvid1|libnvoptix1"
    r"|libxnvctrl.*|glx-(alternative|diversions).*|update-glx"
)


@dataclass(frozen=True)
class Wish:
    """The driver that a machine shall get.

    `packages` are its own. `kind` names Canonical's module packages, such as 580-open; it is ''
    where DKMS builds the modules. `extra` is installed only where apt can.
    """

    packages: tuple[str, ...]
    kind: str = ""
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """The facts of a machine that a choice depends on besides its packages.

    `running` and `newest` are the kernels that runs and that is the newest in /boot, `version` is
    that of os-release. `loads_built`: it loads modules that were built on it.
    """

    running: str
    newest: str
    version: str
    loads_built: bool = True


@dataclass
class PackageChoice:
    """The packages that one call of apt installs and removes, or the findings against it.

    `changes`: they are not all installed yet, or not removed.
    """

    packages: list[str] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    changes: bool = False
    notes: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """The packages as `apt-get install` takes them."""
        return [*self.packages, *(f"{name}-" for name in self.removes)]


@dataclass(frozen=True)
class _KernelPart:
    """The packages that a flavour of kernels or a single kernel needs for the driver."""

    name: str
    packages: tuple[str, ...]

    def __str__(self) -> str:
        return f"kernel {self.name}"


@dataclass(frozen=True)
class _AptCall:
    """A call of apt, its simulation, and the reason against it ('' for none)."""

    packages: tuple[str, ...]
    removes: tuple[str, ...]
    does: Simulation
    trouble: str


def choose(apt: Apt, wish: Wish, system: System) -> PackageChoice:
    """Return the call of apt that brings the driver to as many of the kernels as possible."""
    wish, notes = _in_this_archive(apt, wish)
    parts, about = _parts(apt, wish) if wish.kind else ([], [])
    notes += about
    refused = ""
    for taken in _attempts(apt, wish, system, parts):
        call = _call(apt, wish, system, taken)
        if call.trouble:
            refused = refused or call.trouble
            continue
        call = _with_extra(apt, wish, system, call)
        left_out = [part for part in parts if part not in taken]
        notes += [
            f"{part} is left out: {_call(apt, wish, system, [part]).trouble}" for part in left_out
        ]
        notes += [
            f"{part} comes beside the kernels that are there, and a restart takes it"
            for part in taken
            if part not in parts
        ]
        changes = bool(call.does.brings or call.does.removes)
        return PackageChoice(list(call.packages), list(call.removes), changes, notes)
    return replace(refusal("; ".join(filter(None, [refused, *about]))), notes=notes)


def refusal(trouble: str) -> PackageChoice:
    """Return the choice to install nothing, with the finding on it."""
    hint = ""
    if "Unable to locate" in trouble or "no modules of driver" in trouble:
        hint = (
            ". This machine's repositories have: apt-cache search --names-only "
            f"'^({MODULES}|nvidia-driver-)'. For another branch set driver_branch, {THEN_AGAIN}"
        )
    return PackageChoice(findings=[f"{trouble}{hint}"])


def _in_this_archive(apt: Apt, wish: Wish) -> tuple[Wish, list[str]]:
    """Return the wish with the branch that follows its own in Ubuntu's archive, and a note on it.

    The packages of an ended branch lead to those of the next one.
    """
    branch = first = wish.kind.partition("-")[0]
    while following := [
        found[1]
        for name in apt.depends(f"nvidia-kernel-common-{branch}") or ()
        if (found := re.fullmatch(r"nvidia-kernel-common-(\d+)", name))
    ]:
        branch = following[0]
    if branch == first:
        return wish, []
    packages = tuple(re.sub(rf"-{first}\b", f"-{branch}", name) for name in wish.packages)
    kind = wish.kind.replace(first, branch, 1)
    note = f"driver branch {first} has ended, and {branch} follows it in the archive"
    return replace(wish, packages=packages, kind=kind), [note]


def _parts(apt: Apt, wish: Wish) -> tuple[list[_KernelPart], list[str]]:
    """Return the part of each installed flavour and single kernel, and notes on the others."""
    parts: dict[str, tuple[str, ...]] = {}
    notes = []
    single = unfollowed(apt.installed)
    for flavour in flavours(apt.installed):
        if held := _held(apt, flavour):
            notes.append(f"{', '.join(held)} is held back (sudo apt-mark unhold {' '.join(held)})")
            own = booted(flavour).split("-")[0]
            single += [each for each in releases(apt.installed) if f"-{own}" in each][-1:]
            continue
        goal = successor(flavour, apt.installed, apt.depends)
        if goal != flavour:
            notes.append(
                f"kernel flavour {flavour} has ended, and {goal} follows it in the archive"
            )
        packages = _followed(apt, wish, flavour, goal)
        parts[goal] = tuple(dict.fromkeys([*parts.get(goal, ()), *packages]))
    parts |= {each: (f"{MODULES}{wish.kind}-{each}",) for each in single}
    lacking = [name for name, packages in parts.items() if not apt.has(packages[0])]
    notes += [
        f"kernel {name} is left out: the archive has no modules of driver {wish.kind} for it"
        for name in lacking
    ]
    kept = [_KernelPart(name, packages) for name, packages in parts.items() if name not in lacking]
    return kept, notes


def _held(apt: Apt, *names: str) -> list[str]:
    """Return the packages of these flavours, or of all installed ones, that are held back."""
    followed = {name for each in names or flavours(apt.installed) for name in family(each)}
    return sorted(apt.held & followed)


def _followed(apt: Apt, wish: Wish, flavour: str, goal: str) -> list[str]:
    """Return the driver's and the kernel's packages for a flavour that `goal` follows."""
    whole, image, headers = family(flavour)
    own = [
        *(name for name in (whole, image) if leads_to(name, apt.depends) == goal),
        # Of an ended flavour some packages may be left without a successor.
        *([headers] if goal == flavour or family(goal)[2] in (apt.depends(headers) or ()) else []),
    ]
    return [f"{MODULES}{wish.kind}-{booted(goal)}", *(n for n in own if n in apt.installed)]


def _attempts(
    apt: Apt, wish: Wish, system: System, parts: Sequence[_KernelPart]
) -> Iterator[tuple[_KernelPart, ...]]:
    """Yield the parts to try together: all, then ever fewer, then with the release's own flavour.

    Without module packages there is one attempt without parts. Where the owner holds kernels back,
    no other one is brought.
    """
    if not wish.kind:
        yield ()
        return
    subsets = [taken for count in range(len(parts), 0, -1) for taken in combinations(parts, count)]
    yield from subsets
    if _held(apt):
        return
    for flavour in (f"generic-hwe-{system.version}", "generic"):
        modules, (_, image, headers) = f"{MODULES}{wish.kind}-{flavour}", family(flavour)
        if flavour not in {part.name for part in parts} and apt.has(modules):
            with_headers = any(name.startswith("linux-headers-") for name in apt.installed)
            beside = _KernelPart(flavour, (modules, image, *([headers] if with_headers else [])))
            yield from ((*taken, beside) for taken in [*subsets, ()])


def _call(apt: Apt, wish: Wish, system: System, taken: Sequence[_KernelPart]) -> _AptCall:
    """Return the call that installs these parts with the driver."""
    names = [name for part in taken for name in part.packages]
    packages = tuple(dict.fromkeys([*names, *wish.packages]))
    call = _simulated(apt, wish, system, packages)
    if not wish.kind or call.does.error or _is_virtual(apt):
        return call
    # A single kernel has no package that brings the rest of its modules along.
    rest = [f"linux-modules-extra-{each}" for each in releases(call.does.brings)]
    lacking = [name for name in rest if name not in apt.after(call.does) and apt.has(name)]
    return _simulated(apt, wish, system, (*packages, *lacking)) if lacking else call


def _simulated(apt: Apt, wish: Wish, system: System, packages: tuple[str, ...]) -> _AptCall:
    """Return the call that installs these packages, with its simulation."""
    removes = tuple(_in_the_way(apt, wish, system))
    does = apt.simulate((*packages, *(f"{name}-" for name in removes)))
    return _AptCall(packages, removes, does, _trouble(apt, wish, system, does))


def _in_the_way(apt: Apt, wish: Wish, system: System) -> list[str]:
    """Return the installed packages that bring a module of another kind, or one kept from loading.

    apt does not remove them of its own accord, and the kernel may prefer those modules.
    """
    if not wish.kind:
        return []
    kinds = {name: found[1] for name in apt.installed if (found := _OF_A_KIND.fullmatch(name))}
    others = {name for name, kind in kinds.items() if kind != wish.kind}
    builder = f"nvidia-dkms-{wish.kind}"
    if not system.loads_built and apt.has(builder):
        others.add(builder)
    return sorted(others)


def _is_virtual(apt: Apt) -> bool:
    """Return whether all kernels follow flavours of virtual machines, which do without the rest."""
    names = flavours(apt.installed)
    return bool(names) and all(name.startswith("virtual") for name in names)


def _trouble(apt: Apt, wish: Wish, system: System, does: Simulation) -> str:
    """Return the reason against a call, or ''."""
    if does.error:
        return f"apt cannot install the driver ({does.error})"
    if others := sorted(name for name in does.removes if not _DRIVER.fullmatch(name)):
        return f"apt would remove {', '.join(others)} for the driver"
    if not wish.kind:
        return ""
    after = apt.after(does)
    kernel = max([*releases(after), system.newest], key=release_key)
    built = {f"nvidia-dkms-{wish.kind}", f"linux-headers-{kernel}"} <= after
    if not kernel or built or f"{MODULES}{wish.kind}-{kernel}" in after:
        return ""
    return (
        f"kernel {kernel}, which a restart takes, has no modules of driver {wish.kind} in the "
        "archive: remove it, or install one of Ubuntu's generic flavour that is newer"
    )


def _with_extra(apt: Apt, wish: Wish, system: System, call: _AptCall) -> _AptCall:
    """Return the call with as many of the extra packages as apt can install besides.

    The modules of the running kernel spare a restart, but often want an older driver.
    """
    running = [f"{MODULES}{wish.kind}-{system.running}"] if wish.kind else []
    for name in [*wish.extra, *running]:
        if name not in apt.after(call.does) and apt.has(name):
            more = _simulated(apt, wish, system, (*call.packages, name))
            if not more.trouble and more.does.removes <= call.does.removes:
                call = more
    return call
