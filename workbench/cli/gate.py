"""``workbench gate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import apart, finish, output, write_junit, wrote
from workbench.cli.options import Force, Html, Json, Junit, Markdown
from workbench.core import outputs


def gate(
    draft: Annotated[str, typer.Argument(help="The draft's folder.")],
    target: Annotated[str, typer.Option(help="The target's folder.")],
    engines: Annotated[
        str, typer.Option(help='The releases that must load it: "sglang>=0.5.9,vllm".')
    ],
    baseline: Annotated[
        Path | None,
        typer.Option(help="What --save-baseline wrote: the replay may not accept less."),
    ] = None,
    save_baseline: Annotated[
        Path | None, typer.Option(help="Write the acceptance of this draft, for gates to come.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompts of the replay: .jsonl (text or input_ids), or .txt."),
    ] = None,
    requests: Annotated[int, typer.Option(help="Only the first so many prompts.")] = 10,
    tolerance: Annotated[
        float, typer.Option(help="Share by which the acceptance length may be lower.")
    ] = 0.05,
    badge: Annotated[
        Path | None,
        typer.Option(help="Write badge.svg and badge.md into this folder, if the draft passes."),
    ] = None,
    page: Annotated[
        str, typer.Option(help="Where the badge leads: the page with the doubts.")
    ] = "gate.html",
    junit: Junit = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Say whether a draft may be published: keys in every release, weights, acceptance; for CI."""
    from workbench.preflight.gating import badges
    from workbench.preflight.gating import gate as ask

    examined = (draft, target, prompts)
    out = output(html, "page", *examined, force=force)
    report = output(junit, "junit", *examined, force=force)
    kept = output(save_baseline, "result", *examined, force=force)
    apart(out, report, kept)
    found = ask(
        draft, target=target, engines=engines, baseline=baseline, save_baseline=kept,
        prompts=prompts, requests=requests, tolerance=tolerance,
    )  # fmt: skip
    code = finish(found, json=json, markdown=markdown, html=out)
    write_junit(found, report)
    if badge is not None and found.badge:
        badge.mkdir(parents=True, exist_ok=True)
        for name, text in badges(found, page):
            place = output(badge / name, "badge", *examined, force=force)
            assert place is not None
            with outputs.writing(place, "badge") as opened:
                opened.write(text.encode())
            wrote(place)
    elif badge is not None:
        typer.echo("No badge: the draft does not pass, or something is not checked.", err=True)
    return code
