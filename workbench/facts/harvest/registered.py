"""What a release registers: model classes, config types, algorithms, environment defaults, pins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.sources import line_at
from workbench.facts.harvest.wheel import Wheel


def classes(wheel: Wheel) -> Iterator[Found]:
    """Yield the model classes that config.json's architectures may name, from each ``EntryClass``."""
    entry = re.compile(r"^EntryClass\s*(?::[^=]+)?=\s*(\[[^\]]*\]|\([^)]*\)|\w+)", re.MULTILINE)
    for name in wheel.under("srt/models/"):
        match = entry.search(wheel.text(name))
        if match is None:
            continue
        for cls in re.findall(r"\w+", re.sub(r"#.*", "", match[1])):
            line = line_at(wheel.text(name), match.start())
            yield Found("class", cls, name.rpartition("/")[2], name, line)


def model_types(wheel: Wheel) -> Iterator[Found]:
    """Yield the values of config.json's model_type that the engine has config classes of its own for."""
    seen: set[str] = set()
    registry = [name for name in wheel.modules if "hf_transformers" in name]
    for name in [*registry, *wheel.under("srt/configs/")]:
        text = wheel.text(name)
        # A class's own field, or its name in the registry; `= model_type` of an instance is neither.
        for pattern in (
            r"^\s+model_type\s*(?::\s*[\w.\[\]]+\s*)?=\s*[\"']([\w.-]+)[\"']",
            r"_CONFIG_REGISTRY\[[\"']([\w.-]+)[\"']\]\s*=",
            r"AutoConfig\.register\(\s*[\"']([\w.-]+)[\"']",
        ):
            for match in re.finditer(pattern, text, re.MULTILINE):
                if match[1] not in seen:
                    seen.add(match[1])
                    yield Found("model type", match[1], True, name, line_at(text, match.start(1)))


def algorithms(wheel: Wheel) -> Iterator[Found]:
    """Yield the speculative algorithms that are built in."""
    for name in wheel.under("speculative/spec_info.py"):
        tree = wheel.tree(name)
        for cls in tree.body if tree else ():
            if isinstance(cls, ast.ClassDef) and cls.name == "SpeculativeAlgorithm":
                for item in cls.body:
                    if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                        yield Found("algorithm", item.targets[0].id, True, name, item.lineno)


def environment(wheel: Wheel) -> Iterator[Found]:
    """Yield the environment variables that environ.py declares, each with its default."""
    for name in wheel.under("srt/environ.py"):
        tree = wheel.tree(name)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                variable, call = node.targets[0].id, node.value
                if re.fullmatch(r"[A-Z][A-Z0-9_]{4,}", variable) and isinstance(call, ast.Call):
                    value = ast.unparse(call.args[0]) if call.args else True
                    yield Found("environment", variable, value, name, node.lineno)


def words(wheel: Wheel, wanted: Iterable[str]) -> Iterator[Found]:
    """Yield the words that are anywhere in the sources of the runtime."""
    for word in wanted:
        for name in wheel.holding(word):
            if "/srt/" in name:
                at = line_at(wheel.text(name), wheel.text(name).index(word))
                yield Found("word", word, True, name, at)
                break


def titles(wheel: Wheel) -> Iterator[Found]:
    """Yield the titles that processes give themselves."""
    seen: set[str] = set()
    for name in wheel.holding("setproctitle"):
        text = wheel.text(name)
        for match in re.finditer(r"setproctitle\.setproctitle\(\s*f?\"([^\"]+)\"", text):
            if match[1] not in seen:
                seen.add(match[1])
                yield Found("title", match[1], True, name, line_at(text, match.start(1)))


_PIN = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?==\s*([\w.+!-]+)\)?(?:\s*;(.*))?")
_PINNED = ("transformers", "torch", "flashinfer-python", "sgl-kernel", "sglang-kernel", "xgrammar")


def pins(wheel: Wheel) -> Iterator[Found]:
    """Yield the exact versions of packages that a plain installation of the release asks for."""
    found: dict[str, str] = {}
    for line in wheel.metadata.get("Requires-Dist", ()):
        match = _PIN.fullmatch(line.strip())
        if match is None or match[1].lower().replace("_", "-") not in _PINNED:
            continue
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)", match[3] or "")
        # Until 0.4.x the engine's own needs are those of the extra `srt`.
        if extra is None or extra[1].replace("-", "_") in ("srt", "runtime_common"):
            found.setdefault(match[1].lower().replace("_", "-"), match[2])
    for name, version in sorted(found.items()):
        yield Found("pin", name, version, "METADATA", 0)
