"""Addresses of files and stores, taken apart to find credentials and to hide them. Pure.

fsspec chains addresses by `::`. Each of them has a protocol of its own, and so a place for a
password of its own. What a library reads as a password differs between protocols, so an address is
judged by all its possible meanings: every form of it, also decoded, must be free of credentials.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

HIDDEN = "***"

_SEPARATOR = "://"
_CHAIN = "::"
_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_MOST_DECODED = 4
"""Rounds of percent-decoding; no name is encoded more often."""

_SECRET_WORDS = frozenset(
    {
        *("pass", "passwd", "password", "passphrase", "passcode", "pw", "pwd", "secret", "secrets"),
        *("token", "tokens", "key", "keys", "sig", "signature", "sas", "auth", "authorization"),
        *("bearer", "credential", "credentials", "cred", "creds"),
        *("apikey", "accesskey", "accountkey", "authkey", "secretkey", "privatekey", "sharedkey"),
        *("accesstoken", "authtoken", "sessiontoken", "secretaccesskey"),
    }
)
"""Words in the names of passwords, keys and tokens."""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ASSIGNMENT = re.compile(r"([A-Za-z][\w.-]{0,60})[=:](?!//)(?=.)", re.DOTALL)
_PORT = re.compile(r"^(?:[^@]*@)?(?:\[[0-9A-Fa-f:.]+\])?|:\d{1,5}$")
_PLAIN = re.compile(r"[\w.-]+(?:/[\w./~+-]*)?", re.ASCII)
_NO_PORT = "no port follows a colon"
_PUNCTUATION = ".,;:!)]}…'\"`"

_KNOWN_TOKENS = re.compile(
    r"""
    \bhf_[A-Za-z0-9_]{8,}                       # Hugging Face
    | \b(?:AKIA|ASIA)[A-Z0-9]{12,}              # Amazon
    | \b(?:gh[pousr]_|github_pat_)\w{16,}       # GitHub
    | \bglpat-[\w-]{16,}                        # GitLab
    | \bxox[abeprs]-[\w-]{10,}                  # Slack
    | \bsk-(?:[a-z]{2,5}-)?[A-Za-z0-9]{20,}      # OpenAI and its like
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{10,}     # Google
    | \beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?    # JSON web tokens
    """,
    re.VERBOSE,
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s<>]*")


@dataclass(frozen=True)
class Link:
    """One address of a chain: its protocol, and the text after `://`.

    A protocol alone, such as `simplecache`, has no `rest`; a text that is no address no `protocol`.
    """

    protocol: str
    rest: str


def is_address(text: str) -> bool:
    """Return whether `text` is meant as an address, and not as the path of a folder."""
    return any(_SEPARATOR in form for form in _forms(text))


def links_of(address: str) -> list[Link]:
    """Return the addresses of a chain in order."""
    if _SEPARATOR not in address:
        return [Link("", address)]
    parts = (part.partition(_SEPARATOR) for part in address.split(_CHAIN))
    return [Link(protocol, rest) for protocol, _, rest in parts]


def is_secret_name(name: str) -> bool:
    """Return whether `name` is that of a password, key or token, such as `FTP_PASSWORD`."""
    return any(word.lower() in _SECRET_WORDS for word in _WORDS.findall(name))


def credential_in(address: str) -> str:
    """Return why an address may hold a credential, without the credential; '' if it holds none."""
    return next(filter(None, map(_reason, _links_of_all_forms(address))), "")


def hidden(address: str) -> str:
    """Return an address as a person typed it, with credentials replaced by asterisks."""
    if not credential_in(address):
        return address
    links = links_of(address)
    if len(links) == 1:
        return _shown(links[0])
    known = (_PROTOCOL.fullmatch(link.protocol) for link in links)
    return _CHAIN.join(f"{found[0]}{_SEPARATOR}{HIDDEN}" if found else HIDDEN for found in known)


def without_credentials(text: str) -> str:
    """Return a text of any origin with the credentials in its addresses replaced by asterisks."""
    return _KNOWN_TOKENS.sub(HIDDEN, _URL.sub(_hidden_in_text, text))


def _hidden_in_text(found: re.Match[str]) -> str:
    """Return an address within a sentence without credentials, and the punctuation behind it."""
    address = found[0].rstrip(_PUNCTUATION)
    # A sentence may also name the form of an address, such as http://HOST:PORT.
    shown = address if credential_in(address) in ("", _NO_PORT) else hidden(address)
    return shown + found[0][len(address) :]


def _links_of_all_forms(address: str) -> Iterator[Link]:
    for form in _forms(address):
        yield from links_of(form)


def _forms(address: str) -> Iterator[str]:
    """Yield an address as it is, and as it reads once decoded and in compatible characters."""
    yield address
    for _ in range(_MOST_DECODED):
        decoded = unicodedata.normalize("NFKC", unquote(address))
        if decoded == address:
            return
        yield (address := decoded)


def _reason(link: Link) -> str:
    """Return why one address of a chain may hold a credential, or ''."""
    if link.protocol and not _PROTOCOL.fullmatch(link.protocol):
        return "something other than a protocol stands before :// or ::"
    host, _, _ = link.rest.partition("/")
    before, at, _ = link.rest.rpartition("@")
    if at and ":" in before:
        return "a user and a password stand before @"
    if _KNOWN_TOKENS.search(link.rest):
        return "a part of it is a token"
    if at and "/" not in before and _is_random(before):
        return "a token stands before @"
    if at and "/" not in before and link.protocol.lower() in ("http", "https"):
        return "a name stands before @, where web servers take tokens"
    if "?" in link.rest or "#" in link.rest:
        return "parameters follow ? or #"
    if _assigns_secret(link.rest):
        return "a name such as key= or token= has a value"
    if link.protocol and ":" in _PORT.sub("", host):
        return _NO_PORT
    return ""


def _is_random(text: str) -> bool:
    """Return whether `text` looks generated, as the tokens that services take as a user do."""
    kinds = (str.islower, str.isupper, str.isdecimal)
    mixed = all(any(map(kind, text)) for kind in kinds)
    return (mixed and len(text) >= 16) or re.fullmatch(r"[0-9A-Fa-f]{24,}", text) is not None


def _shown(link: Link) -> str:
    """Return an address that holds a credential, with its host and path where they are plain."""
    if not _PROTOCOL.fullmatch(link.protocol):
        return HIDDEN
    before = re.split("[?#]", link.rest, maxsplit=1)[0]
    parameters = f"?{HIDDEN}" if before != link.rest else ""
    _, at, place = before.rpartition("@")
    if not _PLAIN.fullmatch(place) or _KNOWN_TOKENS.search(place) or _assigns_secret(before):
        at, place = "", HIDDEN
    return f"{link.protocol}{_SEPARATOR}{HIDDEN if at else ''}{at}{place}{parameters}"


def _assigns_secret(text: str) -> bool:
    """Return whether a password's name has a value in `text`, as in `token=abc`."""
    return any(is_secret_name(found[1]) for found in _ASSIGNMENT.finditer(text))
