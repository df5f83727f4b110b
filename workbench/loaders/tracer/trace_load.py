"""Load checkpoints with a real engine's own loader and say where each key went.

A script of its own: the engine's Python runs it, and it imports nothing of the workbench. It reads one JSON
object from standard input and writes one JSON object a line to standard output, one for each job::

    {"engine": "sglang", "stubs": false,
     "jobs": [{"id": "1", "checkpoint": "/ckpt", "target": null, "model_class": null}]}

Optional in a job: ``draft`` (whether the engine would load it as a draft; by default, whether there is a
target or the class is one of a draft), ``config`` (an object that stands in for the folder's config.json),
``values`` (false: names and shapes only, on the meta device; by default so over half a gigabyte).

An answer holds ``id``, ``engine``, ``version``, ``torch``, ``transformers``, ``model_class``, ``values``,
``seconds``, ``refused`` (the engine accepts the config or class not; why), ``unsupported`` (it could not be
tried here; why), ``stored`` (the keys in the files), ``config_log`` (warnings while the config was
read; those of loading are in ``log``) and what `watch.watch_load` returns. Whatever the engine
prints goes to standard error. Nothing is downloaded, and no code of a checkpoint is run.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Above this many bytes of weights a checkpoint is loaded without values unless told otherwise.
MOST_BYTES_WITH_VALUES = 512 << 20
# Without values, short lists of integers are read all the same: loaders compute with them.
MOST_BYTES_OF_A_CONSTANT = 8 << 20
LONGEST_HEADER = 512 << 20
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2", "C64": "complex64",
}  # fmt: skip
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


class Refused(Exception):
    """The engine does not accept the config, or has no such class."""


class Unsupported(Exception):
    """It could not be tried here; that says nothing about the engine's answer."""


def sibling(name: str) -> Any:
    """Import a file of this folder. The folder itself is kept off sys.path: its names are too common."""
    known = sys.modules.get(f"workbench_tracer_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"workbench_tracer_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reads_pickles_safely() -> bool:
    """Whether this Python's torch has the fix of 2.10; workbench/checkpoint/pickles.py says the same."""
    import torch

    found = re.match(r"(\d+)\.(\d+)(?:\.\d+)?(a|b|rc|\.dev)?", str(torch.__version__))
    if found is None:
        return False
    release = (int(found[1]), int(found[2]))
    return release > (2, 10) or (release == (2, 10) and not found[3])


# --- the checkpoint's files -----------------------------------------------------------------------


class Files:
    """A checkpoint's tensors: names and shapes from headers, values of small constants only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.is_file():
            files = [folder]
        else:
            files = sorted(folder.glob("*.safetensors"))
            files = files or sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])
        self.files = files
        pickles = [file.name for file in files if file.suffix != ".safetensors"]
        if pickles and not reads_pickles_safely():
            import torch

            raise Unsupported(
                f"{pickles[0]} is a pickle, and this engine's torch is {torch.__version__}: before 2.10 a "
                "hostile one can corrupt memory and run code (CVE-2026-24747). Convert it to safetensors"
            )

    def keys(self) -> list[str]:
        """Return the names in all files, in their order there."""
        return [key for file in self.files for key in self._header(file)]

    def size(self) -> int:
        """Return how many bytes the files have, holes included."""
        return sum(file.stat().st_size for file in self.files)

    def tensors(self, files: list[Path] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors without values, but for small integer ones."""
        import torch

        for file in files or self.files:
            for key, (dtype, shape, start, stop) in self._header(file).items():
                kind = getattr(torch, DTYPES.get(dtype, dtype), None)
                if kind is None:
                    raise Unsupported(f"{key} has dtype {dtype}, which this torch lacks")
                # Lists only: packed weights are integers, too, and there are terabytes of them.
                small = len(shape) < 2 and stop - start <= MOST_BYTES_OF_A_CONSTANT and start >= 0
                if small and stop > start and dtype in ("I32", "I64", "BOOL"):
                    with file.open("rb") as stream:
                        stream.seek(start)
                        raw = bytearray(stream.read(stop - start))
                    yield key, torch.frombuffer(raw, dtype=kind).reshape(shape)
                else:
                    yield key, torch.empty(shape, dtype=kind, device="meta")

    def _header(self, file: Path) -> dict[str, tuple[str, list[int], int, int]]:
        if file.suffix == ".safetensors":
            return _safetensors_header(file)
        import torch

        state = torch.load(file, map_location="meta", weights_only=True, mmap=True)
        return {
            key: (str(t.dtype).removeprefix("torch."), list(t.shape), -1, -1)
            for key, t in state.items()
            if isinstance(t, torch.Tensor)
        }


def _safetensors_header(file: Path) -> dict[str, tuple[str, list[int], int, int]]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(LONGEST_HEADER, file.stat().st_size):
            raise Refused(
                f"{file.name} is no safetensors file: its header would have {length} bytes"
            )
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {
        key: (entry["dtype"], entry["shape"], *(8 + length + at for at in entry["data_offsets"]))
        for key, entry in header.items()
    }


@contextlib.contextmanager
def with_config(folder: Path, config: dict[str, Any] | None) -> Iterator[Path]:
    """Lend a copy of a checkpoint folder, made of links, that has another config.json."""
    if config is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="workbench-") as name:
        copy = Path(name)
        for file in folder.iterdir():
            if file.name != "config.json":
                (copy / file.name).symlink_to(file.resolve())
        (copy / "config.json").write_text(json.dumps(config, indent=1))
        yield copy


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json as it is, {} if there is none that can be read."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def call(function: Callable[..., Any], **known: Any) -> Any:
    """Call with those arguments that this version's function has."""
    wanted = inspect.signature(function).parameters
    return function(**{name: value for name, value in known.items() if name in wanted})


# --- SGLang ---------------------------------------------------------------------------------------


class SGLang:
    """SGLang's draft and target classes, loaded as one rank of a server would load them."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
        import sglang  # noqa: F401 - its import patches transformers

        self.version = version_of("sglang")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._work = tempfile.TemporaryDirectory(prefix="workbench-")
        self._arguments: dict[str, Any] = {}
        self._groups = False

    def trace(self, job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> dict[str, Any]:
        """Build the model that the config asks for, load the checkpoint, watch."""
        import torch

        watch = sibling("watch")
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
                f"{cls.__name__} cannot be built: {watch.shorten(error)} ({watch.place_of(error)})"
            ) from error

        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader.loader import DefaultModelLoader

        loader = DefaultModelLoader(LoadConfig())

        def tensors(model: Any) -> Any:
            if values:
                return loader._get_all_weights(config, model)
            return Files(folder).tensors(self._files(loader, config))

        result: dict[str, Any] = watch.watch_load(lambda: ready.pop() if ready else make(), tensors)
        return result

    def _model_config(self, job: dict[str, Any], folder: Path) -> Any:
        """Do what a server does before it builds a model: arguments, process groups, the model's config."""
        from sglang.srt.configs.model_config import ModelConfig

        named = str(job.get("model_class") or (read_config(folder).get("architectures") or [""])[0])
        draft = job.get("draft")
        if draft is None:
            draft = bool(job.get("target")) or bool(re.search("eagle|nextn|mtp", named, re.I))
        server = Path(job["target"]) if job.get("target") else None if draft else folder
        if server is None:
            server = Path(self._work.name) / "target"
            server.mkdir(exist_ok=True)
            (server / "config.json").write_text(json.dumps(TINY_TARGET))
        arguments = self._publish(server)
        config = ModelConfig.from_server_args(
            arguments, model_path=str(folder), is_draft_model=draft
        )
        self._join(arguments, config)
        return config

    def _publish(self, server: Path) -> Any:
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
                more["quant_config"] = loader._get_quantization_config(config, load_config)
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
        watch = sibling("watch")
        log = watch.LogLines()
        try:
            with log.collecting():
                return read()
        except Exception as error:
            self._explain(error, values=True)
            raise Refused(f"{watch.shorten(error)} ({watch.place_of(error)})") from error
        finally:
            answer["config_log"] = log.lines

    def _explain(self, error: Exception, values: bool) -> None:
        """Raise `Unsupported` where the cause is this machine and not the engine."""
        watch = sibling("watch")
        if type(error).__name__ == "StubCalled":
            raise Unsupported(f"it needs a GPU build even to be built: {error}") from error
        if watch.place_of(error).endswith("_cpu"):  # get_rope_cpu, which knows fewer configs
            text = f"{watch.shorten(error)} ({watch.place_of(error)})"
            raise Unsupported(f"it fails in a function for CPUs only: {text}") from error
        if not values and watch.needs_values(error):
            text = watch.shorten(error)
            raise Unsupported(f"the class cannot be built without values: {text}") from error


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


# --- transformers ---------------------------------------------------------------------------------


class Transformers:
    """transformers' own model classes, by what `from_pretrained` itself reports."""

    def __init__(self) -> None:
        import transformers

        self.version = transformers.__version__

    def trace(self, job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> dict[str, Any]:
        """Load with `from_pretrained` and translate its loading info."""
        import transformers

        watch = sibling("watch")
        log = watch.LogLines()
        try:
            config = transformers.AutoConfig.from_pretrained(folder)
        except Exception as error:
            raise Refused(f"{watch.shorten(error)} ({watch.place_of(error)})") from error
        name = job.get("model_class") or (config.architectures or ["AutoModelForCausalLM"])[0]
        cls = getattr(transformers, name, None)
        if cls is None:
            raise Refused(f"transformers {self.version} has no model class {name}")
        answer["model_class"] = f"{cls.__module__}.{cls.__name__}"
        more: dict[str, Any] = {}
        if not answer["values"]:
            if importlib.util.find_spec("accelerate") is None:
                raise Unsupported(
                    "transformers loads without values only where accelerate is installed"
                )
            more["device_map"] = "meta"
        first = None
        with log.collecting():
            try:
                model, info = cls.from_pretrained(folder, output_loading_info=True, **more)
            except Exception as error:
                first = {
                    "key": None,
                    "message": watch.shorten(error),
                    "place": watch.place_of(error),
                }
                # A wrong shape is what it can be told to pass over; for anything else this fails again.
                more["ignore_mismatched_sizes"] = True
                try:
                    model, info = cls.from_pretrained(folder, output_loading_info=True, **more)
                except Exception as again:
                    return {"error": first, "unexplained": watch.shorten(again), "log": log.lines}
        return self._answer(model, info, first, answer["stored"], log.lines)

    def _answer(
        self, model: Any, info: Any, first: Any, stored: list[str], log: list[str]
    ) -> dict[str, Any]:
        parameters = dict(model.named_parameters())
        state = set(model.state_dict())
        prefix = model.base_model_prefix + "."
        wrong = {
            entry[0] if isinstance(entry, (tuple, list)) else entry: f"shape: {entry}"
            for entry in info["mismatched_keys"]
        }
        unexpected, missing = set(info["unexpected_keys"]), set(info["missing_keys"])
        writes: dict[str, list[str]] = {}
        stuck: dict[str, str] = {}
        attributes = []
        for key in stored:
            names = [n for n in (key, prefix + key, key.removeprefix(prefix)) if n in state]
            place = names[0] if names else key
            if place in wrong or key in wrong:
                stuck[place] = key
            elif key in unexpected:
                continue
            elif place in parameters or not names:
                writes[key] = [place]
            else:
                attributes.append(key)
        lost = [
            k for k in stored if k not in writes and k not in attributes and k not in stuck.values()
        ]
        return {
            "error": first,
            "mismatched": {
                key: wrong.get(place, wrong.get(key, "")) for place, key in stuck.items()
            },
            "unexplained": None,
            "misfit_parameters": stuck,
            "parameters": {
                name: {"shape": list(p.shape), "dtype": str(p.dtype).removeprefix("torch.")}
                for name, p in parameters.items()
            },
            "aliases": {},
            "writes": writes,
            "resized": {},
            "attributes": attributes,
            "unreached_or_dropped": lost,
            "written": {
                name: 0.0 if name in missing or name in stuck else 1.0 for name in parameters
            },
            "log": log,
            "notes": [
                "from transformers' own loading info: which key filled a fused parameter is not known"
            ],
            "unsupported": None,
        }


ENGINES: dict[str, Callable[[], Any]] = {"sglang": SGLang, "transformers": Transformers}


# --- the script -----------------------------------------------------------------------------------


def version_of(package: str) -> str:
    """Return an installed package's version, "" if it has none."""
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return ""


def run(engine: Any, name: str, job: dict[str, Any]) -> dict[str, Any]:
    """Answer one job, whatever happens in it."""
    import torch

    start, lent = time.monotonic(), ""
    answer: dict[str, Any] = {
        "id": job["id"],
        "engine": name,
        "version": engine.version,
        "torch": torch.__version__,
        "transformers": version_of("transformers"),
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
        files = Files(folder)
        answer["stored"] = files.keys()
        answer["unreached_or_dropped"] = answer["stored"]
        values = job.get("values")
        answer["values"] = files.size() <= MOST_BYTES_WITH_VALUES if values is None else values
        with with_config(folder, job.get("config")) as place:
            lent = str(place)
            answer.update(engine.trace(job, place, answer))
    except Refused as error:
        answer["refused"] = str(error)
    except Unsupported as error:
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


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is gone, however that came about."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    """Read the request, answer each job as soon as it is done."""
    die_with_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    request = json.load(sys.stdin)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if request.get("stubs"):
        sibling("stubs").install()
    engine = ENGINES[request["engine"]]()
    for job in request["jobs"]:
        print(json.dumps(run(engine, request["engine"], job)), file=out, flush=True)
    out.close()
    # Process groups and threads of libraries need no tidy end, and some would wait for one.
    os._exit(0)


if __name__ == "__main__":
    main()
