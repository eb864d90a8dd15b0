"""torchrun with a store that listens on rank 0's cluster address only.

    python -m hearth.supervise.torchrun …      takes the options of python -m torch.distributed.run

Environment variables it needs to import Hearth are not passed on to a user's script.

The ranks find each other through that store, which has no authentication. torch's own listens on
every interface of the machine, including those of a VPN or of a guest Wi-Fi.
"""

from __future__ import annotations

import os
import socket
import sys

from torch.distributed import TCPStore
from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous import RendezvousInfo, static_tcp_rendezvous

from hearth.base.errors import LaunchError
from hearth.supervise.interface import family_of, port_error
from hearth.supervise.workers import NOT_FOR_RANKS


class AtOneAddress(static_tcp_rendezvous.StaticTCPRendezvous):
    """The static rendezvous with a store that listens on `master_addr` only."""

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
                master_listen_fd=_listening(self.master_addr, self.master_port),
                use_libuv=False,  # libuv does not accept a listening socket (torch 2.13)
            )
        return super().next_rendezvous()


def _listening(address: str, port: int) -> int:
    """Return the descriptor of a socket that listens on an IP address."""
    family = getattr(socket, family_of(address))
    try:
        return socket.create_server((address, port), family=family, backlog=1024).detach()
    except OSError as error:
        raise port_error(address, port, error) from error


def main() -> int:
    """Run torchrun; return 2 if the store cannot listen."""
    for name in os.environ.pop(NOT_FOR_RANKS, "").split():
        os.environ.pop(name, None)
    # torchrun looks up the handler of `--rdzv-backend static` by this name.
    static_tcp_rendezvous.StaticTCPRendezvous = AtOneAddress
    try:
        torchrun.main()
    except LaunchError as error:
        for finding in error.findings:
            print(f"hearth: error: {finding}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
