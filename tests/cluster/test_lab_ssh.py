"""Preflight and SSH on the lab: from a password login to keys, and what stands in the way."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from support.facts import assert_line
from support.lab import STATE, Controller, as_root, lab, machines, on
from support.waiting import HANG

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rotated("the stages preflight and ssh alone"),
]

PINNED, KEY = STATE / "pinned", STATE / "id_ed25519"
NODES = {"tower": "198.51.100.11", "laptop": "198.51.100.12", "oldbox": "198.51.100.13"}
PREFLIGHT, SSH = "playbooks/provision/preflight.yml", "playbooks/provision/ssh.yml"


@pytest.fixture(scope="module")
def play(tmp_path_factory) -> Iterator[Callable[..., str]]:
    """Three bare machines: a function that plays on them and returns the screen."""
    controller = Controller(tmp_path_factory.mktemp("home"))

    def run(*arguments: object, status: int = 0) -> str:
        screen = controller.play(*arguments, status=status)
        assert not (controller.folder / "home/.ssh").exists()
        return screen

    with machines():
        yield run


@pytest.fixture(scope="module")
def joined(play) -> str:
    """The screen of the first run; afterwards all machines take keys."""
    return play(PREFLIGHT, SSH)


def login(node: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Log in as a person would who has the key and the pinned host keys, and no password."""
    given = {
        "ProxyCommand": f"nsenter --net={STATE}/net nc %h %p",
        "UserKnownHostsFile": PINNED,
        "HostKeyAlias": node,
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "IdentityFile": KEY,
        "ConnectTimeout": "10",
    }
    words = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run(
        ["ssh", "-F", "none", *words, *options, f"lab@{NODES[node]}", "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def test_check_mode_on_bare_machines_shows_their_keys_and_changes_nothing(play):
    screen = play(PREFLIGHT, SSH, "--check", "--diff")
    assert "Log in by key: changed on laptop, oldbox, tower" in screen
    assert not KEY.exists()
    for node in NODES:
        fingerprint = on(node, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
        assert_line(screen, node, fingerprint, PINNED)
        assert on(node, "ls -d ~/.ssh /var/lib/hearth 2>/dev/null || echo none") == "none"
    names = sorted(line.split()[0] for line in PINNED.read_text().splitlines())
    assert names == sorted(NODES)


def test_all_that_stands_in_the_way_on_any_machine_comes_at_once(play):
    as_root("laptop", "sed -i s/^VERSION_ID=.*/VERSION_ID=11/ /etc/os-release")
    try:
        screen = play(
            PREFLIGHT,
            *("-e", "ansible_become_password=wrong", "-e", "hearth_python=/nowhere/bin/python"),
            *("-e", "_preflight_disk_gb=1000000"),
            status=2,
        )
    finally:
        as_root("laptop", "sed -i s/^VERSION_ID=.*/VERSION_ID=12/ /etc/os-release")
    assert_line(screen, "laptop", "Debian GNU/Linux")
    assert_line(screen, "1000000 GB", "Python environment", "cpu.lock")
    assert_line(screen, "sudo", "password")
    assert "Nothing was changed on any machine" in screen
    assert "Traceback" not in screen


def test_a_user_without_sudo_is_told_so(play):
    as_root("oldbox", "useradd -m guest && echo guest:guest | chpasswd")
    screen = play(
        PREFLIGHT,
        *("-l", "oldbox", "-e", "ansible_user=guest", "-e", "ansible_password=guest"),
        *("-e", "ansible_become_password=guest"),
        status=2,
    )
    assert_line(screen, "oldbox", "guest", "adduser guest sudo")


def test_an_expired_password_is_forgotten_as_soon_as_it_is_cured(play):
    """SSH keeps a connection; an error at its opening must not outlive the cure."""
    as_root("laptop", "chage -d 0 lab")
    try:
        screen = play(PREFLIGHT, status=2)
    finally:
        as_root("laptop", "chage -d $(($(date +%s) / 86400)) lab")
    assert_line(screen, "laptop", "expired", "passwd")
    assert "Nothing was changed on any machine" in screen
    play(PREFLIGHT)


def test_a_home_for_whose_sake_sshd_takes_no_key_is_named(play):
    as_root("oldbox", "chmod 777 /home/lab")
    try:
        screen = play(PREFLIGHT, status=2)
    finally:
        as_root("oldbox", "chmod 700 /home/lab")
    assert_line(screen, "oldbox", "StrictModes", "chmod go-w /home/lab")


def test_a_password_login_becomes_a_login_by_key(joined):
    assert "Log in by key: changed on laptop, oldbox, tower" in joined
    assert f"made in {KEY}" in joined
    assert KEY.stat().st_mode & 0o777 == 0o600
    for node in NODES:
        assert login(node).returncode == 0
        assert on(node, "stat -c %a ~/.ssh ~/.ssh/authorized_keys").split() == ["700", "600"]
        assert "BEGIN" not in on(node, "cat ~/.ssh/authorized_keys")


def test_a_key_that_is_there_is_used_and_lines_that_are_there_stay(joined, play):
    before = KEY.read_bytes()
    on("laptop", "printf 'ssh-ed25519 AAAA another\\n' > ~/.ssh/authorized_keys")
    on("laptop", "chmod 666 ~/.ssh/authorized_keys")
    screen = play(SSH)
    assert "Log in by key: changed on laptop\n" in screen
    assert KEY.read_bytes() == before
    assert on("laptop", "head -n 1 ~/.ssh/authorized_keys") == "ssh-ed25519 AAAA another"
    assert on("laptop", "stat -c %a ~/.ssh/authorized_keys") == "600"
    assert login("laptop").returncode == 0


def test_a_second_run_changes_nothing(joined, play):
    screen = play(PREFLIGHT, SSH)
    assert screen.splitlines()[-1] == "laptop changed=0 · oldbox changed=0 · tower changed=0"
    assert "pinned" not in screen


def test_rank_0_logs_in_on_the_workers_with_a_key_that_is_good_for_nothing_else(joined):
    for worker in ("laptop", "oldbox"):
        assert on("tower", f"ssh -o BatchMode=yes {worker} hostname") == worker
    # No terminal, no forwarding.
    assert "PTY allocation request failed" in on("tower", "ssh -tt laptop true 2>&1 || true")
    refused = on("tower", "ssh -o BatchMode=yes -W 127.0.0.1:22 laptop 2>&1 || true")
    assert "prohibited" in refused
    # Not from anywhere else, even with the private key.
    private = on("tower", "cat ~/.ssh/hearth_cluster")
    on("oldbox", f"umask 077; printf '%s\\n' '{private}' > ~/stolen")
    ssh = "ssh -i ~/stolen -o BatchMode=yes -o StrictHostKeyChecking=no"
    assert "Permission denied" in on("oldbox", f"{ssh} {NODES['laptop']} true 2>&1 || true")
    assert on("tower", "stat -c %a ~/.ssh/hearth_cluster") == "600"
    assert "hearth_cluster" not in on("laptop", "ls ~/.ssh")


def test_rank_0s_login_is_taken_back_where_it_is_not_wanted(joined, play):
    screen = play(SSH, "-e", "ssh_between_nodes=off")
    assert "Set or take back rank 0's login: changed on laptop, oldbox" in screen
    assert "Permission denied" in on("tower", "ssh -o BatchMode=yes laptop true 2>&1 || true")
    assert "restrict" not in on("oldbox", "cat ~/.ssh/authorized_keys")
    assert login("oldbox").returncode == 0
    play(SSH)
    assert on("tower", "ssh -o BatchMode=yes laptop hostname") == "laptop"


def test_no_password_is_shown_however_much_is(joined, play, tmp_path):
    """As a user of its own, with a password that is easy to find."""
    password = "distinctive-words-81736"
    as_root("oldbox", f"useradd -m -s /bin/bash -G sudo her && echo her:{password} | chpasswd")
    vault = tmp_path / "passwords.yml"
    vault.write_text(
        f"ansible_user: her\nansible_password: {password}\nansible_become_password: {password}\n"
        f"ansible_control_path_dir: {tmp_path}/cp\n"
    )
    screen = play(PREFLIGHT, SSH, "-l", "oldbox", "-e", f"@{vault}", "-vvv", "--diff")
    assert "hearth_authorized" in screen
    assert password not in screen
    assert as_root("oldbox", "grep -c ssh-ed25519 /home/her/.ssh/authorized_keys") != "0"


def test_a_machine_is_found_where_it_is_today(joined, play):
    screen = play(
        SSH,
        *("-l", "tower", "-e", "cluster_address=198.51.100.99"),
        *("-e", f"first_address={NODES['tower']}", "--check"),
    )
    assert "cannot be reached" not in screen


def test_a_machine_that_is_off_is_named_and_the_others_are_done(joined, play):
    lab("power-off", "oldbox")
    as_root("laptop", "rm ~lab/.ssh/authorized_keys")
    try:
        screen = play(SSH, "-e", "_machine_timeout=20", status=4)
    finally:
        lab("power-on", "oldbox")
    assert_line(screen, "oldbox", NODES["oldbox"])
    assert "Log in by key: changed on laptop\n" in screen
    assert re.search(r"laptop changed=\d · oldbox changed=0 unreachable · tower", screen)


def test_a_changed_host_key_explains_itself_and_nothing_is_sent(joined, play):
    anew = "rm /etc/ssh/ssh_host_* && ssh-keygen -qA && systemctl restart ssh"
    as_root("laptop", f"{anew} && journalctl --rotate && journalctl --vacuum-time=1s")
    subprocess.run(["ssh-keygen", "-R", NODES["laptop"], "-f", STATE / "known_hosts"], check=True)
    logins = "journalctl -u ssh | grep -cE 'Accepted|Failed' || true"
    screen = play(SSH, status=2)
    assert as_root("laptop", logins) == "0"  # none was even tried
    assert_line(screen, "laptop", "host key", "198.51.100.12")
    assert "@@@" not in screen
    shown = on("laptop", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert f"present  {shown}" in screen
    forget = re.search(r"play again: +(ssh-keygen -R laptop -f \S+)", screen)[1]

    subprocess.run(forget.split(), check=True, capture_output=True, timeout=10)
    screen = play(SSH)
    assert_line(screen, "laptop", shown)
    assert as_root("laptop", logins) != "0"
    assert on("tower", "ssh -o BatchMode=yes laptop hostname") == "laptop"
