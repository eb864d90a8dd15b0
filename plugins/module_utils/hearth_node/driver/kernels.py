"""Ubuntu's kernel packages: the installed flavours, their successors, and their kernels.

`linux-image-generic-hwe-24.04` follows the flavour generic-hwe-24.04, whose kernels are packages
such as `linux-image-6.14.0-37-generic`. `linux-generic-hwe-24.04` brings the headers, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from ansible.module_utils.hearth_node.driver.restart import release_key

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
