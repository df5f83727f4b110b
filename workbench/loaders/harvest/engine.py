"""The engine itself: its process groups of one rank, its registry, its configs, its building of a class."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import json
import os
import pkgutil
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import standins

TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
_MISSING = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
Json = dict[str, Any]


def start(folder: str) -> None:
    """Publish server arguments and make the process groups of a single rank."""
    from sglang.srt import server_args as module
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention

    Path(folder, "config.json").write_text(json.dumps(TINY))
    arguments = module.ServerArgs(model_path=folder, device="cpu")
    try:
        from sglang.srt.runtime_context import SpawnRanks, publish

        publish(arguments, role="test", ranks=SpawnRanks(world_rank=0))
    except ImportError:
        module.set_global_server_args_for_scheduler(arguments)
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
    _call(initialize_model_parallel, tensor_model_parallel_size=1, backend="gloo")
    _call(
        initialize_dp_attention,
        server_args=arguments,
        model_config=ModelConfig.from_server_args(arguments),
    )
    with contextlib.suppress(ImportError):  # classes of several parts look others up in it
        importlib.import_module("sglang.srt.models.registry")
    for name in ("linear", "parameter", "vocab_parallel_embedding", "moe.fused_moe_triton.layer"):
        with contextlib.suppress(ImportError):
            layer: Any = importlib.import_module(f"sglang.srt.layers.{name}")
            if hasattr(layer, "_is_cpu"):  # take shares of a tensor as on a GPU
                layer._is_cpu = False


def _call(function: Any, **options: Any) -> Any:
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in options.items() if name in known})


def registry(names: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the registered classes by name, and the modules that cannot be imported with the reason.

    Parameters
    ----------
    names
        Only these classes, so that the modules of others need not be imported.
    """
    from sglang.srt import models

    found: dict[str, Any] = {}
    errors: dict[str, str] = {}
    wanted = re.compile(rf"^class ({'|'.join(map(re.escape, names))})\b", re.MULTILINE)
    for _, name, _ in pkgutil.iter_modules(models.__path__, models.__name__ + "."):
        short = name.rpartition(".")[2]
        file = Path(models.__path__[0], f"{short}.py")
        if names and not (file.exists() and wanted.search(file.read_text(encoding="utf-8"))):
            continue
        try:
            module = _imported(name)
        except BaseException as error:  # a module may even try to end the process
            errors[short] = f"{type(error).__name__}: {str(error)[:160]}"
            continue
        entry = getattr(module, "EntryClass", None)
        for cls in entry if isinstance(entry, (list, tuple)) else [entry] if entry else []:
            found[cls.__name__] = cls
    return found, errors


_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def _imported(name: str) -> Any:
    """Import a module of models; names that SGLang's own modules have only with a GPU are offered to it."""
    for _ in range(6):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            match = _NO_NAME.search(str(error))
            if not match or not match[2].startswith("sglang."):
                raise
            setattr(sys.modules[match[2]], match[1], standins.Name(f"{match[2]}.{match[1]}"))
    return importlib.import_module(name)


class Reads:
    """Note which attributes of configs are asked for while a class is built or loads."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.paused = False  # while config.json itself is read: that asks for everything

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is asked for while this is open."""
        from transformers import PretrainedConfig as Real

        PretrainedConfig: Any = Real  # noqa: N806 - its methods are replaced for a while
        seen, original = self.names, PretrainedConfig.__getattribute__
        common = set(dir(PretrainedConfig)) - {
            "tie_word_embeddings"
        }  # methods, and what transformers asks

        def noted(config: Any, name: str) -> Any:
            if not self.paused and not name.startswith("_") and name not in common:
                seen.add(name)
                seen.add((type(config).attribute_map or {}).get(name, name))
            return original(config, name)

        PretrainedConfig.__getattribute__ = noted
        try:
            yield
        finally:
            PretrainedConfig.__getattribute__ = original


def as_served(raw: Json, brought: bool = False) -> Any:
    """Return the config as SGLang itself reads it from config.json.

    Parameters
    ----------
    raw
        The fields.
    brought
        Whether the real file brings its config class along (``auto_map``). Code of others is not run: a plain
        class takes its place.
    """
    if brought:
        _register_plain(raw["model_type"])
    try:
        from sglang.srt.utils.hf_transformers_utils import get_config
    except ImportError:
        from sglang.srt.hf_transformers_utils import get_config
    # A target's file says the target's class, also where its extra layer is loaded as a draft.
    names = [re.sub("NextN$", "", name) for name in raw["architectures"]]
    text = json.dumps(raw | {"architectures": names}, default=str)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(text)
        config = get_config(folder, trust_remote_code=False)
    config.architectures = raw["architectures"]
    return config


def _register_plain(model_type: str) -> None:
    from transformers import PretrainedConfig as Base
    from transformers.models.auto import configuration_auto

    known: Any = configuration_auto.CONFIG_MAPPING
    base: Any = Base

    class Brought(base):  # type: ignore[misc]
        def __init__(self, **fields: Any) -> None:
            super().__init__(**{name: _with_attributes(name, x) for name, x in fields.items()})

    Brought.model_type = model_type
    known.register(model_type, Brought, exist_ok=True)


def _with_attributes(name: str, value: Any) -> Any:
    """Return the configs in a config as objects, as classes of configs have them."""
    from transformers import PretrainedConfig

    if isinstance(value, dict) and name.endswith("_config") and "model_type" in value:
        return PretrainedConfig(**{n: _with_attributes(n, x) for n, x in value.items()})
    return value


def _without_gpu() -> Any:
    """Return a context in which tensors that a class wants on a GPU have no memory, like all others."""
    import torch
    from torch.overrides import TorchFunctionMode

    class WithoutGpu(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = dict(kwargs or {})
            if str(options.get("device")).startswith("cuda"):
                options["device"] = torch.device("meta")
            return function(*args, **options)

    return WithoutGpu()


class Builder:
    """Builds one class on the meta device from the fields of a config.json."""

    def __init__(self, cls: Any, config_class: Any = None, brought: bool = False) -> None:
        self.cls = cls
        self.config_class = config_class  # None: read as a server does
        self.brought = brought  # the real file brings its config class along
        self.reads = Reads()
        self._served: dict[str, Any] = {}  # reading a config takes longer than copying it

    def config(self, raw: Json) -> Any:
        """Return the config object for these fields, a new one each time: classes write into it."""
        if self.config_class is None:
            text = json.dumps(raw, default=str)
            if text not in self._served:
                if len(self._served) > 3:
                    self._served.clear()
                self._served[text] = self._read(raw)
            return copy.deepcopy(self._served[text])
        config = self.config_class.from_dict(copy.deepcopy(raw))
        config.architectures = raw["architectures"]
        _complete(config)
        return config

    def _read(self, raw: Json) -> Any:
        before, self.reads.paused = self.reads.paused, True
        try:
            return as_served(raw, self.brought)
        finally:
            self.reads.paused = before

    def build(self, raw: Json) -> Any:
        """Return the model, its parameters without memory."""
        import torch
        from sglang.srt.model_loader.utils import set_default_torch_dtype

        config = self.config(raw)
        _complete(config)
        known = inspect.signature(self.cls.__init__).parameters
        name = "hf_config" if "config" not in known and "hf_config" in known else "config"
        meta = torch.device("meta")
        with (
            set_default_torch_dtype(torch.bfloat16),
            meta,
            _without_gpu(),
            self.reads.watching(),
        ):
            _decide_fusion(self.cls, config)
            model = self.cls(**{name: config})
        _without_memory(model)
        for module in model.modules():  # a class of several parts asks its parts, too
            if hasattr(module, "post_load_weights"):
                module.post_load_weights = lambda *_, **__: None
        return model

    def reads_like_a_server(self, raw: Json) -> bool:
        """Tell whether the config class is that of a server, not one in its place."""
        return self.config_class is None and type(self.config(raw)).__name__ != "Brought"

    def objection(self, raw: Json, field: str) -> str:
        """Return what the engine says where it cannot build the class for want of a field; "" else."""
        try:
            self.build(raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"{type(error).__name__}: {str(error)[:120]}"
            return text if re.search(rf"\b{re.escape(field)}\b|NoneType", text) else ""
        except Exception:
            return ""
        return ""

    def completed(self, raw: Json, guess: Any) -> Json:
        """Return the fields with those added, by a guess, that the class asks for and nothing provides."""
        raw = copy.deepcopy(raw)
        for _ in range(40):
            try:
                self.build(raw)
            except AttributeError as error:
                match = _MISSING.search(str(error))
                if not match or not self._add(raw, match[1], match[2], guess(match[2])):
                    raise
            else:
                return raw
        raise RuntimeError("too many config attributes are missing")

    def _add(self, raw: Json, kind: str, name: str, value: Any) -> bool:
        added = False
        for path, holder in holders(self.config(raw)):
            if type(holder).__name__ == kind:
                place: Any = raw
                for part in path:
                    place = place.get(part) if isinstance(place, dict) else None
                if isinstance(place, dict) and name not in place:
                    place[name] = value
                    added = True
        return added


def _without_memory(model: Any) -> None:
    """Replace the parameters that a class made on a device of its own choice."""
    import torch

    for module in model.modules():
        for name, old in list(module._parameters.items()):
            if old is not None and not old.is_meta:
                new = torch.nn.Parameter(torch.empty_like(old, device="meta"), requires_grad=False)
                new.__dict__.update(old.__dict__)
                module._parameters[name] = new


def holders(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a config and the configs in it, each with its path."""
    from transformers import PretrainedConfig

    yield path, config
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig) and not name.startswith("_"):
            yield from holders(value, (*path, name))


def _complete(config: Any) -> None:
    """Give a config the few attributes that SGLang's own reading sets later."""
    for name in ("encoder_only", "language_only", "language_model_only"):
        if not hasattr(config, name):
            with contextlib.suppress(Exception):
                setattr(config, name, False)
    parameters = getattr(config, "rope_parameters", None)
    if not hasattr(config, "rope_theta") and isinstance(parameters, dict):
        with contextlib.suppress(Exception):
            config.rope_theta = parameters.get("rope_theta", 10000.0)


def _decide_fusion(cls: Any, config: Any) -> None:
    """Let SGLang decide whether shared experts go into expert slots, as a server does."""
    with contextlib.suppress(Exception):
        from sglang.srt.layers.moe.utils import install_shared_experts_fusion_decision

        install_shared_experts_fusion_decision(cls, config, None)


def quiet() -> None:
    """Send what the engine prints to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
