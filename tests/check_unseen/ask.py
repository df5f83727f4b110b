"""Run by an engine's own Python: what SGLang's parser and its checks of arguments make of launches.

Reads ``{"stubs": FOLDER, "launches": [{"id": NAME, "options": [WORD, …], "environment": {…}}, …]}`` from
standard input and prints one JSON object a launch. Eight cards of 141 GiB are pretended, so that the
arguments take the way of a CUDA host; nothing runs on them, and no weight is loaded.
"""

import contextlib
import io
import json
import logging
import os
import sys

GIB = 1 << 30
NOTED = (
    "adjusted",
    "disabled because",
    "is disabled",
    "deprecated",
    "overrid",
    "set to",
    "ignored",
)
FIELDS = ("algorithm", "draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")


def pretend_cards(torch):
    """Make torch report a host with eight H200."""

    class Card:
        major, minor, total_memory, multi_processor_count = 9, 0, 141 * GIB, 132
        name = "NVIDIA H200"

    torch.version.cuda = "13.0"
    for name, value in (
        ("is_available", True),
        ("device_count", 8),
        ("get_device_capability", (9, 0)),
        ("get_device_properties", Card()),
        ("get_device_name", Card.name),
        ("current_device", 0),
    ):
        setattr(torch.cuda, name, lambda *_, _value=value, **__: _value)


def fill_gaps(torch):
    """What older releases ask of a torch that is newer, and of kernels that have no CPU build."""
    if not hasattr(torch._C._cpu, "_is_amx_tile_supported"):
        torch._C._cpu._is_amx_tile_supported = lambda: False
    register = torch.library.register_fake

    def register_fake(operator, *given, **more):
        if isinstance(operator, str) and operator.startswith("sgl_kernel::"):
            return lambda function: function
        return register(operator, *given, **more)

    torch.library.register_fake = register_fake


def pretend_memory():
    """Every module that asked for the memory of a card gets it without ``nvidia-smi``."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("sglang"):
            for name in ("get_device_memory_capacity", "get_nvgpu_memory_capacity"):
                if name in vars(module):
                    setattr(module, name, lambda *_, **__: 141 * 1024)


def refusal(server_args, options, said):
    """Return the moment and the words with which these options are refused, and the filled arguments."""
    moment, filled = "parser", {}
    try:
        parsed = server_args.prepare_server_args([*options, "--device", "cuda"])
        filled = {name: getattr(parsed, "speculative_" + name, None) for name in FIELDS}
        moment = "check"
        if hasattr(parsed, "check_server_args"):
            parsed.check_server_args()
    except SystemExit as end:
        lines = [line for line in said.getvalue().splitlines() if "error:" in line]
        why = lines[-1].partition("error: ")[2] if lines else f"exit {end.code}"
        return moment, why, filled
    except Exception as error:  # the engine's own words are the answer
        text = str(error).strip().splitlines()
        return "check", f"{type(error).__name__}: {text[0][:300] if text else ''}", filled
    return "", "", filled


def main():
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    sys.path.append(request["stubs"])
    import stubs

    stubs.install()
    import torch

    pretend_cards(torch)
    fill_gaps(torch)
    output = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt import server_args

        pretend_memory()
    for launch in request["launches"]:
        said = io.StringIO()
        logging.getLogger().handlers = [logging.StreamHandler(said)]
        before = dict(os.environ)
        os.environ.update(launch["environment"])
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            moment, why, filled = refusal(server_args, launch["options"], said)
        os.environ.clear()
        os.environ.update(before)
        notes = [
            line[:240] for line in said.getvalue().splitlines() if any(w in line for w in NOTED)
        ]
        answer = {
            "id": launch["id"],
            "moment": moment,
            "why": why,
            "filled": filled,
            "notes": notes[:6],
        }
        print(json.dumps(answer, default=str), file=output, flush=True)


if __name__ == "__main__":
    main()
