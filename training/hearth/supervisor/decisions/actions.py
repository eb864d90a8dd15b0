"""Actions: the orders of a node's decisions, which its supervisor carries out one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hearth.ranks.control_protocol import Form, Interrupt, Leave, LoadAlone, Pause
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.voting import Attempt, Config, Votes
from hearth.supervisor.messages import Message, Propose, Stop


@dataclass(frozen=True)
class Say:
    """Write a line into the log."""

    words: str


@dataclass(frozen=True)
class Tell:
    """Send a message to a connected node, or to all without one."""

    message: Message
    node: str = ""


@dataclass(frozen=True)
class TellRanks:
    """Send this order to all ranks of this node, to those that start later, too."""

    order: LoadAlone | Form | Pause | Interrupt | Leave


@dataclass(frozen=True)
class StopRanks:
    """Stop the run: unless at once, write the stop file; it ends trainers after their step."""

    stop: Stop


@dataclass(frozen=True)
class RestartRanks:
    """End this node's ranks, if any live, and start them again; `why` goes into the log."""

    why: str


@dataclass(frozen=True)
class RestRanks:
    """End this node's ranks, if any live, and have none until the owner lets go of the machine."""

    why: str


@dataclass(frozen=True)
class AnswerProposal:
    """The purpose of votes to be saved: to say yes to a proposal of another node."""

    proposer: str
    proposal: Propose


@dataclass(frozen=True)
class ProposeTeam:
    """The purpose of votes to be saved: to send `Propose` to the other voters."""

    attempt: Attempt
    fresh: bool


@dataclass(frozen=True)
class SaveVotes:
    """Put votes on the disk, then tell by `events.Saved` whether they are there.

    It is the last of the actions. `purpose` says what follows; None: nothing, but a disk that took
    no votes may take them now.
    """

    votes: Votes
    purpose: AnswerProposal | ProposeTeam | Form | None = None


@dataclass(frozen=True)
class DropProposal:
    """Forget the own proposal in flight; `why` goes into the log.

    `silent`: the voters that did not answer in time, if that is the reason.
    """

    why: str
    silent: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartTeam:
    """All voters promised the own proposal: send `Form` to the team, this node included.

    The proposer may be in no team itself: a node that leaves may propose. `left` as in `Form`.
    It is the last of the actions.
    """

    config: Config
    fresh: bool
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SayWaiting:
    """Record the nodes that this node waits for, and say so; () when it waits no longer.

    `wanted` has, by node, why its owner wants it, if nothing else holds up the run. They are among
    the `missing`, where a lost node may be that the run can do without.
    """

    missing: tuple[str, ...]
    why: str = ""
    wanted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SayUnreached:
    """Record the pairs of nodes without a connection between ranks; () for none any more."""

    gaps: tuple[str, ...]


@dataclass(frozen=True)
class RecordAway:
    """Record why the owner has the machine, which has no ranks."""

    why: str


@dataclass(frozen=True)
class RecordTraining:
    """Record that this node trains in this team."""

    config: Config


@dataclass(frozen=True)
class RecordEnd:
    """Record that the last team has ended, and the cause if it is known."""

    cause: Cause | None


@dataclass(frozen=True)
class RecordCause:
    """Record why the last team on record ended, which has turned out since."""

    cause: Cause


@dataclass(frozen=True)
class SendVerdict:
    """Tell all connected nodes how the run ends; this node goes on until its state is saved."""

    outcome: LaunchOutcome


@dataclass(frozen=True)
class Conclude:
    """End this node's part with this outcome: end its ranks, record it, close the mesh.

    `everywhere`: it is the outcome of the run, which goes to all connected nodes;
    `heard`: another node's verdict, which was passed on.
    """

    outcome: LaunchOutcome
    everywhere: bool = True
    heard: bool = False


@dataclass(frozen=True)
class Depart:
    """The ranks of this node, which leaves in order, have ended: leave the record open and go."""

    why: str


Action = (
    Say
    | Tell
    | TellRanks
    | StopRanks
    | RestartRanks
    | RestRanks
    | SaveVotes
    | ProposeTeam
    | DropProposal
    | StartTeam
    | SayWaiting
    | SayUnreached
    | SendVerdict
    | RecordAway
    | RecordTraining
    | RecordEnd
    | RecordCause
    | Conclude
    | Depart
)
"""`decide.decide` returns some; `transition` turns those into all. Of a proposal it keeps the votes
to save and the line for the log.
"""

LAST = (SaveVotes, StartTeam, Conclude, Depart)
"""Actions after which this node decides nothing until it hears what came of them."""
