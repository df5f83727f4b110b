"""The text of the shipped case: what lies in the standard library of the Python that runs this script.

Run by any Python with `tokenizers` and numpy (the project's environment of writers has both)::

    WRITERS=$(python -m tests.engines.environments --where | grep writers | cut -f2)
    $WRITERS data/scripts/incident/corpus.py text .carry/corpus
    $WRITERS data/scripts/incident/tokenizer.py .carry/corpus data/incident/target
    $WRITERS data/scripts/incident/corpus.py tokens .carry/corpus data/incident/target

The first writes `files.json`: the list of files, each with its hash and its part; the text itself stays
where it is. The last writes `train.npy.xz` and `heldout.npy.xz` (token ids, files apart by `</s>`) and
`prompts.jsonl`. The licence of the text is that of Python (PSF-2.0). Charmap tables, third-party packages
and files that compress to less than a seventh (tables, generated code) are left out: a model learns only to
repeat from them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import platform
import random
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 20
SUFFIXES = (".py", ".txt")
LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "encodings",
    "lib2to3/tests/data",
    "__pycache__",
    "idlelib/Icons",
)
SMALLEST, LARGEST = 1_500, 400_000  # bytes of a file
REPETITIVE = 7.0  # text bytes for one zlib byte
HELD_OUT = 16  # every sixteenth file, by the hash of its name


def candidates(root: Path) -> Iterator[Path]:
    """Yield the files of the standard library that may be text, in a fixed order."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if (
            path.suffix in SUFFIXES
            and path.is_file()
            and not any(part in name for part in LEFT_OUT)
        ):
            yield path


def readable(path: Path) -> str | None:
    """Return the text of a file, or None where it is too small, too large, too repetitive or no UTF-8."""
    data = path.read_bytes()
    if not SMALLEST <= len(data) <= LARGEST or len(data) > REPETITIVE * len(zlib.compress(data)):
        return None
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def part_of(name: str) -> str:
    """Return the part that a file belongs to; it depends on nothing but the file's name."""
    digest = hashlib.sha256(name.encode()).digest()
    return "heldout" if digest[0] % HELD_OUT == 0 else "train"


def write_list(out: Path, limit: int | None) -> dict[str, Any]:
    """Choose the files and write their list."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files, seen = [], set()
    for path in candidates(root):
        text = readable(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if text is None or digest in seen:
            continue
        seen.add(digest)
        name = path.relative_to(root).as_posix()
        files.append({"name": name, "bytes": len(text), "sha256": digest, "part": part_of(name)})
    if limit:
        files = sorted(files, key=lambda file: file["sha256"])[:limit]
    listing = {
        "python": platform.python_version(),
        "licence": "PSF-2.0",
        "bytes": {
            part: sum(f["bytes"] for f in files if f["part"] == part)
            for part in ("train", "heldout")
        },
        "files": files,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "files.json").write_text(json.dumps(listing, indent=1) + "\n")
    return listing


def texts(corpus: Path, part: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files of a part, and refuse a file that is not the listed one."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in json.loads((corpus / "files.json").read_text())["files"]:
        if file["part"] == part:
            data = (root / file["name"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != file["sha256"]:
                raise SystemExit(
                    f"{file['name']} is not the file of the list: another Python wrote it"
                )
            yield file["name"], data.decode("utf-8").replace("\r\n", "\n")


def make_prompts(
    corpus: Path, tokenizer: Any, count: int, shortest: int, longest: int
) -> list[dict[str, Any]]:
    """Cut prompts from held-out files, each from the start of a line; one for about 60 lines of a file."""
    chance = random.Random(SEED)
    prompts = []
    for name, text in texts(corpus, "heldout"):
        lines = text.splitlines(keepends=True)
        for _ in range(min(8, 1 + len(lines) // 60)):
            start = chance.randrange(max(1, len(lines) - 20))
            ids = tokenizer.encode("".join(lines[start : start + 40])).ids
            length = chance.randint(shortest, longest)
            if len(ids) >= length:
                prompts.append({"file": name, "line": start + 1, "ids": ids[:length]})
    chance.shuffle(prompts)
    return [{"prompt": number, **prompt} for number, prompt in enumerate(prompts[:count])]


def write_tokens(corpus: Path, target: Path, arguments: argparse.Namespace) -> None:
    """Tokenise both parts and cut the prompts."""
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    end = tokenizer.token_to_id("</s>")
    for part in ("train", "heldout"):
        ids: list[int] = []
        for encoding in tokenizer.encode_batch([text for _, text in texts(corpus, part)]):
            ids += [*encoding.ids, end]
        with lzma.open(corpus / f"{part}.npy.xz", "wb", preset=arguments.preset) as file:
            np.save(file, np.array(ids, dtype=np.uint16))
        print(part, len(ids), "tokens", flush=True)
    prompts = make_prompts(
        corpus, tokenizer, arguments.prompts, arguments.shortest, arguments.longest
    )
    (corpus / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    print(len(prompts), "prompts")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("step", choices=["text", "tokens"])
    parser.add_argument("corpus", type=Path, help="folder for the list and the tokens")
    parser.add_argument(
        "target", type=Path, nargs="?", help="folder with tokenizer.json (for tokens)"
    )
    parser.add_argument("--limit", type=int, help="this many files only: a toy")
    parser.add_argument("--prompts", type=int, default=240)
    parser.add_argument("--shortest", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--longest", type=int, default=64)
    parser.add_argument("--preset", type=int, default=6, help="xz preset")
    arguments = parser.parse_args()
    if arguments.step == "text":
        listing = write_list(arguments.corpus, arguments.limit)
        print(len(listing["files"]), "files", listing["bytes"])
    elif arguments.target is None:
        parser.error("tokens needs the folder with tokenizer.json")
    else:
        write_tokens(arguments.corpus, arguments.target, arguments)


if __name__ == "__main__":
    main()
