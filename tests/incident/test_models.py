"""The plain models of the shipped case, at toy sizes: caches, many-step training and files agree."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts" / "incident"
torch = pytest.importorskip("torch")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = ("common", "models", "measure", "train_target", "train_draft", "replay_rounds")
    for name in names:  # their bare names must not stay behind for other tests
        monkeypatch.delitem(sys.modules, name, raising=False)
    return {name: importlib.import_module(name) for name in names}


@pytest.fixture
def target(scripts: dict[str, ModuleType]) -> object:
    torch.manual_seed(1)
    models = scripts["models"]
    sizes = models.Sizes(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = models.Llama(sizes).eval().requires_grad_(requires_grad=False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_cached_generation_is_greedy_for_prompts_of_different_lengths(target: object) -> None:
    prompts, lengths = torch.randint(60, (3, 9)), torch.tensor([4, 9, 6])
    ids = target.continue_greedily(prompts, lengths, 20)
    best = target(ids)[0].argmax(-1)
    for row, length in enumerate(lengths.tolist()):
        assert ids[row, :length].tolist() == prompts[row, :length].tolist()
        assert ids[row, length:].tolist() == best[row, length - 1 : -1].tolist()


def test_many_step_training_computes_what_a_chain_drafts(
    target: object, scripts: dict[str, ModuleType]
) -> None:
    models, train, replay = (scripts[name] for name in ("models", "train_draft", "replay_rounds"))
    kept = torch.arange(0, 60, 2)
    draft = models.Draft(target.sizes, target.model.embed_tokens.weight, kept).eval()
    for parameter in draft.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(60, (1, 24))
    with torch.no_grad():
        lesson = train.Lesson(target, ids, kept, replay.STEPS)
        answers = [kept[a.argmax(-1)][0] for a in train.run_steps(draft, lesson, replay.STEPS)]
        # A text that agrees with the first two drafts of slot 5 lets the chain go on to the third.
        for step in (0, 1):
            ids[0, 7 + step] = answers[step][5]
            lesson = train.Lesson(target, ids, kept, replay.STEPS)
            steps = train.run_steps(draft, lesson, replay.STEPS)
            answers = [kept[a.argmax(-1)][0] for a in steps]
        expected = 0
        while expected < replay.STEPS and answers[expected][5] == ids[0, 7 + expected]:
            expected += 1
        chain = replay.Chain(target, draft, ids[0].tolist())
        assert expected >= 2
        assert chain.rounds([7], "trained") == [expected]


def test_files_of_our_own_are_read_by_the_workbench(
    tmp_path: Path, target: object, scripts: dict[str, ModuleType]
) -> None:
    from workbench import open_checkpoint

    names = scripts["train_target"].save(target, tmp_path, megabytes=0.05)
    assert len(names) > 1
    again = scripts["train_draft"].load_target(tmp_path, "cpu")
    for name, tensor in target.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor.to(torch.bfloat16).float()), name
    assert set(open_checkpoint(tmp_path).names) == set(target.state_dict())


def test_repetition_is_seen(scripts: dict[str, ModuleType]) -> None:
    measure, train = scripts["measure"], scripts["train_target"]
    assert measure.loops([9, 9, 1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert not measure.loops(list(range(20)))
    ids = torch.tensor([[1, 2, 3, 4, 9, 1, 2, 3, 4, 5]])
    assert train.repeated(ids, prompt=5).nonzero()[:, 1].tolist() == [8]
