"""Print facts about the machine that runs this file, as one line of JSON. Changes nothing.

`hearth init` sends it to `python3 -` over SSH, so it works with the standard library of old
Pythons. Texts of commands and files are sent as they are and parsed on the controller. The
arguments are the command that lists NVIDIA's GPUs.
"""

import glob
import grp
import json
import os
import platform
import pwd
import subprocess
import sys

MARK = "hearth-probe: "


def text(path):
    """Return the text of a file, '' if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def output(*command):
    """Return the output of a command, '' if it is missing, fails or takes too long."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=15,
            env=dict(os.environ, PATH=path, LC_ALL="C"),
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def cards():
    """Return vendor and device of the display controllers on the PCI bus."""
    folders = sorted(glob.glob("/sys/bus/pci/devices/*"))
    shown = [each for each in folders if text(each + "/class")[:6] in ("0x0300", "0x0302")]
    return [[text(each + "/vendor")[2:], text(each + "/device")[2:]] for each in shown]


def groups():
    """Return the names of this process's groups, as far as they have one."""
    own = set(os.getgroups())
    return [group.gr_name for group in grp.getgrall() if group.gr_gid in own]


def facts(nvidia_smi):
    """Return the facts. `came_in` is the address that SSH reached this machine by."""
    nics = {os.path.basename(folder): folder for folder in glob.glob("/sys/class/net/*")}
    return {
        "hostname": platform.node(),
        "release": text("/etc/os-release"),
        "arch": platform.machine(),
        "links": output("ip", "-j", "-d", "address"),
        "routes": output("ip", "-j", "-4", "route", "show", "default"),
        "wireless": [nic for nic in nics if os.path.exists(nics[nic] + "/phy80211")],
        "speeds": {nic: text(nics[nic] + "/speed") for nic in nics},
        "cards": cards(),
        "gpus": output(*nvidia_smi),
        "battery": bool(glob.glob("/sys/class/power_supply/BAT*")),
        "root": os.getuid() == 0,
        "groups": groups(),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "came_in": os.environ.get("SSH_CONNECTION", "- - - -").split()[2],
    }


if __name__ == "__main__":
    print(MARK + json.dumps(facts(sys.argv[1:])))
