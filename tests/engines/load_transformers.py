"""Run by an engine's interpreter: load folders with the real transformers, print what it reports.

Usage: ``python load_transformers.py CLASS FOLDER...``; one JSON line a folder.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"


def main(model_class: str, folders: list[str]) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    loader = getattr(transformers, model_class)
    for folder in folders:
        try:
            _, info = loader.from_pretrained(folder, output_loading_info=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}))
            continue
        names = {k: sorted(map(str, info[k])) for k in ("missing_keys", "unexpected_keys")}
        print(json.dumps(names | {"error": "", "version": transformers.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
