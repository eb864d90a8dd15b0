"""Messages by the real apprise to servers on loopback, and addresses that it cannot use."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest
from support.facts import assert_names
from support.phone import TOKEN, phone
from support.waiting import until

from hearth.notify.event import Event
from hearth.notify.messages import PhoneMessage
from hearth.notify.outbox import Outbox
from hearth.notify.send import deliver, faults

MESSAGE = PhoneMessage("evening finished", ("34 of 34 steps", "on desk"), "success")
EVENT = Event("finished", "evening", ("desk",), (), 0.0, 60.0, results="/nowhere")


@pytest.fixture
def refusing() -> int:
    """Return a closed port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_message_arrives_as_ntfy_and_as_json_with_the_token():
    with phone() as here:
        assert deliver([here.ntfy, here.json], MESSAGE, 20) == ["ntfy: sent", "json: sent"]
    assert here.titles == ["evening finished"] * 2
    assert {each["body"] for each in here.arrived} == {"34 of 34 steps\non desk"}
    assert sum(TOKEN in str(head) for head in here.heads) == 1  # basic authentication encodes it
    assert {head["User-Agent"] for head in here.heads} == {"Hearth"}
    assert "http" not in str(here.arrived)  # nothing for a phone to fetch


def test_a_server_that_refuses_is_told_by_its_scheme_and_status_alone(refusing):
    with phone(status=403) as here:
        gone = f"json://user:{TOKEN}@127.0.0.1:{refusing}/"
        answers = deliver([here.ntfy, gone, f"nosuch://{TOKEN}"], MESSAGE, 20)
    assert answers == [
        "ntfy: not sent (the server answered 403)",
        "json: not sent (the server did not answer)",
        "nosuch: not an address that apprise knows",
    ]


def test_a_server_that_never_answers_is_given_up_and_holds_up_no_other():
    with phone(answers=False) as silent, phone() as here:
        began = time.monotonic()
        answers = deliver([silent.json, here.json], MESSAGE, 1.0)
        assert time.monotonic() - began < 3
    assert answers == ["json: no answer within 1 s", "json: sent"]
    assert here.titles == ["evening finished"]


def test_addresses_that_cannot_be_used_are_told_by_their_scheme_alone():
    urls = ["ntfy://topic", f"ntffy://{TOKEN}", f"{TOKEN}", f"tgram://{TOKEN}", "json://"]
    found = faults(urls)
    assert len(found) == 4
    assert TOKEN not in str(found)
    for fault, word in zip(
        found, ("ntffy://", "address 3 of 5", "tgram://", "json://"), strict=True
    ):
        assert_names(fault, word)


def test_a_launch_asks_each_node_whether_it_can_use_them(tmp_path):
    spec = tmp_path / "spec"
    command = [sys.executable, "-m", "hearth.notify", "check", "--spec", str(spec)]
    for urls, status in ((f"ntfy://topic json://{TOKEN}@host", 0), (f"nosuch://{TOKEN}", 2)):
        spec.write_text(json.dumps({"secret": urls}))
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == status
        assert len(json.loads(done.stdout)["findings"]) == bool(status)
        assert TOKEN not in done.stdout + done.stderr


def test_an_outbox_returns_at_once_and_logs_what_came_of_it():
    said: list[str] = []
    with phone(answers=False) as silent:
        outbox = Outbox(f"{silent.json} {silent.ntfy}", said.append)
        began = time.monotonic()
        outbox.send(EVENT)
        outbox.collect()
        assert time.monotonic() - began < 1
        assert said == []
    outbox.finish()  # the connections are closed now
    (line,) = said
    assert_names(line, "has finished", "json: not sent", "ntfy: not sent")
    assert TOKEN not in line


def test_without_addresses_no_process_is_started(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    outbox = Outbox("", print)
    outbox.send(EVENT)
    outbox.finish()


def test_the_process_that_sends_shows_no_address(monkeypatch):
    monkeypatch.setenv("HEARTH_NOTIFY", f"json://{TOKEN}")
    monkeypatch.setenv("WANDB_API_KEY", "planted-key")
    monkeypatch.setenv("HEARTH_SUPERVISED", "/home/ada/ai-cluster")
    with phone(answers=False) as silent:
        outbox = Outbox(silent.ntfy, lambda _: None)
        outbox.send(EVENT)
        (sending,) = outbox._sending
        until(lambda: silent.arrived)
        for file in ("cmdline", "environ"):
            with open(f"/proc/{sending.process.pid}/{file}") as told:
                text = told.read()
            assert "planted" not in text
            assert "SUPERVISED" not in text
    outbox.finish()
