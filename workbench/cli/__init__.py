"""The command line: one module a verb, and exit codes from one place (`exits`)."""

from workbench.cli.program import app, main

__all__ = ["app", "main"]
