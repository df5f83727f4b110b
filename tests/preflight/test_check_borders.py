"""Which release counts, which models are opened, and what is compared: each from both sides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.launch.rules.asking import DEEPSEEK, LLAMA
from workbench.errors import WorkbenchError
from workbench.launch.read import read_launch
from workbench.loaders import registry
from workbench.preflight import check

SERVE = "sglang serve --model-path some/target"
IMAGE = (
    "docker run lmsysorg/sglang:v0.5.13 python3 -m sglang.launch_server --model-path some/target"
)
NEW = "sglang==0.5.14"
EAGLE = f"{SERVE} --speculative-algorithm EAGLE"
TAG = "tag of the image"


@pytest.mark.parametrize(
    ("line", "engine", "version", "basis"),
    [
        (SERVE, "", "", ""),
        (SERVE, "sglang", "", ""),
        (SERVE, NEW, "0.5.14", "given"),
        (IMAGE, "", "0.5.13", TAG),
        (IMAGE, "sglang", "0.5.13", TAG),
        (IMAGE, "sglang==0.5.13", "0.5.13", "given"),
        (IMAGE, NEW, "0.5.14", f"given; the launch itself is of 0.5.13 ({TAG})"),
        (IMAGE, "vllm==0.9.0", "0.5.13", TAG),
        ("trtllm-serve some/target", "", "", ""),
    ],
)
def test_the_release_that_counts(line: str, engine: str, version: str, basis: str) -> None:
    found = workbench.check(line, engine=engine)
    assert (found.version, found.version_basis) == (version, basis)


def test_a_launch_that_was_read_is_not_read_again() -> None:
    launch = read_launch(IMAGE)
    assert workbench.check(launch, engine=NEW).version == "0.5.14"
    assert workbench.check(launch).version == "0.5.13"


def test_a_launch_is_read_as_the_release_that_is_installed_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(launch: Any) -> str:
        return workbench.check(launch).arguments[1].name

    line = f"{SERVE} --cuda-graph-bs 1"
    assert name(line) == "cuda-graph-bs"
    place = tmp_path / "sglang-0.5.14.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.14\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert workbench.check(line).version_basis == "installed next to the workbench"
    assert name(line) == "cuda-graph-bs-decode"  # what 0.5.14 calls it
    assert name(read_launch(line)) == "cuda-graph-bs"  # it was read before


def test_the_name_of_an_engine_is_text() -> None:
    with pytest.raises(WorkbenchError, match="is not the name of an engine"):
        workbench.check(SERVE, engine=514)  # type: ignore[arg-type]


def items(found: workbench.LaunchCheck) -> dict[str, tuple[str, bool, str]]:
    return {
        item.name: (item.state, item.essential, item.how) for item in found.verdict.coverage.items
    }


@pytest.mark.parametrize(
    ("line", "target", "draft", "right"),
    [
        (SERVE, LLAMA, None, {"keys of the target": False}),
        (SERVE, None, None, {}),
        (EAGLE, LLAMA, None, {"keys of the target": False}),
        (EAGLE, DEEPSEEK, None, {"keys of the draft": True, "keys of the target": False}),
        (f"{EAGLE} --speculative-draft-model-path d", DEEPSEEK, LLAMA,
         {"keys of the draft": True, "keys of the target": False}),
        (f"{EAGLE} --speculative-draft-model-path d", None, LLAMA, {"keys of the draft": True}),
        (f"{SERVE} --speculative-draft-model-path d", LLAMA, LLAMA, {"keys of the target": False}),
        (f"{SERVE} --speculative-algorithm $A", DEEPSEEK, None, {"keys of the target": False}),
        (f"{SERVE} --speculative-algorithm $A --speculative-draft-model-path d", DEEPSEEK, LLAMA,
         {"keys of the target": False}),
        ("sglang serve --speculative-algorithm EAGLE", None, None, {}),
        (f"{EAGLE} --speculative-draft-model-path $D", DEEPSEEK, None, {"keys of the target": False}),
    ],
)  # fmt: skip
def test_what_is_loaded_as_what(line: str, target: Any, draft: Any, right: dict[str, bool]) -> None:
    found = items(workbench.check(line, target=target, draft=draft, engine=NEW))
    assert {
        name: essential for name, (_, essential, _) in found.items() if name.startswith("keys of")
    } == right
    assert all(found[name][0] == "open" for name in right)


def test_without_a_release_nothing_is_compared() -> None:
    found = items(workbench.check(SERVE, target=LLAMA))
    assert not any(name.startswith("keys of") for name in found)


def test_a_path_of_this_machine_with_nothing_there(tmp_path: Path) -> None:
    line = f"python3 -m sglang.launch_server --model-path {tmp_path}/nothing"
    found = workbench.check(line, engine=NEW)
    assert (found.ok, found.faults[0].code) == (False, "model_absent")
    # In a container it is a path of the container.
    inside = workbench.check(f"docker run lmsysorg/sglang:v0.5.14 {line}")
    assert (inside.ok, inside.faults) == (None, ())


def test_the_models_have_the_names_of_the_launch() -> None:
    found = workbench.check(
        f"{EAGLE} --speculative-draft-model-path d", target=LLAMA, draft=LLAMA, engine=NEW
    )
    assert (found.target, found.draft) == ("some/target", "d")
    named = workbench.check("sglang serve", target=LLAMA, engine=NEW)
    assert named.target == "the given config"
    assert workbench.check("sglang serve", engine=NEW).target == ""


def test_a_checkpoint_that_cannot_be_compared_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'
    )
    found = items(workbench.check(f"sglang serve --model-path {tmp_path}", engine=NEW))
    state, _, how = found["keys of the target"]
    assert state == "open"
    assert how


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ("target", {"target"}),
        ('target --speculative-config {"method":"eagle3","model":"d","num_speculative_tokens":3}',
         {"target", "draft"}),
        ('target --speculative-config {"method":"ngram","num_speculative_tokens":3}', {"target"}),
        ("some/target", set()),
        ("", set()),
    ],
)  # fmt: skip
def test_what_vllm_loads(root: Path, options: str, roles: set[str]) -> None:
    data = root / "data/incident"
    words = options.replace("target", str(data / "target"), 1) if options[:4] == "targ" else options
    line = f"vllm serve {words}".replace("{", "'{").replace("}", "}'")
    found = workbench.check(line, draft=data / "drafts/specforge", engine="vllm==0.14.0")
    keys = {item.name for item in found.verdict.coverage.items if item.kind == "key"}
    assert {name.rpartition(" of the ")[2] for name in keys} == roles


def test_models_that_are_given_are_two_where_the_launch_names_two() -> None:
    for second, same in (("d", False), ("some/target", True)):
        line = f"{EAGLE} --speculative-draft-model-path {second}"
        found = workbench.check(line, target=LLAMA, draft=LLAMA, engine=NEW)
        assert ("target_as_draft" in {fault.code for fault in found.faults}) == same


def test_why_the_keys_of_a_model_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    line = f"{EAGLE}3 --speculative-draft-model-path"
    for draft, why in (
        ("some/draft", "it is neither here nor in the local cache of the Hub"),
        (tmp_path, "its weights are not here"),
    ):
        found = items(workbench.check(f"{line} {draft}", engine=NEW))
        assert found["keys of the draft"] == ("open", True, why)


@pytest.mark.parametrize(
    ("quantised", "essential"),
    [
        (None, False),
        ("GemmaForCausalLM", True),  # its map is of another release, and loses keys
        ({"quant_method": "fp8"}, False),
        ({"quant_method": "mxfp4"}, False),
        ({"quant_method": "awq"}, True),
        # SGLang 0.5.14 reads the method from other fields, or refuses the config.
        ({"bits": 4}, True),
        ({"quant_method": None}, True),
    ],
)
def test_a_target_without_a_map_decides_where_its_quantisation_is_a_rare_one(
    root: Path, tmp_path: Path, quantised: dict[str, Any] | str | None, essential: bool
) -> None:
    source = root / "data/incident/target"
    config = json.loads((source / "config.json").read_text())
    named = quantised if isinstance(quantised, str) else "MistralForCausalLM"
    config |= {"architectures": [named]}
    if named != quantised:
        config |= {"quantization_config": quantised}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "model.safetensors", tmp_path)
    found = workbench.check(f"sglang serve --model-path {tmp_path}", engine=NEW)
    assert found.ok is (None if essential else True)
    kinds = {item.kind for item in found.verdict.coverage.items}
    assert ("loading" in kinds, "key" in kinds) == (not essential, essential)


@pytest.mark.parametrize(
    ("line", "engine", "compared"),
    [
        ("vllm serve", "vllm==0.14.0", True),
        ("vllm serve", "vllm", False),
        ("trtllm-serve", "tensorrt-llm==1.1.0", False),
    ],
)
def test_of_other_engines_keys_are_compared_with_those_of_a_release_of_vllm(
    root: Path, line: str, engine: str, compared: bool
) -> None:
    found = workbench.check(f"{line} {root}/data/incident/target", engine=engine)
    kinds = {item.kind for item in found.verdict.coverage.items}
    assert {"key", "loading"} & kinds == ({"key"} if compared else set())


@pytest.mark.parametrize(
    ("line", "engine", "says"),
    [
        (SERVE, NEW, ""),
        (SERVE, "", "does not say which release"),
        (SERVE, "sglang==99.0", "was not read"),
        ("vllm serve some/target", "", "--engine vllm"),
        ("echo hello", "", "no launch of a known server"),
    ],
)
def test_why_the_release_is_not_known(line: str, engine: str, says: str) -> None:
    state, _, how = items(workbench.check(line, engine=engine))["the release of the engine"]
    assert state == ("open" if says else "ok")
    assert says in how


@pytest.mark.parametrize(
    ("named", "right"), [("sglang", True), ("sglang==0.5.14", True), ("sglang==0.5.13", False)]
)
def test_an_interpreter_of_another_release_than_the_named_one_is_refused(
    named: str, right: bool
) -> None:
    def asked() -> str:
        return check._version_asked("0.5.14", read_launch(SERVE), registry.parse(named), "py")[0]

    if right:
        assert asked() == "0.5.14"
        of_image = check._version_asked("0.5.14", read_launch(IMAGE), registry.parse(named), "py")
        assert of_image[1] == "of the engine that was asked; the launch itself is of 0.5.13"
        newer = read_launch(IMAGE.replace("0.5.13", "0.5.14"))
        same = check._version_asked("0.5.14", newer, registry.parse(named), "py")
        assert same[1] == "of the engine that was asked"
    else:
        with pytest.raises(WorkbenchError, match=r"py has SGLang 0\.5\.14, not 0\.5\.13"):
            asked()


def test_arguments_are_listed_as_they_hold() -> None:
    found = workbench.check(f"{SERVE} --tp 8 --dp $D", engine=NEW)
    assert [(one.name, one.value) for one in found.arguments] == [
        ("model-path", "some/target"), ("tp-size", "8"), ("dp-size", "not known"),
    ]  # fmt: skip
