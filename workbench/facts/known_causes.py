"""Known causes, by the words with which an engine stops or complains: one row each, with its public report.

A row says what the words mean, and the one next step. It is a likely cause, never a proof.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True, slots=True)
class KnownCause:
    """One row.

    Attributes
    ----------
    pattern
        In the last lines of a traceback, or in a line of the log.
    frames
        A part of a frame that must be there as well; "" for none.
    title, next_step
        What it means, and what to do. ``{checkpoint}`` is the draft if the launch has one, else the target.
    speculative
        Whether it is meant only of a launch with a draft.
    seen
        Where it was reported.
    """

    code: str
    pattern: re.Pattern[str]
    title: str
    next_step: str
    frames: str = ""
    speculative: bool = False
    seen: str = ""


def _row(code: str, pattern: str, title: str, step: str, **more: str | bool) -> KnownCause:
    return KnownCause(code, re.compile(pattern, re.M), title, step, **more)  # type: ignore[arg-type]


_DIFF = (
    "Compare the keys and shapes: `workbench diff {checkpoint} ENGINE==VERSION --target TARGET`."
)
_STACKS = (
    "While it hangs, take the stacks of all ranks: `workbench hang`, or "
    "`workbench collect -o case.zip` on each node."
)
_VOCABULARY = (
    "Compare d2t and the vocabulary: `workbench diff {checkpoint} ENGINE==VERSION --target TARGET`."
)
CAUSES: tuple[KnownCause, ...] = (
    _row(
        "no_capture_hooks", r"has no attribute '?set_eagle3_layers_to_capture",
        "the target's class has no EAGLE-3 hooks in this release (set_eagle3_layers_to_capture)",
        "Take a release whose class has them: `workbench check LAUNCH --engine sglang==NEWER` says which.",
        seen="https://github.com/sgl-project/sglang/pull/8434",
    ),
    _row(
        "aux_not_returned", r"(?:too many|not enough) values to unpack",
        "the target's class is asked for auxiliary layers, and its layers return none in this release",
        "Take a release in which this class captures auxiliary layers, or serve without EAGLE3.",
        frames="aux_hidden_states", seen="https://github.com/sgl-project/sglang/pull/38307",
    ),
    _row(
        "tree_too_small", r"selected index k out of range",
        "the tree has fewer candidates than --speculative-num-draft-tokens",
        "Check the line: `workbench check LAUNCH` computes how many a tree of these steps and topk has.",
    ),
    _row(
        "block_n",
        r"is not divisible by weight quantization block_[nk]",
        "a matrix cannot be cut into FP8 blocks by this many ranks",
        "Lower --tp so that each rank has whole blocks of 128; if the weights were converted to bf16, remove "
        "quantization_config from config.json.",
        seen="https://github.com/sgl-project/sglang/issues/3491",
    ),
    _row(
        "draft_width",
        r"Sizes of tensors must match|The size of tensor a|mat1 and mat2 shapes"
        r"|expanded size of the tensor",
        "target and draft differ in a width, most likely the hidden size, and this release keeps both in "
        "one buffer",
        "Compare hidden_size in both configs: `workbench check LAUNCH --target TARGET --draft DRAFT`; "
        "then take another draft or release.",
        frames="/speculative/", speculative=True, seen="https://github.com/sgl-project/sglang/issues/24215",
    ),
    _row(
        "fc_width", r"mat1 and mat2 shapes cannot be multiplied",
        "the features of the target do not fit the draft's fc: another width, or another "
        "number of auxiliary layers",
        _DIFF, speculative=True,
    ),
    _row(
        "token_map",
        r"device-side assert triggered|[Oo]ut [Oo]f [Bb]ound|index out of bounds",
        "an id of --speculative-token-map lies outside of the head: the map is of another vocabulary, or the "
        "head is split among the ranks and this release does not know that",
        "Leave out --speculative-token-map, or launch with --tp 1: one of both, everything else unchanged.",
        frames="hot_token_id", seen="https://github.com/sgl-project/sglang/issues/4328",
    ),
    _row(
        "device_assert",
        r"srcIndex < srcSelectDimSize|index out of bounds|[Oo]ut [Oo]f [Bb]ound"
        r"|vectorized_gather_kernel",
        "an index left its range on the GPU: of a draft, d2t or the draft vocabulary is the "
        "first suspect, then positions",
        _VOCABULARY, speculative=True, seen="https://github.com/sgl-project/sglang/issues/7139",
    ),
    _row(
        "device_assert", r"device-side assert triggered",
        "an assertion failed on the GPU; the frames of this traceback are later than the fault",
        "Run it once with CUDA_LAUNCH_BLOCKING=1: the traceback is then that of the fault.",
    ),
    _row(
        "shapes_differ",
        r"param(?:_data)?\.(?:shape|size\(\)) == loaded_weight|size mismatch for|copying a param with shape"
        r"|start \(\d+\) \+ length \(\d+\) exceeds",
        "a tensor of the checkpoint has another shape than the model that the engine builds", _DIFF,
        seen="https://github.com/sgl-project/sglang/issues/24322",
    ),
    _row(
        "base_architecture",
        r"models/(?!\w*eagle)\w+\.py\b[\s\S]{0,2000}?KeyError: '(?:midlayer|hidden_norm|fc|d2t)\b",
        "the draft is loaded as an ordinary model: its config.json names the class of a target in "
        "architectures",
        'Name the class of an EAGLE-3 draft in "architectures" of the draft (LlamaForCausalLMEagle3): '
        "`workbench fix {checkpoint} ENGINE==VERSION`.",
        seen="https://github.com/sgl-project/sglang/issues/9135",
    ),
    _row(
        "key_unknown", r"^KeyError: '(?:model\.|layers\.|midlayer\.|lm_head|d2t|t2d)",
        "the checkpoint has a key that this release's loader does not know", _DIFF, frames="load_weights",
    ),
    _row(
        "newly_initialized",
        r"(?i)newly initiali[sz]ed|not initialized from the (?:model )?checkpoint"
        r"|Missing keys in checkpoint",
        "parameters of the model are not in the checkpoint: they keep random values unless "
        "the engine shares the target's",
        "List them: `workbench diff {checkpoint} ENGINE==VERSION --target TARGET`.",
        seen="https://github.com/SafeAILab/EAGLE/issues/113",
    ),
    _row(
        "dtype_of_quantisation", r"is not supported for quantization method",
        "this quantisation does not compute in the dtype of the launch", "Write --dtype float16.",
    ),
    _row(
        "quantisation_differs", r"does not match the quantization method",
        "--quantization is not the method of the checkpoint",
        "Remove --quantization: the engine reads it from the config.",
    ),
    _row(
        "memory",
        r"CUDA out of memory|OutOfMemoryError|Not enough memory|No available memory for the cache",
        "the memory of the GPU does not suffice",
        "Lower --mem-fraction-static or --cuda-graph-max-bs; if the cache gets none, raise "
        "--mem-fraction-static or --tp-size.",
    ),
    _row(
        "memory",
        r"Executor creation failed due to insufficient GPU memory",
        "the memory of the GPU does not suffice for a part of the executor, such as the KV cache",
        "Lower kv_cache_config.free_gpu_memory_fraction, max_batch_size or max_num_tokens.",
        seen="https://github.com/NVIDIA/TensorRT-LLM/issues/5872",
    ),
    _row(
        "killed",
        r"[Ee]xit ?[Cc]ode:? -9\b|exitcode=-9\b|\bSIGKILL\b|[Ss]ignal 9\b|^Killed$",
        "a process was killed from outside (-9): most often by the kernel, for want of main memory",
        "Read `dmesg -T | grep -i kill`, and compare the container's memory limit with what loading needs.",
        seen="https://github.com/sgl-project/sglang/issues/15235",
    ),
    _row(
        "proxy",
        r"res=<Response \[50[234]\]>",
        "a proxy answered the server's own first request, not the server",
        "Set no_proxy to the server's address (127.0.0.1, localhost and the host's own), everything else "
        "unchanged.",
        seen="https://github.com/sgl-project/sglang/issues/2468",
    ),
    _row(
        "port_in_use", r"address already in use", "another process listens on the port",
        "Choose another --port, or end the process that listens: `workbench doctor` lists servers.",
    ),
    _row(
        "peer_ended",
        r"Connection (?:closed|reset) by (?:remote )?peer|recvValue failed|ncclRemoteError"
        r"|remote process exited or there was a network error",
        "the connection to another rank was cut: that rank ended first, or the network between the "
        "ranks fails; this error is the consequence",
        "Read the logs of the other ranks and nodes for the first error, and `dmesg` for a kill.",
        seen="https://github.com/sgl-project/sglang/issues/4205",
    ),
    _row(
        "config_field",
        r"AttributeError: '\w*Config' object has no attribute",
        "the model's config lacks a field that this release reads: another transformers than the release "
        "pins, or a shortened config.json",
        "Compare the installed transformers with what the release asks for (`pip check`), and "
        "config.json with the original.",
    ),
    _row(
        "engine_fault",
        r"/(?:sglang|vllm|tensorrt_llm)/[\s\S]*"
        r"AttributeError: '(?!NoneType)[A-Z]\w+' object has no attribute",
        "an object of the engine lacks an attribute of its own: most often a fault of this release with this "
        "kind of model",
        "Start the same line with the release before, and with a later one.",
        seen="https://github.com/vllm-project/vllm/issues/34607",
    ),
    _row(
        "collective_timeout",
        r"collective operation timeout|[Ww]atchdog (?:caught|timeout)|watchdog got stuck"
        r"|Timed out waiting \d+ms for (?:send|recv) operation",
        "a rank waits for another one that does not come; which one, only stacks of all ranks show",
        _STACKS,
        seen="https://github.com/sgl-project/sglang/issues/3752",
    ),
)  # fmt: skip

# What words of a person say that name no cause: read only where nothing else is known.
SYMPTOMS: tuple[KnownCause, ...] = (
    _row(
        "hangs", r"(?i)\b(?:hangs?|hanging|hung|stuck|freez\w+|frozen|no response|unresponsive)\b",
        "it hangs; where each rank waits is not in this text",
        _STACKS,
        seen="https://github.com/sgl-project/sglang/issues/3547",
    ),
    _row(
        "speed", r"(?i)\bslower\b|\bslowdown\b|\bspeed-?up\b",
        "whether speculation pays is not judged here: it depends on acceptance length, batch "
        "size and the number of ranks",
        "Read accept len in the log, then measure the same requests without speculation, with "
        "the batch that you serve.",
        seen="https://github.com/sgl-project/sglang/issues/6949",
    ),
)  # fmt: skip
