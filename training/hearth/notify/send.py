"""Send a message by apprise, and report the outcome without showing an address."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

from hearth.notify.messages import PhoneMessage

_SCHEME = re.compile(r"([a-z][a-z0-9]{0,15})://", re.IGNORECASE)
_STATUS = re.compile(r"\berror=(\d{3})\b")


def faults(urls: Sequence[str]) -> list[str]:
    """Return a fault for each address that apprise cannot use; it names its scheme at most.

    An address may hold a password or be one (a secret topic of ntfy).
    """
    library = _apprise()
    found = []
    for number, url in enumerate(urls, 1):
        scheme = scheme_of(url)
        if not scheme:
            found.append(f"address {number} of {len(urls)} has no scheme, such as ntfy://")
        elif _target(library, url) is None:
            found.append(f"apprise cannot use the address that begins with {scheme}://")
    return found


def scheme_of(url: str) -> str:
    """Return the scheme of an address in lower case, '' if it has none."""
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def deliver(urls: Sequence[str], message: PhoneMessage, seconds: float) -> list[str]:
    """Send a message to all addresses at once; return each one's outcome, in words.

    Deliveries that take longer than `seconds` are given up; their threads end with this process.
    """
    library, until = _apprise(), time.monotonic() + seconds
    heard = _Refusals()
    logging.getLogger("apprise").addHandler(heard)
    outcomes: dict[int, str] = {}

    def send(number: int, url: str) -> None:
        try:
            outcomes[number] = _send(library, url, message, heard)
        except Exception as error:  # apprise has a hundred plugins, and one may have a bug
            outcomes[number] = f"not sent ({type(error).__name__})"

    threads = [threading.Thread(target=send, args=item, daemon=True) for item in enumerate(urls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = f"no answer within {seconds:g} s"
    return [f"{scheme_of(url)}: {outcomes.get(number, late)}" for number, url in enumerate(urls)]


def _target(library: Any, url: str) -> Any | None:
    """Return apprise's object that sends to an address, None for one that it cannot use."""
    try:
        return library.Apprise.instantiate(url, asset=_asset(library))
    except Exception:  # the error, which some plugin did not expect, could show the address
        return None


def _send(library: Any, url: str, message: PhoneMessage, heard: _Refusals) -> str:
    target = _target(library, url)
    if target is None:
        return "not an address that apprise knows"
    # Else some services take an error's `<…>` for HTML, and lose it.
    sent = target.notify(
        title=message.title, body=message.body, notify_type=message.colour, body_format="text"
    )
    return "sent" if sent else f"not sent{heard.reason()}"


class _Refusals(logging.Handler):
    """Picks from apprise's log why a server did not take a message; the log itself is not kept."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._by_thread: dict[int | None, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Note the status in a record of the log, or that no server answered."""
        text = record.getMessage()
        if found := _STATUS.search(text):
            self._by_thread[record.thread] = f" (the server answered {found[1]})"
        elif "connection error" in text.lower():
            self._by_thread[record.thread] = " (the server did not answer)"

    def reason(self) -> str:
        """Return why the last message of this thread was not taken, in words, or ''."""
        return self._by_thread.get(threading.get_ident(), "")


def _asset(library: Any) -> Any:
    """Return the sender's name for messages; without pictures, which a phone would fetch."""
    return library.AppriseAsset(
        app_id="Hearth", app_desc="Hearth", app_url="", image_url_mask="", image_url_logo=""
    )


def _apprise() -> Any:
    """Return the library apprise, whose own log must not show addresses."""
    import apprise  # a fifth of a second, and not needed without messages

    log = logging.getLogger("apprise")
    log.propagate = False
    log.addHandler(logging.NullHandler())  # Python would print what no handler takes
    return apprise
