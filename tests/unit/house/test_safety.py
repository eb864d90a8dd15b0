"""No code of Hearth executes data: a search through all of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from support.house import ROOT

FILES = sorted(
    path
    for room in ("training", "controller", "plugins", "scripts")
    for path in (ROOT / room).rglob("*.py")
    if "datasets" not in path.relative_to(ROOT).parts
)
RUNS_CODE = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def calls(tree: ast.AST) -> Iterator[tuple[str, dict[str, object], int]]:
    """Yield what is called, its keywords and the line, for each call in a file.

    A keyword that is no constant is given as it is written.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = {
                word.arg: word.value.value
                if isinstance(word.value, ast.Constant)
                else ast.unparse(word.value)
                for word in node.keywords
                if word.arg
            }
            yield ast.unparse(node.func), given, node.lineno


def offences(text: str) -> list[str]:
    """Return the calls in a file that could execute data as code, each with its line."""
    tree, found = ast.parse(text), []
    for called, given, line in calls(tree):
        last = called.rpartition(".")[2]
        # From a file on disk or from the Hub, a model may bring code of its own along.
        asks_first = called.startswith("Auto") and last in ("from_pretrained", "from_config")
        if (
            (called == "torch.load" and given.get("weights_only") is not True)
            # `own_code` is true where a person has allowed it and the model needs it.
            or (asks_first and given.get("trust_remote_code") not in (False, "own_code"))
            or given.get("trust_remote_code") is True
            or given.get("allow_pickle") is True
            or called in ("eval", "exec", "yaml.unsafe_load", "yaml.full_load", "os.system")
            or given.get("shell") is True
        ):
            found.append(f"line {line}: {called}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        found += [f"line {node.lineno}: import {name}" for name in names if name in RUNS_CODE]
    return found


def test_nothing_that_came_as_data_is_ever_run():
    found = {path: offences(path.read_text()) for path in FILES}
    assert len(found) > 200
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "AutoTokenizer.from_pretrained(folder)",
        "AutoModelForCausalLM.from_config(config, trust_remote_code=True)",
        "FastLanguageModel.from_pretrained(folder, trust_remote_code=True)",
        "AutoConfig.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)",
        "numpy.load(path, allow_pickle=True)",
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_it_would_be_found(text):
    assert len(offences(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "torch.load(path, weights_only=True)",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=False)",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=own_code)",
        "numpy.load(path, mmap_mode='r')",
        "model.eval()",
    ],
)
def test_what_is_harmless_is_let_be(text):
    assert offences(text) == []
