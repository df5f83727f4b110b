"""Run by an engine's interpreter: load folders with the real transformers, print what it reports.

Usage: ``python load_transformers.py FOLDER...``; the class is the one that each config.json names.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
# The environments hold a CUDA build of torchvision, which cannot be imported beside a CPU torch.
sys.modules["torchvision"] = None  # type: ignore[assignment]


def main(folders: list[str]) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    for folder in folders:
        with open(os.path.join(folder, "config.json")) as file:
            loader = getattr(transformers, json.load(file)["architectures"][0])
        try:
            _, info = loader.from_pretrained(folder, output_loading_info=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}))
            continue
        names = {k: sorted(map(str, info[k])) for k in ("missing_keys", "unexpected_keys")}
        print(json.dumps(names | {"error": "", "version": transformers.__version__}))


if __name__ == "__main__":
    main(sys.argv[1:])
