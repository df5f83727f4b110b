"""SGLang's own classes load a checkpoint, as one rank of a server."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .files import Files, Refused, Unsupported, call, read_config, version_of
from .messages import LogLines, place_of, shorten

# What a server is started with when only a draft is given: sizes that every version accepts.
TINY_TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Leave SGLang's loader as it was: clip.py replaces a method of it, and a server holds one model."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    before = dict(vars(DefaultModelLoader))
    try:
        yield
    finally:
        for name, value in vars(DefaultModelLoader).copy().items():
            if before.get(name) is not value:
                if name in before:
                    setattr(DefaultModelLoader, name, before[name])
                else:
                    delattr(DefaultModelLoader, name)


class SGLang:
    """SGLang's draft and target classes, loaded as one rank of a server would load them."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
        import sglang  # noqa: F401 - its import patches transformers

        _find_registry()
        self.version = version_of("sglang")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._work = tempfile.TemporaryDirectory(prefix="workbench-")
        self._arguments: dict[str, Any] = {}
        self._groups = False
        self._asked: Any = None  # noted while a checkpoint is traced

    def trace(self, job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> dict[str, Any]:
        """Build the model that the config asks for, load the checkpoint, watch."""
        with _as_it_was():
            return self._trace(job, folder, answer)

    def _trace(self, job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> dict[str, Any]:
        import torch

        from . import layers, watch

        self._asked = layers.Asked()
        config = self._accepted(lambda: self._model_config(job, folder), answer)
        wanted = job.get("model_class") or (config.hf_config.architectures or ["?"])[0]
        cls = self._class(wanted)
        answer["model_class"] = f"{cls.__module__}.{cls.__name__}"
        values = answer["values"]
        from sglang.srt.model_loader.utils import set_default_torch_dtype

        def make() -> Any:
            with set_default_torch_dtype(config.dtype), torch.device("cpu" if values else "meta"):
                return self._build(cls, config)

        # Each attempt to load has a model of its own. The first is built here, to see whether it can be.
        try:
            ready = [make()]
        except Exception as error:
            self._explain(error, values)
            raise Refused(
                f"{cls.__name__} cannot be built: {shorten(error)} ({place_of(error)})"
            ) from error

        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader.loader import DefaultModelLoader

        loader = DefaultModelLoader(LoadConfig())

        def tensors(model: Any) -> Any:
            if values:
                return loader._get_all_weights(config, model)
            return Files(folder).tensors(self._files(loader, config))

        found = {}
        if job.get("layers"):
            named = layers.spellings(cls, config.hf_config)
            found = {"layers": self._asked.table(ready[0]), "spellings": named}
        result: dict[str, Any] = watch.watch_load(lambda: ready.pop() if ready else make(), tensors)
        return result | found

    def _model_config(self, job: dict[str, Any], folder: Path) -> Any:
        """Do what a server does before it builds a model: arguments, process groups, the model's config."""
        from sglang.srt.configs.model_config import ModelConfig

        named = str(job.get("model_class") or (read_config(folder).get("architectures") or [""])[0])
        draft = job.get("draft")
        if draft is None:
            draft = bool(job.get("target")) or bool(re.search("eagle|nextn|mtp", named, re.I))
        server = Path(job["target"]) if job.get("target") else None if draft else folder
        server = server or self._tiny_target()
        arguments = self._publish(server)
        config = ModelConfig.from_server_args(
            arguments, model_path=str(folder), is_draft_model=draft
        )
        self._join(arguments, config)
        return config

    def _tiny_target(self) -> Path:
        folder = Path(self._work.name) / "target"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(TINY_TARGET))
        return folder

    def _publish(self, server: Path) -> Any:
        """Publish a server's arguments; what SGLang refuses to serve on a CPU, it may serve on a GPU."""
        try:
            return self._published(server)
        except Exception as error:
            if self.device != "cpu" or "arg_groups" not in place_of(error):
                raise
            return self._published(self._tiny_target())

    def _published(self, server: Path) -> Any:
        from sglang.srt import server_args as module

        arguments = self._arguments.get(str(server))
        if arguments is None:
            arguments = module.ServerArgs(model_path=str(server), device=self.device)
            self._arguments[str(server)] = arguments
        try:
            from sglang.srt.runtime_context import SpawnRanks, publish

            publish(arguments, role="test", ranks=SpawnRanks(world_rank=0))
        except ImportError:  # before 0.5.15 or so
            module.set_global_server_args_for_scheduler(arguments)
        return arguments

    def _join(self, arguments: Any, config: Any) -> None:
        """Make the process groups of a single rank, once."""
        if self._groups:
            return
        from sglang.srt.distributed import (
            init_distributed_environment,
            initialize_model_parallel,
        )
        from sglang.srt.layers.dp_attention import initialize_dp_attention

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            backend="gloo",
            distributed_init_method=f"tcp://127.0.0.1:{port}",
        )
        call(initialize_model_parallel, tensor_model_parallel_size=1, backend="gloo")
        call(initialize_dp_attention, server_args=arguments, model_config=config)
        self._groups = True
        if self.device == "cpu":
            load_as_on_a_gpu()

    def _class(self, name: str) -> Any:
        """Find a model class without importing all models, as SGLang's registry would."""
        from sglang.srt import models

        pattern = re.compile(rf"^class {re.escape(name)}\b", re.M)
        for file in sorted(Path(models.__path__[0]).glob("*.py")):
            if not pattern.search(file.read_text(encoding="utf-8")):
                continue
            try:
                module = importlib.import_module(f"sglang.srt.models.{file.stem}")
            except Exception as error:
                self._explain(error, values=True)
                text = f"{type(error).__name__}: {error}"
                raise Unsupported(
                    f"the module of {name} cannot be imported here: {text}"
                ) from error
            entry = getattr(module, "EntryClass", [])
            for cls in entry if isinstance(entry, (list, tuple)) else [entry]:
                if cls.__name__ == name:
                    return cls
        raise Refused(f"SGLang {self.version} has no model class {name}")

    def _build(self, cls: Any, config: Any) -> Any:
        """Let SGLang build it, quantisation included, but spare it the import of every other model."""
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader import loader

        original = loader.get_model_architecture
        loader.get_model_architecture = lambda *_, **__: (cls, cls.__name__)
        try:
            load_config = LoadConfig()
            more = {}
            if "quant_config" in inspect.signature(loader._initialize_model).parameters:
                found = loader._get_quantization_config(config, load_config)
                more["quant_config"] = self._asked.of(found) if self._asked else found
            return loader._initialize_model(config, load_config, **more)
        finally:
            loader.get_model_architecture = original

    def _files(self, loader: Any, config: Any) -> list[Path] | None:
        """Return the files SGLang would read: it leaves out those its index does not name."""
        try:
            found = call(
                loader._prepare_weights,
                model_name_or_path=config.model_path,
                revision=None,
                fall_back_to_pt=True,
            )
            return [Path(file) for file in found[1]]
        except (AttributeError, TypeError):
            return None

    def _accepted(self, read: Callable[[], Any], answer: dict[str, Any]) -> Any:
        log = LogLines()
        try:
            with log.collecting():
                return read()
        except Exception as error:
            self._explain(error, values=True)
            raise Refused(f"{shorten(error)} ({place_of(error)})") from error
        finally:
            answer["config_log"] = log.lines

    def _explain(self, error: Exception, values: bool) -> None:
        """Raise `Unsupported` where the cause is this machine and not the engine."""
        from . import watch

        if type(error).__name__ == "StubCalled":
            raise Unsupported(f"it needs a GPU build even to be built: {error}") from error
        if place_of(error).endswith("_cpu"):  # get_rope_cpu, which knows fewer configs
            text = f"{shorten(error)} ({place_of(error)})"
            raise Unsupported(f"it fails in a function for CPUs only: {text}") from error
        if not values and watch.needs_values(error):
            text = shorten(error)
            raise Unsupported(f"the class cannot be built without values: {text}") from error


def _find_registry() -> None:
    """Let classes of several parts find the registry of all models, which is imported only for them."""
    from sglang.srt import models as package

    models: Any = package

    def find(name: str) -> Any:
        if name == "registry":
            return importlib.import_module("sglang.srt.models.registry")
        raise AttributeError(name)

    models.__getattr__ = find


def load_as_on_a_gpu() -> None:
    """Let SGLang's layers take their share of a tensor as they do on a GPU.

    On a CPU they fill up every tensor that is too short with zeros, for the sake of tensor parallelism
    with odd sizes; on a GPU most of that is an error. The switch is a variable in each module.
    """
    for name in ("linear", "parameter", "vocab_parallel_embedding", "moe.fused_moe_triton.layer"):
        try:
            module = importlib.import_module(f"sglang.srt.layers.{name}")
        except ImportError:
            continue
        if hasattr(module, "_is_cpu"):
            setattr(module, "_is_cpu", False)  # noqa: B010 - mypy knows no such module
