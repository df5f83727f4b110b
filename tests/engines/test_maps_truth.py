"""The maps say of other programs' files what the real loader does: a small sample; the rest by command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engines import environments, map_agreement
from workbench.loaders.maps import records

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("release", records.harvested("sglang")[-1:])
def test_maps_agree_with_the_real_loader(release: str, tmp_path: Path) -> None:
    name = f"sglang-{release}"
    if not environments.is_ready(name) and "engine" not in os.environ.get("REQUIRE", ""):
        pytest.skip(f"no environment {name}: make engines")
    found = map_agreement.compare(release, map_agreement.SAMPLE, tmp_path)
    assert {one.model_class for one in found} == set(map_agreement.SAMPLE)
    assert [one for one in found if one.said != "same"] == []


def test_a_class_that_replaces_a_method_of_the_loader_changes_no_other(tmp_path: Path) -> None:
    """SGLang's clip.py does, for the whole process; a server holds one model, the tracer many."""
    name = "sglang-0.5.23"
    if not environments.is_ready(name) and "engine" not in os.environ.get("REQUIRE", ""):
        pytest.skip(f"no environment {name}: make engines")
    found = map_agreement.compare("0.5.23", ("CLIPModel", "CohereForCausalLM"), tmp_path)
    assert [one.said for one in found if one.model_class == "CohereForCausalLM"] == ["same"] * 4


def test_a_class_that_looks_its_parts_up_is_built_as_in_a_server(tmp_path: Path) -> None:
    """SGLang's llava.py asks the registry of all models, which a tracer of one class need not import."""
    name = "sglang-0.5.23"
    if not environments.is_ready(name) and "engine" not in os.environ.get("REQUIRE", ""):
        pytest.skip(f"no environment {name}: make engines")
    found = map_agreement.compare("0.5.23", ("Mistral3ForConditionalGeneration",), tmp_path)
    assert [one.said for one in found] == ["same"] * 4
