"""Put what was made and recorded into data/incident, as it is shipped.

    python data/scripts/incident/assemble.py data/incident --models .carry/models --made .carry/made \
        --corpus .carry/corpus --recorded .carry/recorded

Copied are the target, the two drafts that the real writers wrote (recipes.py makes the others again), the
reports and logs of the training, the prompts, the list of the corpus' files, and the recorded runs. Nothing
is changed on the way, but for the many small files of the forward hooks, which go into one `hooks.zip` a
run. Says how large each part is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import zipfile
from pathlib import Path

DRAFTS = ("speculators", "specforge")
LIMIT = 30e6  # bytes, all together


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


def run(source: Path, out: Path) -> None:
    """Copy one run; the files of the hooks go into one archive, without times, so that it is reproducible."""
    copy(source, out)
    hooks = out / "hooks"
    if not hooks.is_dir():
        return
    with zipfile.ZipFile(out / "hooks.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in hooks.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(hooks).as_posix())
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    shutil.rmtree(hooks)


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
        for plan in sorted(path for path in arguments.recorded.iterdir() if path.is_dir()):
            for folder in sorted(path for path in plan.iterdir() if path.is_dir()):
                run(
                    folder,
                    out / ("hang" if plan.name == "hang" else f"runs/{plan.name}") / folder.name,
                )
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
