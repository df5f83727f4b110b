"""A script that the engine's Python runs: a config.json for each class, as a server reads it, one a line.

    python list_configs.py [CLASS ...]

The configs are those that the harvest begins with; a class that a server's reading of config.json cannot
build is left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    """List the classes named, or all."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    spec = importlib.util.spec_from_file_location("workbench_harvest_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run = sys.modules["workbench_harvest_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    class_map, watch, found, _ = run.prepare(sys.argv[1:])
    every = sys.modules["workbench_harvest.configs"].Configs()

    def first(name: str) -> dict[str, Any]:
        for builder, raw, _ in class_map._found(found[name], every, watch, []):
            if builder.config_class is None:
                return {"config": raw}
        return {}

    wanted = sys.argv[1:] or sorted(found)
    for record in run.each(first, (name for name in wanted if name in found), 1):
        if "config" in record:
            print(json.dumps([record["class"], record["config"]]), file=out, flush=True)
    out.close()
    os._exit(0)


if __name__ == "__main__":
    main()
