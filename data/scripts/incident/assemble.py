"""Put what was made and recorded into data/incident, as it is shipped.

    python data/scripts/incident/assemble.py data/incident --models .carry/models --made .carry/made \
        --corpus .carry/corpus --recorded .carry/recorded

Copied are the target, the two drafts that the real writers wrote (recipes.py makes the others again), the
reports and logs of the training, the prompts, the list of the corpus' files, and the recorded runs. No
value is changed on the way. To be small,

- the many files of the forward hooks become `hooks.safetensors.xz` (tensor `00012-draft.logits` is the array
  `logits` of the 13th call). Kept are the server's own warm-up request and the first prompt, or the first
  two of the healthy chain on 0.5.14; of that on 0.5.11 none, since it was the same;
- hidden states are the target's, so they are kept of that healthy chain only;
- what the draft's modules held in memory becomes `memory.json` (each parameter: shape, hash, whether it is
  bit by bit what the draft's file holds) and, where it is not, `memory.safetensors.xz`;
- long server logs and server_info.json are compressed, except those of the story.

Numbers that came from bfloat16 are stored as such again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

from common import load_safetensors, save_safetensors, write_json

DRAFTS = ("speculators", "specforge")
LIMIT = 30e6  # bytes, all together
STORY = ("incident", "repaired", "speculators")
# Of the runs under hooks: how many prompts' calls are kept. The healthy chain was recorded on both engines.
CALLS = {
    "speculators-hooks": 2,
    "incident-hooks": 1,
    "speculators-tree-hooks": 1,
    "repaired-hooks": 0,
}
HIDDEN = "speculators-hooks"  # of this run the hidden states are kept
LONG = 20_000  # bytes
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
EXTEND = 1  # the mode in which SGLang reads a prompt


def copy(source: Path, out: Path) -> None:
    """Replace a folder by a copy of another."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)


def models(source: Path, out: Path) -> None:
    """Copy target and drafts."""
    copy(source / "target", out / "target")
    for name in DRAFTS:
        copy(source / "drafts" / name, out / "drafts" / name)


def training(made: Path, corpus: Path, out: Path) -> None:
    """Copy the reports and logs of the training, the prompts, and which files the text came from."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in ("target", "draft"):
        shutil.copyfile(made / name / "report.json", out / f"{name}-report.json")
        shutil.copyfile(made / name / "train.log", out / f"{name}.log")
    shutil.copyfile(corpus / "prompts.jsonl", out / "prompts.jsonl")
    listing = json.loads((corpus / "files.json").read_text())
    (out / "corpus.json").write_text(json.dumps(listing, separators=(",", ":")) + "\n")
    compress(out / "corpus.json")


def compress(path: Path) -> None:
    """Replace a file by a compressed one; the same bytes give the same bytes."""
    path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
    path.unlink()


def tensor(array: Any) -> Any:
    """Return an array as a tensor, in bfloat16 where that loses nothing."""
    import numpy as np
    import torch

    if array.dtype.kind in "US":
        array = np.array(int(str(array)), dtype=np.int64)
    array = np.ascontiguousarray(array)
    if array.dtype == np.float32:
        bits = array.reshape(-1).view(np.uint32)
        if not (bits & 0xFFFF).any():
            half = torch.from_numpy((bits >> 16).astype(np.uint16).view(np.int16))
            return half.view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(array)


def hooks(folder: Path, out: Path, prompts: int) -> None:
    """Write the recorded calls into one file: those of the warm-up and of the first `prompts` prompts."""
    import numpy as np

    tensors, read = {}, 0
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            read += file.stem.endswith("-target") and int(str(arrays["mode"])) == EXTEND
            if read > 1 + prompts:
                break
            tensors |= {f"{file.stem}.{name}": tensor(arrays[name]) for name in arrays.files}
    save_safetensors(out, tensors)
    compress(out)


def memory(folder: Path, out: Path, draft: dict[str, Any]) -> None:
    """Compare what the draft's modules held with the draft's file; keep what differs."""
    import numpy as np
    import torch

    described, kept = {}, {}
    for file in sorted(folder.glob("*.npy")):
        held = tensor(np.load(file))
        wanted = draft_tensor(draft, file.stem)
        same = bool(
            wanted.shape == held.shape
            and torch.equal(wanted.view(torch.int16), held.view(torch.int16))
        )
        raw = held.reshape(-1).view(torch.uint8).numpy().tobytes()
        described[file.stem] = {
            "shape": list(held.shape),
            "dtype": str(held.dtype).removeprefix("torch."),
            "sha256": hashlib.sha256(raw).hexdigest(),
            "as_in_the_file": same,
            "zeros": int((held == 0).sum()),
            "nan": int(held.isnan().sum()),
        }
        if not same:
            kept[file.stem] = held
    write_json(out / "memory.json", described)
    if kept:
        save_safetensors(out / "memory.safetensors", kept)
        compress(out / "memory.safetensors")


def draft_tensor(draft: dict[str, Any], name: str) -> Any:
    """Return what the draft's file has for a parameter of the running model."""
    import torch

    name = name.removeprefix("model.").replace("midlayer.", "layers.0.")
    for fused, parts in FUSED.items():
        if fused in name:
            return torch.cat([draft[name.replace(fused, part)] for part in parts])
    return draft[name]


def run(source: Path, out: Path, draft: dict[str, Any]) -> None:
    """Copy one run."""
    copy(source, out)
    if (out / "hooks").is_dir():
        if CALLS[out.name]:
            hooks(out / "hooks", out / "hooks.safetensors", CALLS[out.name])
        if out.name != HIDDEN:
            (out / "hidden_states.jsonl.gz").unlink(missing_ok=True)
        memory(out / "hooks" / "weights", out, draft)
        shutil.rmtree(out / "hooks")
    for name in ("server.log", "server_info.json"):
        file = out / name
        if file.exists() and file.stat().st_size > LONG and out.name not in STORY:
            compress(file)


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, help="folder with target and drafts")
    parser.add_argument("--made", type=Path, help="what training left")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument(
        "--recorded", type=Path, help="folder with a folder for each plan, and one called hang"
    )
    arguments = parser.parse_args()
    out = arguments.out
    if arguments.models:
        models(arguments.models, out)
    if arguments.made and arguments.corpus:
        training(arguments.made, arguments.corpus, out / "training")
    if arguments.recorded:
        draft = load_safetensors(out / "drafts" / "speculators" / "model.safetensors")
        for plan in sorted(path for path in arguments.recorded.iterdir() if path.is_dir()):
            for folder in sorted(path for path in plan.iterdir() if path.is_dir()):
                if plan.name == "hang":
                    copy(folder, out / "hang" / folder.name)
                else:
                    run(folder, out / "runs" / plan.name.removesuffix("-more") / folder.name, draft)
    for part in sorted(out.iterdir()):
        print(f"{size(part) / 1e6:8.2f} MB  {part.name}")
    total = size(out)
    print(f"{total / 1e6:8.2f} MB  in all")
    if total > LIMIT:
        raise SystemExit(
            f"more than {LIMIT / 1e6:.0f} MB: look for the largest files and say what is left out"
        )


if __name__ == "__main__":
    main()
