"""A real SGLang server on a CPU, on a tiny random Llama made for it.

Plain decoding, no GPU, no warm-up request: enough for its processes, its start, its log and its HTTP
pages. What only a GPU build or the serving of grammars needs is a stand-in (see `STANDINS`).

In a test::

    with serve("0.5.14", tmp_path) as server:
        server.wait_ready()
        ...

On the command line, for a look at one by hand: ``python -m tests.engines.serve 0.5.14 [SGLANG_OPTION ...]``.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.engines import environments

ROOT = Path(__file__).resolve().parents[2]
READY = "The server is fired up and ready to roll!"
# Imported by the HTTP server, never called in what is tested here.
STANDINS = (
    "sgl_kernel", "triton", "python_multipart", "watchfiles", "interegular", "tiktoken", "scipy",
    "llguidance", "openai_harmony", "blobfile", "jsonschema", "soundfile", "xgrammar", "torchao",
)  # fmt: skip
OPTIONS = (
    "--device", "cpu", "--host", "127.0.0.1", "--attention-backend", "torch_native",
    "--grammar-backend", "none", "--disable-cuda-graph", "--disable-radix-cache",
    "--mem-fraction-static", "0.2", "--max-total-tokens", "1024", "--skip-server-warmup",
)  # fmt: skip
# In every Python process of the server, the spawned ones included. Pydantic wants a real type for the
# first name; 0.5.23 adds a callback to the second.
SITE = f"""\
import sys, types
sys.path.append({str(ROOT / "workbench" / "loaders" / "tracer")!r})
import stubs
stubs.install({STANDINS!r})
import triton.knobs, xgrammar
xgrammar.StructuralTag = dict
triton.knobs.runtime = types.SimpleNamespace(kernel_load_start_hook=set())
"""
MODEL = """\
import json, pathlib, sys, torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                     tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 256)}}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                        unk_token="<unk>").save_pretrained(folder)
file = folder / "tokenizer_config.json"  # transformers 5 writes a class that transformers 4 lacks
file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
"""


@dataclasses.dataclass
class Running:
    """A server that runs.

    Attributes
    ----------
    pid
        The process that was launched; it leads a session of its own.
    log
        The file that its output goes to.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        """Return what the server has written."""
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = 240) -> None:
        """Wait until a text is in the log."""
        until = time.monotonic() + seconds
        while text not in self.text():
            assert self.process.poll() is None, f"the server ended: {self.text()[-2000:]}"
            assert time.monotonic() < until, f"no {text!r} in the log: {self.text()[-2000:]}"
            time.sleep(0.2)

    def wait_ready(self, seconds: float = 240) -> None:
        """Wait until the server serves: it says so in the log a moment before its port takes anyone."""
        until = time.monotonic() + seconds
        self.wait_for(READY, seconds)
        while not self._takes_a_request():
            assert self.process.poll() is None, f"the server ended: {self.text()[-2000:]}"
            assert time.monotonic() < until, f"port {self.port} takes no one: {self.text()[-2000:]}"
            time.sleep(0.1)

    def _takes_a_request(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False

    def pids(self, title: str) -> dict[str, int]:
        """Return the processes of this server whose title begins so: title to pid."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if name.startswith(title) and os.getsid(int(entry.name)) == self.pid:
                    found[name] = int(entry.name)
        return found

    def kill(self) -> None:
        """End every process of the server, stopped ones too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    """Return a port that nobody listens on, low enough for SGLang, which adds 10000 for another one."""
    start = 20000 + os.getpid() % 9000
    for port in range(start, start + 1000):
        with socket.socket() as link, contextlib.suppress(OSError):
            link.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


@contextlib.contextmanager
def serve(
    version: str, folder: Path, *options: str, tensor_parallel: int = 1, **environment: str
) -> Iterator[Running]:
    """Start a server and end it afterwards, whatever happens; `wait_ready` is the caller's.

    Parameters
    ----------
    version
        An SGLang version of `environments.sglang_versions`.
    folder
        Where its model and its log are written (a model that is there is used again).
    options
        Further arguments of SGLang.
    tensor_parallel
        Ranks; more than one exchange through gloo and shared memory.
    environment
        Further variables, such as ``SGLANG_TEST_STUCK_SCHEDULER_INIT="60"``.
    """
    python = environments.ensure(f"sglang-{version}")
    site, model = folder / "site", folder / "model"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    variables = _variables(site)
    if not (model / "config.json").exists():
        model.mkdir(exist_ok=True)
        command = [str(python), "-c", MODEL, str(model)]
        subprocess.run(command, env=variables, check=True, capture_output=True)
    if tensor_parallel > 1:
        options = (*options, "--tp-size", str(tensor_parallel))
        # One processor a rank: SGLang wants to be told where there are fewer NUMA nodes than ranks.
        count = os.cpu_count() or 1
        bind = "|".join(str(rank % count) for rank in range(tensor_parallel))
        variables["SGLANG_CPU_OMP_THREADS_BIND"] = bind
    port, log = free_port(), folder / f"server-{time.monotonic_ns()}.log"
    command = [str(python), "-m", "sglang.launch_server", "--model-path", str(model)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), *OPTIONS, *options],
            env=variables | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call
        )
    server = Running(process, port, log)
    try:
        yield server
    finally:
        server.kill()


def _variables(site: Path) -> dict[str, str]:
    """Return the environment of a server: no GPU, no downloads, no modules from elsewhere."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return {
        **kept,
        "PYTHONPATH": str(site),
        "SGLANG_USE_CPU_ENGINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(version: str = "0.5.14", *options: str) -> None:
    """Run a server until Ctrl-C."""
    with tempfile.TemporaryDirectory() as folder, serve(version, Path(folder), *options) as server:
        print(f"pid {server.pid}, port {server.port}, log {server.log}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
