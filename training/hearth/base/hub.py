"""Client of the Hugging Face Hub, error classification, and removal of tokens from texts.

Tokens come from the environment (`HF_TOKEN`) or the login of huggingface_hub. They are never
passed around here, and `scrub` removes them from every text shown to a user or logged.
"""

from __future__ import annotations

import os
import re

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

PROBE_SECONDS = 6.0
_TOKEN = re.compile(r"hf_[A-Za-z0-9_]{8,}")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


def hub_api() -> HfApi:
    """Return a Hub client for `HF_ENDPOINT`, or for the public address."""
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def scrub(text: object) -> str:
    """Return `text` with tokens and credentials in addresses replaced by asterisks."""
    told = str(text)
    if token := get_token():
        told = told.replace(token, "***")
    return _CREDENTIALS.sub("***@", _TOKEN.sub("hf_***", told))


def is_unreachable(error: BaseException) -> bool:
    """Return whether `error`, or an error in its cause chain, means that the Hub did not answer."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, HfHubHTTPError):
            return seen.response is not None and seen.response.status_code >= 500
        if isinstance(seen, OfflineModeIsEnabled | httpx.TransportError | ConnectionError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def is_refused(error: BaseException) -> bool:
    """Return whether `error` means that the Hub requires a token or rejects the current one."""
    response = getattr(error, "response", None)
    return response is not None and response.status_code in (401, 403)
