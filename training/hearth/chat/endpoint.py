"""An endpoint that speaks OpenAI's API for the sides of a chat, on loopback.

The server is that of `transformers serve`: it runs wherever a run does, on a CPU or a GPU, and is
in the lock already. vLLM is faster with many users and wants an environment and a GPU of its own.
Here the server gets models that are loaded already, under their names, and loads no others.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from transformers.cli.serving.chat_completion import ChatCompletionHandler
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.serving.model_manager import ModelManager
from transformers.cli.serving.response import ResponseHandler
from transformers.cli.serving.server import build_server
from transformers.cli.serving.transcription import TranscriptionHandler
from transformers.cli.serving.utils import GenerationState

from hearth.base.errors import ConfigError
from hearth.chat.screen import Screen
from hearth.chat.sides import Side
from hearth.data.template import CONSTANTS

HOST = "127.0.0.1"

_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/health")


class _Loaded(ModelManager):
    """Knows the models that are loaded already, by name, and no others."""

    def __init__(self, sides: Sequence[Side]) -> None:
        super().__init__(device="cpu")
        self._sides = {side.name: side for side in sides}

    @staticmethod
    def process_model_name(model_id: str) -> str:
        """Return the name as it is; a revision means nothing here."""
        return model_id

    def load_model_and_processor(self, name: str, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return the model `name` and its tokenizer; answer 404 if there is none."""
        if name not in self._sides:
            known = ", ".join(self._sides)
            raise HTTPException(404, f"there is no model '{name}' here; there are: {known}")
        side = self._sides[name]
        return side.network, side.tokenizer

    def get_gen_models(self, *_: Any) -> list[dict[str, Any]]:
        """Return the models in the form of OpenAI's list."""
        return [{"id": name, "object": "model", "owned_by": "hearth"} for name in self._sides]


class _Chat(ChatCompletionHandler):
    """Takes the newer name of a limit too, which OpenAI's own client sends."""

    async def handle_request(self, body: dict[str, Any], request_id: str) -> Any:
        """Answer a request."""
        if (most := body.pop("max_completion_tokens", None)) is not None:
            body.setdefault("max_tokens", most)
        return await super().handle_request(body, request_id)


def application(sides: Sequence[Side]) -> FastAPI:
    """Return the web application in which each of `sides` is a model of its name."""
    for side in sides:
        # As in OpenAI's API an answer is drawn by chance, unless temperature=0 is asked for.
        side.network.generation_config.do_sample = True
    manager, state = _Loaded(sides), GenerationState()
    app = build_server(
        manager,
        _Chat(manager, state, dict(CONSTANTS)),
        completion_handler=CompletionHandler(manager, state),
        response_handler=ResponseHandler(manager, state, dict(CONSTANTS)),
        transcription_handler=TranscriptionHandler(manager, state),
        generation_state=state,
    )
    app.add_exception_handler(StarletteHTTPException, _in_openais_form)
    app.router.routes = [each for each in app.router.routes if each.path in _PATHS]
    # A web page that somebody opens on this computer could otherwise ask under a name of its own
    # that it lets point to loopback (DNS rebinding).
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return app


def _in_openais_form(_: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that cannot be fulfilled, which clients show."""
    assert isinstance(error, StarletteHTTPException)
    told = {"message": str(error.detail), "type": "invalid_request_error", "code": None}
    return JSONResponse({"error": told}, error.status_code)


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Give a socket that holds `port` of loopback, 0 for a free one.

    Raises `ConfigError` if it is taken or needs root.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((HOST, port))
            held.listen()
        except OSError as error:
            raise ConfigError(
                f"--port {port}: {HOST} does not give this port ({error.strerror}); take another, "
                "or --port 0 for one that is free"
            ) from None
        yield held


def serve(sides: Sequence[Side], run: str, held: socket.socket, screen: Screen) -> None:
    """Answer at the socket `held` until Ctrl-C, and say first how to ask."""
    port = held.getsockname()[1]
    names = " and ".join(side.name for side in sides)
    screen.say(f"{run} answers at http://{HOST}:{port}/v1 as {names}; Ctrl-C ends it", "bold")
    screen.pairs(ways_to_ask(sides[-1].name, port))
    config = uvicorn.Config(application(sides), log_level="warning", timeout_graceful_shutdown=3)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[held])


def ways_to_ask(model: str, port: int) -> list[tuple[str, str]]:
    """Return commands that ask the endpoint: from here, and from another computer."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    there = f"{getpass.getuser()}@{os.uname().nodename}"
    return [
        (
            "try it",
            f"curl http://{HOST}:{port}/v1/chat/completions -H 'Content-Type: application/json' "
            f"-d '{json.dumps(body)}'",
        ),
        ("tunnel", f"ssh -N -L {port}:{HOST}:{port} {there}"),
    ]
