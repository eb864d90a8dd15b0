"""`playbooks/models.yml`, and what `train.yml` makes of a model's size and revision."""

from __future__ import annotations

import pytest
import yaml
from support.facts import assert_line
from support.local_cluster import LocalCluster
from support.own_code import make_hermit
from support.stand_in_hub import COMMIT, stand_in_hub

from hearth.config import preset_names

pytestmark = pytest.mark.cluster


@pytest.mark.rotated
def test_every_preset_is_shown_with_the_nodes_that_it_fits(local: LocalCluster):
    screen = local.play("playbooks/models.yml")
    for name in preset_names():
        assert f"\n  {name} " in screen
    assert_line(screen, "4 bits")
    assert max(map(len, screen.splitlines())) <= 120
    for node in ("desk", "laptop"):
        assert f"{node} changed=0" in screen
        assert f"{node}: " in screen  # what it has
        assert not local.workspace(node).exists()


@pytest.mark.rotated
def test_what_does_not_fit_is_refused_with_all_other_findings_and_the_hub_is_not_asked(local):
    wrong = {"model": "llama2-13b", "memory_limit": 2, "precision": "fp16"}
    with stand_in_hub() as hub:
        screen = local.play("train.yml", *local.tiny(**wrong), status=2, **hub.variables)
    assert_line(screen, "desk, laptop", "llama2-13b", "not fit")
    assert_line(screen, "desk, laptop", "precision: fp16")
    assert "Nothing was started on any node." in screen
    assert not hub.asked


@pytest.mark.rotated
def test_code_that_comes_with_a_model_runs_only_where_it_is_allowed(local, tmp_path):
    with stand_in_hub() as hub:
        hub.models["house/hermit"] = make_hermit(tmp_path / "hermit")
        hermit = local.tiny(model="house/hermit", run="hermit", max_steps=2)
        asked = (*hermit, "-e", "nodes=desk")
        screen = local.play("train.yml", *asked, status=2, **hub.variables)
        assert_line(screen, "house/hermit", "Transformers")
        assert not any("safetensors" in path for path in hub.asked)
        allowed = [*asked, "-e", "trust_remote_code=on"]
        screen = local.play("train.yml", *allowed, **hub.variables)
    assert_line(screen, "[WARNING]", "trust_remote_code", "house/hermit")
    assert_line(screen, "configuration_hermit.py, modeling_hermit.py")
    assert (local.runs / "hermit" / "adapter" / "adapter_config.json").is_file()


@pytest.mark.rotated
def test_a_run_over_one_node_leaves_the_other_alone_and_records_the_revision(local, tiny_model):
    more = {"model": "house/tiny", "run": "alone", "max_steps": 2}
    with stand_in_hub() as hub:
        hub.models["house/tiny"] = tiny_model
        alone = (*local.tiny(**more), "-e", "nodes=laptop")
        screen = local.play("train.yml", *alone, **hub.variables)
    assert "is not known" not in screen
    run = yaml.safe_load((local.runs / "alone" / "run.yml").read_text())
    assert run["source"]["revision"] == COMMIT
    assert not local.workspace("desk").exists()
    assert [rank["node"] for rank in local.metrics("alone")[0]["ranks"]] == ["laptop"]

    # Its config.json is there now, so that the Hub need not be asked.
    again = {"model": "house/tiny", "run": "again", "memory_limit": 0.01}
    screen = local.play("train.yml", *local.tiny(**again), "-e", "nodes=laptop", status=2)
    assert_line(screen, "laptop", "house--tiny", "not fit")
