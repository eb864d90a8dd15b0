"""The action plugin of a launch: what a node's own task adds to a call."""

from __future__ import annotations

from support.plugins import load

from hearth_controller.launch.stages import program

action = load("action", "hearth_launch")


def test_each_node_is_asked_for_the_shared_folder_where_it_has_it(monkeypatch):
    """The stage may have been planned by the task of another node, with that node's path."""
    called = []
    monkeypatch.setattr(action, "run_module", lambda *given: called.append(given[2]) or {})
    node = object.__new__(action.ActionModule)
    own = {name: name for name in ("workspace", "python", "node", "models")}
    own |= {"threads": 0, "variables": {}}
    node._given, node._task_vars, node._secrets = {"own": own, "shared": "/mnt/nas"}, {}, {}
    for spec in ({"shared": "/nas", "run": "r"}, {"shared": ""}, {"run": "r"}):
        node._call(program("hearth.node inspect", spec))
    assert [each["spec"] for each in called] == [
        {"shared": "/mnt/nas", "run": "r"},
        {"shared": ""},
        {"run": "r"},
    ]
