"""Container images: which engine one holds, of which release, and whether it is a server by itself."""

from __future__ import annotations

import dataclasses
import re

from packaging.version import InvalidVersion, Version

from workbench.launch import holes

# The last part of an image's name, whatever registry it was copied to. An image of a framework around an
# engine (`ai-dynamo/sglang-runtime`) has the framework's version as its tag, not the engine's.
_ENGINES = {
    "sglang": "sglang",
    "sglang-rocm": "sglang",
    "sgl-dev": "sglang",
    "vllm-openai": "vllm",
    "vllm": "vllm",
    "tensorrt-llm": "tensorrt-llm",
}
_TRTLLM = re.compile(r"tensorrt-llm/(?:release|devel)$")
_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|dev|a|b)\d+)*)(?=$|[-_+])")
_SERVERS = {"vllm-openai": ("vllm", "serve")}


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image as a launch names it, and the engine and release that its name and tag prove."""

    name: str = ""
    engine: str = ""
    version: str = ""


NO_IMAGE = Image()


def read_image(text: str) -> Image:
    """Return what an image's name says: ``lmsysorg/sglang:v0.5.11-cu129`` is SGLang 0.5.11."""
    shown = holes.shown(text)
    bare = text.partition("@")[0]
    path, colon, tag = bare.rpartition(":")
    if not colon or "/" in tag:  # a port of a registry, or no tag
        path, tag = bare, ""
    last = path.rpartition("/")[2]
    engine = "tensorrt-llm" if _TRTLLM.search(path) else _ENGINES.get(last, "")
    found = None if holes.has_hole(tag) else _TAG.match(tag)
    return Image(shown, engine, _release(found[1]) if found and engine else "")


def _release(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        return ""


def entrypoint_of(image: Image) -> tuple[str, ...]:
    """Return the server that an image starts by itself, () where it starts none."""
    last = image.name.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return _SERVERS.get(last, ())
