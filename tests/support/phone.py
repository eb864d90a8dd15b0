"""A server on loopback that takes messages as those of ntfy and others do, and runs that send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.supervisors import TRAINING, Nodes

TOKEN = "tk_planted-token-of-a-phone"

IMPATIENT = """
import hearth.notify.watch
hearth.notify.watch.PATIENCE = {seconds}
"""
"""Shortens the wait before a message, in each Python that finds it as its sitecustomize."""


@dataclass
class Phone:
    """The messages that arrived: `title` and `body`, and whether they came with the token."""

    port: int
    arrived: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)

    @property
    def ntfy(self) -> str:
        """The address for a message as ntfy wants it."""
        return f"ntfy://{TOKEN}@127.0.0.1:{self.port}/topic"

    @property
    def json(self) -> str:
        """The address for a message as JSON."""
        return f"json://user:{TOKEN}@127.0.0.1:{self.port}/"

    @property
    def titles(self) -> list[str]:
        return [each["title"] for each in self.arrived]


@contextmanager
def phone(status: int = 200, answers: bool = True) -> Iterator[Phone]:
    """Run the server for the block; it answers with a status, or takes messages and is silent."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            here.heads.append(dict(self.headers))
            here.arrived.append(given | {"body": given["message"]})
            if not answers:
                over.wait()
                return
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        here = Phone(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield here
        finally:
            over.set()
            server.shutdown()
            serving.join(10)


def telling(run: Nodes, *urls: str) -> Nodes:
    """Give the supervisors of a run the addresses that get messages, as a launch does."""
    for node in run.names:
        secrets = {"HEARTH_NOTIFY": " ".join(urls), "KEY": "of-the-ranks"}
        run.spec(node).with_suffix(".secrets").write_text(json.dumps(secrets))
    return run


def impatient(run: Nodes, folder: Path, seconds: float = 5.0) -> None:
    """Have the supervisors of a run tell of a wait after these seconds."""
    (folder / "sitecustomize.py").write_text(IMPATIENT.format(seconds=seconds))
    run.variables["PYTHONPATH"] = f"{folder}:{TRAINING}"
