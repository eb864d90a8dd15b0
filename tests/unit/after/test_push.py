"""A push to a stand-in of the Hub: who may, what arrives, and its messages."""

from __future__ import annotations

import json

import pytest
from huggingface_hub import ModelCard
from support.facts import assert_names
from support.stand_in_hub import stand_in_hub

from hearth.after import finished
from hearth.after.push import check_push, push, refused
from hearth.after.request import ResultRequest, by_command
from hearth.base.errors import SupplyError
from hearth.record.events import SharedEvent, read_events

AGAIN = by_command("hearth -i inventory/home", "evening")
LINE = "hearth -i inventory/home share --run evening --push ada/evening"
TO_ADA = ResultRequest(push="ada/evening")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A stand-in of the Hub, whose token this process has."""
    with stand_in_hub() as here:
        for name, text in here.variables.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setenv("HF_TOKEN", here.token)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
        yield here


def refusal(call, *arguments, **more):
    """Return the one finding of a call that must fail."""
    with pytest.raises(SupplyError) as caught:
        call(*arguments, **more)
    (finding,) = caught.value.findings
    return finding


def fine_grained(name, *permissions):
    """Return an owner's description with a token that has these permissions on `name`."""
    scoped = [{"entity": {"name": name}, "permissions": list(permissions)}]
    token = {"displayName": "night", "role": "fineGrained", "fineGrained": {"scoped": scoped}}
    return {"name": "ada", "orgs": [], "auth": {"accessToken": token}}


# Before the run


@pytest.mark.parametrize(
    ("me", "named"),
    [
        ({"name": "eve", "orgs": []}, ["eve", "ada", "one of eve"]),
        ({"name": "eve", "orgs": [{"name": "ada", "roleInOrg": "read"}]}, ["eve/x", "contributor"]),
        ({"name": "ada", "auth": {"accessToken": {"role": "read"}}}, ["may only read", "HF_TOKEN"]),
        (fine_grained("ada", "repo.content.read"), ["night", "ada/x"]),
        (fine_grained("home", "repo.write"), ["night", "ada/x"]),
        (fine_grained("ada", "repo.write"), []),
        (fine_grained("ada/x", "repo.write"), []),
        ({"name": "eve", "orgs": [{"name": "ada", "roleInOrg": "write"}]}, []),
        ({"name": "ada", "auth": {"accessToken": {"role": "write"}}}, []),
    ],
)
def test_a_token_that_may_not_push_is_told_from_one_that_may(me, named):
    finding = refused("ada/x", me)
    assert bool(finding) == bool(named)
    assert_names(finding or "", *named)


def test_the_check_changes_nothing_on_the_hub(hub):
    check_push("ada/evening", True)
    check_push("home/evening", True)
    assert hub.pushed == {}


def test_what_should_be_private_is_not_pushed_where_everybody_reads(hub):
    hub.pushed["ada/evening"] = {}
    check_push("ada/evening", True)
    hub.public.add("ada/evening")
    assert_names(refusal(check_push, "ada/evening", True), "public", "private=off")
    check_push("ada/evening", False)


def test_a_repository_with_files_of_somebody_else_is_not_pushed_to(hub, folder):
    hub.pushed["ada/evening"] = {"model.safetensors": b"another"}
    assert_names(refusal(check_push, "ada/evening", True), "ada/evening", "another repository")
    hub.pushed["ada/evening"] = {".gitattributes": b""}
    assert finished.afterwards(folder, TO_ADA, AGAIN, print)
    check_push("ada/evening", True)  # Hearth's now


def test_no_token_a_false_one_and_a_hub_that_is_down_are_three_findings(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_falseoneoneone")
    false = refusal(check_push, "ada/evening", True)
    assert_names(false, "refuses", "HF_TOKEN")
    assert "hf_falseoneoneone" not in false
    monkeypatch.setenv("HF_TOKEN", hub.token)
    hub.down = True
    assert_names(refusal(check_push, "ada/evening", True), "does not answer", "leave push out")
    monkeypatch.delenv("HF_TOKEN")
    assert_names(refusal(check_push, "ada/evening", True), "no token", "HF_TOKEN")


# After it


def test_weights_and_card_arrive_in_a_private_repository(hub, folder):
    said = []
    assert finished.afterwards(folder, TO_ADA, AGAIN, said.append)
    files = hub.pushed["ada/evening"]
    assert sorted(files) == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    assert files["adapter_model.safetensors"] == b"weights"
    assert hub.public == set()
    card = ModelCard(files["README.md"].decode())
    assert card.data.library_name == "peft"
    assert_names("\n".join(said), f"{hub.url}/ada/evening")
    # Nothing of this home's machines is published.
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "tiny"
    everything = b"".join(files.values()).decode()
    assert not [word for word in ("/home", "desk", "laptop", "oldbox") if word in everything]


def test_a_push_can_be_done_again(hub, folder):
    for _ in range(2):
        assert finished.afterwards(folder, TO_ADA, AGAIN, print)
    places = [each.place for each in read_events(folder) if isinstance(each, SharedEvent)]
    assert places == [f"{hub.url}/ada/evening"] * 2


def test_a_push_that_fails_leaves_the_weights_and_the_line_that_repeats_it(
    hub, folder, monkeypatch
):
    monkeypatch.setattr("hearth.after.push.WAITS", ())
    monkeypatch.setattr("hearth.after.push.push", lambda *given: push(*given, waits=()))
    hub.down, said = True, []
    assert not finished.afterwards(folder, TO_ADA, AGAIN, said.append)
    assert_names("\n".join(said), "does not answer", str(folder / "adapter"), LINE)
    assert hub.token not in "".join(said)
    assert [*read_events(folder)][-1].again == LINE
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == b"weights"


def test_a_hub_that_comes_back_gets_the_push(hub, folder):
    hub.down, said = True, []

    def say(line):
        said.append(line)
        hub.down = False

    push(folder / "adapter", "ada/evening", True, "card", None, say, waits=(0.0, 0.0))
    assert len(said) == 1
    assert "README.md" in hub.pushed["ada/evening"]


def test_a_hub_that_refuses_is_not_asked_again(hub, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_false")
    with pytest.raises(SupplyError):
        push(folder / "adapter", "ada/evening", True, "card", None, pytest.fail, waits=(0.0,))
