"""transformers' own classes load a checkpoint."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from .files import Refused, Unsupported
from .messages import LogLines, place_of, shorten


class Transformers:
    """transformers' own model classes, by what `from_pretrained` itself reports."""

    def __init__(self) -> None:
        import transformers

        self.version = transformers.__version__

    def trace(self, job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> dict[str, Any]:
        """Load with `from_pretrained` and translate its loading info."""
        import transformers

        log = LogLines()
        try:
            config = transformers.AutoConfig.from_pretrained(folder)
        except Exception as error:
            raise Refused(f"{shorten(error)} ({place_of(error)})") from error
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
                    "message": shorten(error),
                    "place": place_of(error),
                }
                # A wrong shape is what it can be told to pass over; for anything else this fails again.
                more["ignore_mismatched_sizes"] = True
                try:
                    model, info = cls.from_pretrained(folder, output_loading_info=True, **more)
                except Exception as again:
                    return {"error": first, "unexplained": shorten(again), "log": log.lines}
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
