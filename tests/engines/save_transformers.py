"""Write small checkpoints with transformers' own classes and `save_pretrained`; an engine's Python runs it.

Reads a JSON list of ``[class, fields, folder]`` from standard input; prints what could not be written.
"""

from __future__ import annotations

import json
import sys
import types


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
            model = cls(cls.config_class(**fields)).to(torch.bfloat16)
            model.config.architectures = [name]
            model.save_pretrained(folder)
        except Exception as error:  # the class may not exist in this release
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(failed))


if __name__ == "__main__":
    main()
