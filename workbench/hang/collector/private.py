"""What leaves the host: variables by allow-list, no secrets, no host names."""

from __future__ import annotations

import hashlib
import re
import socket

_PREFIXES = (
    "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "FLASHINFER_", "SGLANG_", "SGL_", "GLOO_", "TRITON_", "PYTORCH_",
    "OMP_NUM_", "RCCL_", "HSA_", "HIP_VISIBLE", "ROCR_VISIBLE",
)  # fmt: skip
_NAMES = (
    "TP_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "DG_JIT_CACHE_DIR", "TORCH_EXTENSIONS_DIR",
    "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "HF_HUB_OFFLINE", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_SECRET_NAME = re.compile(r"(key|token|secret|passw|credential|auth)", re.IGNORECASE)
_LEFT_OUT = "<left out>"
_SECRETS = re.compile(
    r"""(?x)
    \b(hf_[A-Za-z0-9]{16,} | sk-[\w-]{16,} | gh[pousr]_\w{20,} | AKIA[0-9A-Z]{16})
    | (?<=Bearer\ )[\w.~+/=-]{8,}
    | (?:(?<=api_key=')|(?<=api_key=")|(?<=api_key':\ ')) [^'"]+
    """
)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return those variables that a diagnosis needs."""
    kept = {}
    for name in sorted(variables):
        wanted = name in _NAMES or name.startswith(_PREFIXES)
        if wanted and not _SECRET_NAME.search(name):
            kept[name] = text(variables[name])[:500]
    return kept


def arguments(argv: list[str]) -> list[str]:
    """Return a command line without the values of keys and tokens."""
    kept, hide = [], False
    for word in argv[:400]:
        flag, equals, _ = word.partition("=")
        secret = flag.startswith("--") and bool(_SECRET_NAME.search(flag))
        secret = secret and "tokeniz" not in flag and "tokens" not in flag
        if hide and not word.startswith("--"):
            kept.append(_LEFT_OUT)
        else:
            kept.append(f"{flag}={_LEFT_OUT}" if secret and equals else text(word)[:2000])
        hide = secret and not equals
    return kept


def text(value: str) -> str:
    """Return a text without secrets and without this host's name."""
    value = _SECRETS.sub(_LEFT_OUT, value)
    name = socket.gethostname()
    if len(name) >= 4 and name in value:
        value = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", pseudonym(), value)
    return value


def pseudonym() -> str:
    """Return a name for this host that is the same until it is restarted, and tells nobody which it is."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            salt = file.read().strip()
    except OSError:
        salt = ""
    digest = hashlib.sha256(f"{salt} {socket.gethostname()}".encode()).hexdigest()
    return f"host-{digest[:6]}"
