"""Write small checkpoints with transformers' own classes and `save_pretrained`; an engine's Python runs it.

Reads a JSON list of ``[class, fields, folder]`` from standard input; prints what could not be written.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

MOST = 30_000_000  # parameters
# Fields of a small part that sees or hears, where a config has such parts.
SENSE = {
    "depth": 2,
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "embed_dim": 64,
    "num_heads": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 56,
    "patch_size": 14,
    "projection_dim": 64,
    "fullatt_block_indexes": [1],
}


def _config(kind: Any, fields: dict[str, Any]) -> Any:
    """Return a small config, its parts small, too."""
    parts = {}
    for part, made in (getattr(kind, "sub_configs", None) or {}).items():
        text = part in ("text_config", "language_config", "llm_config")
        default = made() if isinstance(made, type) and made.__name__ != "AutoConfig" else kind()
        default = default if default.__class__ is made else getattr(default, part)
        given = fields if text else SENSE | {"out_hidden_size": fields["hidden_size"]}
        known = default.to_dict()
        parts[part] = known | {name: value for name, value in given.items() if name in known}
        if "layer_types" in parts[part]:
            parts[part].pop("layer_types")
    if parts:
        return kind(**parts)
    known = {
        *kind().to_dict(),
        *(kind.attribute_map or {}),
    }  # others mean something to engines only
    return kind(**{name: value for name, value in fields.items() if name in known})


def main() -> None:
    """Write every checkpoint that is asked for."""
    # torchvision beside a CPU torch: its native library does not load, and only this module minds.
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))
    import torch
    import transformers

    failed = {}
    for name, fields, folder in json.load(sys.stdin):
        try:
            cls = getattr(transformers, name)
            torch.manual_seed(0)
            config = _config(cls.config_class, fields)
            with torch.device("meta"):
                count = sum(p.numel() for p in cls(config).parameters())
            if count > MOST:
                raise ValueError(f"{count:,} parameters: the fields do not make it small")
            model = cls(config).to(torch.bfloat16)
            model.config.architectures = [name]
            model.save_pretrained(folder)
        except Exception as error:  # the class may not exist in this release
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(failed))


if __name__ == "__main__":
    main()
