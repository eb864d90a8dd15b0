"""torchrun with a store that listens on rank 0's cluster address and answers the nodes only.

    python -m hearth.trainer.torchrun …      takes the options of python -m torch.distributed.run

Given `--start-method fork`, if torch is a build for CPUs, it imports once what Hearth's ranks need
and forks them. Environment variables that it needs to import Hearth are not passed on to a user's
script.

The ranks find each other through that store, which has no authentication: who reaches it can take a
rank's place. torch's own listens on every interface of the machine, including those of a VPN or of
a guest Wi-Fi. HEARTH_STORE_CLIENTS holds the addresses that this one answers.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from argparse import Namespace
from importlib import import_module

import torch
from torch.distributed import TCPStore
from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous import RendezvousInfo, static_tcp_rendezvous
from torch.distributed.launcher.api import elastic_launch

from hearth.base.entry import loading, print_findings
from hearth.base.errors import LaunchError
from hearth.base.interface import port_error
from hearth.base.packet_filter import listening
from hearth.supervisor.workers import NOT_FOR_RANKS, STORE_CLIENTS


class AtOneAddress(static_tcp_rendezvous.StaticTCPRendezvous):
    """The static rendezvous with a store on `master_addr` that answers only `clients`."""

    clients: tuple[str, ...] = ()

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the ranks' rendezvous; on rank 0's node the store is opened first.

        Raises:
            LaunchError: the port is taken.
        """
        if self.rank == 0 and self._store is None:
            self._store = TCPStore(
                self.master_addr,
                self.master_port,
                self.world_size,
                is_master=True,
                timeout=self.timeout,
                multi_tenant=True,
                master_listen_fd=self._listening(),
                use_libuv=False,  # libuv does not accept a listening socket (torch 2.13)
            )
        return super().next_rendezvous()

    def _listening(self) -> int:
        """Return the descriptor of the store's socket."""
        try:
            listener = listening(self.master_addr, self.master_port, self.clients)
        except OSError as error:
            raise port_error(self.master_addr, self.master_port, error) from error
        if not listener.filtered:
            print(
                "hearth: this kernel takes packet filters from root only, so that the ranks' store "
                f"answers whoever reaches {self.master_addr}; firewall_restrict: true shuts others "
                "out",
                file=sys.stderr,
            )
        return listener.detach()


def _fork_ranks(options: Namespace) -> None:
    """Be torchrun for a script of Hearth's: import what the ranks need, then fork them.

    A rank then starts without importing torch and transformers again, a third of a short run's
    start. Only where torch cannot use a GPU: CUDA does not survive a fork.
    """
    with loading():
        import_module("hearth.trainer.assembly")
        import_module("hearth.trainer.in_place")
        import_module("hearth.model.load").import_backend("transformers")
    config, _, _ = torchrun.config_from_args(options)
    elastic_launch(config, rank)(options.training_script, *options.training_script_args)


def rank(script: str, *words: str) -> None:
    """Run `script` as this forked rank, as Python would run it in a process of its own."""
    # torchrun's own are inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for handled in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(handled, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):  # whole lines, which ranks of one log do not mix
        stream.reconfigure(line_buffering=True, write_through=False, errors="backslashreplace")
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception:
        sys.excepthook(*sys.exc_info())  # torch's, which puts the rank before every line
        sys.exit(1)


def main() -> int:
    """Run torchrun; return 2 if the store cannot listen."""
    for name in os.environ.pop(NOT_FOR_RANKS, "").split():
        os.environ.pop(name, None)
    AtOneAddress.clients = tuple(os.environ.pop(STORE_CLIENTS, "").split())
    # torchrun looks up the handler of `--rdzv-backend static` by this name.
    static_tcp_rendezvous.StaticTCPRendezvous = AtOneAddress
    options = torchrun.parse_args(None)
    try:
        if options.start_method == "fork" and not torch.backends.cuda.is_built():
            _fork_ranks(options)
        else:
            torchrun.main()
    except LaunchError as error:
        return print_findings(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
