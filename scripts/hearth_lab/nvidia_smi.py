#!/usr/bin/python3
"""Stand-in for nvidia-smi on the lab's machines: it reports a card that does not exist.

It knows whether a driver is "loaded", and fails like the real one if the versions of the loaded
module and the library differ.
"""

import json
import os
import re
import sys

with open("/var/lib/lab/gpu.json", encoding="utf-8") as file:
    GPU = json.load(file)
LIBRARY = os.path.realpath(f"/usr/lib/{os.uname().machine}-linux-gnu/libnvidia-ml.so.1")


def loaded():
    """Return the version of the "loaded" module, or ''."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", file.read())[1]
    except FileNotFoundError:
        return ""


def option(name):
    """Return the value of the option `--name=`, or ''."""
    start = f"--{name}="
    return next((word[len(start) :] for word in sys.argv[1:] if word.startswith(start)), "")


version = loaded()
if not version:
    print(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.\n"
    )
    sys.exit(9)
if not LIBRARY.endswith(f".so.{version}"):
    print("Failed to initialize NVML: Driver/library version mismatch")
    print(f"NVML library version: {LIBRARY.split('.so.')[-1]}")
    sys.exit(18)

FIELDS = {
    "index": ("0", ""),
    "name": (GPU["name"], ""),
    "driver_version": (version, ""),
    "compute_cap": (GPU["capability"], ""),
    "memory.total": (str(GPU["memory"]), " MiB"),
    "memory.used": ("1", " MiB"),
    "utilization.gpu": ("0", " %"),
    "temperature.gpu": ("35", ""),
    "power.draw": ("12.50", " W"),
    "power.limit": (f"{GPU['watts']}.00", " W"),
    "clocks_event_reasons.active": ("0x0000000000000001", ""),  # idle
}
# The part of the `-q -x` output that its readers use.
WHOLE = f"""\
<?xml version="1.0" ?>
<nvidia_smi_log>
    <driver_version>{version}</driver_version>
    <gpu id="0000{GPU["slot"].upper()}">
        <product_name>{GPU["name"]}</product_name>
        <fb_memory_usage>
            <total>{GPU["memory"]} MiB</total>
            <used>1 MiB</used>
            <free>{GPU["memory"] - 1} MiB</free>
        </fb_memory_usage>
        <gpu_power_readings>
            <current_power_limit>{GPU["watts"]}.00 W</current_power_limit>
            <default_power_limit>{GPU["watts"]}.00 W</default_power_limit>
        </gpu_power_readings>
        <processes>
        </processes>
    </gpu>
</nvidia_smi_log>"""

if {"-q", "-x"} <= set(sys.argv):
    print(WHOLE)
elif requested := [name.strip() for name in option("query-gpu").split(",") if name]:
    how = option("format").split(",")
    for name in requested:
        if name not in FIELDS:
            print(f'Field "{name}" is not a valid field to query.\n')
            sys.exit(2)
    print(", ".join(FIELDS[n][0] + ("" if "nounits" in how else FIELDS[n][1]) for n in requested))
else:
    print(f"NVIDIA-SMI {version} (a stand-in)    Driver Version: {version}    CUDA Version: 13.0")
    print(f"  0  {GPU['name']}  1MiB / {GPU['memory']}MiB  0%")
