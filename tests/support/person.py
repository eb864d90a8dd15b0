"""A person who types `hearth` on the lab's network, with a home and SSH keys of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys

import yaml

from hearth_lab import network, plan
from support.lab import PYTHON, STATE, Controller
from support.programs import stand_in
from support.repository import ROOT
from support.waiting import HANG

SSH_CONFIG = """
Include more
Host *
  UserKnownHostsFile {folder}/known_hosts
  IdentityFile {folder}/id_ed25519
"""
_OF_THE_LAB = (
    *("ansible_password", "ansible_become_password", "python_mode", "python_base", "python_lock"),
    *("hearth_threads", "_driver_repo_url"),
)
HEARTH = "import sys; from hearth_controller.cli import main; sys.exit(main())"
PASSWORDS = (
    "-e",
    f"ansible_password={plan.PASSWORD}",
    "-e",
    f"ansible_become_password={plan.PASSWORD}",
)


class Person(Controller):
    """A person on the lab's network, whose ssh reads the files of a home of its own."""

    def __init__(self, folder):
        super().__init__(folder)
        self.ssh = folder / "home" / ".ssh"
        self.ssh.mkdir(mode=0o700)
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.ssh / "id_ed25519"]
        subprocess.run(keygen, check=True, timeout=HANG)
        (self.ssh / "config").write_text(SSH_CONFIG.format(folder=self.ssh))
        # ssh itself takes the home of the user's entry in /etc/passwd.
        wrapper = stand_in(folder / "bin/ssh", f'exec /usr/bin/ssh -F {self.ssh}/config "$@"')
        self.environment["PATH"] = f"{wrapper.parent}:{self.environment['PATH']}"

    def within(self, *words):
        """Return a command inside the lab's network."""
        program, *options = network.inside(STATE / "net")
        return [shutil.which(program), *options, *map(str, words)]

    def lab_settings(self) -> None:
        """Add to the inventory what holds for machines of the lab only."""
        told = yaml.safe_load((ROOT / "inventory/lab/group_vars/cluster/machines.yml").read_text())
        # The lab's network leads nowhere, so that nothing can be downloaded by who types there.
        kept = {name: told[name] for name in _OF_THE_LAB} | {"hearth_python": PYTHON}
        file = self.checkout / "inventory/home/group_vars/cluster/lab.yml"
        file.write_text(yaml.safe_dump(kept))

    def hearth(self, *words, status=0):
        done = self.call(*self.within(sys.executable, "-c", HEARTH, *words))
        assert done.returncode == status
        return done.stdout

    def plays(self, playbook, *words):
        done = self.call(*self.within("ansible-playbook", playbook, "-i", "inventory/home", *words))
        assert done.returncode == 0
        return done.stdout
