"""Client of the Hugging Face Hub, error classification, and removal of tokens from texts.

Tokens come from the environment (`HF_TOKEN`) or the login of huggingface_hub. They are never
passed around here, and `scrub` removes them from every text shown to a user or logged.
"""

from __future__ import annotations

import os
import re

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from hearth.base.text import without_credentials

PROBE_SECONDS = 6.0
_TOKEN = re.compile(r"hf_[A-Za-z0-9_]{8,}")


def hub_api() -> HfApi:
    """Return a Hub client for `HF_ENDPOINT`, or for the public address."""
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def scrub(text: object) -> str:
    """Return `text` with tokens and credentials in addresses replaced by asterisks."""
    clean = str(text)
    if token := get_token():
        clean = clean.replace(token, "***")
    return without_credentials(_TOKEN.sub("hf_***", clean))


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
    """Return the reason for which the Hub refused a request; None if it did not refuse it.

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
