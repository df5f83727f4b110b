"""Run by vLLM's own interpreter: answer prompts, with or without a draft, and write down each verification.

Usage: ``python record_vllm.py SETUPS.json ANSWERS.jsonl``. A setup has ``target``, ``draft`` (null: plain
greedy answers), ``steps``, ``dtype``, ``at_once`` (requests served side by side), ``prompts`` (lists of ids)
and ``new_tokens``. How many drafts each step accepted is vLLM's own per-request metric; the drafts' ids,
which no metric has, are what its proposer returns.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_PLUGINS="",
    HF_HUB_OFFLINE="1",
)


def engine(setup: dict[str, Any]) -> Any:
    from vllm import LLM

    more: dict[str, Any] = {}
    if setup["draft"]:
        steps = setup["steps"]
        speculative = {"model": setup["draft"], "method": "eagle3", "num_speculative_tokens": steps}
        more = {"speculative_config": speculative, "per_request_spec_decode_metrics": "detailed"}
    return LLM(
        model=setup["target"],
        skip_tokenizer_init=True,
        dtype=setup["dtype"],
        max_model_len=256,
        max_num_seqs=setup["at_once"],
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        seed=0,
        **more,
    )


def listen(llm: Any) -> dict[str, list[list[int]]]:
    """Return what the proposer will have drafted, by request."""
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    runner = executor.driver_worker.worker.model_runner
    drafted: dict[str, list[list[int]]] = defaultdict(list)
    propose = runner.drafter.propose

    def listening(*given: Any, **named: Any) -> Any:
        found = propose(*given, **named)
        # Behind the number that LLM gives a request, the engine puts letters of its own.
        names = (name.partition("-")[0] for name in runner.input_batch.req_ids)
        for name, row in zip(names, found.tolist(), strict=True):
            drafted[name].append(row)
        return found

    runner.drafter.propose = listening
    return drafted


def answer(setup: dict[str, Any]) -> dict[str, Any]:
    import torch
    import vllm

    llm = engine(setup)
    drafted = listen(llm) if setup["draft"] else {}
    sampling = vllm.SamplingParams(
        temperature=0, max_tokens=setup["new_tokens"], ignore_eos=True, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in setup["prompts"]]
    requests = []
    for number, given in enumerate(llm.generate(prompts, sampling, use_tqdm=False)):
        said = given.outputs[0]
        request: dict[str, Any] = {"answer": list(said.token_ids)}
        if setup["draft"]:
            accepted = said.spec_decode_metrics.per_step_accepted
            # After the last verification it drafts once more, and nobody verifies that.
            request |= {"accepted": accepted, "drafts": drafted[str(number)][: len(accepted)]}
        requests.append(request)
    counters = {
        metric.name: metric.values if hasattr(metric, "values") else metric.value
        for metric in llm.get_metrics()
        if "spec_decode" in metric.name
    }
    versions = {"vllm": vllm.__version__, "torch": torch.__version__}
    return {"versions": versions, "counters": counters, "requests": requests}


def main(setups: str, answers: str) -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    with open(answers, "w") as out:
        for setup in json.loads(Path(setups).read_text()):
            print(json.dumps(answer(setup)), file=out, flush=True)
            cleanup_dist_env_and_memory()


if __name__ == "__main__":
    main(*sys.argv[1:])
