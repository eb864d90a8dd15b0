"""An endpoint that speaks OpenAI's API for the sides of a chat, on loopback.

The server is that of `transformers serve`: it runs wherever a run does, on a CPU or a GPU, and is
in the lock already. vLLM is faster with many users and wants an environment and a GPU of its own.
Here the server gets models that are loaded already, under their names, and loads no others.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import getpass
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers.cli.serving.chat_completion import ChatCompletionHandler
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.serving.model_manager import ModelManager
from transformers.cli.serving.response import ResponseHandler
from transformers.cli.serving.server import build_server
from transformers.cli.serving.transcription import TranscriptionHandler
from transformers.cli.serving.utils import BaseHandler, GenerationState
from uvicorn.protocols.http.h11_impl import H11Protocol

from hearth.after.openai_requests import LIMITS, MOST_BYTES, RefusedRequest, checked, error_of
from hearth.after.sides import Side
from hearth.after.terminal import ChatScreen
from hearth.base.errors import ConfigError
from hearth.base.text import brief_text
from hearth.data.findings import Problem
from hearth.data.rendering import Renderer

HOST = "127.0.0.1"

ENDED = "the endpoint has ended"
"""Beginning of the last line of an endpoint, with the reason behind it."""

MOST_IDLE = 64
"""Connections without a request; a new one ends the oldest of them."""

_RENDERING = 3.0
"""Seconds of computing that the rendering of a request may take."""

_USUAL = 1024
"""Most tokens of an answer if a request says nothing of it, as the server has it."""

_OF_THE_METHOD = frozenset(
    {"add_generation_prompt", "return_dict", "tokenize", "load_audio_from_video"}
)
"""Arguments of `apply_chat_template` that are no variables of the template."""

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


def _explain(_: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that met `error`, in the form of OpenAI's API."""
    match error:
        case RefusedRequest():
            found = error_of(str(error), param=error.param, code=error.code), 400
        case StarletteHTTPException():  # the server itself turns it down
            found = error_of(str(error.detail)), error.status_code
        case RequestValidationError():
            found = error_of("the body of a request is a JSON object, and this is none"), 400
        case Problem():  # the model's chat template refuses the conversation
            found = error_of(str(error), param="messages"), 400
        case _:
            text = f"the server failed at this request ({type(error).__name__}); see its log"
            found = error_of(text, "server_error"), 500
    return JSONResponse(*found)


class BoundedBody:
    """Middleware that refuses a request longer than `most` bytes."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application; answer 413 instead if it is longer."""
        left = self._most

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            if left >= 0:
                await send(message)

        with suppress(ClientDisconnect):
            await self._app(scope, bounded, answer)
        if left < 0:
            text = f"a request has at most {self._most >> 20} MiB"
            await JSONResponse(error_of(text), 413)(scope, receive, send)


class _Bounded(BaseHandler):
    """Checks requests of one `kind`, and renders templates, before Transformers' own handler."""

    kind: str
    sides: dict[str, Side]
    renderer: Renderer

    async def handle_request(self, body: dict[str, Any], request_id: str) -> Any:
        """Answer a request. Raises `RefusedRequest` if it cannot be fulfilled."""
        return await super().handle_request(checked(self.kind, body), request_id)

    def _resolve_model(self, body: dict[str, Any]) -> tuple[str, Any, Any]:
        """Return the name, the model and its tokenizer, made for this request."""
        name, network, tokenizer = super()._resolve_model(body)
        side = self.sides[name]
        if strange := [key for key in body.get("logit_bias", {}) if int(key) >= side.vocabulary]:
            raise RefusedRequest(f"logit_bias: the model has no token {strange[0]}", "logit_bias")
        if "prompt" in body:
            self._fit(body, side, len(tokenizer(body["prompt"]).input_ids))
        own = copy.copy(tokenizer)
        own.apply_chat_template = functools.partial(self._tokens, body, side)
        return name, network, own

    def _tokens(
        self,
        body: dict[str, Any],
        side: Side,
        conversation: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        return_tensors: str | None = None,
        **variables: Any,
    ) -> Any:
        """Return the tokens of a conversation, as the tokenizer's own method of this name does.

        The template, which is a program of others, is rendered in a process of its own.
        """
        known = {name: variables[name] for name in variables.keys() - _OF_THE_METHOD}
        text = self.renderer.render(
            side.tokenizer.get_chat_template(tools=tools),
            conversation,
            {**side.tokenizer.special_tokens_map, **known},
            tools,
        )
        found = side.tokenizer(text, add_special_tokens=False, return_tensors=return_tensors)
        self._fit(body, side, len(found["input_ids"][0]))
        return found

    def _fit(self, body: dict[str, Any], side: Side, tokens: int) -> None:
        """Limit the answer to a prompt of `tokens` tokens to the model's remaining positions."""
        most = side.positions
        if not most:
            return
        if tokens >= most:
            raise RefusedRequest(
                f"the conversation has {tokens} tokens and this model reads {most}",
                "prompt" if "prompt" in body else "messages",
                "context_length_exceeded",
            )
        limit = LIMITS[self.kind]
        body[limit] = min(body.get(limit, _USUAL), most - tokens)


class _Chat(_Bounded, ChatCompletionHandler):
    kind = "chat"


class _Completion(_Bounded, CompletionHandler):
    kind = "completion"


class _Response(_Bounded, ResponseHandler):
    kind = "responses"


def application(sides: Sequence[Side], renderer: Renderer) -> FastAPI:
    """Return the web application that offers each of `sides` as a model of its name.

    `renderer` renders their chat templates.
    """
    for side in sides:
        # As in OpenAI's API an answer is drawn by chance, unless temperature=0 is asked for.
        side.network.generation_config.do_sample = True
    manager, state = _Loaded(sides), GenerationState()
    handlers = [kind(manager, state) for kind in (_Chat, _Completion, _Response)]
    for handler in handlers:
        handler.sides, handler.renderer = {side.name: side for side in sides}, renderer
    app = build_server(
        manager,
        *handlers,
        transcription_handler=TranscriptionHandler(manager, state),
        generation_state=state,
    )
    for kind in (
        RefusedRequest,
        StarletteHTTPException,
        RequestValidationError,
        Problem,
        Exception,
    ):
        app.add_exception_handler(kind, _explain)
    app.router.routes = [each for each in app.router.routes if each.path in _PATHS]
    app.add_middleware(BoundedBody, most=MOST_BYTES)
    # A web page in this computer's browser could otherwise send requests under a name of its own
    # that points to loopback (DNS rebinding).
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return app


class Line(H11Protocol):
    """A connection, which gives way to newer ones while it has no request to answer.

    So a program on this computer that opens many cannot keep others out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and end the oldest idle one if there are too many."""
        super().connection_made(transport)
        self.began = time.monotonic()
        idle = [line for line in self.connections if isinstance(line, Line) and line.is_idle]
        if len(idle) > MOST_IDLE:
            oldest = min(idle, key=lambda line: line.began)
            self.connections.discard(oldest)  # it learns of its end only later
            oldest.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no whole request has come since the last answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body


def server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application, which strangers cannot fill."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Line,
            ws="none",
            log_level="error",  # a warning for each request that is none would fill the screen
            timeout_graceful_shutdown=3,
        )
    )


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


def serve(sides: Sequence[Side], run: str, held: socket.socket, screen: ChatScreen) -> None:
    """Answer at the socket `held` until Ctrl-C or SIGTERM; print first how to ask, at last why.

    This ends the process.
    """
    port = held.getsockname()[1]
    names = " and ".join(side.name for side in sides)
    renderer = Renderer(_RENDERING)
    renderer.start()
    answering = server(application(sides, renderer))
    screen.say(f"{run} answers at http://{HOST}:{port}/v1 as {names}; Ctrl-C ends it", "bold")
    screen.pairs(ways_to_ask(sides[-1].name, port))
    arrived: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server ends at either; then it raises it again, for this handler.
        signal.signal(number, lambda number, _: arrived.append(number))
    status, why = 1, "the server stopped"
    try:
        answering.run(sockets=[held])
    except BaseException as error:  # `SystemExit`, too
        why = brief_text(str(error)) or type(error).__name__
    if arrived:
        status, why = 0, f"{signal.Signals(arrived[0]).name} arrived"
    screen.say(f"{ENDED}: {why}")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)  # an ordinary exit would wait for the threads that still compute answers


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
