"""The merged prefix tree: who passes where, what moves, and how much it takes."""

from __future__ import annotations

import random

from tests.hang.cases import CASES
from tests.hang.cases.build import BARRIER, CAPTURE, frames
from workbench.hang.diagnosis_records import TreeNode, walk
from workbench.hang.judge import tree
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.records import Frame

WAITS = frames(f"{BARRIER} {CAPTURE}")
FORWARD = frames(f"LlamaForCausalLM.forward {CAPTURE}")


def leaves(nodes: tuple[TreeNode, ...]) -> dict[str, tuple[int, ...]]:
    return {node.frame.function: node.everyone() for _, node in walk(nodes) if not node.children}


def test_ranks_part_where_their_stacks_do() -> None:
    stacks = dict.fromkeys(range(7), WAITS) | {7: FORWARD}
    merged = tree.merge([stacks, stacks])
    assert [node.frame.function for node in merged] == ["spawn_main"]
    assert merged[0].ranks == (tuple(range(8)),) * 2
    assert not any(node.moving for _, node in walk(merged))
    assert leaves(merged)["barrier"] == tuple(range(7))
    assert leaves(merged)["LlamaForCausalLM.forward"] == (7,)


def test_most_ranks_first() -> None:
    merged = tree.merge([{0: FORWARD, 1: WAITS, 2: WAITS}])
    parted = [node for _, node in walk(merged) if len(node.children) > 1]
    for node in parted:
        counts = [len(child.everyone()) for child in node.children]
        assert counts == sorted(counts, reverse=True)


def test_moving_is_what_differs_in_the_last_two_looks() -> None:
    merged = tree.merge([{0: WAITS, 1: WAITS}, {0: WAITS, 1: FORWARD}])
    told = {node.frame.function: node.moving for _, node in walk(merged) if not node.children}
    assert told == {"barrier": True, "LlamaForCausalLM.forward": True}
    earlier = tree.merge([{0: FORWARD}, {0: WAITS}, {0: WAITS}])
    assert not any(node.moving for _, node in walk(earlier))


def test_a_rank_that_was_seen_once_does_not_move() -> None:
    merged = tree.merge([{0: WAITS, 1: FORWARD}, {0: WAITS}])
    assert not any(node.moving for _, node in walk(merged))


def test_addresses_and_template_arguments_do_not_part_ranks() -> None:
    def native(address: str, kind: str) -> tuple[Frame, ...]:
        wait = Frame(f"wait<{kind}>", "", 0, "/lib/x.so")
        return (Frame(address, "", 0, "/lib/libc.so.6"), wait, *WAITS)

    merged = tree.merge([{0: native("0x7f01", "int"), 1: native("0x7f92", "long")}])
    assert leaves(merged) == {"?": (0, 1)}


def test_nothing_makes_no_tree() -> None:
    assert tree.merge([]) == ()
    assert tree.merge([{}]) == ()
    assert tree.merge([{0: ()}]) == ()


def test_deep_stacks_do_not_recurse() -> None:
    deep = tuple(Frame(f"f{i}", "x.py", i) for i in range(4000))
    merged = tree.merge([{0: deep, 1: deep}])
    assert sum(1 for _ in walk(merged)) == 4000


def test_every_rank_is_found_at_its_own_leaf() -> None:
    """Random stacks: walking down from the root by a rank's frames never loses it."""
    dice = random.Random(3)
    stacks = {
        rank: tuple(Frame(f"f{dice.randrange(3)}", "x.py", 1) for _ in range(dice.randrange(1, 9)))
        for rank in range(200)
    }
    merged = tree.merge([stacks])
    for rank, stack in stacks.items():
        level = merged
        for frame in reversed(stack):
            node = next(one for one in level if one.frame == frame)
            assert rank in node.ranks[0]
            level = node.children
    total = sum(len(node.ranks[0]) for _, node in walk(merged))
    assert total == sum(map(len, stacks.values()))


def test_the_tree_of_a_diagnosis_names_ranks_not_pids() -> None:
    case = next(case for case in CASES if case.name == "trap-two-nodes")
    merged = diagnose(case.scene).tree
    assert merged[0].everyone() == tuple(range(8))
    assert merged[0].ranks == (tuple(range(8)),) * 2
