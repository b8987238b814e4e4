# Every target does its own set-up: a fresh clone needs Python 3.11 and, for the benchmarks, a C compiler.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint format test-engines bench-wire clean

run: $(VENV)/.run-ready
	@exec $(BIN)/steplane up

test: $(VENV)/.dev-ready
	$(BIN)/python -m pytest

lint: $(VENV)/.dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev-ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Real SGLang on CPU behind the gateway; builds its environment on first use (minutes, about 3 GB).
test-engines: $(VENV)/.dev-ready
	$(BIN)/python -m pytest tests/engines

# CPU per request and per SSE chunk beside HAProxy (Debian package `haproxy`) in one run.
bench-wire: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.wire

clean:
	rm -rf $(VENV) .build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.pip-ready:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Steplane needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.run-ready: $(VENV)/.pip-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[simulator]'
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
