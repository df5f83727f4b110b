# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.
SHELL := bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
# As many workers as cores, each file in one of them (tests/conftest.py says which files wait for each other).
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile
# The CPU build where the index has one under that name; elsewhere the plain release.
TORCH := 2.13.0

help:  ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 10

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(RUN)/python -c 'import torch' 2>/dev/null || \
	  $(RUN)/python -m pip install --quiet "torch==$(TORCH)+cpu" || \
	  $(RUN)/python -m pip install --quiet "torch==$(TORCH)"
	$(RUN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,http,pandas,cluster,replay]' --group dev
	@touch $@

setup: $(READY)  ## Make .venv and install the workbench into it

demo: $(READY)  ## Run the shipped case and write reports/*.html
	$(RUN)/python -m workbench.export.demo

test: $(READY) chromium engines  ## Set everything up and run the whole test suite
	$(RUN)/python -m pytest $(PYTEST_ARGS)

engines: $(READY)  ## Install the real engines that the tests load checkpoints with
	$(RUN)/python -m tests.engines.environments

# A browser for the tests: installed where that needs nobody's leave (Debian, as root), else left to the user.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "No Chromium: the browser tests will be skipped. Install it (Debian: apt-get install chromium) to run them."

lab: $(READY)  ## Open the notebooks in JupyterLab
	$(RUN)/jupyter lab notebooks

lint: $(READY)  ## Check style and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

collector: $(READY)  ## Pack the collector for nodes without the workbench: dist/workbench-collect.pyz
	$(RUN)/python -m workbench.hang.pack_collector dist/workbench-collect.pyz

bench: $(READY)  ## Measure against peers, ratios in one run
	$(RUN)/python -m benchmarks

tables: $(READY) engines  ## Rewrite docs/conformance.md from real loaders
	$(RUN)/python -m tests.engines.tables

SAMPLE ?= 200
SEED ?= 7
mutants: $(READY)  ## Flip conditions that judge, and print those that no test notices (SAMPLE=200 SEED=7)
	$(RUN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)

clean:  ## Remove what the commands above made
	rm -rf $(VENV) reports .pytest_cache .mypy_cache .ruff_cache

.PHONY: help setup demo test engines chromium lab lint collector bench tables mutants clean
