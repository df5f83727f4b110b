# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.
SHELL := bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
# One worker more than there are cores, since servers and browsers are waited for half of the time; each file in one
# of them (tests/conftest.py says which begin first, and which wait for each other).
WORKERS := $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n < 4 ? n + 1 : 4)))
PYTEST_ARGS ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The CPU build where the index has one under that name; elsewhere the plain release.
TORCH := 2.13.0
install_torch = $(1)/python -c 'import torch' 2>/dev/null || \
  $(1)/python -m pip install --quiet "torch==$(TORCH)+cpu" || \
  $(1)/python -m pip install --quiet "torch==$(TORCH)"
check_python = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }

# The lowest versions that pyproject.toml allows, in an environment of their own. torch stays at TORCH (its
# older releases are gigabytes for CUDA), the fsspec that came with it does not. Tests of engines, browsers,
# servers and whole notebooks run in `test`.
LOWEST := .venv-lowest
LOWEST_UV := $(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
  --constraint $(LOWEST)/torch.txt --upgrade-package fsspec
LOWEST_PYTEST = LOWEST=1 $(LOWEST)/bin/python -m pytest -n auto --maxprocesses 2 --dist loadfile \
  -m "not engine and not browser"
LOWEST_TESTS ?= tests
LOWEST_IGNORED := browser engines hang/live weights/test_live.py weights/test_live_answers.py incident/test_server.py \
  incident/test_hang.py notebooks/test_hang_notebook.py notebooks/test_notebooks.py
# With the extra `replay`, whose transformers raises huggingface-hub; without it the others are really lowest.
LOWEST_REPLAY := test_packaging.py speculation/model/test_draft.py speculation/model/test_fidelity.py \
  speculation/model/test_mla.py
# What `make extra` runs of them: what meets the libraries.
LOWEST_SAMPLE := tests/core tests/views tests/cli tests/keys tests/weights tests/checkpoint/test_open.py tests/checkpoint/test_broken_folders.py tests/checkpoint/test_remote.py \
  tests/display/test_html.py tests/export/test_export.py tests/test_packaging.py tests/weights/test_records.py
# The steps of `make extra`, in their order: samples of the long checks.
EXTRA ?= lint lint-js facts-sample mutants-sample lowest-sample

help:  ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 10

$(READY): pyproject.toml constraints.txt
	@$(check_python)
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(call install_torch,$(RUN))
	$(RUN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,http,pandas,cluster,replay,gguf]' --group dev
	@touch $@

setup: $(READY)  ## Make .venv and install the workbench into it

demo: $(READY)  ## Run the shipped case and write reports/*.html
	$(RUN)/python -m workbench.export.demo

test: $(READY) chromium engines  ## Set everything up and run the whole test suite
	$(RUN)/python -m pytest $(PYTEST_ARGS)

extra:  ## Samples of the long checks: style and words, mutants, lowest versions
	@for step in $(EXTRA); do \
	  began=$$SECONDS; echo "extra: $$step begins"; \
	  $(MAKE) --no-print-directory $$step || { echo "extra: $$step failed after $$((SECONDS - began)) s"; exit 1; }; \
	  echo "extra: $$step took $$((SECONDS - began)) s"; \
	done

lowest: pyproject.toml  ## Run the tests with the lowest versions that pyproject.toml allows
	@$(check_python)
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1" uv
	$(call install_torch,$(LOWEST)/bin)
	echo "torch==$(TORCH)" > $(LOWEST)/torch.txt
	$(LOWEST_UV) --editable '.[lab,http,pandas,cluster]' --group test
	$(LOWEST_PYTEST) $(LOWEST_TESTS) $(LOWEST_IGNORED:%=--ignore=tests/%)
	$(LOWEST_UV) --editable '.[lab,http,pandas,cluster,replay,gguf]' --group test
	$(LOWEST_PYTEST) $(LOWEST_REPLAY:%=tests/%)

lowest-sample:
	@$(MAKE) --no-print-directory lowest LOWEST_TESTS="$(LOWEST_SAMPLE)"

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

lint: $(READY)  ## Check style, types, imports and words
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(RUN)/python -m tests.words

TYPESCRIPT := 5.9.3
lint-js:  ## Check the types of the scripts (skipped without Node)
	@if command -v npm >/dev/null; then \
	  npm exec --yes --package typescript@$(TYPESCRIPT) -- tsc --project jsconfig.json; \
	else echo "lint-js: skipped, nothing is checked: npm is not installed"; fi

collector: $(READY)  ## Pack the collector for nodes without the workbench: dist/workbench-collect.pyz
	$(RUN)/python -m workbench.hang.collect.pack_collector dist/workbench-collect.pyz

release: $(READY)  ## Check, build and try the files of a release in dist/; uploads nothing
	$(RUN)/python -m pip install --quiet --group release
	$(RUN)/python -m tests.release --torch $(TORCH)

bench: $(READY)  ## Measure against peers, ratios in one run
	$(RUN)/python -m benchmarks

tables: $(READY) engines  ## Rewrite docs/conformance.md from real loaders
	$(RUN)/python -m tests.engines.tables

SAMPLE ?= 200
SEED ?= 7
mutants: $(READY)  ## Flip conditions that judge, and print those that no test notices (SAMPLE=200 SEED=7)
	$(RUN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)

mutants-sample:
	@$(MAKE) --no-print-directory mutants SAMPLE=40

facts-check: $(READY)  ## Fetch every release's wheel, and compare the facts with it and with the one before
	$(RUN)/python -m tests.facts.check

facts-sample: $(READY)
	@$(RUN)/python -m tests.facts.check --sample 2 --seed $(SEED)

clean:  ## Remove what the commands above made
	rm -rf $(VENV) $(LOWEST) reports .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

.PHONY: help setup demo test extra lowest lowest-sample mutants mutants-sample facts-check facts-sample engines chromium lab lint lint-js collector release bench tables clean
