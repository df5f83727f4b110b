"""The form for weights: which are trained, which are still at random initialisation, which are broken."""

from __future__ import annotations

from workbench.panels.calls import Call
from workbench.panels.forms import (
    Field,
    Form,
    Option,
    Values,
    decimal,
    given,
    required,
    several,
    text_of,
)


def call(values: Values) -> Call:
    """Return the call of `scan_weights`."""
    ckpt = required(
        values, "ckpt", "the checkpoint", "a folder, a file, a Hub id, or http://host:port"
    )
    device = str(values.get("device") or "cpu")
    return Call(
        "scan_weights",
        (ckpt,),
        given(
            names=several(values, "names"),
            sample=decimal(values, "sample", "Sample"),
            device="" if device == "cpu" else device,
            target=text_of(values, "target"),
        ),
    )  # fmt: skip


FORM = Form(
    name="weights",
    label="Weights",
    purpose="Which weights look trained, which are still at random initialisation, and which are broken. "
    "All values are read once.",
    fields=(
        Field("ckpt", "Checkpoint", hint="folder, file, Hub id, or http://host:port of a server"),
        Field("names", "Only these", hint="names or patterns, parted by commas: *.mlp.*, lm_head.weight"),
        Field("sample", "Sample", "short", hint="0.05: a share of the rows; 128: that many; empty: all"),
        Field("target", "Target", hint="of a draft: weights that equal one of its are named"),
        Field("device", "Device", "choice", "cpu",
              options=lambda: (Option("cpu", "cpu"), Option("cuda", "cuda"))),
    ),
    call=call,
    action=lambda values: "Scan weights",
    stops_early=True,
)  # fmt: skip
