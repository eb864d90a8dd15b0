"""Which key logs in, and rank 0's list of workers."""

from __future__ import annotations

import os
import pwd
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from ansible.module_utils.hearth_node.system.user import open_home
from support.facts import assert_names, refuses
from support.plugins import load
from support.programs import run

from hearth.base.errors import HearthError
from hearth_controller.inventory import login

peers = load("action", "hearth_cluster_ssh")
module = load("modules", "hearth_cluster_ssh")
authorized = load("modules", "hearth_authorized")

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+uem/Rim3DPkNcO5w3JqDgxwPepweGSrsUgljlAANw"
AGENTS = f"{KEY} me"
OWN, OTHER, NAMED = ".ssh/id_ed25519", ".ssh/id_rsa", "mine"


def pair(path, passphrase=""):
    """Make a key pair; return its public key without the comment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "me@here", "-f", path)
    return path.with_name(f"{path.name}.pub").read_text().removesuffix(" me@here\n")


@pytest.mark.parametrize(
    ("there", "named", "agents", "chosen"),
    [
        ({NAMED: "", OWN: ""}, NAMED, [AGENTS], NAMED),
        ({OTHER: ""}, "", [AGENTS], "the agent's"),
        ({OWN: "secret words", OTHER: ""}, "", [], OTHER),
    ],
    ids=["the inventory's", "an agent's", "one of the home without a passphrase"],
)
def test_the_key_is_the_inventorys_or_an_agents_or_one_of_the_home(
    tmp_path, there, named, agents, chosen
):
    public = {name: pair(tmp_path / name, passphrase) for name, passphrase in there.items()}
    key, _ = login.choose_key(named and str(tmp_path / named), agents, tmp_path)
    assert key.startswith(public.get(chosen, AGENTS))


@pytest.mark.parametrize(("named", "agents", "to_make"), [("", [], OWN), (NAMED, [AGENTS], NAMED)])
def test_where_there_is_none_one_is_to_be_made(tmp_path, named, agents, to_make):
    key, path = login.choose_key(named and str(tmp_path / named), agents, tmp_path)
    assert (key, path) == ("", tmp_path / to_make)


def test_a_key_with_a_passphrase_that_no_agent_holds_is_explained(tmp_path):
    path = tmp_path / ".ssh" / "id_ed25519"
    public = pair(path, "secret words")
    with refuses(HearthError, path, "passphrase", "ssh-add"):
        login.choose_key("", [], tmp_path)
    assert login.choose_key(str(path), [AGENTS, public], tmp_path)[0] == public


def test_many_that_make_the_key_at_once_make_one(tmp_path):
    path = tmp_path / "new" / "id_ed25519"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(login.make, [path] * 4))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    before = path.read_bytes()
    login.make(path)
    assert path.read_bytes() == before
    assert login.without_passphrase(path)


def test_a_key_counts_as_there_whatever_its_comment_but_with_its_options():
    assert authorized.has([f"{KEY} elsewhere"], AGENTS)
    assert not authorized.has([f'from="10.0.0.1" {AGENTS}'], AGENTS)
    assert authorized.has([f"restrict {AGENTS}"], f"restrict {AGENTS}")
    assert not authorized.has([AGENTS], f"restrict {AGENTS}")


# -- rank 0 ----------------------------------------------------------------------------------------

HERS = {"ssh_worker": {"user": "her"}}
# The controller itself: whoever plays there, and the keys of its own SSH server.
HERE = {"ansible_connection": "local", "ansible_user": "me", "machine_host_keys": ["ssh-rsa CC"]}


@pytest.mark.parametrize(
    ("known", "pinned", "user", "keys"),
    [
        ({"ansible_user": "me"}, f"laptop {KEY}\n", "me", [KEY]),
        ({}, f"laptop {KEY}\n", "", [KEY]),
        (HERS, f"laptop {KEY}\n", "her", [KEY]),
        (HERE | HERS, "", "her", ["ssh-rsa CC"]),
    ],
)
def test_what_rank_0_has_to_know_of_a_worker(tmp_path, known, pinned, user, keys):
    (tmp_path / "known_hosts").write_text(pinned)
    worker = peers.worker("laptop", "10.0.0.2", known, tmp_path / "known_hosts")
    assert (worker["user"], worker["keys"]) == (user, keys)


def test_rank_0_tries_to_log_in_where_a_worker_is_at_its_address(tmp_path):
    up = {"machine_host_keys": [KEY], "machine_present": True} | HERS
    workers = {
        "laptop": up,
        "moving": up | {"machine_present": False},
        "new": up | {"ssh_worker": {}},
        "stranger": up | {"machine_host_keys": []},
    }
    hosts = {
        name: {"cluster_address": f"10.0.0.{number}", **known}
        for number, (name, known) in enumerate({"tower": up, **workers}.items(), 1)
    }
    known = hosts["tower"] | {"inventory_hostname": "tower", "hostvars": hosts}
    known["groups"] = {"cluster": list(hosts)}
    task = SimpleNamespace(
        args={"known_hosts": str(tmp_path / "none")}, async_val=0, check_mode=False
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    plugin = peers.ActionModule(task, connection, *[None] * 3)
    plugin._execute_module = lambda **call: call  # stands in for a node
    call = plugin.run(task_vars=known)
    assert call["task_vars"] is known  # they have the Python of the node
    names = [each["name"] for each in call["module_args"]["workers"]]
    assert (names, call["module_args"]["attempt"]) == (["laptop", "moving", "new"], ["laptop"])


def test_the_controller_as_a_worker_needs_no_ssh_server():
    """Other workers are tried after any answer."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        listens, shut = server.getsockname()[1], unused.getsockname()[1]
        workers = [
            {"name": name, "address": "127.0.0.1", "port": port, "keys": keys}
            for name, port, keys in (
                ("up", listens, ["x y"]),
                ("down", shut, ["x y"]),
                ("bare", listens, []),
                ("remote", shut, ["x y"]),
            )
        ]
        local = {"up", "down", "bare"}
        known = {
            each["name"]: {"ansible_connection": "local" if each["name"] in local else "ssh"}
            for each in workers
        }
        assert peers.without_server(workers, known) == ["down", "bare"]


def test_ssh_takes_what_is_written_for_it(tmp_path):
    """OpenSSH itself reads the block."""
    workers = [
        {"name": "laptop", "address": "10.0.0.2", "user": "me", "port": 2222, "keys": ["x y"]},
        {"name": "oldbox", "address": "10.0.0.3", "user": "", "keys": ["x z", "v w"]},
    ]
    file = tmp_path / "config"
    file.write_text(module.config_of(workers, "/home/a b/known", "/home/a b/key"))

    def message_of(name):
        lines = run("ssh", "-G", "-F", file, name).stdout.splitlines()
        return dict(line.split(" ", 1) for line in lines if " " in line)

    laptop = message_of("laptop")
    assert (laptop["hostname"], laptop["port"], laptop["user"]) == ("10.0.0.2", "2222", "me")
    assert laptop["stricthostkeychecking"] in ("true", "yes")
    assert laptop["identityfile"] == "/home/a b/key"
    assert "/home/a b/known" in laptop["userknownhostsfile"]
    assert message_of("oldbox")["hostkeyalias"] == "oldbox"
    assert message_of("elsewhere")["hostname"] == "elsewhere"
    assert module.known_hosts_of(workers) == "laptop x y\noldbox x z\noldbox v w\n"


@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [
        (0o755, 0, ()),
        (0o777, 0, ("chmod go-w",)),
        (0o775, 0, ("chmod go-w",)),
        (0o755, 1, ("chown guest",)),
    ],
)
def test_a_home_for_whose_sake_sshd_takes_no_key_is_named(mode, owner, words, tmp_path):
    tmp_path.chmod(mode)
    if os.getuid() == 0:  # whose homes sshd takes as anybody's
        os.chown(tmp_path, 4242, -1)
    its = tmp_path.stat().st_uid + owner
    found = open_home(pwd.struct_passwd(("guest", "x", its, 1, "", str(tmp_path), "/bin/sh")))
    assert bool(found) == bool(words)
    assert_names(found, *words)
