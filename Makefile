# Every target sets up what it needs in .venv and does nothing twice; `make help` lists them.
# PYTHON=/path/to/python3.12 chooses the interpreter; PYTEST_ARGS="-k matmul" goes to pytest.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := $(VENV)/stamps
PYTEST_ARGS ?= -n auto --maxprocesses=8 --dist worksteal
DEMO_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format bench clean

help:  ## list the targets
	@awk -F ':.*##' '/^[a-z]+:.*##/ { printf "  make %-8s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(STAMPS)/demo  ## compile and run kernels on a real image on every device found
	$(BIN)/cubepy demo $(DEMO_ARGS)

test: $(STAMPS)/test  ## run the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMPS)/dev  ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache

format: $(STAMPS)/dev  ## format the code and fix what can be fixed safely
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(STAMPS)/bench  ## time CubePy beside its peers (torch joins if it is installed)
	$(BIN)/python -m bench $(BENCH_ARGS)

clean:  ## remove what builds and tests leave behind, and .venv
	rm -rf $(VENV) build dist report *.egg-info .pytest_cache .ruff_cache .import_linter_cache

# What demo, test, dev and bench need is the extra of that name. The stamp makes a second run quick.
$(STAMPS)/%: pyproject.toml setup.py | $(BIN)/pip
	@echo "installing cubepy-jit[$*] into $(VENV)"
	@$(PIP) install --quiet --editable '.[$*]'
	@mkdir -p $(STAMPS)
	@touch $@

# The first Python that is new enough; ensurepip is what Debian leaves out without python3-venv.
$(BIN)/pip:
	@python=; \
	for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "CubePy needs Python 3.11 or newer: apt-get install python3 python3-venv," >&2; \
	  echo "or name an interpreter: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; fi; \
	echo "making $(VENV) with $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
