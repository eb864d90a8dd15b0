"""chat.py as a person calls it: at a terminal, in a pipe, as an endpoint, and where it cannot."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import openai
import psutil
import pytest
from support.facts import assert_names
from support.finished import make_run
from support.ranks import environment, python, refused, succeeded, train_forked
from support.supervisors import TRAINING
from support.terminal import CTRL_C, CTRL_D, Terminal
from support.waiting import HANG

CHAT = TRAINING / "chat.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model):
    """The folder of a person with one run."""
    folder = tmp_path_factory.mktemp("home")
    make_run(folder / "runs", "evening", tiny_model)
    return folder


@pytest.mark.rotated
def test_at_a_terminal_ctrl_c_ends_an_answer_only(home):
    words = (sys.executable, CHAT, "evening", "--max-tokens", "1500")
    with Terminal(*words, cwd=home, variables=environment(home)) as terminal:
        at = terminal.until("> ", terminal.until("/help"))
        terminal.type("say 2\n")
        at = terminal.until("say 2.*\n.*\\w", at)
        terminal.type(CTRL_C)
        at = terminal.until(r"stopped\)", at)
        at = terminal.until("> ", at)
        terminal.type("half a line")
        at = terminal.until("half a line", at)
        at = terminal.until("Ctrl-D", at, press=CTRL_C)
        terminal.type("/base\n/adaptr\n")
        at = terminal.until("did you mean 'adapter'", at)
        terminal.until("> ", at)  # before its prompt is shown, input() takes Ctrl-D for another key
        terminal.type(CTRL_D)
        assert terminal.ended() == 0


def test_in_a_pipe_the_answers_follow_their_prompts(home):
    typed = "say 1\n/base\nsay 2\n"
    done = subprocess.run(
        [sys.executable, str(CHAT), "runs/evening", "--max-tokens", "9"],
        input=typed,
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    succeeded(done)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    at = [lines.index(line) for line in ("> say 1", "> /base", "> say 2")]
    assert at == sorted(at)
    assert len(re.findall(r"^\(\d+ tokens", done.stdout, re.M)) == 2


@pytest.mark.rotated
def test_as_an_endpoint_both_are_models_of_openais_client(home):
    command = [sys.executable, str(CHAT), "evening", "--serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            said = [server.stdout.readline() for _ in range(4)]
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1 ", "".join(said))[1])
            assert_names("".join(said), f"-L {port}:127.0.0.1:{port}")
            sockets = psutil.Process(server.pid).net_connections(kind="inet")
            listening = {each.laddr for each in sockets if each.status == psutil.CONN_LISTEN}
            assert listening == {("127.0.0.1", port)}
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
            assert [model.id for model in client.models.list()] == ["base", "adapter"]
            wanted = {
                "messages": [{"role": "user", "content": "say 1"}],
                "temperature": 0,
                "max_completion_tokens": 12,
            }
            answers = {}
            for model in ("base", "adapter"):
                whole = client.chat.completions.create(model=model, **wanted)
                assert whole.usage.completion_tokens == 12
                answers[model] = whole.choices[0].message.content
                stream = client.chat.completions.create(model=model, stream=True, **wanted)
                pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
                assert len(pieces) > 3
                assert answers[model].startswith("".join(pieces))
            assert answers["base"] != answers["adapter"]
            with pytest.raises(openai.NotFoundError, match="adapter"):
                client.chat.completions.create(model="gpt", **wanted)
            strange = client.with_options(default_headers={"Host": "strange.example"})
            with pytest.raises(openai.BadRequestError):
                strange.models.list()
            refused(train_forked(home, 1, "evening", "--serve", "--port", port, script=CHAT), port)
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            finally:
                server.kill()
    assert server.returncode == 0


@pytest.mark.rotated
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_endpoint_that_is_at_work_and_the_reason_is_said(home, number):
    command = [sys.executable, str(CHAT), "evening", "--serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            said = "".join(server.stdout.readline() for _ in range(4))
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1 ", said)[1])
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
            ask = {"model": "base", "messages": [{"role": "user", "content": "say 1"}]}
            stream = client.chat.completions.create(**ask, stream=True, max_tokens=2000)
            next(iter(stream))
            server.send_signal(number)
            assert server.wait(30) == 0
            last = server.stdout.read().splitlines()[-1]
        finally:
            server.kill()
    assert_names(last, "the endpoint has ended", number.name)


def test_what_cannot_answer_is_told_why_in_one_message(home, tiny_model):
    def assert_message(*words, facts):
        text = refused(train_forked(home, 1, *words, script=CHAT), *facts)
        assert text.count("hearth: error:") == 1

    assert_message("evning", facts=["evning", "did you mean 'evening'"])
    assert_message(tiny_model, facts=[tiny_model, "not a run"])
    make_run(home / "runs", "early", tiny_model, adapter=False)
    assert_message("early", facts=["early", "resume=early"])
    assert_message("evening", "--best", facts=["best", "eval_every"])
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert_message("evening", "--serve", "--port", port, facts=[port])


def test_help_is_answered_without_loading_anything(home):
    done = succeeded(python(home, "-X", "importtime", CHAT, "--help"))
    assert "--serve" in done.stdout
    assert " torch\n" not in done.stderr
