"""Load checkpoints with a real engine's own loader and say where each key went.

A script of its own: the engine's Python runs it, and it imports nothing of the workbench. It reads one JSON
object from standard input and writes one JSON object a line to standard output, one for each job::

    {"engine": "sglang", "stubs": false,
     "jobs": [{"id": "1", "checkpoint": "/ckpt", "target": null, "model_class": null}]}

Optional in a job: ``draft`` (whether the engine would load it as a draft; by default, whether there is a
target or the class is one of a draft), ``config`` (an object that stands in for the folder's config.json),
``values`` (false: names and shapes only, on the meta device; by default so over half a gigabyte),
``layers`` (true: the answer has ``layers``, which asked the quantisation method, and ``spellings``; see
`layers.py`). Optional beside ``jobs``: ``claim``, the compute capability of a GPU that is not there.

An answer holds ``id``, ``engine``, ``version``, ``torch``, ``transformers``, ``model_class``, ``values``,
``seconds``, ``refused`` (the engine accepts the config or class not; why), ``unsupported`` (it could not be
tried here; why), ``stored`` (the keys in the files), ``config_log`` (warnings while the config was
read; those of loading are in ``log``) and what `watch.watch_load` returns. Whatever the engine
prints goes to standard error. Nothing is downloaded, and no code of a checkpoint is run.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The name under which the files of this folder import each other here.
PACKAGE = "workbench_tracer"
# Above this many bytes of weights a checkpoint is loaded without values unless told otherwise.
MOST_BYTES_WITH_VALUES = 512 << 20


def sibling(name: str) -> Any:
    """Import a file of this folder. The folder itself is kept off sys.path: its names are too common."""
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(HERE)]
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.{name}")


def neighbour(folder: str, name: str) -> Any:
    """Import a file of the folder beside this one."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Engine -> the file with its loader, and the class in it.
ENGINES = {
    "sglang": ("sglang_loader", "SGLang"),
    "transformers": ("transformers_loader", "Transformers"),
}


def run(engine: Any, name: str, job: dict[str, Any]) -> dict[str, Any]:
    """Answer one job, whatever happens in it."""
    import torch

    files = sibling("files")
    start, lent = time.monotonic(), ""
    answer: dict[str, Any] = {
        "id": job["id"],
        "engine": name,
        "version": engine.version,
        "torch": torch.__version__,
        "transformers": files.version_of("transformers"),
        "model_class": None,
        "refused": None,
        "unsupported": None,
        "error": None,
        "stored": [],
        "mismatched": {},
        "unexplained": None,
        "misfit_parameters": {},
        "parameters": {},
        "aliases": {},
        "writes": {},
        "resized": {},
        "attributes": [],
        "unreached_or_dropped": [],
        "written": {},
        "log": [],
        "config_log": [],
        "notes": [],
    }
    try:
        folder = Path(job["checkpoint"])
        stored = files.Files(folder)
        answer["stored"] = stored.keys()
        answer["unreached_or_dropped"] = answer["stored"]
        values = job.get("values")
        answer["values"] = stored.size() <= MOST_BYTES_WITH_VALUES if values is None else values
        with files.with_config(folder, job.get("config")) as place:
            lent = str(place)
            answer.update(engine.trace(job, place, answer))
    except files.Refused as error:
        answer["refused"] = str(error)
    except files.Unsupported as error:
        answer["unsupported"] = str(error)
    except Exception as error:
        traceback.print_exc()
        answer["unsupported"] = f"the tracer itself failed: {type(error).__name__}: {error}"
    given = set(answer["writes"]).union(
        answer["attributes"], answer["mismatched"], answer["unreached_or_dropped"]
    )
    # Files, or tensors in them, that the engine did not even read.
    answer["unreached_or_dropped"] += [key for key in answer["stored"] if key not in given]
    answer["seconds"] = round(time.monotonic() - start, 3)
    if lent and lent != job["checkpoint"]:  # the engine was shown a copy: name the original
        shown, real = json.dumps(lent)[1:-1], json.dumps(job["checkpoint"])[1:-1]
        answer = json.loads(json.dumps(answer).replace(shown, real))
    return answer


def main() -> None:
    """Read the request, answer each job as soon as it is done."""
    sibling("parent").die_with_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    request = json.load(sys.stdin)
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[switch] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if request.get("claim"):
        sibling("claimed").claim(request["claim"])
        neighbour("harvest", "standins").install()  # what a GPU asks for is more than a CPU does
    elif request.get("stubs"):
        sibling("stubs").install()
    file, name = ENGINES[request["engine"]]
    engine = getattr(sibling(file), name)()
    for job in request["jobs"]:
        print(json.dumps(run(engine, request["engine"], job)), file=out, flush=True)
    out.close()
    # Process groups and threads of libraries need no tidy end, and some would wait for one.
    os._exit(0)


if __name__ == "__main__":
    main()
