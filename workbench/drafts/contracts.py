"""Contracts beyond names: what must hold between tensors, config, target and launch.

All keys may reach their parameters and the numbers still be wrong: d2t read the wrong way, a flag that the
engine does not know, a launch that feeds the draft other features. Each contract is a pure function of
a `Subject` that yields findings; a contract that lacks a datum says so or is silent, and accuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from workbench.core.finding import GRAVITY, Finding
from workbench.drafts.dtypes import dtypes
from workbench.drafts.heads import head_and_embedding
from workbench.drafts.launch import architecture, config_form, launched_as
from workbench.drafts.layers import auxiliary_layers, heads, norms, qk_norm, target_sizes, widths
from workbench.drafts.subject import Subject
from workbench.drafts.vocabulary import vocabulary
from workbench.launch.records import Launch
from workbench.loaders.outcome import LoadOutcome

Contract = Callable[[Subject], Iterator[Finding]]

ALWAYS: tuple[Contract, ...] = (config_form, architecture, launched_as, qk_norm, heads, dtypes)
# A draft of the first generation shares the target's embedding and head, and reads its last features.
EAGLE: tuple[Contract, ...] = (target_sizes,)
EAGLE3: tuple[Contract, ...] = (vocabulary, head_and_embedding, widths, norms, auxiliary_layers)


def named(subject: Subject) -> tuple[Contract, ...]:
    """Return the contracts that a subject must hold, in the order in which they are asked."""
    if subject.first_generation:
        return ALWAYS + EAGLE
    return ALWAYS + (EAGLE3 if subject.eagle3 else ())


def check_each(
    checkpoint: Any,
    outcome: LoadOutcome,
    *,
    target: Any = None,
    launch: Launch | None = None,
) -> dict[str, list[Finding]]:
    """Return what each contract finds, by the contract's name.

    Parameters
    ----------
    checkpoint
        Offers ``table``, ``config`` and ``tensor(name)``. Only d2t and t2d are read.
    outcome
        What the engine's loader did with it: engine, version, class, and where the keys went.
    target
        The target's checkpoint or config; None where it is not known.
    launch
        The server's launch; None where it is not known.

    Returns
    -------
    dict
        Findings with ``changes_output`` mean that the served model computes something else.
    """
    subject = Subject(checkpoint, outcome, target, launch)
    return {contract.__name__: list(contract(subject)) for contract in named(subject)}


def check(
    checkpoint: Any,
    outcome: LoadOutcome,
    *,
    target: Any = None,
    launch: Launch | None = None,
) -> list[Finding]:
    """Return what all contracts find, errors first; the parameters are those of `check_each`."""
    found = check_each(checkpoint, outcome, target=target, launch=launch)
    return sorted((f for each in found.values() for f in each), key=lambda f: GRAVITY[f.severity])
