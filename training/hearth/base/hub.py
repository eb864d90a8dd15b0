"""Client of the Hugging Face Hub, error classification, and removal of tokens from texts.

Tokens come from the environment (`HF_TOKEN`) or the login of huggingface_hub. They are never
passed around here, and `scrub` removes them from every text shown to a user or logged.
"""

from __future__ import annotations

import os

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from hearth.base.addresses import HIDDEN, is_secret_name, without_credentials
from hearth.base.text import brief_text

PROBE_SECONDS = 6.0
_SHORTEST_SECRET = 6
"""Characters that a variable's value must have to be taken for a secret."""


def hub_api() -> HfApi:
    """Return a Hub client for `HF_ENDPOINT`, or for the public address."""
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def scrub(text: object) -> str:
    """Return `text` with tokens, secrets of the environment and credentials in addresses hidden."""
    clean = str(text)
    for secret in filter(None, (get_token(), *_secrets_of_environment())):
        clean = clean.replace(secret, HIDDEN)
    return without_credentials(clean)


def _secrets_of_environment() -> list[str]:
    """Return the values of variables such as FSSPEC_FTP_PASSWORD; a path is none of a secret."""
    return [
        value
        for name, value in os.environ.items()
        if is_secret_name(name) and len(value) >= _SHORTEST_SECRET and not value.startswith("/")
    ]


def brief_scrubbed(error: Exception) -> str:
    """Return a library's error as `brief` does, scrubbed."""
    return brief_text(scrub(error)) or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, scrubbed."""
    return scrub(error).strip().split("\n")[0]


def is_unreachable(error: BaseException) -> bool:
    """Return whether `error`, or an error in its cause chain, means that the Hub did not answer."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, HfHubHTTPError):
            return current.response is not None and current.response.status_code >= 500
        if isinstance(current, OfflineModeIsEnabled | httpx.TransportError | ConnectionError):
            return True
        current = current.__cause__ or current.__context__
    return False


def refusal(
    error: BaseException, kind: str, page: str, similar: str, gated: bool = False
) -> str | None:
    """Return why the Hub refused a request; None if it did not refuse it.

    `kind` of the repository is "model" or "data set", `page` its path on huggingface.co, `similar`
    a hint from `did_you_mean`. The error may hide that a repository is `gated`.
    """
    missing = isinstance(error, RepositoryNotFoundError)
    response = getattr(error, "response", None)
    refused = response is not None and response.status_code in (401, 403)
    gate = isinstance(error, GatedRepoError) or isinstance(error.__cause__, GatedRepoError)
    if gate or (gated and (missing or refused)):
        return (
            f"this {kind} is gated; accept its licence at https://huggingface.co/{page}, then set "
            "HF_TOKEN to a token of that account"
        )
    if missing:
        return (
            f"the Hub has no such {kind}{similar}, or your token may not read it; check the name, "
            "or set HF_TOKEN if it is private"
        )
    if refused:
        return (
            "the Hub refuses your token; make a new one at https://huggingface.co/settings/tokens "
            "and set HF_TOKEN to it"
        )
    return None
