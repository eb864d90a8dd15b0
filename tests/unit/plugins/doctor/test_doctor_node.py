"""Doctor's node checks: real files and processes, stand-ins of nvidia-smi and of ping."""

from __future__ import annotations

import functools
import hashlib
import os
import pwd
import signal
import subprocess
import sys
import time

import psutil
import pytest
from ansible.module_utils.hearth_node.doctor import copies, other_users, surroundings
from ansible.module_utils.hearth_node.driver.gpu_use import gpus_of
from support.modules import call
from support.workspace import under_way

from hearth.model.folder import take_stock
from hearth.ranks.control_protocol import Form
from hearth.supervisor.spec import Spec
from hearth.supervisor.workers import command
from hearth_controller.doctor.examine import CHECKS
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation

PROCESS = (
    "<process_info><pid>{}</pid><type>{}</type><process_name>{}</process_name>"
    "<used_memory>{} MiB</used_memory></process_info>"
)


@pytest.fixture
def supervised(workspace, start):
    """Return a function that starts a process as a supervisor of the workspace does."""
    return functools.partial(start, HEARTH_SUPERVISED=str(workspace))


@pytest.fixture
def rank(supervised) -> subprocess.Popen[str]:
    """Return a process that looks like a rank."""
    return supervised("input()", "scripts/train_distributed.py")


@pytest.fixture
def examine(workspace):
    """Return a function that has doctor's module look at this computer as a node."""
    given = {"verb": "look", "address": "127.0.0.1", "workspace": str(workspace)}
    return lambda **more: call("hearth_examine", **given | more)


@pytest.fixture
def inspect(examine):
    """Return a function that returns the facts of this computer as a node."""
    return lambda **more: examine(**more)["facts"]


def test_this_computer_is_looked_at(inspect):
    said = inspect(peers={"laptop": "127.0.0.2"})
    assert said["card"]["name"] == "lo"
    assert said["paths"] == {}  # nothing is sent over loopback
    assert said["disks"][0]["free_mib"] > 0
    assert 0 < said["memory"]["used_mib"] < said["memory"]["total_mib"]
    assert said["driver"].keys() >= {"cards", "works", "loaded", "modules", "secure_boot"}
    assert said["busy"] == ""
    for nothing in ("orphans", "leftovers", "data", "damaged", "unread"):
        assert said[nothing] == []
    assert said["models"] == {}
    node = ExaminedNode(Observation("desk", 0, "127.0.0.1"), inspection=said)
    for check in CHECKS:
        if check.needs == "inspection":
            assert check.of(node, NodeGroup((node,))).seen


def test_a_rank_that_outlived_its_supervisor_is_found(workspace, rank, inspect):
    assert inspect()["orphans"] == [{"pid": rank.pid, "what": "rank"}]
    assert inspect(workspace=str(workspace.parent / "another"))["orphans"] == []


def test_an_orphaned_torchrun_is_told_from_the_ranks_under_it(workspace, supervised, inspect):
    place = (sys.executable, workspace, "a token")
    spec = Spec("evening", "desk", 0, ("desk",), ("127.0.0.1",), 1, *place)
    words = command(spec, Form(1, ("desk",), "127.0.0.1", 29500, ("127.0.0.1",), fresh=True))
    # What it is told by is its command line, under which anything may run here.
    torchrun = supervised("import time; time.sleep(60)", *words[1:])
    assert inspect()["orphans"] == [{"pid": torchrun.pid, "what": "torchrun"}]


def test_the_processes_of_a_run_under_way_are_no_orphans(workspace, supervised, inspect):
    code = (
        "import subprocess\n"
        "rank = subprocess.Popen(['sleep', '60'])\n"
        "print(rank.pid, flush=True); input(); rank.kill()\n"
    )
    config = workspace / "config" / "evening.json"
    supervisor = supervised(code, "hearth.supervisor", "run", "--spec", config)
    supervisor.stdout.readline()
    with under_way(workspace, "evening"):
        said = inspect()
    assert (said["busy"], said["orphans"]) == ("evening", [])
    supervisor.communicate("\n", timeout=10)


def test_what_is_left_of_ended_runs_is_removed_when_it_is_asked_for(workspace, examine, inspect):
    left, kept = (workspace / "logs" / name for name in (".evening.torchrun", "evening.log"))
    left.mkdir()
    for file in (left / "stderr.log", kept):
        file.touch()
    assert inspect()["leftovers"] == [str(left)]
    for check in (True, False):
        answer = examine(verb="tidy", check=check)
        assert (answer["changed"], answer["removed"]) == (True, [str(left)])
        assert left.exists() == check
    assert kept.exists()
    assert not examine(verb="tidy")["changed"]


def test_a_model_is_compared_by_checksums_and_a_changed_file_is_named(workspace, inspect):
    folder = workspace / "models" / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    manifest = take_stock(folder, "someone/tiny", "hub", "abc")
    manifest.write(folder / "hearth.json")
    os.utime(folder / "config.json")  # another time, the same content
    assert inspect()["models"] == {"tiny": {"fingerprint": manifest.fingerprint, "changed": []}}
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert inspect()["models"]["tiny"]["changed"] == ["model.safetensors"]
    (folder / "hearth.json").write_text("[]")
    assert inspect()["models"]["tiny"]["changed"] == ["hearth.json"]


def test_a_data_file_is_held_to_the_checksum_in_its_name(workspace, inspect):
    name = f"{hashlib.sha256(b'rows').hexdigest()[:12]}-words.jsonl"
    (workspace / "data" / name).write_bytes(b"rows")
    (workspace / "data" / "tokens").mkdir()
    said = inspect()
    assert (said["data"], said["damaged"]) == ([name], [])
    (workspace / "data" / name).write_bytes(b"other rows")
    assert inspect()["damaged"] == [name]


def test_rows_of_the_hub_are_named_with_their_checksums(workspace, inspect):
    (workspace / "data" / "hub").mkdir()
    (workspace / "data" / "hub" / "owner--rows.parquet").write_bytes(b"rows")
    (workspace / "data" / "hub" / ".owner--more.parquet.17").write_bytes(b"half of the ro")
    said = inspect()
    assert said["hub_data"] == ["owner--rows.parquet"]
    assert said["hub_sums"] == {"owner--rows.parquet": hashlib.sha256(b"rows").hexdigest()}
    reader = copies.Reader(most=3)
    assert copies.hub_data(str(workspace), reader) == (["owner--rows.parquet"], {})
    assert reader.unread == [str(workspace / "data" / "hub" / "owner--rows.parquet")]


# -- the home --------------------------------------------------------------------------------------


def test_who_uses_the_gpu_is_told_without_a_run_of_our_own(rank, program, inspect):
    processes = (
        (812, "G", "/usr/lib/xorg/Xorg", 310),
        (4242, "C+G", r"Z:\games\game.exe -fullscreen", 6200),
        (rank.pid, "C", "python", 390),
    )
    xml = (
        "<nvidia_smi_log><gpu><product_name>NVIDIA GeForce RTX 5070 Ti</product_name>"
        "<fb_memory_usage><total>16303 MiB</total><reserved>400 MiB</reserved>"
        "<used>6900 MiB</used></fb_memory_usage>"
        "<gpu_power_readings><current_power_limit>180.00 W</current_power_limit>"
        "<default_power_limit>300.00 W</default_power_limit></gpu_power_readings>"
        f"{''.join(PROCESS.format(*each) for each in processes)}</gpu></nvidia_smi_log>"
    )
    program("nvidia-smi", f"cat <<'XML'\n{xml}\nXML")
    said = inspect()
    assert said["gpu_trouble"] == ""
    (gpu,) = said["gpus"]
    assert (gpu["used_mib"], gpu["ours_mib"], gpu["total_mib"]) == (6900, 390, 16303)
    assert gpu["room_mib"] == 16303 - 400 - (6900 - 390)
    assert (gpu["watts_limit"], gpu["watts_default"]) == (180, 300)
    assert gpu["programs"] == [
        {"pid": 812, "name": "Xorg", "mib": 310, "computes": False},
        {"pid": 4242, "name": "game.exe", "mib": 6200, "computes": True},
    ]


def test_an_older_driver_names_its_limit_on_power_otherwise():
    (gpu,) = gpus_of(
        "<log><gpu><power_readings><power_limit>100.00 W</power_limit>"
        "<default_power_limit>120.00 W</default_power_limit></power_readings></gpu></log>",
        ours=(),
    )
    assert (gpu["watts_limit"], gpu["watts_default"], gpu["used_mib"]) == (100, 120, None)


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo 'no XML'", "nvidia-smi does not say who uses the GPU"),
        ("echo mismatch; exit 18", "nvidia-smi fails: mismatch"),
    ],
)
def test_a_driver_that_does_not_say_is_not_taken_for_an_idle_one(program, inspect, script, trouble):
    program("nvidia-smi", script)
    said = inspect()
    assert (said["gpus"], said["gpu_trouble"]) == ([], trouble)


# -- what the module asks of the machine -----------------------------------------------------------


EMPTIES = {"type": "Battery", "status": "Discharging"}
CHARGES = {"type": "Battery", "status": "Charging"}
PLUGGED, UNPLUGGED = ({"type": "Mains", "online": online} for online in "10")


@pytest.mark.parametrize(
    ("supplies", "on_battery"),
    [
        ([], None),
        ([PLUGGED], None),
        ([EMPTIES], True),
        ([EMPTIES, UNPLUGGED], True),
        ([EMPTIES, PLUGGED], False),
        ([CHARGES, PLUGGED], False),
        ([CHARGES], False),
        ([EMPTIES | {"scope": "Device"}], None),  # a mouse's
    ],
)
def test_a_laptop_on_its_battery_is_told_from_one_that_is_plugged_in(
    tmp_path, supplies, on_battery
):
    for number, files in enumerate(supplies):
        folder = tmp_path / "sys/class/power_supply" / str(number)
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
    assert surroundings.on_battery(str(tmp_path)) is on_battery


def test_the_way_to_a_peer_is_measured_with_full_and_with_small_packets(program, tmp_path):
    lost = f"{tmp_path}/lost"  # a packet that got lost is no verdict on the way
    program(
        "ping",
        f'case "$*" in *192.0.2.1) test -e {lost} || {{ touch {lost}; exit 1; }} ;; '
        '*"-M do"*192.0.2.2) echo "message too long, mtu=1400"; exit 1 ;; '
        '*"-M do"*) exit 1 ;; *192.0.2.4) exit 1 ;; esac',
    )
    peers = {f"n{last}": f"192.0.2.{last}" for last in (1, 2, 3, 4)}
    assert surroundings.paths(1500, peers) == {
        "n1": {"full": True, "small": True, "mtu": None},
        "n2": {"full": False, "small": True, "mtu": 1400},
        "n3": {"full": False, "small": True, "mtu": None},
        "n4": {"full": False, "small": False, "mtu": None},
    }


def test_an_address_of_nobody_is_claimed_by_nobody(inspect):
    # Loopback is no card that can be listened on.
    assert inspect(verb="claims") == {"claimants": {}}


_SUPERVISOR = """
import subprocess, sys
busy = "print(flush=True); [0 for _ in iter(int, 1)]"
child = subprocess.Popen([sys.executable, "-c", busy])
print(flush=True)
child.wait()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user")
def test_a_run_of_another_user_is_named_with_what_it_uses(tmp_path, program, inspect):
    words = ("-m", "hearth.supervisor", "run", "/home/bob/ai-cluster/config/evening.json")
    waiting = ("-m", "hearth.supervisor", "run", "/home/bob/ai-cluster/config/later.json")
    with (
        subprocess.Popen(
            ["/usr/bin/python3", "-Sc", _SUPERVISOR, *words],
            stdout=subprocess.PIPE,
            user=65534,
            cwd="/",
            start_new_session=True,
        ) as theirs,
        subprocess.Popen(
            ["/usr/bin/python3", "-Sc", "input()", *waiting],
            stdin=subprocess.PIPE,
            user=65534,
            cwd="/",
        ) as queued,
    ):
        try:
            for _ in range(2):
                theirs.stdout.readline()
            (rank,) = psutil.Process(theirs.pid).children()
            process = PROCESS.format(rank.pid, "C", "python", 512)
            program("nvidia-smi", f"echo '<a><gpu/><gpu>{process}</gpu></a>'")
            time.sleep(1.5)
            (found,) = inspect()["other_runs"]
            spent = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in (theirs.pid, rank.pid))
            used = spent / (time.time() - found["since"])  # this computer may be busy
            (gpu,) = (each for each in inspect()["gpus"] if each["programs"])
        finally:
            os.killpg(theirs.pid, signal.SIGKILL)
            queued.kill()
    name = pwd.getpwuid(65534).pw_name
    assert (found["user"], found["run"], found["gpus"]) == (name, "evening", [1])
    assert found["processors"] == pytest.approx(used, abs=0.15)
    assert abs(found["since"] - time.time()) < 60
    assert [each["in_run"] for each in gpu["programs"]] == [True]
    assert inspect()["other_runs"] == []


def test_hidden_processes_are_not_taken_for_none(tmp_path):
    (tmp_path / "mounts").write_text("proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    assert other_users.runs_of_others(str(tmp_path), own=1000) is None
    (tmp_path / "mounts").write_text("proc /proc proc rw,nosuid,hidepid=off 0 0\n")
    assert other_users.runs_of_others(str(tmp_path), own=1000) == []
