"""How each version drives a draft: the borders between releases, and the sources that they were read in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.engines import environments
from workbench.speculation.evidence.driving import captured_layers, driving_of
from workbench.speculation.evidence.observed import read_launch

VERSIONS = ["0.5.8", "0.5.11", "0.5.12", "0.5.14", "0.5.23"]
IDS = (2, 6, 9)


@pytest.mark.parametrize(
    ("version", "ahead", "chain", "tree"),
    [
        ("0.4.10", 1, "accepted", "accepted"),
        ("0.5.8", 1, "accepted", "accepted"),
        ("0.5.10.post1", 1, "accepted", "accepted"),
        ("0.5.11", 1, "block", "accepted"),
        ("0.5.12", 0, "block", "accepted"),
        ("0.5.12.post1", 0, "block", "accepted"),
        ("0.5.13", 0, "prefix", "prefix"),
        ("0.5.13.post1", 0, "prefix", "prefix"),
        ("0.5.23", 0, "prefix", "prefix"),
    ],
)
def test_positions_and_extends_by_release(version: str, ahead: int, chain: str, tree: str) -> None:
    engine = f"sglang=={version}"
    found = driving_of(engine, steps=4)
    assert (found.ahead, found.extend, found.draft_tokens, found.moved) == (ahead, chain, 5, False)
    wide = driving_of(engine, steps=4, topk=4, draft_tokens=16)
    assert (wide.ahead, wide.extend, wide.draft_tokens) == (ahead, tree, 16)
    assert driving_of(engine, steps=4, backend="fa3").extend == "prefix"


def test_the_worker_is_chosen_by_the_schedule() -> None:
    assert driving_of("sglang==0.5.11", graphs=False).extend == "prefix"
    assert driving_of("sglang==0.5.10", graphs=False).extend == "accepted"
    assert driving_of("sglang==0.5.11", overlap=False).extend == "accepted"
    assert driving_of("sglang==0.5.10", overlap=True).extend == "block"
    assert driving_of("sglang==0.5.14", overlap=False).extend == "prefix"


@pytest.mark.parametrize(
    ("arguments", "environment", "overlap"),
    [
        ([], {}, None),
        (["--disable-overlap-schedule"], {}, False),
        (["--disable-overlap-schedule"], {"SGLANG_ENABLE_SPEC_V2": "1"}, False),
        ([], {"SGLANG_ENABLE_SPEC_V2": "True"}, True),
        ([], {"SGLANG_ENABLE_SPEC_V2": "0"}, False),
        ([], ["SGLANG_ENABLE_SPEC_V2"], None),
    ],
)
def test_a_launch_says_whether_the_schedule_overlaps(
    arguments: list[str], environment: object, overlap: bool | None, tmp_path: Path
) -> None:
    data = {"command": ["sglang", "serve", *arguments], "environment": environment}
    (tmp_path / "launch.json").write_text(json.dumps(data))
    assert read_launch(tmp_path).overlap is overlap


@pytest.mark.parametrize(
    ("kind", "version", "ids", "captured"),
    [
        ("deepseek_v3", "0.5.12.post1", IDS, (3, 7, 10)),
        ("deepseek_v3", "0.5.13", IDS, IDS),
        ("kimi_k2", "0.5.13", (1, 6, 9), (2, 7, 10)),
        ("glm4_moe_lite", "0.5.23", IDS, IDS),
        ("gpt_oss", "0.5.16", (2, 6, 12), (3, 7, 13)),
        ("gpt_oss", "0.5.17", (2, 6, 12), (2, 6, 12)),
        ("gpt_oss", "0.5.17", IDS, (3, 7, 10)),
        ("qwen3", "0.5.23", IDS, (3, 7, 10)),
    ],
)
def test_which_layers_an_id_means_by_release(
    kind: str, version: str, ids: tuple[int, ...], captured: tuple[int, ...]
) -> None:
    assert captured_layers(f"sglang=={version}", ids, kind, 12) == captured


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
def test_the_borders_stand_in_the_sources(version: str) -> None:
    environments.ensure(f"sglang-{version}")
    packages = environments.cache() / f"packages-{environments.PYTHON_TAG}"
    sources = packages / f"sglang=={version}" / "sglang" / "srt"
    engine = f"sglang=={version}"

    workers = [sources / f"speculative/eagle_worker{end}.py" for end in ("", "_v2")]
    workers = [path for path in workers if path.exists()]
    for path in workers:
        text = path.read_text()
        body = text[text.index("def draft_forward") :].split("\n    def ")[0]
        step = re.search(r"draft_(?:model_)?runner\.forward\(", body)
        assert step
        before = body.index("positions.add_(1)") < step.start()
        assert before == (driving_of(engine).ahead == 1)

    backend = (sources / "layers/attention/triton_backend.py").read_text()
    alone = "kv_lens = torch.clamp(seq_lens - extend_seq_lens, min=0)" in backend
    assert alone == (driving_of(engine).extend == "prefix")
    assert len(workers) == (1 if alone else 2)  # the older worker went with it
    if not alone:
        newer = "SGLANG_ENABLE_SPEC_V2 = EnvBool(True)" in (sources / "environ.py").read_text()
        assert newer == (driving_of(engine).extend == "block")
        reasons = (sources / "server_args.py").read_text()
        assert "only support topk = 1" in reasons or "only supports topk = 1" in reasons

    deepseek = (sources / "models/deepseek_v2.py").read_text()
    given = captured_layers(engine, IDS, "deepseek_v3", 12) == IDS
    assert ("layer_ids[0] == 1" in deepseek) == given
    last = captured_layers(engine, (2, 6, 12), "gpt_oss", 12) == (2, 6, 12)
    assert ("max(layer_ids) == num_layers" in (sources / "models/gpt_oss.py").read_text()) == last
    for name in ("llama", "qwen2", "qwen3"):
        assert "val + 1 for val in layer_ids" in (sources / f"models/{name}.py").read_text()
