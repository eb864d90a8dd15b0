"""Push of what a run has trained to the Hugging Face Hub: the check before the run, and the push.

The token comes from the environment (`HF_TOKEN`) or the login of huggingface_hub, and no text
shows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import CommitOperationAdd, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

from hearth.after.card import CARD_TAG
from hearth.base.errors import SupplyError
from hearth.base.hub import first_line, hub_api, is_unreachable

TOKEN_PAGE = "https://huggingface.co/settings/tokens"

WAITS = (5.0, 30.0, 120.0, 300.0)
"""Seconds before each further attempt: a router may restart at night."""

_WRITES = ("write", "admin", "contributor")
"""Roles in an organisation that may make repositories and write to their own."""

_TO_COME = (OSError, httpx.HTTPError, HfHubHTTPError, OfflineModeIsEnabled)
"""Errors of huggingface_hub; httpx's are no `OSError`."""


def check_push(repository: str, private: bool) -> None:
    """Check, without changing anything, that this node's token may push to `repository`.

    Raises `SupplyError` with the reason and the cure if it may not, or if the Hub does not answer.
    """
    if not get_token():
        raise SupplyError(
            "push: there is no token for the Hub on this node; make one that may write at "
            f"{TOKEN_PAGE} and `export HF_TOKEN=…` in the shell that you type in"
        )
    try:
        me = hub_api().whoami()
        if finding := refused(repository, me):
            raise SupplyError(f"push: {finding}")
        _check_existing(repository, private)
    except SupplyError:
        raise
    except _TO_COME as error:
        raise SupplyError(f"push: {_why(error)}") from error


def refused(repository: str, me: Mapping[str, Any]) -> str | None:
    """Return why a token may not push to `repository`, None if it may.

    `me` is the Hub's answer on the token's owner. Pure.
    """
    owner = repository.split("/")[0]
    name = str(me.get("name"))
    roles = {each["name"]: each.get("roleInOrg", "") for each in me.get("orgs", [])}
    if owner != name and owner not in roles:
        known = ", ".join([name, *(each for each, role in roles.items() if role in _WRITES)])
        return (
            f"the token is of {name}, who may not push to {owner}; the part before / must be one "
            f"of {known}"
        )
    if owner != name and roles[owner] not in _WRITES:
        return (
            f"{name} may only read what is {owner}'s; ask its admin for the role contributor, or "
            f"push to {name}/{repository.split('/')[1]}"
        )
    token = (me.get("auth") or {}).get("accessToken") or {}
    role, label = token.get("role"), token.get("displayName") or "of HF_TOKEN"
    cure = f"make one that may write to {owner}'s models at {TOKEN_PAGE}, and set HF_TOKEN to it"
    if role == "read":
        return f"the token {label} may only read; {cure}"
    if role == "fineGrained" and not _fine_grained(repository, token.get("fineGrained") or {}):
        return f"the token {label} may not write to {repository}; {cure}"
    return None


def _fine_grained(repository: str, grants: Mapping[str, Any]) -> bool:
    """Return whether the grants of a token include writing to `repository`."""
    wanted = (repository, repository.split("/")[0])
    scoped = (
        permission
        for each in grants.get("scoped", [])
        if (each.get("entity") or {}).get("name") in wanted
        for permission in each.get("permissions", [])
    )
    return "repo.write" in (*scoped, *grants.get("global", []))


def _check_existing(repository: str, private: bool) -> None:
    """Raise `SupplyError` if `repository` is not Hearth's, or public and should be private."""
    try:
        found = hub_api().model_info(repository)
    except RepositoryNotFoundError:
        return
    files = {each.rfilename for each in found.siblings or ()} - {".gitattributes"}
    if files and CARD_TAG not in (found.tags or ()):
        raise SupplyError(
            f"push: {repository} has files already ({len(files)}) and its card is not Hearth's; "
            "name another repository"
        )
    if private and not found.private:
        raise SupplyError(
            f"push: {repository} is public already, and private is on; add private=off if "
            "everybody may have what was trained, or name another repository"
        )


def push(
    folder: Path,
    repository: str,
    private: bool,
    card: str,
    base: str | None,
    say: Callable[[str], None],
    waits: Sequence[float] = WAITS,
) -> str:
    """Upload the weights in `folder` and the `card` in one commit; return the page's address.

    The repository is made if it is not there. Files that it has already are not sent again. `base`
    replaces the base model's path in the adapter's configuration, if it is a path of this node.

    Raises `SupplyError` if the Hub refuses it, or did not answer to several attempts.
    """
    api = hub_api()
    operations = [
        CommitOperationAdd(name, content) for name, content in _contents(folder, card, base)
    ]
    for wait in (*waits, None):
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            api.create_commit(repository, operations, commit_message="Weights and card, by Hearth")
            return f"{api.endpoint}/{repository}"
        except _TO_COME as error:
            if wait is None or not is_unreachable(error):
                raise SupplyError(_why(error)) from error
            say(f"push: {first_line(error)}; trying again in {wait:g} s")
            time.sleep(wait)
    raise AssertionError("unreachable")


def _contents(folder: Path, card: str, base: str | None) -> Iterator[tuple[str, str | bytes]]:
    """Yield the name in the repository and the path or content of each file to upload."""
    yield "README.md", card.encode()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name == "README.md":
            continue
        if name == "adapter_config.json" and base:
            config = json.loads(path.read_text(encoding="utf-8"))
            config["base_model_name_or_path"] = base
            yield name, (json.dumps(config, indent=2) + "\n").encode()
        else:
            yield name, str(path)


def _why(error: BaseException) -> str:
    """Return why the Hub did not do something, and the cure."""
    if is_unreachable(error):
        return (
            f"the Hub does not answer ({first_line(error)}); check this node's connection, or "
            "leave push out and share the run when it is back"
        )
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return (
            f"the Hub refuses the token ({first_line(error)}); make one that may write at "
            f"{TOKEN_PAGE}, and set HF_TOKEN to it"
        )
    return f"the Hub did not take it: {first_line(error)}"
