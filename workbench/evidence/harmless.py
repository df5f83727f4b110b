"""Words that a log may keep: those that engines, torch, NCCL and the system themselves write.

What travels is chosen by this list, not by a list of known secrets. A word that is not in it is left
out, also a name, a prompt or a key of a shape that nobody has seen yet. Most words are from the messages of
SGLang's five measured releases and of torch.distributed, the names of their flags, and the texts that the
rules recognise.

The standard library alone, in Python 3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import re
from functools import lru_cache

WORDS = frozenset(
    """
abort aborted aborting about above absolute acc accelerator accept accepted accepts access
accounting accuracy acquire across act action activat activated activation activations active
activity actual ada adapter adapters adaptive add added adding addr address addresses adjusted
admission advanced affected after ag again against agent agree ai aiter algo algorithm alias
align aligned alignment alive all allgather alloc allocate allocated allocating allocation
allocations allocator allow allowed allreduce alone along alpha already also always ambiguous
amd among ampere amx amxint an anchor and anon another answer answers any aot api app apparmor
appear append application applied applies apply applying apps apture ar arch architecture
architectures archs are arg args argument arguments argv arithmetic armor array arrived artifact
as ascend asked asking asks aspect asr assert assertion assigned assistant assumes assuming
async asyncio at atchdog attach attached attempt attempted attempting attempts attention attn
attr attribute attributes audio authorization auto autograd automatic automatically autotune
autotuner autotuning aux auxiliary avail available avg avoid aware awq aws axis back backed
backend backends background backing backup backward bad balance balancedness balancing bank
barrier base based baseline bash basic batch batched batches baton bcg be bearer because been
before begin behavior being belongs below beta between bf bfloat bfs bias bin binary bind
binding bindings bit bits bitsandbytes blackwell blanks blob block blocking blocks blockwise bnb
body bonus bool boolean bootstrap both bound boundaries boundary bounded bounds branch breadth
break breakable broadcast broadcasting broken bs btime bucket buckets budget buf buffer buffers
bug build building built bundle bus but by bypassed bypassing byte bytes ca cache cached caches
caching call callable callback called caller calling calls can canary candidate candidates
cannot cap capabilities capability capacity capped capture captured captures capturing carries
carry case cast casting caught causal cause caused cc cert certfile certs cg cgroup chain change
changed changing channel channels channelwise chat check checkout checkpoint checkpoints checks
checksum child choice choose chunk chunked chunking chunks cicc ckpt clamp clang class
classification cleaned cleaning cleanup clear cleared client clk clock close closed closing cls
cluster cm cmake cmd cmdline cnt co code collect collected collection collective collectives
collector collision column com combination combine combined comm command commit committed common
communicate communication communications communicator communicators compact compat compatibility
compatible compilation compile compiled compiler compilers compiling complete completed
completion completions complex component components compress compressed compression computation
compute computed computing concurrent conda condition conditional conditions confidence config
configs configuration configurations configured conflict conflicting conflicts connect
connection connector consecutive consensus conservativeness consider considered constant
constrained constraint constraints constructed construction constructor consume consumed
consumers contain container containerenv containing contains content context contiguous continue
continuing continuous contract control controller conv convention conversion convert cookie
copies copy copying core coredump corpus correct correctly correctness corresponding corrupt
corrupted cost could couldn count counter counts cover coverage cp cpp cpu cpuinfer cqe crash
crashed create created creating creation critical cronolog cross csgmv csv ctrl ctx cu cublas
cublaslt cuda cudafe cudagraph cudart cudnn cufft cuh curand curl current currently cusparse
custom cute cutedsl cutlass daemon data datapipe datasets day days dcp ddp dead deadlock debug
debugger decides decision declaration declare declared declares declined decode decoder decoding
decorate decoupled decrypted dedicated dedup deep deepep deepgemm deepseek default defaulting
defaults deferred define defined degradation delay delayer delete deleted deliberately delimiter
delta denied dense dependent deprecated deprecation depth dequant deregister derived desc
descendants descriptor descriptors destination destroy desync detach detail details detect
detected detection determine deterministic detokenizer dev device devices dflash dfs diagnostics
dict dictionary dicts did didn died diff differ different differs diffusion digest dim dimension
dimensional dimensions dims dir direct directly directory disable disabled disables disabling
disagg disaggregation disconnected disk dispatch dispatcher dispatching dist distinct
distributed distribution divide divisible division dllm do docker dockerenv docs documentation
does doesn domain domains domino don done dots double down download downloading downstream dp
draft drafts drain draining draw driven driver drop dropped dropping ds dsa dsl dspark dst dsv
dtype dtypes dual due dummy dump dumped dumping dumps duplicate duration during dwdp dynamic
dynamically each eager eagerly eagle early eartbeat ebnf ecc echo edge eff effect effective
effort either elapsed elastic element elements elevated embed embedding embeddings embeds emory
empty en enable enabled enabling encode encoded encoder encoding encountered end ended endpoint
endpoints ends enforce engine enied enough enqueued ensure enter entering entries entry
entrypoint env envelope environ environment envs eof ep epd eperm eplb epoch epsilon equal
ermission err errno error errors escape estimate etag etc eval even evenly event events every
evictable evicted eviction evt exactly example exc exceed exceeded exceeding exceeds exception
exchange exclude excluded exclusive exec executable execute executing execution executor
exhausted exist existing exists exit exitcode exited exiting exp expand expandable expanded
expect expected expecting expects experimental expert experts explicit explicitly export expose
exposes extend extension extensions external extra extractor fa fabric face factor factors
factory fail failed failure failures fake falcon fall fallback fallen falling falls false family
far fast fastapi fatal fatbinary fault faulthandler fbgemm fc fcfs fcntl fd fdfo fdinfo feature
features fetching fewer ffn field fields file files filesystem fill filter filtering final
finalize find finish finished finite fired first fit fix fixed flag flags flapping flash
flashinfer flashmla flat flatten flattened flex flexkv flight float floating flock flush fmha fn
folder follow following for forbidden forbids force forcing forkserver format forward found fp
fps fqn fqns fraction fragmentation frame frames free freed freq fresh from frozen fs fsdp full
fully func function functional functionality functions fuse fused fuseep fusion future fwd gamma
garbage gate gated gateway gather gathered gaudi gave gb gc gcc gdb gdn gdr geforce gelu gemm
gemma gen generate generated generation generic geometry get getaddrinfo getting gfx gguf gi gib
gil github give given gives glm global gloo glu gluon gnu goes gone got gpt gptq gpu gpudirect
gpus gqa grace grad gradient gradients grammar graph graphs greater greedy grid grids group
grouped groups grow grpc guid half handle handled handler handles handling handlr handshake hang
hangup happen hardware has hash hashes have hbm head header headroom heads health heartbeat
heartbeats heavy held here hf hi hicache hidden hierarchical high higher hip hipcc hisparse
histogram hit hits hold holder holds home hook hooks hopper host hosts hour hours how however
hpc hqq html http https hub hugging huggingface hybrid ib ibverbs id idle ids idx if ignore
ignored ignores ignoring illegal image images impl implement implementation implemented import
importable imported in include included including incompatible incomplete inconsistent incorrect
increase increasing increment incremental indentation independent index indexer indicate
indicates indices individual inductor inf infer inference inferred infiniband inflight info
information init initial initialization initialize initialized initializing inject inner inode
inplace input inputs insert inside install installation installed instance instances instantiate
instead instinct instructions insufficient int integer integers intel inter interface interleave
interleaved intermediate intern internal interpolation interpreter interrupt interrupted
interval into ints inv invalid invariant invocation invoke invoked io ip ipc is issue issues it
item items iter iterable iteration iterations iterator itl its itself jinja jit join joined
joint journalctl json just kb kda keep keeping keeps kept kernel kernels key keyboard keyfile
keys keyword kib kill killed killer killing kimi know known kpool kt kubernetes kv kvcache kwarg
kwargs la label labels lacks lang language large larger largest last late latency latent later
launch launched launcher launching layer layernorm layers layerwise layout layouts lck ld lead
leaf lean least leave leaves leaving left legacy len length lengths lens less let level lfs lib
libc libcuda libfabric libpthread library libstdc libtorch like likely limit line linear lines
link linker linux list listen listener listening listens lists literal live llama llguidance llm
lm lmcache lo load loadbalancer loaded loader loading loads loc local localhost locally locals
location lock locked lof log logger loggers logging logic logical logit logits logprob logprobs
logs long longer look lookahead looked lookup loop lora loras loss lovelace low lower lpm lru
machine main mainthread major make malformed mamba managed management manager manifest manual
manually many map mapped mapping mappings maps mark marked marker markov marlin mask masked
masks master match matched matches matching materialization materialized matmul max maximum may
maybe mb md mean means media median medusa mega megakernel megamoe mem memfd memory merge merged
mesh meshes message messages meta metadata metal method methods metric metrics mfu mha mi mib
micro midlayer mig might milliseconds mimo min mini miniconda minimum minute minutes mis
misaligned mismatch mismatched miss missing mistral mix mixed mixing mixtral mla mlp mlx mm mmap
mnnvl mnt mod modalities modality mode model modelexpress modelopt models modes module modules
moe monitor monitoring monokernel mooncake more mori most move moved mpiexec mpirun mps mqa
mrope ms msa mscclpp msg msprobe mtp mul multi multicast multilog multimodal multiple musa muse
must mutually mx mxfp name named names namespace nan native nccl ncclx ndim need needed needs
negative neither nested net network never new newer next nextn ngram nice ninja nixl nn nnodes
no node nodes nofile noheader nohup nolora non nonblocking none nor norm normal normalized not
note nothing noticed notify nounits now np npu ns nsa nsupported null num numa numactl number
numbers numel numpy nv nvcc nvfp nvidia nvjitlink nvl nvlink nvls nvml nvrm nvrtc nvswitch nvtx
obj object objects observed occurred occurrences of off offline offload offloading offset
offsets ofi ok old omit on once one online only oom op open opens operation operations operator
operators ops opt optim optimal optimistic optimization optimizer option optional options or
order ordinary org orig original os oss other otherwise otlp ours out outer outlines output
outputs outside over overflow overlap overlapping overridden override overrides overriding
overwriting own owned owner ownership owns pack package packages packed pad padded padding page
paged pages pair panic parallel parallelism param parameter parameters params parent parentheses
parse parsed parser parsing part partial partition partitions parts party pass passed passes
passing past patch patched patches path paths pattern patterns pause paused payload pci pcie pd
pdmux peer pending per percent performance performing permanently permission permissions
permitted persistent perturb petit pg pgtables phase phi philox physical pick pickle pid
piecewise pil pinned pip pipe pipeline pixel pixels place placeholder placeholders placement
placements plain plan planned plans platform ple plugin plus pod point pointer points policy
poll polling pool pooled pools populated port ports position positional positions positive posix
possible post potential power pp ppid pre preallocated precise precision precomputed predict
preemption preferred prefetch prefill prefix prefixes premature prepare prepared preparing
preprocess preprocessed preprocessing presence present preserve preshuffle press previous
primary printed prior priority probe proc proceed proceeding process processed processes
processing processor produce produced producer produces profile profiled profiler profiling
program progress proj project projection projections projector projects prometheus prompt
prompts propagate properly protocol provide provided provider provides proxy pseudonym pt ptr
ptrace pts ptx ptxas publish published publisher push put py pydantic pyspy python pytorch q qk
qkv qp qsa quadro qualified quality quant quantization quantize quantized quantizing quark query
queue queued quit qwen radix ragged raise raised ran random range rank ranks ras rate rates
ratio raw ray rchar rdma rdzv re reached read reader reading readings reads ready real reap
reaper reason reasoning rebalance rebalancing rebuild receive received receiver recent recipe
recognised recommended record recorded recorder recording recursion recv redistribute
redistribution reduce reduced reducing reduction redundant ref reference refresh refusal refused
refusing reg regex region regions register registered registering registration registry regular
rejected rejection rejoin rel release released reload reloading remain remaining remapping
remedy remote remove removed rendezvous replace replaced replacement replay replayssm replica
replicate replicated repo report reported reports req reqs requantization request requested
requesting requests require required requires reserve reserved reset resident residual resize
resolution resolve resolved resource response restart restarted restore restored result
resulting results resume resumed ret retracted retraction retries retrieve retry retrying return
returned returning returns reuse reuseport revision reward rid right ring rl rlimit rms rmsnorm
ro robin roce rocm role roll root rope rotary rotatelogs rotation round rounding rounds route
routed router routes routing row rows rpc rs rss rtx rules run runner running runpy runs runtime
rust safe safetensors sam same sample sampled sampler samples sampling satisfy save saved saver
saving say says scalar scale scaled scales scaling scatter scattered schedule scheduler
schedulers scheduling schema scheme sconv scope score scoring scratch script sdpa se sec seccomp
second seconds secrets secs section security securitycontext see seed seek seems seen segment
segmentation segments select selected selecting selection selects self selinux semantic
semantics send sending sent separate seq seqlen seqlens sequence sequences sequential serialized
serve served server serves service serving session sessions set sets setting settings settle
setup several sgl sglang sh sha shape shapes shard sharded sharding shards share shared sharing
shm shmem short shorter shortest should show shrink shutdown shutting side sidecar signal signum
sigquit sigterm silence silent silently silu simple simply simulate since single sink sinks site
size sized sizes sizing skip skipped skipping sleep sleeping slice slices sliding slot slots
slow slower slurm sm small smaller smg smi snapshot snapshots so sock socket sockets soft
softmax some sorted source sources sp space span spans sparse sparsity spawn spec special
specific specified specify specs speculative speculator speculators spid split splits sps spy
src srt srun ss ssh ssl ssm stable stack stacks stage staged stages staging stale stamp
standalone standard starlette start started starting starts startup stat state states static
stats status stay stays std stdbuf stderr stdout step steps still stochastic stop stopped
stopping storage store str strategies strategy stream streaming streams strict strictly stride
strided strides string strings strip structural structure sts stuck style sub subclass
subclasses submit submodule subproc subprocess succeeded success successfully such sudo suffix
sum summary supplied support supported supports sure suspend svlogd swa swap sweep swi swiglu
switch switching sxm sym symlink symm symmetric sympy sync synchronous syndrome syntax sys
sysctl system table tables tabulate tactic tag tags tail tails take taken takes tanh target
targets task tasks taskset tb tbo tc tck tcp te tee tell tells temperature template templates
temporarily temporary tensor tensors terminal terminate terminated terminating tesla test
testing text than that the their then there thermal these thing thinking third this those thread
threadpool threads threshold throttle through throughput throwing ticks tied tier tile tilelang
time timed timeout timer timers times timestamp timestamps timing title titles tl tls tma tmp to
together tok token tokenized tokenizer tokens tokenspeed too took tool tools top topk topology
torch torchao torchrun total tp tpot tqdm trace traceback traced tracer traces tracing track
tracker tracking trailing train trained training transfer transferred transfers transform
transformers translation transport treat treating tree trie tried triggered triggering triton
trivial trt trtllm true truncate truncated trust truth try trying ttft tty tuned tuner tuning
tuple turing turn twice two type types ue uint unable unallocated unauthorized unavailable
unbound unconsumed undefined under uner unexpected unexpectedly unflatten unhandled unicode
unified uniform uninitialized union unique unit unknown unlock uno unquantized unreachable
unrecognized unregistered unresponsive unset unsupported until unused up update updated upgrade
upper url urls usage use used user uses using usr usually utf utilisation utilization utils
utotun uuid uv uvicorn va valid validate validated validation value values var variable variant
variants vendor venv verbs verification verified verify version versions via video videos view
violation virtual visible vision visual vl vllm vmm vocab vocabulary volta vs wait waiting
waitpid waits wall warm warmed warmup warmups warn warning warnings was watchdog waterfill
watermark watts wave wchan wchar weight weights were wget what when where whether which while
whitespace who whole whom whose why wide width will window windows wired wise with within
without wna wo word words work workbench worker workers workloads works workspace world would
wrap wrapped wrapper write writer writers writes writing written wrong wrote xet xformers
xgrammar xid xpu yama yet zero zigzag zmq zombie
    """.split()  # noqa: SIM905
)

MIXED = frozenset(
    """
a10 a100 a10g a2a a40 a800 aarch64 b100 b16 b200 b300 bf16 c10d c128 cc1 cu118 cu12 cu121 cu124
cu126 cu128 cu129 cu13 cu130 customallreducev2 d2d d2h d2t dp0 dsv4 e2e e2m1 e4m3 e4m3fn e4m3fnuz
e5m2 e5m2fnuz e8m0 f16 f32 fa2 fa3 fa4 fp16 fp32 fp4 fp6 fp8 gb200 gb300 gfx90a gfx942 gfx950 gh200 h100 h20
h200 h2d h2h h800 hip2 http1 http2 i32 i64 int4 int8 ipv4 ipv6 k2 k8s k_proj l2 l20 l4 l40 l40s
lib64 libc10 md5 mi300x mi325x mi355x moe2 mxfp4 mxfp8 nvfp4 nvlink4 o_proj p2p p2pb q_proj r1
sha256 sm100 sm100a sm103 sm120 sm70 sm75 sm80 sm86 sm89 sm90 sm90a t2d t4 tf32 u8 uint4 uint8
utf8 v0 v1 v100 v2 v3 v4 v4l v_proj w4a16 w4a4 w4a8 w8a16 w8a8 x86 x86_64
""".split()  # noqa: SIM905
)
# With a number behind them somebody's name or key: pass123, user42.
_PERSONAL = frozenset(("pass", "user", "users", "key", "token", "login", "auth", "id", "ids"))
# What is numbered up to thousands; of any other word a long number may be a part of a password.
_COUNTED = frozenset(
    """
tp pp dp ep cp rank ranks gpu cuda layer layers shard shards expert experts thread stream step iter pid python
py channel ring port rc post dev
""".split()  # noqa: SIM905
)
_LETTERS = frozenset("aeikmnoqrstvxw")
_UNITS = frozenset(
    """
s ms us ns m h d x k kb kib mb mib gb gib tb tib b g t w v c hz mhz ghz th st nd rd
""".split()  # noqa: SIM905
)
# Folders of programs: what follows the last of them in a path says which file of which package.
PACKAGES = (
    "sglang", "sgl_kernel", "torch", "torchvision", "torchao", "vllm", "flashinfer", "triton", "transformers",
    "safetensors", "deep_gemm", "deep_ep", "zmq", "tqdm", "uvicorn", "uvloop", "fastapi", "starlette",
    "multiprocessing", "concurrent", "asyncio", "filelock", "numpy", "huggingface_hub", "xgrammar",
    "nixl", "mooncake", "outlines", "cutlass", "tilelang", "tvm_ffi", "speculators", "specforge",
)  # fmt: skip
# Who publishes models under a name that everybody knows; any other may be a customer's.
PUBLISHERS = frozenset(
    """
meta-llama Qwen deepseek-ai moonshotai lmsys mistralai google openai nvidia RedHatAI neuralmagic
unsloth zai-org THUDM microsoft yuhuili AngelSlim ibm-granite stepfun-ai MiniMaxAI baidu tencent
XiaomiMiMo allenai 01-ai internlm OpenGVLab CohereForAI CohereLabs amd Intel TinyLlama EleutherAI
bigcode tiiuae nvidia-nemotron
""".split()  # noqa: SIM905
)
# Addresses that name nobody's host.
PUBLIC_HOSTS = frozenset(
    """
localhost huggingface.co github.com pytorch.org pypi.org docs.nvidia.com modelscope.cn
docs.sglang.ai
""".split()  # noqa: SIM905
)

# Ends of names of hosts that are somebody's own.
PRIVATE = (".internal", ".local", ".lan", ".corp", ".intranet", ".cluster", ".hpc")

_STAMPS = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T_]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?|\d{1,3}:\d\d|[IWEF]\d{4}"
)
_NUMBER = re.compile(
    r"[-+~]?\d{1,9}(?:\.\d{1,18})?(?:e[-+]?\d{1,3})?(?P<unit>[A-Za-z]{0,3})(?:/(?P<per>[A-Za-z]{1,5}))?%?"
    r"|\d{1,9}/(?:\d{1,9}|[A-Za-z]{1,3})|\d{1,3}-\d{1,3}|0x[0-9a-fA-F]{1,16}"
)
_VERSION = re.compile(
    r"v?\d{1,4}(?:\.\d{1,4}){1,2}(?:\.?(?:a|b|rc|post|dev)\d{1,9})?(?:\+cu\d{2,4}|\+cpu)?"
)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_RUN = re.compile(r"[A-Za-z0-9]+")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+#~%&*!?\\^$-]+")
_NUMBERS = re.compile(r"\d[-.:]?\d{3,}[-.:]\d|\d-\d+-\d")
_INTERFACE = re.compile(
    r"[=^]?(?:lo|(?:eth|ib|bond|hsn|br)\d{1,3}(?:\.\d{1,4})?|mlx\d{0,2}(?:_bond)?_?\d{0,3}"
    r"|en[ops]\d{1,3}(?:[a-z]{1,2}\d{1,3}){0,4})(?::\d{1,2})?"
)
_DEVICE = re.compile(r"(?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?")
# Names of machines are made of harmless words, too: `gpu-node-17`, `worker3`, `ip-10-0-0-1`.
MACHINE = re.compile(
    r"(?:[a-z][a-z0-9]{0,14}-){0,5}(?!gpu\d{1,2}$)(?:node|host|gpu|worker|server|machine|dgx|hgx|slurm|compute"
    r"|instance|pod|rack|vm|ip|nid|login)[a-z]{0,6}(?:-[a-z][a-z0-9]{0,10}){0,3}-?\d{1,6}[a-z]?(?:-[a-z0-9]{1,12}){0,6}"
)


@lru_cache(maxsize=1 << 16)
def is_harmless(word: str) -> bool:
    """Whether a word, without brackets and quotes around it, is one that a log may keep."""
    word = word.strip(".,:;!?*#-+&~^$\\")
    if not word or word in ("e.g", "i.e"):
        return True
    number = _NUMBER.fullmatch(word)
    if number:
        units = (number["unit"] or "").lower(), (number["per"] or "").lower()
        return all(unit in _UNITS or unit in ("", "it", "tok", "req", "sec") for unit in units)
    if _STAMPS.fullmatch(word) or _VERSION.fullmatch(word) or _INTERFACE.fullmatch(word):
        return True
    if _DEVICE.fullmatch(word):
        return True
    if not _PLAIN.fullmatch(word) or len(word) > 120:
        return False
    place = word.partition(":")[0]
    if MACHINE.fullmatch(place.partition(".")[0]) or place.endswith(PRIVATE):
        return False
    if _NUMBERS.search(word):  # of a person or an account
        return False
    runs = _RUN.findall(word)
    return not all(run.isdigit() for run in runs) and all(map(_is_run, runs))


def _is_run(run: str) -> bool:
    """Whether letters and digits are words, with at most one number at the end."""
    low = run.lower()
    if low in MIXED or low in WORDS or low in _LETTERS:
        return True
    parts = _PARTS.findall(run)
    if parts[-1].isdigit():
        before = parts[-2].lower() if len(parts) > 1 else ""
        if len(parts[-1]) > (9 if not before else 5 if before in _COUNTED else 2):
            return False
        if len(parts) == 2 and before in _PERSONAL:
            return False
        parts.pop()
    return all(part.lower() in WORDS or part.lower() in MIXED for part in parts)
