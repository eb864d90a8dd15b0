#!/usr/bin/python3
"""Stand-in for nvidia-smi on the lab's machines: it reports a card that does not exist.

It knows whether a driver is "loaded", and fails like the real one if the versions of the loaded
module and the library differ. Root can set persistence mode and the limit on power. A driver that
was loaded anew knows neither, and without persistence mode it forgets the limit when its last
program ends, which here is nvidia-smi itself.
"""

import json
import os
import re
import sys
import uuid

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


def kept():
    """Return the settings of the loaded driver: its limit in watts and persistence mode."""
    try:
        with open(GPU["kept"], encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {"watts": GPU["watts"], "persistence": False}


def keep(**changes):
    """Have the driver keep something else; end the program if it is not root's."""
    if os.geteuid() != 0:
        print(f"Unable to change the settings of GPU {BUS}: Insufficient Permissions")
        sys.exit(4)
    text = json.dumps(kept() | changes)
    with open(GPU["kept"], "w", encoding="utf-8") as file:
        file.write(text)


def set_persistence(on):
    """Set persistence mode, since the driver otherwise keeps no limit."""
    keep(persistence=on, **({} if on else {"watts": GPU["watts"]}))
    print(f"{'Enabled' if on else 'Disabled'} persistence mode for GPU {BUS}.\nAll done.")


def set_limit(watts):
    """Set the limit on power."""
    if not GPU["settable"]:
        print(f"Changing power management limit is not supported for GPU: {BUS}.")
        print("Treating as warning and moving on.\nAll done.")
        return
    if not GPU["least"] <= watts <= GPU["most"]:
        print(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be "
            f"between {GPU['least']:.2f} W and {GPU['most']:.2f} W for GPU {BUS}\n"
            "Terminating early due to previous errors."
        )
        sys.exit(2)
    before = kept()
    if before["persistence"]:
        keep(watts=watts)
    else:
        keep()
        print(f"Warning: persistence mode is disabled on device {BUS}.")
    print(
        f"Power limit for GPU {BUS} was set to {watts:.2f} W from {before['watts']:.2f} W.\n"
        "All done."
    )


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

BUS = f"0000{GPU['slot'].upper()}"
for word, wanted in zip(sys.argv[1:], sys.argv[2:], strict=False):
    if word == "-pm":
        set_persistence(wanted == "1")
        sys.exit()
    if word == "-pl":
        set_limit(float(wanted))
        sys.exit()

NOW = kept()
FIELDS = {
    "index": ("0", ""),
    "uuid": (f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, GPU['name'])}", ""),
    "name": (GPU["name"], ""),
    "driver_version": (version, ""),
    "compute_cap": (GPU["capability"], ""),
    "memory.total": (str(GPU["memory"]), " MiB"),
    "memory.reserved": ("300", " MiB"),
    "memory.used": ("1", " MiB"),
    "utilization.gpu": ("0", " %"),
    "temperature.gpu": ("35", ""),
    "power.draw": ("12.50", " W"),
    "power.limit": (f"{NOW['watts']:.2f}", " W"),
    "power.default_limit": (f"{GPU['watts']:.2f}", " W"),
    "power.min_limit": (f"{GPU['least']:.2f}", " W"),
    "power.max_limit": (f"{GPU['most']:.2f}", " W"),
    "persistence_mode": ("Enabled" if NOW["persistence"] else "Disabled", ""),
    "clocks_event_reasons.active": ("0x0000000000000001", ""),  # idle
}
# The part of the `-q -x` output that its readers use.
WHOLE = f"""\
<?xml version="1.0" ?>
<nvidia_smi_log>
    <driver_version>{version}</driver_version>
    <gpu id="{BUS}">
        <product_name>{GPU["name"]}</product_name>
        <fb_memory_usage>
            <total>{GPU["memory"]} MiB</total>
            <reserved>300 MiB</reserved>
            <used>1 MiB</used>
            <free>{GPU["memory"] - 301} MiB</free>
        </fb_memory_usage>
        <gpu_power_readings>
            <current_power_limit>{NOW["watts"]:.2f} W</current_power_limit>
            <default_power_limit>{GPU["watts"]:.2f} W</default_power_limit>
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
