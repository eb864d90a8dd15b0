#!/usr/bin/python
"""Ansible module: undo the changes of provisioning on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_reset
short_description: Undo the recorded changes of this machine
description:
  - Goes back through the record, the last change first. Then the commands that make the originals
    count run once each. A file that was changed since is left and named.
  - Rules that Hearth gave to ufw carry their own mark and are removed with everything else.
options:
  verb:
    description: V(look) only says what would be undone.
    type: str
    choices: [look, undo]
    required: true
  later:
    description: Stages to leave on the record for a later call.
    type: list
    elements: str
    default: []
  remove:
    description: For V(look), paths that another task removes, to be named with the rest.
    type: list
    elements: path
    default: []
  keep:
    description: For V(look), paths that stay, to be named too.
    type: list
    elements: path
    default: []
"""

import os
from contextlib import suppress

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import output
from ansible.module_utils.hearth_node.changes.record import (
    FOLDER,
    ChangedPath,
    Journal,
    RecordError,
    Undone,
    run_all,
)
from ansible.module_utils.hearth_node.network.firewall import ufw_commands
from ansible.module_utils.hearth_node.network.hosts import restored

# Files that other programs write to as well, with the function that removes Hearth's part.
_SHARED = {"/etc/hosts": restored}


def undo(record: Journal, later: list[str]) -> tuple[list[Undone], list[str]]:
    """Undo the record, newest change first; return the result per path, and failed commands."""
    wanted: list[ChangedPath] = [each for each in record.entries() if each.stage not in later]
    done = []
    try:
        for entry in reversed(wanted):
            done.append(record.restore(entry.path, _SHARED.get(entry.path)))
    finally:  # restored paths take effect only then, even if a later restore failed
        failed = [] if record.check else record.settle()
    return done, failed


def predicted(done: list[Undone], rules: list[list[str]], kept: list[str]) -> list[str]:
    """Return a line for each thing that an undo would do, or could not do."""
    words = {"removed": "remove", "restored": "put back", "left": "leave", "same": "leave"}
    return [
        *(f"{words[each.state]} {each.path}" + f" ({each.why})" * bool(each.why) for each in done),
        *(f"remove the rule `ufw {' '.join(rule[2:])}`" for rule in rules),
        *(f"leave {each}" for each in kept),
    ]


def announcement(lines: list[str], keep: list[str]) -> str:
    """Return the text that is shown before anything is undone."""
    head = ["to be undone:", *lines] if lines else ["nothing to undo"]
    return "\n".join([*head, *(f"keep {path}" for path in keep)])


def main() -> None:
    """Run the module.

    It returns the `stages` on the record before this call, the files that were not put back
    (`left`), and `kept`, what no reset undoes. With `look` also `lines` on what would be done
    (empty if nothing), and a `note` for people.
    """
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["look", "undo"], "required": True},
            "later": {"type": "list", "elements": "str", "default": []},
            "remove": {"type": "list", "elements": "path", "default": []},
            "keep": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    later = module.params["later"]
    check = module.check_mode or module.params["verb"] == "look"
    try:
        record = Journal(check=check)
        stages = list(dict.fromkeys(entry.stage for entry in record.entries()))
        kept = [note["text"] for note in record.notes()]
        rules = [] if "firewall" in later else ufw_commands(output("ufw", "show", "added"), [])
        done, failed = undo(record, later)
        failed += [] if check else run_all(rules)
        if not check and not record.entries() and os.path.isdir(FOLDER):
            record.forget()
            with suppress(OSError):  # not empty if originals are kept beside it
                os.rmdir(os.path.dirname(FOLDER))
    except (RecordError, OSError) as error:
        module.fail_json(msg=f"the machine cannot be reset: {error}")
    left = [f"{each.path} ({each.why})" for each in done if each.state == "left"]
    answer = {"stages": stages, "left": left, "kept": kept}
    if failed:
        module.fail_json(msg="\n".join(failed), **answer)
    if module.params["verb"] == "undo":
        module.exit_json(changed=bool(done or rules), **answer)
    lines = predicted(done, rules, kept) + [f"remove {path}" for path in module.params["remove"]]
    note = announcement(lines, module.params["keep"])
    module.exit_json(changed=False, lines=lines, note=note, **answer)


if __name__ == "__main__":
    main()
