"""The live page: its content, who may open it, and that it is read-only."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import threading
from contextlib import closing, contextmanager

import pytest
from support.browser import CHROMIUM, Browser
from support.facts import assert_names, refuses
from support.metric_lines import start_line, step_line
from support.relayed import StandInCheckout, lines, state
from support.repository import ROOT
from support.waiting import until

from hearth.base.errors import HearthError
from hearth_controller.report.live import live_page
from hearth_controller.watch.server import Gathering, PageServer

RECORDED = ROOT / "tests" / "fixtures" / "run" / "evening"
NODES = ("desk", "laptop")
TIME = "2026-11-22T03:10:00.000+00:00"
STEPS = [step_line(50, 30, step=n, loss=4 - n / 20, time=TIME) for n in range(1, 31)]


def run_entry(name, run_state="finished", **more):
    """Return a run of a status."""
    unknown = ("why", "job", "script", "loss", "tokens_per_second", "eta_seconds", "checkpoint")
    known = {"name": name, "state": run_state, "step": 30, "steps": 60, "nodes": [], "missing": []}
    return dict.fromkeys(unknown) | known | {"stopping": False, "since": None} | more


def node_entry(name, **more):
    """Return a node of a status."""
    facts = {"cores": 8, "cpu_percent": 12.0, "memory": None, "network": None, "gpus": []}
    return {"name": name, "answers": True, "run": None, "gpu_trouble": None, **facts, **more}


def status(*runs, **more):
    """Return a status with these runs on two nodes."""
    found = {"time": TIME, "verdict": "good", "reasons": [], "runs": [*runs]}
    return found | {"nodes": [node_entry(node) for node in NODES], **more}


@contextmanager
def served(page=lambda name: f"<p>page of {name or 'the newest'}</p>", address="127.0.0.1"):
    """Provide a server of these pages."""
    server = PageServer(address, 0, page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def ask(server, path="/", method="GET", **headers):
    """Return status, headers and text of an answer; `headers` with underscores for hyphens."""
    with closing(http.client.HTTPConnection(*server.server_address[:2], timeout=60)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


@pytest.fixture
def guarded(monkeypatch):
    """Provide a server that takes loopback for an address of the cluster."""
    monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", property(lambda self: False))
    with served() as server:
        yield server


def test_at_loopback_the_page_needs_no_token():
    with served() as server:
        assert not server.token
        assert ask(server)[::2] == (200, "<p>page of the newest</p>")
        assert ask(server, "/runs/a%20b")[2] == "<p>page of a b</p>"


def test_the_token_is_taken_once_from_the_address_and_then_from_a_cookie(guarded):
    assert guarded.token in guarded.url
    assert ask(guarded)[0] == 403
    assert ask(guarded, "/live.js")[0] == 403
    code, headers, _ = ask(guarded, f"/runs/evening?token={guarded.token}")
    assert (code, headers["Location"]) == (303, "/runs/evening")
    assert_names(headers["Set-Cookie"], "HttpOnly", "SameSite")
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(guarded, "/runs/evening", Cookie=cookie)[0] == 200


@pytest.mark.parametrize("wrong", ["", "x", "é", "0" * 43])
def test_a_wrong_token_opens_nothing(guarded, wrong):
    for path in (f"/?token={wrong.encode().hex()}", "/"):
        assert ask(guarded, path, Cookie=f"hearth={wrong.encode().hex()}")[0] == 403
    assert ask(guarded, "/", Cookie="a=b; =;; hearth")[0] == 403


def test_a_token_does_not_lead_to_another_site(guarded):
    for path in ("//evil.example/", "/\\evil.example"):
        place = ask(guarded, f"{path}?token={guarded.token}")[1]["Location"]
        assert place.startswith("/")
        assert not place.startswith(("//", "/\\"))


def test_two_servers_have_two_tokens(monkeypatch):
    monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", property(lambda self: False))
    with served() as one, served() as other:
        assert one.token != other.token
        assert len(one.token) > 40


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_what_could_change_something_is_no_method_here(method):
    with served() as server:
        code, headers, _ = ask(server, method=method)
        assert (code, headers["Allow"]) == (405, "GET, HEAD")


def test_a_head_has_the_headers_of_the_page_and_no_text():
    with served() as server:
        code, headers, text = ask(server, method="HEAD")
        assert (code, text) == (200, "")
        assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", "[::1]:80"])
def test_a_site_whose_name_leads_here_reads_nothing(host):
    with served() as server:
        assert ask(server, Host=host)[0] == 403
        assert ask(server, Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/runs/../../etc/passwd",
        "/runs/%2e%2e%2fsecret",
        "/etc/passwd",
        "/runs",
        "/runs/",
        "/runs/a/b",
    ],
)
def test_no_path_leads_out_of_the_known_runs(path, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "run.yml").write_text("password: 7")
    runs = tmp_path / "runs"
    shutil.copytree(RECORDED, runs / "evening")
    with served(Gathering(StandInCheckout(tmp_path), runs).page) as server:
        assert ask(server, path)[0] == 404
        assert ask(server, "/runs/evening")[0] == 200


def test_every_answer_forbids_what_a_page_does_not_need():
    with served() as server:
        for path in ("/", "/live.js", "/nothing"):
            headers = ask(server, path)[1]
            assert_names(headers["Content-Security-Policy"], "default-src 'none'", "'self'")
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "hearth" in headers["Server"]
            assert "Python" not in headers["Server"]


def test_an_unchanged_page_is_not_sent_again():
    with served() as server:
        tag = ask(server)[1]["ETag"]
        assert ask(server, If_None_Match=tag)[::2] == (304, "")
        assert ask(server, "/runs/other", If_None_Match=tag)[0] == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "desk.lan", "192.0.2.7"])
def test_an_address_that_is_none_of_this_computer_is_refused(address):
    with refuses(HearthError, address):
        PageServer(address, 0, lambda name: "")


def test_a_port_that_is_taken_is_named():
    with served() as server, refuses(HearthError, str(server.server_port), "--serve"):
        PageServer("127.0.0.1", server.server_port, lambda name: "")


def test_the_page_has_the_runs_with_their_notes_the_nodes_and_what_is_wrong():
    waits = run_entry("night", "waiting", why="waits for laptop")
    found = status(waits, run_entry("a&b"), verdict="degraded", reasons=["laptop does not answer"])
    html = live_page(found, "", "night", None, ["a&b", "older"])
    assert_names(html, "waits for laptop", "laptop does not answer", "desk", "30 of 60")
    assert 'href="/runs/a%26b"' in html
    assert 'href="/runs/older"' in html
    assert "<b>" not in html


def test_text_of_a_node_is_no_html():
    found = status(run_entry("night", why="<script>alert(1)</script>"))
    html = live_page(found, "<img src=x>", "night", None, [])
    assert "<script>alert" not in html
    assert "<img" not in html


def test_before_the_first_status_the_newest_run_of_this_computer_is_shown(tmp_path):
    assert "Hearth" in Gathering(StandInCheckout(tmp_path), tmp_path / "none").page()
    shutil.copytree(RECORDED, tmp_path / "runs" / "evening")
    page = Gathering(StandInCheckout(tmp_path), tmp_path / "runs").page()
    assert_names(page, "evening", "finished")
    assert page.count("<svg") == 6


@contextmanager
def gathered(checkout, runs):
    """Provide a gathering at work, and a function that returns a page of it."""
    loop, ready = asyncio.new_event_loop(), Gathering(checkout, runs)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    work = asyncio.run_coroutine_threadsafe(ready.gather(), loop)

    async def page(name):
        return ready.page(name)

    try:
        yield lambda name="": asyncio.run_coroutine_threadsafe(page(name), loop).result(60)
    finally:
        work.cancel()
        until(lambda: not asyncio.all_tasks(loop), 60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@pytest.fixture
def under_way(tmp_path):
    """Provide a checkout with a run under way, whose followers have sent 30 steps."""
    checkout = StandInCheckout(tmp_path)
    checkout.plan("status", answer={"facts": status(run_entry("night", "running"))})
    metrics = lines(start_line(*NODES, time=TIME), *STEPS, anew=True)
    events = {node: [state(node, NODES), metrics] for node in NODES}
    events["desk"].append({"progress": "step 30/60"})
    checkout.plan("attach", run="night", events=events, hold=True)
    return checkout


def test_a_run_under_way_is_drawn_from_what_its_followers_send(under_way, tmp_path):
    with gathered(under_way, tmp_path / "runs") as page:
        until(lambda: page().count("<svg") == 6, 90)
        assert_names(page("night"), "is under way", "desk", "laptop", "tokens a second")
        assert page("evening") is None
        for _ in range(3):
            page()
    played = [name for name, _ in under_way.played]
    assert played.count("status") == 1  # not once a request
    assert played.count("attach") == 1


def test_when_status_fails_the_page_says_why(tmp_path):
    checkout = StandInCheckout(tmp_path)
    error = {"node": "", "message": "inventory/home has no group cluster"}
    checkout.plan("status", answer={"ended": "refused", "errors": [error]})
    with gathered(checkout, tmp_path / "runs") as page:
        until(lambda: "no group cluster" in page(), 60)


@pytest.mark.skipif(
    not CHROMIUM and os.environ.get("CI") != "true",
    reason="there is no Chromium (apt-get install chromium)",
)
def test_a_browser_shows_the_page_whole_and_takes_in_what_changes(tmp_path):
    shutil.copytree(RECORDED, tmp_path / "runs" / "evening")
    entry = run_entry("evening", nodes=[{"name": node, "state": "finished"} for node in NODES])
    shown = {"reasons": ["laptop does not answer"]}
    gathering = Gathering(StandInCheckout(tmp_path), tmp_path / "runs")

    def page(name):
        gathering._status = status(entry, **shown)
        return gathering.page(name)

    profile = tmp_path / "profile"
    with served(page) as server, closing(Browser(profile)) as browser:
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                browser.open(server.url, width, scheme)
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                texts = "document.querySelectorAll('svg text')"
                drawn = f"[...{texts}].map(each => each.getBoundingClientRect().height)"
                sizes = [size for size in browser.evaluate(drawn) if size]
                assert min(sizes) > 9
        browser.evaluate("document.querySelector('details').open = true")
        shown["reasons"] = ["laptop is back"]
        until(lambda: "laptop is back" in browser.evaluate("document.body.innerText"), 60)
        assert browser.evaluate("document.querySelector('details').open")
        assert browser.complaints == []
        assert all(address.startswith(server.url) for address in browser.requests)
