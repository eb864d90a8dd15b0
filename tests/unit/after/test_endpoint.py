"""The endpoint: answers, errors in OpenAI's form, and templates without an end."""

from __future__ import annotations

import copy
import json
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.client import HTTPConnection

import pytest
from hypothesis import given
from starlette.testclient import TestClient
from support.rubbish import LITTLE, quick, rubbish, send, send_endlessly
from support.waiting import HANG, until

from hearth.after.endpoint import MOST_IDLE, application, listening, server
from hearth.after.openai_requests import MOST_BYTES
from hearth.data.rendering import Renderer

ASK = {"messages": [{"role": "user", "content": "say 1"}], "model": "adapter", "temperature": 0}
CHAT, COMPLETION, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def renderer():
    with Renderer(seconds=1) as renderer:
        yield renderer


@pytest.fixture(scope="module")
def client(sides, renderer):
    app = application(sides, renderer)
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        yield client


def error_in(response, status=400):
    """Return the error of an answer that has one in OpenAI's form."""
    assert response.status_code == status
    error = response.json()["error"]
    assert error["message"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def test_a_request_is_answered_and_its_template_is_the_models(client):
    plain = client.post(CHAT, json=ASK | {"max_tokens": 5})
    assert plain.status_code == 200
    assert plain.json()["usage"]["completion_tokens"] == 5
    for template in (LOOP, "{{ 'something else' }}"):
        bringing = {"chat_template_kwargs": {"chat_template": template}, "max_tokens": 5}
        answer = client.post(CHAT, json=ASK | bringing).json()
        assert answer["usage"] == plain.json()["usage"]
        assert answer["choices"] == plain.json()["choices"]


def test_a_stream_and_the_other_ways_to_ask_are_answered(client):
    stream = client.post(CHAT, json=ASK | {"max_tokens": 3, "stream": True})
    assert stream.text.count("data: ") >= 3
    completion = client.post(COMPLETION, json={"model": "base", "prompt": "say", "max_tokens": 3})
    assert completion.json()["usage"]["completion_tokens"] == 3
    given = {"model": "base", "input": "say 1", "max_output_tokens": 3, "stream": False}
    assert client.post(RESPONSES, json=given).json()["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("path", [CHAT, COMPLETION, RESPONSES])
def test_a_body_that_is_no_request_gets_an_error_in_openais_form(client, path):
    for body in (b"", b"{", b"[]", b"5", b'"x"', b"\xff", b"{}", b"[" * 100_000):
        error_in(client.post(path, content=body, headers={"Content-Type": "application/json"}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", None), ("messages", []), ("max_tokens", 0), ("logit_bias", {"999999999": 1})],
)
def test_a_field_that_is_missing_or_bad_is_named(client, field, value):
    body = {name: each for name, each in (ASK | {field: value}).items() if each is not None}
    assert error_in(client.post(CHAT, json=body))["param"] == field


def test_a_model_that_is_not_there_and_an_unknown_field_are_named(client):
    assert "adapter" in error_in(client.post(CHAT, json=ASK | {"model": "gpt"}), 404)["message"]
    assert "colour" in error_in(client.post(CHAT, json=ASK | {"colour": 5}), 422)["message"]
    error_in(client.get("/v1/nothing"), 404)


def test_a_conversation_longer_than_the_model_reads_is_refused(client, sides):
    long = "say 1 " * sides[0].positions
    asked = ASK | {"messages": [{"role": "user", "content": long}]}
    assert error_in(client.post(CHAT, json=asked))["code"] == "context_length_exceeded"
    given = {"model": "base", "prompt": long}
    assert error_in(client.post(COMPLETION, json=given))["param"] == "prompt"


def test_a_request_of_any_size_takes_little_memory(client):
    def pieces():
        yield b'{"model": "'
        for _ in range((MOST_BYTES >> 20) + 2):
            yield b"x" * (1 << 20)

    error_in(client.post(CHAT, content=pieces()), 413)


@pytest.mark.parametrize("template", [LOOP, "{{ raise_exception('never') }}"])
def test_a_template_that_does_not_render_is_an_error_and_the_next_request_is_answered(
    sides, renderer, template
):
    side = sides[1]
    own = copy.copy(side.tokenizer)
    own.chat_template = "{% if messages|length > 1 %}" + template + "{% endif %}fine"
    app = application([replace(side, tokenizer=own)], renderer)
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        longer = ASK | {"messages": ASK["messages"] * 2, "max_tokens": 2}
        assert "template" in error_in(client.post(CHAT, json=longer))["message"]
        assert client.post(CHAT, json=ASK | {"max_tokens": 2}).status_code == 200


def test_a_fault_of_the_server_is_an_error_in_openais_form(client, sides, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(type(sides[0]), "positions", property(fails))
    response = client.post(CHAT, json=ASK)
    assert error_in(response, 500)["type"] == "server_error"
    assert "secret" not in json.dumps(response.json())


def test_only_this_computers_names_are_answered(client):
    assert client.get("/v1/models", headers={"Host": "strange.example"}).status_code == 400
    assert client.get("/v1/models").json()["data"][0]["id"] == "base"


@pytest.fixture(scope="module")
def place(client):
    """Yield the endpoint's address."""
    with listening(0) as held:
        answering = server(client.app)
        thread = threading.Thread(target=answering.run, kwargs={"sockets": [held]})
        thread.start()
        until(lambda: answering.started)
        yield held.getsockname()
        answering.should_exit = True
        thread.join(HANG)


def is_answered(place: tuple[str, int]) -> bool:
    line = HTTPConnection(*place, timeout=HANG)
    line.request("GET", "/health")
    status = line.getresponse().status
    line.close()
    return status == 200


def test_whatever_strangers_send_the_next_request_is_answered(place, capfd):
    @quick
    @given(rubbish())
    def sent(content: bytes) -> None:
        send(place, content)

    sent()
    assert send_endlessly(place) < LITTLE
    assert is_answered(place)
    assert capfd.readouterr().err == ""


def test_connections_without_a_request_keep_nobody_out(place):
    half = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
    with ExitStack() as lines:
        held = [lines.enter_context(socket.create_connection(place)) for _ in range(MOST_IDLE)]
        for line in held[::2]:
            line.sendall(half)
        for _ in range(MOST_IDLE):
            lines.enter_context(socket.create_connection(place))
        for line in held:
            line.settimeout(HANG)
            with suppress(ConnectionError):
                assert line.recv(1) == b""
        assert is_answered(place)
