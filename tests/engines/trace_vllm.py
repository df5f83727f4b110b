"""Run by vLLM's own interpreter: load drafts with its real loader and watch what that writes.

Usage: ``python trace_vllm.py TARGET JOBS.json ANSWERS.jsonl``. A job has ``id``, ``path``, ``exclude`` (keys
left out) and ``plain``: only whether it loads, without watching.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_PLUGINS="",
    HF_HUB_OFFLINE="1",
)
TRACER = Path(__file__).parents[2] / "workbench" / "loaders" / "tracer"


def load_watch() -> Any:
    package = types.ModuleType("workbench_tracer")
    package.__path__ = [str(TRACER)]
    sys.modules[package.__name__] = package
    return importlib.import_module("workbench_tracer.watch")


class Loader:
    """vLLM with one target, set up for one draft after the other."""

    def __init__(self, target: str) -> None:
        self.target, self.ready = target, False

    def configure(self, draft: str) -> Any:
        from vllm.config import set_current_vllm_config
        from vllm.distributed import init_distributed_environment, initialize_model_parallel
        from vllm.engine.arg_utils import EngineArgs

        speculative = {"model": draft, "method": "eagle3", "num_speculative_tokens": 2}
        config = EngineArgs(
            model=self.target,
            tokenizer=self.target,
            dtype="float32",
            enforce_eager=True,
            max_model_len=128,
            speculative_config=speculative,
        ).create_engine_config()
        if not self.ready:
            with set_current_vllm_config(config):
                init_distributed_environment(1, 0, "tcp://127.0.0.1:29517", 0, "gloo")
                initialize_model_parallel(1, 1)
            self.ready = True
        return config

    def make(self, config: Any) -> Any:
        import torch
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.utils.torch_utils import set_default_torch_dtype

        config.compilation_config.static_forward_context.clear()
        draft = config.speculative_config.draft_model_config
        with set_current_vllm_config(config), set_default_torch_dtype(torch.float32):
            return initialize_model(vllm_config=config, model_config=draft)


def tensors(job: dict[str, Any]) -> Any:
    from safetensors import safe_open

    for file in sorted(Path(job["path"]).glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118 - not a dict
                if key not in job.get("exclude", ()):
                    yield key, opened.get_tensor(key)


def answer(loader: Loader, watch: Any, job: dict[str, Any]) -> dict[str, Any]:
    from vllm.config import set_current_vllm_config

    try:
        config = loader.configure(job["path"])
        model = loader.make(config)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:400], "unsupported": None}
    with set_current_vllm_config(config):
        if job.get("plain"):
            try:
                model.load_weights(tensors(job))
            except Exception as error:
                return {"plain": f"raises {error}"[:400]}
            return {"plain": "loads"}
        said: dict[str, Any] = watch.watch_load(lambda: loader.make(config), lambda _: tensors(job))
    said.pop("log")
    return said | {"refused": None, "class": type(model).__name__}


def main(target: str, jobs: str, answers: str) -> None:
    loader, watch = Loader(target), load_watch()
    with open(answers, "w") as out:
        for job in json.loads(Path(jobs).read_text()):
            print(json.dumps({"id": job["id"]} | answer(loader, watch, job)), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
