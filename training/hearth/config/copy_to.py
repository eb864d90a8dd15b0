"""The setting `copy_to`: a folder of a node, or an address of a store without credentials. Pure."""

from __future__ import annotations

from hearth.base.addresses import credential_in, is_address


def secret_in(place: str) -> str:
    """Return why a place may hold a secret, and what to do instead; '' if it holds none."""
    if _is_folder(place) or not (reason := credential_in(place)):
        return ""
    return (
        f"it may hold a password or key ({reason}), and settings are recorded with the run; leave "
        "that out, and keep it on the node: as an SSH key, in a file of ~/.config/fsspec, or as a "
        "variable of hearth_environment"
    )


def is_anywhere(place: str) -> bool:
    """Return whether a place means the same wherever it is typed: settings go to other machines."""
    return _is_folder(place) or is_address(place)


def _is_folder(place: str) -> bool:
    return place.startswith(("/", "~/")) and not is_address(place)
