"""No code of Hearth executes data: a search through all of it."""

from __future__ import annotations

import ast
import re

import pytest
from support.repository import ROOT

FILES = sorted(
    path
    for room in ("training", "controller", "plugins", "scripts")
    for path in (ROOT / room).rglob("*.py")
    if "datasets" not in path.relative_to(ROOT).parts
)
RUNS_CODE = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def runs_data(call: ast.Call) -> bool:
    """Return whether a call could execute data as code."""
    called = ast.unparse(call.func)
    # A keyword that is no constant stands as it is written.
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    # From a file on disk or from the Hub, a model may bring code of its own along.
    loads_model = re.fullmatch(r"Auto.*\.from_(pretrained|config)", called)
    return (
        called in ("eval", "exec", "yaml.unsafe_load", "yaml.full_load", "os.system")
        # torch unpickles what another rank sends.
        or re.search(r"(gather|scatter|broadcast|send|recv)_object(_list)?$", called)
        or (called == "torch.load" and given.get("weights_only") != "True")
        # `own_code` is true where a person has allowed it and the model needs it.
        or (loads_model and given.get("trust_remote_code") not in ("False", "own_code"))
        or "True" in map(given.get, ("trust_remote_code", "allow_pickle", "shell"))
    )


def offences(text: str) -> list[str]:
    """Return the calls and imports in a file that could execute data as code, with their lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        elif isinstance(node, ast.Call) and runs_data(node):
            found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
        found += [f"line {node.lineno}: import {name}" for name in names if name in RUNS_CODE]
    return found


def test_nothing_that_came_as_data_is_ever_run():
    assert len(FILES) > 200
    found = {path: offences(path.read_text()) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("torch.load(path)", 1),
        ("torch.load(path, weights_only=False)", 1),
        ("torch.load(path, weights_only=True)", 0),
        ("AutoTokenizer.from_pretrained(folder)", 1),
        ("AutoModelForCausalLM.from_config(config, trust_remote_code=True)", 1),
        ("FastLanguageModel.from_pretrained(folder, trust_remote_code=True)", 1),
        ("AutoConfig.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)", 1),
        ("AutoTokenizer.from_pretrained(folder, trust_remote_code=False)", 0),
        ("AutoTokenizer.from_pretrained(folder, trust_remote_code=own_code)", 0),
        ("numpy.load(path, allow_pickle=True)", 1),
        ("numpy.load(path, mmap_mode='r')", 0),
        ("dist.all_gather_object(values, value)", 1),
        ("dist.broadcast_object_list(box, src=0)", 1),
        ("read_object(path)", 0),
        ("import pickle", 1),
        ("from pickle import loads", 1),
        ("eval(text)", 1),
        ("model.eval()", 0),
        ("subprocess.run(text, shell=True)", 1),
    ],
)
def test_what_could_run_data_is_told_from_what_is_harmless(text, count):
    assert len(offences(text)) == count
