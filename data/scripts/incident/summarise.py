"""Make data/incident/expected.json and the table of the runs, from the recorded files and nothing else.

    python data/scripts/incident/summarise.py data/incident/runs data/incident/expected.json

Read are, below the first folder, all folders that hold a run.json (see serve_and_record.py). For each run:
how it was launched, how many prompts, tokens and rounds, and

`histogram`      rounds by the number of accepted drafts, summed over the engine's own histograms
`accept_length`  1 + the mean of that histogram: what a round gives, the engine's own token included
`unconditional`  share of rounds in which at least k drafts were accepted, k = 1, 2, …
`conditional`    the same among the rounds in which at least k - 1 were
`accept_length_request`
                 completion tokens over rounds, as meta_info has it (the prompt's own token counts, too)
`log`            the last accept len and accept rate of the server's log
`chunks`         whether the stream, chunk by chunk, gives the same rounds (`rounds_in_order`), and how many
                 requests it does not explain: then chunks were joined on their way

Where the engine gives no histogram, the rounds are those of the stream, and `source` says so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
LOGGED = re.compile(r"accept len: ([\d.]+), accept rate: ([\d.]+)")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a compressed JSON lines file; none where there is no file."""
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def read_log(folder: Path) -> str:
    """Return the server's log, compressed or not."""
    if (folder / "server.log").exists():
        return (folder / "server.log").read_text(errors="replace")
    with lzma.open(folder / "server.log.xz", "rt", errors="replace") as file:
        return file.read()


def engine_histogram(request: dict[str, Any]) -> list[int]:
    """Return the engine's own histogram of a request: rounds by accepted drafts."""
    meta = request["last"].get("meta_info", {})
    return next((list(meta[name]) for name in HISTOGRAMS if meta.get(name)), [])


def rounds_of_stream(request: dict[str, Any]) -> list[int]:
    """Return the accepted drafts of each round as the stream shows them.

    The first chunk is the token of the prompt itself; each later one is a round: its accepted drafts and the
    target's own token. The last round may be cut where the answer was long enough.
    """
    counts = [chunk[0] for chunk in request["chunks"] if chunk[0]]
    return [after - before - 1 for before, after in pairwise(counts) if after > before]


def explained(request: dict[str, Any]) -> bool:
    """Tell whether the stream's rounds are the engine's, but for a last one that was cut."""
    stream, histogram = (
        rounds_of_stream(request),
        Counter(dict(enumerate(engine_histogram(request)))),
    )
    histogram = +histogram
    return (
        stream != []
        and sum(histogram.values()) == len(stream)
        and not (Counter(stream[:-1]) - histogram)
    )


def rates(histogram: list[int]) -> dict[str, Any]:
    """Return accept length and rates by position of a histogram."""
    rounds = sum(histogram)
    at_least = [sum(histogram[k:]) for k in range(len(histogram))]
    return {
        "rounds": rounds,
        "accept_length": round(1 + sum(k * n for k, n in enumerate(histogram)) / rounds, 4),
        "unconditional": [round(n / rounds, 4) for n in at_least[1:]],
        "conditional": [
            round(n / before, 4) if before else None for before, n in pairwise(at_least)
        ],
    }


def add(histograms: list[list[int]], length: int) -> list[int]:
    """Sum histograms, whose tails of zeros the engine leaves out."""
    total = [0] * (length + 1)
    for histogram in histograms:
        for accepted, count in enumerate(histogram):
            total[accepted] += count
    return total


def summary(folder: Path) -> dict[str, Any]:
    """Describe one recorded run."""
    outcome = json.loads((folder / "run.json").read_text())
    run = outcome["run"]
    result: dict[str, Any] = {
        name: run.get(name, default)
        for name, default in (
            ("draft", ""),
            ("algorithm", "EAGLE3"),
            ("steps", 4),
            ("topk", 1),
            ("draft_tokens", 5),
            ("graphs", True),
            ("new_tokens", None),
        )
    }
    result["outcome"] = outcome["outcome"]
    if "error" in outcome:
        result["error"] = outcome["error"].splitlines()[0][:200]
    if (folder / "launch.json").exists():
        launch = json.loads((folder / "launch.json").read_text())
        result |= {
            name: launch.get(name) for name in ("versions", "gpus", "started", "ready_after")
        }
    requests = read_lines(folder / "requests.jsonl.gz")
    result["prompts"] = len(requests)
    if not requests:
        return result
    result["tokens"] = sum(len(r["last"].get("output_ids", [])) for r in requests)
    own = [engine_histogram(r) for r in requests]
    result["source"] = "engine" if all(own) else "stream"
    if not all(own):
        own = [[n for _, n in sorted_counts(rounds_of_stream(r))] for r in requests]
    # A tree may accept one draft a level, a chain one a step: never more than there are steps.
    result["histogram"] = add(own, run.get("steps", 4))
    result |= rates(result["histogram"])
    metas = [r["last"].get("meta_info", {}) for r in requests]
    lengths = [m["spec_accept_length"] for m in metas if "spec_accept_length" in m]
    if lengths:
        result["accept_length_request"] = round(sum(lengths) / len(lengths), 4)
    unexplained = sum(not explained(r) for r in requests)
    result["chunks"] = {"rounds_in_order": unexplained == 0, "requests_not_explained": unexplained}
    logged = LOGGED.findall(read_log(folder))
    if logged:
        result["log"] = {"accept_len": float(logged[-1][0]), "accept_rate": float(logged[-1][1])}
    return result


def sorted_counts(rounds: list[int]) -> list[tuple[int, int]]:
    """Return how often each number of accepted drafts came, from zero on without gaps."""
    counts = Counter(rounds)
    return [(accepted, counts[accepted]) for accepted in range(max(counts, default=0) + 1)]


def table(runs: dict[str, dict[str, Any]]) -> str:
    """Return the runs as a Markdown table."""
    head = (
        "| run | draft | algorithm | graphs | topk | prompts | rounds | accept length "
        "| per position | of those before |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for name, run in runs.items():
        if "accept_length" in run:
            numbers = (
                f"{run['prompts']} | {run['rounds']} | **{run['accept_length']:.3f}** | "
                f"{shares(run['unconditional'])} | {shares(run['conditional'])}"
            )
        else:
            numbers = f"{run['prompts']} | – | – | {run.get('error', run['outcome'])[:80]} | –"
        graphs = "on" if run["graphs"] else "off"
        draft = run["draft"].rpartition("/")[2]
        rows.append(
            f"| {name} | {draft} | {run['algorithm']} | {graphs} | {run['topk']} | {numbers} |"
        )
    return head + "\n".join(rows) + "\n"


def shares(values: list[float | None]) -> str:
    """Return shares as short text."""
    return " ".join("–" if value is None else f"{value:.3f}".removeprefix("0") for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recorded", type=Path, help="folder with the recorded runs, at any depth")
    parser.add_argument("out", type=Path, help="expected.json")
    parser.add_argument(
        "--table", type=Path, help="Markdown file for the table (default: print it)"
    )
    arguments = parser.parse_args()
    folders = sorted(file.parent for file in arguments.recorded.rglob("run.json"))
    runs = {
        folder.relative_to(arguments.recorded).as_posix(): summary(folder) for folder in folders
    }
    text = json.dumps({"runs": runs}, indent=1, allow_nan=False) + "\n"
    arguments.out.write_text(text)
    if arguments.table:
        arguments.table.write_text(table(runs))
    else:
        print(table(runs))


if __name__ == "__main__":
    main()
