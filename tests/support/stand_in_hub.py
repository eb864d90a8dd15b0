"""A stand-in for the Hugging Face Hub on loopback: as much of it as fetching a model, or the
rows of a data set, and pushing to a repository needs."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

from hearth.config import load_preset

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StandInHub(ThreadingHTTPServer):
    """Serves model folders by Hub id, None for a gated one; notes every request in `asked`.

    It accepts one token and refuses any other as invalid. That is the token of `me`, which the Hub
    describes so; `pushed` holds the files of the repositories made, `public` those that are not
    private, and `down` is whether it answers as a Hub that is being repaired.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models: dict[str, Path | None] = {}
        self.datasets: dict[str, Path] = {}
        self.only_with_token = False
        self.failures = 0  # of so many requests for files to come
        self.token = "hf_theonethatisaccepted"
        self.asked: list[str] = []
        self.me: dict[str, object] = {
            "type": "user",
            "name": "ada",
            "orgs": [{"name": "home", "roleInOrg": "write"}],
            "auth": {"accessToken": {"displayName": "night", "role": "write"}},
        }
        self.pushed: dict[str, dict[str, bytes]] = {}
        self.public: set[str] = set()
        self.down = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment that makes this the Hub."""
        return {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": self.url}


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """Run a stand-in Hub while the context lasts."""
    with StandInHub() as hub:
        Thread(target=hub.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()


def published(folder: Path, preset: str) -> Path:
    """Write what the Hub shows of a model of the sizes of `preset`, weights left out; return it."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(asdict(load_preset(preset).shape)))
    (folder / "model.safetensors").touch()
    return folder


class _Handler(BaseHTTPRequestHandler):
    server: StandInHub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.split("?")[0]
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if (given or self.server.only_with_token) and given != self.server.token:
            message = {"X-Error-Message": "Invalid credentials in Authorization header"}
            return self._send(401, message)
        if self.server.down:
            return self._send(503, {})
        if answer := self._of_a_push(path):
            return self._send(*answer)
        kind, path = "models", path.removeprefix("/api").removeprefix("/models")
        if path.startswith("/datasets/"):
            kind, path = "datasets", path.removeprefix("/datasets")
        parts = path.strip("/").split("/")
        model, rest = "/".join(parts[:2]), parts[2:]
        known = getattr(self.server, kind)
        if model not in known:
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        folder = known[model]
        if rest[:1] == ["resolve"]:
            if folder is None:
                return self._send(401, {"X-Error-Code": "GatedRepo"})
            if self.server.failures:
                self.server.failures -= 1
                return self._send(503, {})
            file = folder / "/".join(rest[2:])
            if not file.is_file():
                return self._send(404, {"X-Error-Code": "EntryNotFound"})
            content = file.read_bytes()
            headers = {"ETag": f'"{sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
            if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                begin, end = int(asked[1]), int(asked[2] or len(content) - 1)
                headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
                return self._send(206, headers, content[begin : end + 1])
            return self._send(200, headers, content)
        if rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        if folder is None:
            names = {"config.json": 2, "model.safetensors": 8}
        else:
            files = (path for path in folder.rglob("*") if path.is_file())
            names = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        if rest[:1] in (["tree"], ["paths-info"]):
            asked = self._asked_paths() if rest[0] == "paths-info" else names
            body = [
                {"type": "file", "path": name, "size": size, "oid": sha1(name.encode()).hexdigest()}
                for name, size in names.items()
                if name in asked
            ]
        else:
            siblings = [{"rfilename": name, "size": size} for name, size in names.items()]
            body = {"id": model, "sha": COMMIT, "siblings": siblings, "private": False}
        return self._send(200, {}, json.dumps(body).encode())

    do_HEAD = do_POST = do_GET

    def _of_a_push(self, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return the answer to a request that only a push makes."""
        hub = self.server

        def answer(**body: object) -> tuple[int, dict[str, str], bytes]:
            return 200, {}, json.dumps(body).encode()

        if path == "/api/whoami-v2":
            return answer(**hub.me)
        if path == "/api/validate-yaml":
            return answer(warnings=[], errors=[])
        if path == "/api/repos/create":
            asked = json.loads(self._body())
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            name = name if "/" in name else f"{hub.me['name']}/{name}"
            if name in hub.pushed:
                return 409, {}, json.dumps({"url": f"{hub.url}/{name}"}).encode()
            hub.pushed[name] = {}
            if asked.get("visibility") != "private":
                hub.public.add(name)
            return answer(url=f"{hub.url}/{name}")
        repository = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if repository not in hub.pushed:
            return None
        if "/preupload/" in path:
            files = json.loads(self._body())["files"]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return answer(files=[{"path": file["path"], **modes} for file in files])
        if "/commit/" in path:
            for line in map(json.loads, self._body().splitlines()):
                if line["key"] == "file":
                    content = b64decode(line["value"]["content"])
                    hub.pushed[repository][line["value"]["path"]] = content
            return answer(success=True, commitOid=COMMIT, commitUrl=f"{hub.url}/{repository}")
        files = hub.pushed[repository]
        header = files.get("README.md", b"").decode().removeprefix("---").partition("---")[0]
        return answer(
            id=repository,
            sha=COMMIT,
            siblings=[{"rfilename": name} for name in files],
            tags=re.findall(r"^- (\S+)$", header, re.M),
            private=repository not in hub.public,
        )

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _asked_paths(self) -> list[str]:
        """Return the paths that a request of paths-info asks for."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "json" in self.headers["Content-Type"]:
            return json.loads(body)["paths"]
        return parse_qs(body)["paths"]

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
