"""Limits on the power of a machine's NVIDIA GPUs: their ranges, and the unit that sets one at boot.

`look` asks nvidia-smi; everything else is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible.module_utils.hearth_node.driver.inspect import nvidia_smi

UNIT = "hearth-power-limit.service"
PATH = f"/etc/systemd/system/{UNIT}"

# The driver's daemon holds its settings, so that they are lost when it is started again, also for
# an upgrade. Started for both, the unit must not stay active.
_WANTED_BY = ("multi-user.target", "nvidia-persistenced.service")
LINKS = tuple(f"/etc/systemd/system/{name}.wants/{UNIT}" for name in _WANTED_BY)

_FIELDS = (
    "index",
    "name",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "persistence_mode",
)


@dataclass(frozen=True)
class CardLimit:
    """A GPU: its limit in watts, in force and by default, and the ends of its range.

    A figure that the driver does not report is None. `persistent`: the driver keeps its settings
    while no program uses it.
    """

    index: int
    name: str
    limit: float | None
    default: float | None
    least: float | None
    most: float | None
    persistent: bool

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"

    def is_held_to(self, watts: float) -> bool:
        """Return whether the limit in force is `watts`, as far as the driver's rounding shows."""
        return self.limit is not None and abs(self.limit - watts) < 0.5


def read_limits() -> tuple[list[CardLimit], str]:
    """Return the cards that the driver lists, and the reason in words if it lists none."""
    said, trouble = nvidia_smi(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    cards = cards_of(said)
    return cards, trouble if cards or trouble else "nvidia-smi sees no GPU"


def cards_of(text: str) -> list[CardLimit]:
    """Return the cards in the output of nvidia-smi; lines of anything else are left out."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == len(_FIELDS) and fields[0].isdecimal():
            index, name, *watts, persistence = fields
            figures = map(_figure, watts)
            found.append(CardLimit(int(index), name, *figures, persistent=persistence == "Enabled"))
    return found


def _figure(text: str) -> float | None:
    """Return a figure, None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def findings(watts: int, cards: Sequence[CardLimit]) -> list[str]:
    """Return a finding for each card that cannot be held to `watts`, with its range."""
    found = []
    for card in cards:
        if card.default is None or card.least is None or card.most is None:
            found.append(
                f"power_limit: {watts}: the driver names no range for the power of {card}, so it "
                "cannot be limited; set power_limit: 0 for this node"
            )
        elif not card.least <= watts <= card.most:
            found.append(
                f"power_limit: {watts}: {card} can be held to {card.least:g} to {card.most:g} W "
                f"({card.default:g} W by default); set a value in that range, or 0 for no limit of "
                "Hearth's"
            )
    return found


def unmoved(watts: int, cards: Sequence[CardLimit]) -> list[str]:
    """Return a finding for each card that is not held to `watts` although that was set.

    The driver's tool only warns of a card whose limit is fixed, and ends well.
    """
    return [
        f"power_limit: {watts}: {card} is still held to "
        f"{'an unknown limit' if card.limit is None else f'{card.limit:g} W'}: its firmware does "
        "not let the limit be changed, as in most laptops; set power_limit: 0 for this node"
        for card in cards
        if not card.is_held_to(watts)
    ]


def differences(watts: int, cards: Sequence[CardLimit]) -> list[dict[str, str]]:
    """Return the two sides that `--diff` shows for each card whose limit is another."""
    return [
        {
            "before_header": f"limit of {card}",
            "after_header": f"limit of {card}",
            "before": "unknown\n" if card.limit is None else f"{card.limit:g} W\n",
            "after": f"{watts} W\n",
        }
        for card in cards
        if not card.is_held_to(watts)
    ]


def unit(watts: int, program: str) -> bytes:
    """Return the unit that holds all cards to `watts`; `program` is the path of nvidia-smi.

    It tries again for a while: early in a boot the driver may not answer yet.
    """
    text = f"""\
[Unit]
Description=Limit of {watts} W on the power of each GPU (Hearth, power_limit)
After=nvidia-persistenced.service
ConditionFileIsExecutable={program}
StartLimitIntervalSec=300
StartLimitBurst=6

[Service]
Type=oneshot
# Without persistence mode the driver forgets the limit when the last program leaves the GPU.
ExecStart=-{program} -pm 1
ExecStart={program} -pl {watts}
Restart=on-failure
RestartSec=10

[Install]
WantedBy={" ".join(_WANTED_BY)}
"""
    return text.encode()


def undoing(cards: Sequence[CardLimit]) -> list[list[str]]:
    """Return the commands that set the default limits again once the unit is gone.

    Persistence mode is switched off if it was off on any card before the unit. A driver that is
    gone, or does not answer, has nothing to be set: it begins with the defaults.
    """
    off = "" if all(card.persistent for card in cards) else "nvidia-smi -pm 0 >/dev/null\n"
    query = "--query-gpu=index,power.limit,power.default_limit --format=csv,noheader,nounits"
    script = f"""\
systemctl stop {UNIT} 2>/dev/null
systemctl daemon-reload || exit
cards=$(nvidia-smi {query} 2>/dev/null) || exit 0
echo "$cards" | while IFS=', ' read -r card now default; do
    case $default in "$now" | *[!0-9.]*) ;; *) nvidia-smi -i "$card" -pl "$default" || exit ;; esac
done || exit
{off}"""
    return [["/bin/sh", "-c", script]]
