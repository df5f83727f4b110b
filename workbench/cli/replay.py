"""``workbench replay``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import finish, output
from workbench.cli.options import Force, Html, Json, Markdown


def replay(
    target: Annotated[
        str,
        typer.Option(help="The target's checkpoint, or a folder of evidence with hidden states."),
    ],
    draft: Annotated[str, typer.Option(help="The draft's checkpoint.")],
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompts to answer greedily: .jsonl (text or input_ids), or .txt."),
    ] = None,
    evidence: Annotated[
        str | None,
        typer.Option(help="What an engine did: a recorded run, hidden states, metrics, a log."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help='As this version loads and drives the draft ("sglang==0.5.11"), or "trainer". '
            "By default: as the evidence was launched, else as the trainer means it."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Drafts in a row; with evidence, its own count.")] = 3,
    topk: Annotated[int, typer.Option(help="Width of the tree.")] = 1,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Nodes of the tree, including the root.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(help="What it should reach: a number, the trainer's metrics, a healthy run."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Of the answers to prompts; 0 is greedy.")
    ] = 0.0,
    top_k: Annotated[int, typer.Option(help="Of sampled answers; 0 keeps every token.")] = 0,
    top_p: Annotated[float, typer.Option(help="Of sampled answers; 1 keeps every token.")] = 1.0,
    threshold_single: Annotated[
        float, typer.Option(help="SGLang's --speculative-accept-threshold-single.")
    ] = 1.0,
    threshold_acc: Annotated[
        float, typer.Option(help="SGLang's --speculative-accept-threshold-acc.")
    ] = 1.0,
    hardware: Annotated[
        str, typer.Option(help="cuda, rocm or npu: SGLang verifies greedily on the last two.")
    ] = "cuda",
    new_tokens: Annotated[int, typer.Option(help="Length of the answers to prompts.")] = 64,
    requests: Annotated[int | None, typer.Option(help="Only the first so many.")] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Change one thing at a time, and name the cause.")
    ] = False,
    with_change: Annotated[
        list[str] | None,
        typer.Option(
            help="A change, by the name that --ablate gives it: shows what the draft says with it."
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Draft and verify again, round by round: what is accepted, and why the rest is rejected."""
    from workbench.speculation.replaying import replay as run

    page = output(html, "page", target, draft, prompts, evidence, expected, force=force)
    found = run(
        target, draft, prompts, evidence=evidence, steps=steps, topk=topk, draft_tokens=draft_tokens,
        engine=engine, expected=expected, requests=requests, temperature=temperature, top_k=top_k,
        top_p=top_p, threshold_single=threshold_single, threshold_acc=threshold_acc, hardware=hardware,
        new_tokens=new_tokens,
    )  # fmt: skip
    found = found.with_change(*with_change) if with_change else found
    return finish(found.ablate() if ablate else found, json=json, markdown=markdown, html=page)
