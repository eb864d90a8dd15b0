"""The shell scripts for a person's hands, and the lock files that they install.

Stand-ins are named so: tiny wheels instead of the real packages, small shell files instead of a
Python without venv and of nvidia-smi.
"""

import os
import re
import shutil
import sys

import pytest
from support.facts import assert_names
from support.programs import run, stand_in
from support.repository import ROOT
from support.stand_in_index import lock_line, make_wheel

LOCKS = ["cpu", "gpu", "control", "test", "unsloth"]


def copy_of_the_scripts(folder):
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "requirements").mkdir()
    return folder


# ---- what they say ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["setup", "quickstart", "test", "lock", "lab", "single_gpu_test.py"],
)
def test_explains_itself(name):
    done = run(ROOT / "scripts" / name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("name", ["setup", "lock"])
def test_refuses_an_unknown_argument(name):
    done = run(ROOT / "scripts" / name, "--fast")
    assert done.returncode != 0
    assert "usage: " in done.stderr


def test_continuous_integration_runs_what_a_person_runs():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith(("#", "set ", "cd "))] == [
        "exec ./scripts/test"
    ]


# ---- where they cannot work ---------------------------------------------------------------------

SHELL_SCRIPTS = ["setup", "quickstart", "test", "lock"]


@pytest.mark.parametrize("name", SHELL_SCRIPTS)
def test_a_script_refuses_macos_in_one_line(tmp_path, name):
    copy = copy_of_the_scripts(tmp_path)
    tools = tmp_path / "bin"
    stand_in(tools / "uname", "echo Darwin")
    for tool in ["bash", "dirname"]:  # neither flock nor sha256sum
        (tools / tool).symlink_to(shutil.which(tool))
    done = run(copy / "scripts" / name, PATH=str(tools))
    assert done.returncode == 1
    assert done.stdout == ""
    assert_names(done.stderr, "macOS", "Linux")
    assert len(done.stderr.splitlines()) == 1
    assert not (copy / ".venv").exists()


@pytest.mark.parametrize("name", SHELL_SCRIPTS)
def test_a_script_refuses_a_folder_in_which_ansible_reads_no_configuration(tmp_path, name):
    copy = copy_of_the_scripts(tmp_path)
    copy.chmod(0o777)
    done = run(copy / "scripts" / name)
    assert done.returncode == 1
    assert_names(done.stderr, copy, "/mnt/c", "ansible.cfg", "chmod o-w")
    assert not (copy / ".venv").exists()


# ---- setup --------------------------------------------------------------------------------------


WITHOUT_VENV = f'case "$*" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@"'
OLD = 'case "$*" in *platform*) echo 3.10.13 ;; *"(3, 11)"*) exit 1 ;; esac'


@pytest.mark.parametrize(
    ("python", "facts"),
    [
        (WITHOUT_VENV, ["apt-get install python{}.{}-venv".format(*sys.version_info)]),
        (OLD, ["is Python 3.10.13", "needs 3.11"]),
    ],
    ids=["without venv", "old"],
)
def test_setup_says_why_a_python_will_not_do(tmp_path, python, facts):
    copy = copy_of_the_scripts(tmp_path)
    named = stand_in(tmp_path / "python", python)
    done = run(copy / "scripts" / "setup", "--cpu", HEARTH_PYTHON=str(named))
    assert done.returncode == 1
    assert_names(done.stderr, *facts)
    assert not (copy / ".venv").exists()


def test_setup_takes_the_processor_where_the_driver_is_too_old_for_cuda_13(tmp_path, program):
    copy = copy_of_the_scripts(tmp_path)
    program("nvidia-smi", "echo 550.163.01")
    done = run(copy / "scripts" / "setup", HEARTH_PYTHON="no-python")
    assert_names(done.stderr, "is 550.163.01", "CUDA 13 needs 580", "no-python")


def stand_in_wheel(folder, name, version, requires=""):
    """A wheel of nearly nothing in the folder; returns its lines for a lock file."""
    ((file, content),) = make_wheel(name, version, requires=requires).items()
    (folder / file).write_bytes(content)
    return lock_line(name, version, content).replace(" --hash", " \\\n    --hash")


@pytest.fixture
def small_project(tmp_path):
    """A copy of the scripts with lock files of stand-in packages and a stand-in build backend."""
    project = copy_of_the_scripts(tmp_path / "project")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for lock, packages in {
        "cpu": [("other", "1.0", "xformers"), ("torch", "2.13.0+cpu")],
        "control": [("controls", "1.0")],
        "test": [("tests", "1.0")],
    }.items():
        text = "".join(stand_in_wheel(wheels, *package) for package in packages)
        (project / "requirements" / f"{lock}.lock").write_text(text)
    stand_in_wheel(project, "hearth", "0.1.0")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (project / "backend.py").write_text(
        "import shutil\n\n\n"
        "def build_editable(folder, *_):\n"
        '    return shutil.copy("hearth-0.1.0-py3-none-any.whl", folder).rpartition("/")[2]\n'
    )
    environment = {
        "HEARTH_PYTHON": sys.executable,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "HOME": str(tmp_path / "home"),
    }
    return project, lambda *arguments: run(
        project / "scripts" / "setup", "--cpu", *arguments, **environment
    )


@pytest.mark.rotated
@pytest.mark.slow
def test_setup_installs_once_adds_what_is_missing_and_repairs(small_project):
    project, setup = small_project
    python = project / ".venv" / "bin" / "python"

    def installed():
        done = run(python, "-m", "pip", "list", "--format=freeze")
        return {line for line in done.stdout.splitlines() if not line.startswith(("pip", "setup"))}

    first = setup()
    assert first.returncode == 0, first.stdout + first.stderr
    training = {"torch==2.13.0+cpu", "other==1.0", "controls==1.0", "hearth==0.1.0"}
    assert installed() == training

    again = run("../scripts/setup", "--cpu", cwd=project / "requirements")
    assert again.returncode == 0
    assert "requirements/" not in again.stdout  # nothing to install

    more = setup("--tests")
    assert "requirements/test.lock: done" in more.stdout
    assert "requirements/cpu.lock" not in more.stdout
    assert installed() == training | {"tests==1.0"}

    # A link is put aside: where it leads may be another project's.
    elsewhere = project / "another"
    (project / ".venv").rename(elsewhere)
    (project / ".venv").symlink_to(elsewhere)
    afresh = setup()
    assert afresh.returncode == 0
    assert_names(afresh.stdout, "link")
    assert not (project / ".venv").is_symlink()
    assert (elsewhere / "bin" / "python").exists()
    assert installed() == training

    link = project.parent / "home" / ".local" / "bin" / "hearth"
    assert not link.is_symlink()  # nobody has asked for it
    for earlier in [None, project.parent / "another" / ".venv" / "bin" / "hearth"]:
        if earlier:
            link.unlink()
            link.symlink_to(earlier)
        linked = setup("--link")
        assert (linked.returncode, link.readlink()) == (0, project / ".venv" / "bin" / "hearth")
        assert_names(linked.stdout, link, "not on your PATH")
    link.unlink()
    link.write_text("of another user")
    assert_names(setup("--link").stderr, link, "stays as it is")
    assert link.read_text() == "of another user"

    # A file that is not what the lock file says is refused, and the next call starts afresh.
    lock = project / "requirements" / "cpu.lock"
    good = lock.read_text()
    lock.write_text(re.sub("sha256:..", "sha256:00", good, count=1))
    wrong = setup()
    assert wrong.returncode == 1
    assert_names(wrong.stdout, "lock files")
    assert_names(wrong.stderr.lower(), "hashes")
    assert str(project / "setup.log") in wrong.stderr

    lock.write_text(good)
    repaired = setup()
    assert repaired.returncode == 0
    assert_names(repaired.stdout, "finished")
    assert installed() == training


@pytest.mark.rotated
@pytest.mark.slow
def test_a_computer_that_only_directs_gets_the_control_side_and_the_rest_when_it_is_wanted(
    small_project,
):
    project, setup = small_project
    python = project / ".venv" / "bin" / "python"

    def installed():
        return run(python, "-m", "pip", "list", "--format=freeze").stdout.splitlines()

    done = setup("--control")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"controls==1.0", "hearth==0.1.0"} <= {*installed()}
    assert not {"other==1.0", "torch==2.13.0+cpu"} & {*installed()}
    assert "requirements/" not in setup("--control").stdout  # nothing to install

    more = setup()
    assert "requirements/control.lock" not in more.stdout
    assert {"controls==1.0", "other==1.0", "torch==2.13.0+cpu"} <= {*installed()}
    assert "requirements/" not in setup("--control").stdout  # nor to remove
    assert "torch==2.13.0+cpu" in installed()

    both = setup("--control", "--tests")
    assert both.returncode == 1
    assert_names(both.stderr, "--tests", "--control")


# ---- test ---------------------------------------------------------------------------------------


def test_the_test_script_names_missing_system_packages_where_it_cannot_install_them(tmp_path):
    copy = copy_of_the_scripts(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ["bash", "dirname", "locale", "cat", "uname", "find"]:
        (tools / tool).symlink_to(shutil.which(tool))
    (tools / "python3").symlink_to(sys.executable)
    done = run(copy / "scripts" / "test", PATH=str(tools))
    assert done.returncode == 1
    assert_names(done.stderr, "apt-get install", "shellcheck")
    assert not (copy / ".venv").exists()


# ---- the lock files -----------------------------------------------------------------------------


def pins(lock):
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()
    return text, dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+) \\\n    --hash=", text, re.M))


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_everything_by_hash_and_name_no_index(lock):
    text, versions = pins(lock)
    lines = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert len(lines) == len(versions) > 5
    assert not re.search(
        r"--(extra-)?index-url|--find-links|--trusted-host|https?://|file://", text
    )


def test_unsloths_kernels_are_tested_with_the_versions_that_gpu_nodes_get():
    of_cards = re.compile("torch$|torchvision$|nvidia-(?!ml-py$)|cuda-")
    gpu = {name: each for name, each in pins("gpu")[1].items() if not of_cards.match(name)}
    assert pins("unsloth")[1] == gpu | {"torch": pins("cpu")[1]["torch"]}


@pytest.mark.parametrize("lock", ["gpu", "control", "test", "unsloth"])
def test_locks_agree_on_the_versions_they_share(lock):
    cpu = pins("cpu")[1]
    differing = {
        name: (version, cpu[name])
        for name, version in pins(lock)[1].items()
        if name in cpu and cpu[name] != version
    }
    assert differing == ({"torch": ("2.13.0", "2.13.0+cpu")} if lock == "gpu" else {})


# ---- what they refuse before anything is loaded --------------------------------------------------

# None of these may be imported; a cold disk takes a minute for them.
_WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "datasets", "peft", "lm_eval")))
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_TRAIN = ("train_distributed", "--model", "smollm2-135m")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("export", "{run}", "--to", "gguf", "--precision", "q4"), ["q4", "q4_k_m"]),
        (("export", "{run}", "--to", "merged", "--precision", "q8_0"), ["q8_0"]),
        (("export", "{run}", "--to", "gguf", "--best"), ["best"]),
        (("export", "nowhere", "--to", "gguf"), ["nowhere"]),
        (("chat", "{run}", "--best", "--base", "/nowhere"), ["best", "/nowhere"]),
        (("evaluate", "{run}", "/nowhere/task.yaml"), ["/nowhere/task.yaml"]),
        (("evaluate", "{run}", "hellaswag", "--best"), ["hellaswag", "Hub", "best"]),
        (("share", "{run}", "--copy-to", "/nowhere/x"), ["/nowhere/x"]),
        ((*_TRAIN, "--dataset", "{bad}"), ["bad.jsonl:2", "messages"]),
        ((*_TRAIN, "--dataset", "{bad}", "--preview", "2"), ["bad.jsonl:2"]),
        ((*_TRAIN, "--dataset", "{folder}"), ["bad.jsonl:2"]),
        ((*_TRAIN, "--columns", "prompt=x", "--dataset", "{bad}"), ["x"]),
        ((*_TRAIN, "--lora", "off", "--dora", "on"), ["dora"]),
        (("train_distributed", "--model", "{folder}"), ["config.json"]),
        (
            (*_TRAIN, "--dataset", "{bad}", "--copy-to", "/nowhere/x", "--eval", "/nowhere/t.yaml"),
            ["bad.jsonl:2", "/nowhere/x", "/nowhere/t.yaml"],
        ),
    ],
)
def test_a_wrong_request_is_refused_before_torch_is_loaded(tmp_path, words, facts):
    folder, recorded = tmp_path / "data", ROOT / "tests/fixtures/run/evening"
    folder.mkdir()
    whole = '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'
    (folder / "bad.jsonl").write_text(f'{whole}\n{{"messages": 3}}\n')
    shutil.copytree(recorded, tmp_path / "evening")
    (tmp_path / "evening" / "adapter").mkdir(exist_ok=True)
    (tmp_path / "evening" / "adapter" / "adapter_config.json").write_text("{}")
    names = {"run": tmp_path / "evening", "bad": folder / "bad.jsonl", "folder": folder}
    script, *rest = (word.format(**names) for word in words)
    done = run(
        *(sys.executable, "-c", _WITHOUT, ROOT / "training" / f"{script}.py", *rest),
        cwd=tmp_path,
        HF_HUB_OFFLINE="1",
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert_names(done.stderr, *facts)
