"""Run by an engine's own Python: print every flag of its ServerArgs, and which command lines it parses.

Reads ``{"stubs": FOLDER, "lines": [[argument, …], …]}`` from standard input. Imports nothing of the workbench
but the stand-ins for packages without a CPU build.
"""

import argparse
import contextlib
import io
import json
import sys


class _Refused(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise _Refused(message)


def _text(value):
    if value is None or value == argparse.SUPPRESS:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _flag(action):
    kind = type(action).__name__
    if kind == "DeprecatedAction":
        sort = "void"
    elif kind == "BooleanOptionalAction":
        sort = "optional"
    elif action.nargs == 0:
        constant = getattr(action, "const_value", None)
        sort = "switch" if constant is None else f"sets {constant}"
    else:
        sort = "value"
    return {
        "flags": [option[2:] for option in action.option_strings if option.startswith("--")],
        "field": action.dest.replace("_", "-"),
        "sort": sort,
        "default": _text(action.default),
        "choices": None if action.choices is None else [_text(one) for one in action.choices],
        "nargs": "" if action.nargs is None else str(action.nargs),
        "required": bool(action.required),
        "deprecated": kind.startswith("Deprecated") or "eprecated" in (action.help or "")[:40],
    }


def _parses(parser, line):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(line)
    except (_Refused, SystemExit) as error:
        return str(error)
    return ""


def main():
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    sys.path.insert(0, request["stubs"])
    import stubs

    stubs.install()
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt.server_args import ServerArgs

        parser = _Parser()
        ServerArgs.add_cli_args(parser)
        refusals = [_parses(parser, line) for line in request["lines"]]
    flags = [_flag(action) for action in parser._actions if action.dest != "help"]
    json.dump({"flags": flags, "refusals": refusals}, sys.stdout)


if __name__ == "__main__":
    main()
