"""Names, clocks, power and firewalls of three real machines, and all of it undone again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.facts import assert_line
from support.lab import Controller, as_root, as_user, at_once, lab, machines, tree

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rotated("the stages of names, clocks, power and firewalls alone"),
]

ADDRESSES = {"tower": "198.51.100.11", "laptop": "198.51.100.12", "oldbox": "198.51.100.13"}
STAGES = [f"playbooks/provision/{stage}.yml" for stage in ("names", "time", "power", "firewall")]
MANAGER = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
TARGETS = ("sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate")

# As different machines come: two were installed under other names; on one nothing keeps the clock;
# one has a full name, a name more on its loopback line, and a firewall that is on.
INSTALLED = {
    "tower": "hostnamectl set-hostname ubuntu && sed -i 's/127.0.1.1.*/127.0.1.1 ubuntu tower/' "
    "/etc/hosts",
    "laptop": "hostnamectl set-hostname Laptop-2019 && systemctl disable systemd-timesyncd",
    "oldbox": "sed -i 's/127.0.1.1.*/127.0.1.1\\toldbox.lan oldbox printer/' /etc/hosts && "
    "ufw allow 22/tcp && ufw --force enable",
}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {path for path, _ in before.items() ^ after.items()}


@pytest.fixture(scope="module")
def bare() -> Iterator[dict[str, dict[str, str]]]:
    """Three machines as installed; what each has in /etc."""
    with machines():
        at_once(lambda node: as_root(node, f"set -e; {INSTALLED[node]}"), ADDRESSES)
        yield at_once(tree, ADDRESSES)


@pytest.fixture(scope="module")
def controller(bare, tmp_path_factory) -> Controller:
    return Controller(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def cluster(bare, controller) -> Controller:
    """The controller of the machines after the four stages."""
    controller.play(*STAGES, "--check", "--diff")
    assert at_once(tree, ADDRESSES) == bare, "check mode has changed something"
    controller.play(*STAGES)
    return controller


def test_every_name_means_the_cluster_address_on_every_node(cluster):
    for node in ADDRESSES:
        assert as_root(node, "hostname; cat /etc/hostname") == f"{node}\n{node}"
        asked = as_root(node, f"for name in {' '.join(ADDRESSES)}; do getent ahosts $name; done")
        # Neither loopback nor one of the decoys: three kinds of socket for each name.
        assert [line.split()[0] for line in asked.splitlines()] == [
            address for address in ADDRESSES.values() for _ in range(3)
        ]


def test_other_names_of_a_loopback_line_stay_and_the_full_name_moves_along(cluster):
    assert as_root("oldbox", "getent hosts printer").startswith("127.0.1.1")
    assert as_root("oldbox", "hostname -f") == "oldbox.lan"
    assert as_root("oldbox", "getent ahosts oldbox.lan").split()[0] == ADDRESSES["oldbox"]


def test_every_machine_has_something_that_keeps_its_clock(cluster):
    for node in ADDRESSES:
        assert as_root(node, "systemctl is-enabled systemd-timesyncd") == "enabled"


def test_no_machine_goes_to_sleep(cluster):
    for node in ADDRESSES:
        masks = as_root(
            node, f"systemctl is-enabled {' '.join(f'{t}.target' for t in TARGETS)} || true"
        )
        assert masks.split() == ["masked"] * len(TARGETS)
        keys = "HandleLidSwitch HandleLidSwitchExternalPower HandleLidSwitchDocked IdleAction"
        answers = as_root(node, f"busctl get-property {MANAGER} {keys}")
        assert answers.splitlines() == ['s "ignore"'] * 4


def test_a_firewall_lets_in_the_nodes_and_nobody_else_and_none_is_switched_on(cluster):
    for node in ("tower", "laptop"):
        assert as_root(node, "ufw status") == "Status: inactive"
    as_user("oldbox", "nohup python3 -m http.server 29500 >/dev/null 2>&1 & sleep 1")
    as_root("tower", "ip address add 198.51.100.99/24 dev enp5s0")  # nobody's
    ask = (
        "python3 -c 'import socket, sys; socket.create_connection((sys.argv[2], 29500), 2, "
        "(sys.argv[1], 0))' {} " + ADDRESSES["oldbox"] + " 2>&1 | tail -n 1"
    )
    try:
        assert as_user("tower", ask.format(ADDRESSES["tower"])) == ""
        assert as_user("laptop", ask.format(ADDRESSES["laptop"])) == ""
        assert "timed out" in as_user("tower", ask.format("198.51.100.99"))
    finally:
        as_root("tower", "ip address del 198.51.100.99/24 dev enp5s0")


def test_a_second_run_changes_nothing(cluster):
    screen = cluster.play(*STAGES)
    for node in ADDRESSES:
        assert f"{node} changed=0" in screen


def test_the_rule_of_a_node_that_has_left_goes(cluster):
    gone = "-e", '{"firewall_peers": ["198.51.100.11"]}', "-e", "nodes=oldbox"
    cluster.play("playbooks/provision/firewall.yml", *gone)
    rules = "ufw allow from {} comment 'hearth'"
    added = as_root("oldbox", "ufw show added").splitlines()[1:]
    assert added == [rules.format("198.51.100.11"), "ufw allow 22/tcp"]
    cluster.play("playbooks/provision/firewall.yml", "-e", "nodes=oldbox")
    assert rules.format("198.51.100.12") in as_root("oldbox", "ufw show added")


def test_restricted_only_the_nodes_reach_the_ports_of_a_run(cluster):
    restrict = (
        "playbooks/provision/firewall.yml",
        "-e",
        "nodes=laptop",
        "-e",
        "firewall_restrict=on",
    )
    cluster.play(*restrict)
    as_user("laptop", "nohup python3 -m http.server 45000 >/dev/null 2>&1 & sleep 1")
    as_root("tower", "ip address add 198.51.100.99/24 dev enp5s0")
    dial = (
        "import socket; "
        f"socket.create_connection(('{ADDRESSES['laptop']}', 45000), 2, ('{{source}}', 0))"
    )
    ask = f'python3 -c "{dial}" 2>&1 | tail -n 1'
    try:
        assert as_user("tower", ask.format(source=ADDRESSES["tower"])) == ""
        assert "timed out" in as_user("tower", ask.format(source="198.51.100.99"))
        assert_line(cluster.play(*restrict), "laptop", "changed=0")
    finally:
        as_root("tower", "ip address del 198.51.100.99/24 dev enp5s0")
        as_root("laptop", "pkill -f '[h]ttp.server 45000'")
        cluster.play("playbooks/provision/firewall.yml", "-e", "nodes=laptop")
    assert "hearth" not in as_root("laptop", "nft list tables")


def test_what_a_person_has_to_decide_stops_that_node_only_and_says_how(cluster, tmp_path):
    both = tmp_path / "both.yml"  # as provision.yml has them
    stages = (STAGES[0], STAGES[-1])
    both.write_text("".join(f"- import_playbook: {cluster.checkout / stage}\n" for stage in stages))
    as_root("laptop", 'echo "203.0.113.9 tower nas" >>/etc/hosts')
    as_root("tower", "iptables -P INPUT DROP; iptables -I INPUT -p tcp --dport 22 -j ACCEPT")
    try:
        screen = cluster.play(str(both), status=2)
    finally:
        as_root("tower", "iptables -P INPUT ACCEPT; iptables -F INPUT")
        as_root("laptop", 'sed -i "/203.0.113.9/d" /etc/hosts')
    assert_line(screen, "laptop", "/etc/hosts", "tower is 203.0.113.9")
    assert_line(screen, "nft insert rule ip filter INPUT", "198.51.100.12, 198.51.100.13")
    assert "oldbox:" not in screen


def test_a_power_cut_takes_nothing_away(cluster):
    lab("power-off", "tower")
    lab("power-on", "tower")
    assert as_root("tower", "hostname") == "tower"
    assert as_root("tower", "getent ahosts tower").split()[0] == ADDRESSES["tower"]
    assert as_root("tower", f"busctl get-property {MANAGER} HandleLidSwitch") == 's "ignore"'


def test_a_reset_undoes_nothing_unless_it_is_told_yes(cluster):
    before = tree("oldbox")
    reset = ("playbooks/reset.yml", "-e", "nodes=oldbox")
    screen = cluster.play(*reset, status=2)
    assert "Nothing was undone" in screen
    assert "put back /etc/hosts" in screen
    screen = cluster.play(*reset, "--check")
    assert tree("oldbox") == before


def test_a_machine_that_is_at_work_is_not_reset(cluster):
    as_user(
        "laptop",
        "mkdir -p ai-cluster/config && cd ai-cluster/config && "
        """echo '{"run": "evening", "pid": 1}' >supervisor.lock && """
        "(flock supervisor.lock sleep 3600 >/dev/null 2>&1 &) && sleep 0.2",
    )
    before = tree("laptop")
    screen = cluster.play("playbooks/reset.yml", "-e", "yes=on", "-e", "nodes=laptop", status=2)
    assert_line(screen, "laptop", "'evening'", "under way")
    assert tree("laptop") == before
    as_user("laptop", "pkill -x flock; pkill -x sleep; rm -r ai-cluster")


def test_a_reset_makes_etc_what_it_was_but_for_what_it_names(bare, cluster):
    as_root("laptop", 'echo "203.0.113.9 nas" >>/etc/hosts')
    as_root("laptop", "echo mine >/etc/hostname")
    as_root("oldbox", "echo AllowSuspend=yes >>/etc/systemd/sleep.conf.d/50-hearth.conf")
    for node in ADDRESSES:
        as_user(node, "mkdir -p ai-cluster/scripts/hearth .local/share/hearth/venv")
        as_user(node, "echo scripts >ai-cluster/.hearth-workspace")
    note = "stage=driver note='package nvidia-open 580+standin'"
    assert "SUCCESS" in cluster.module("oldbox", "hearth_record", note, "--become")
    screen = cluster.play("playbooks/reset.yml", "-e", "yes=on", "-e", "remove=workspace")

    assert tree("tower") == bare["tower"]
    assert changed(bare["laptop"], tree("laptop")) == {"etc/hosts", "etc/hostname"}
    assert "127.0.1.1 laptop\n" in as_root("laptop", "cat /etc/hosts")
    assert as_root("laptop", "tail -n 1 /etc/hosts") == "203.0.113.9 nas"
    assert "# hearth" not in as_root("laptop", "cat /etc/hosts")
    kept = "/var/lib/hearth/originals/etc/hostname"
    assert_line(screen, "/etc/hostname", "changed", kept)
    assert as_root("laptop", f"cat {kept}") == "Laptop-2019"
    theirs = {"etc/systemd/sleep.conf.d", "etc/systemd/sleep.conf.d/50-hearth.conf"}
    assert changed(bare["oldbox"], tree("oldbox")) == theirs
    assert_line(screen, "/etc/systemd/sleep.conf.d/50-hearth.conf", "changed")
    said = screen.split("Undo the way in")[-1]
    assert "package nvidia-open 580+standin" in said
    assert "tower: undone\n" in said

    assert [as_root(node, "hostname") for node in ADDRESSES] == ["ubuntu", "mine", "oldbox"]
    assert as_root("tower", f"busctl get-property {MANAGER} HandleLidSwitch") == 's "suspend"'
    assert "hearth" not in as_root("oldbox", "ufw show added")
    assert "Status: active" in as_root("oldbox", "ufw status")
    for node in ADDRESSES:
        assert as_user(node, "ls -d ai-cluster .local/share/hearth 2>/dev/null || true") == (
            ".local/share/hearth"
        )
        left = "originals" if node == "laptop" else ""
        assert as_root(node, "ls /var/lib/hearth 2>/dev/null || true") == left


def test_a_second_reset_has_nothing_to_undo(bare, cluster):
    screen = cluster.play("playbooks/reset.yml")
    assert_line(screen, "laptop, oldbox, tower", "undo")
    for node in ADDRESSES:
        assert f"{node} changed=0" in screen
