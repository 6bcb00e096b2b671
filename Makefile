# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Only Python >= 3.11, make and pip are assumed; all else is installed into .venv, pinned and hashed.

PYTHON ?= python3
VENV := .venv
CLIENTS := .venv-clients
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --progress-bar=off
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
NOT_INSTALLED := echo "The packages could not be installed: check the network and pip's index, then run make again. For a Python that is very new there may be no wheels yet: run make clean, then the same again with PYTHON=python3.13."
DURATION ?=
# Labelled request bodies for `make bench-classifier`: a folder with train.jsonl and dev.jsonl.
PROMPTS ?= ../shared/data/prompts
ARGS ?=
# Anything here, and benches run with the classifier as machine code.
COMPILED ?=
BENCH := $(if $(COMPILED),PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. )$(BIN)/python
DEMO_FLAGS := $(if $(DURATION),--duration $(DURATION),) $(ARGS)

.PHONY: help demo test test-clients report-clients verify check lint types imports unit pure bench bench-classifier bench-path wheel lock reference clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

$(VENV)/pip-ok:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Try: make demo PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV) || { echo "Could not create $(VENV): on Debian and Ubuntu, install python3-venv first."; exit 1; }
	@touch $@

$(VENV)/demo-ok: requirements/demo.txt pyproject.toml | $(VENV)/pip-ok
	@echo "Installing Specroute and what the demo needs into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/demo.txt || { $(NOT_INSTALLED); exit 1; }
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev-ok: requirements/dev.txt pyproject.toml | $(VENV)/pip-ok
	@echo "Installing Specroute and its test tools into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/dev.txt || { $(NOT_INSTALLED); exit 1; }
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/demo-ok

demo: $(VENV)/demo-ok ## Real engines, a real model, live table: the main job, end to end
	@$(BIN)/specroute demo $(DEMO_FLAGS)

test: $(VENV)/dev-ok ## Everything that must pass before a commit
	@$(MAKE) --no-print-directory -j2 check unit pure

check: lint types imports ## Lint, types and import direction

lint: $(VENV)/dev-ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev-ok
	$(BIN)/mypy

imports: $(VENV)/dev-ok
	$(BIN)/lint-imports

# Those that only reckon, and so mind nobody beside them, run while the others wait for sockets.
PURE := tests/statistical tests/unit/policies tests/unit/estimates

unit: $(VENV)/dev-ok
	$(BIN)/python -m pytest -q $(addprefix --ignore=,$(PURE))

pure: $(VENV)/dev-ok
	$(BIN)/python -m pytest -q $(PURE)

verify: $(VENV)/dev-ok ## Long checks; writes their tables to docs/verification.md
	$(BIN)/python -m bench.verify docs/verification.md

$(CLIENTS)/ok: requirements/clients.txt tests/clients/node/package-lock.json
	@echo "Installing client libraries and load tools into $(CLIENTS) (2 GB) ..."
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet --progress-bar=off -r requirements/clients.txt
	@mkdir -p $(CLIENTS)/node && cp tests/clients/node/package.json tests/clients/node/package-lock.json $(CLIENTS)/node
	@if command -v npm >/dev/null; then npm ci --prefix $(CLIENTS)/node --silent --no-audit --no-fund; else echo "npm is missing: the client for Node is left out."; fi
	@touch $@

test-clients: $(VENV)/dev-ok $(CLIENTS)/ok ## Client libraries and load tools, directly and through the proxy
	@SPECROUTE_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest -q -m clients

report-clients: $(VENV)/dev-ok $(CLIENTS)/ok ## Write docs/clients.md: which client was tried, and what it gave
	@SPECROUTE_CLIENTS=$(CLIENTS) $(BIN)/python -m tests.clients.report docs/clients.md

$(VENV)/bench-ok: requirements/bench.txt | $(VENV)/dev-ok
	@$(PIP) --require-hashes -r requirements/bench.txt
	@touch $@

bench-classifier: $(VENV)/bench-ok $(if $(COMPILED),wheel) ## Quality of the classifier on sources left out, and its cost
	@OPENBLAS_NUM_THREADS=1 $(BENCH) -m bench.classifier $(PROMPTS)

bench-path: $(VENV)/dev-ok $(if $(COMPILED),wheel) ## Microseconds of each stage of a request, and what a flush costs
	@OPENBLAS_NUM_THREADS=1 $(BENCH) -m bench.path

wheel: $(VENV)/dev-ok ## A wheel for this machine with hot modules as machine code; needs a C compiler
	@rm -rf build/wheel build/compiled dist/specroute-*.whl && mkdir -p build/wheel && cp -r router policies pyproject.toml README.md LICENSE build/wheel
	@cd build/wheel && HATCH_BUILD_HOOK_ENABLE_MYPYC=1 ../../$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir ../../dist .
	@$(PIP) --no-deps --upgrade --target build/compiled dist/specroute-*.whl && ls dist/specroute-*.whl

reference: $(VENV)/dev-ok ## Write config/specroute.yaml, its JSON Schema and docs/configuration.md anew
	$(BIN)/python -m router.config.reference .

lock: $(VENV)/dev-ok ## Resolve requirements/*.txt anew from pyproject.toml
	$(PIP) uv
	$(LOCK) pyproject.toml -o requirements/run.txt
	$(LOCK) --group build --group compile -o requirements/build.txt
	$(LOCK) --extra demo --group build pyproject.toml -o requirements/demo.txt
	$(LOCK) --group bench -c requirements/dev.txt -o requirements/bench.txt
	$(LOCK) --extra otel pyproject.toml -o requirements/otel.txt
	$(LOCK) --extra demo --extra otel --group build --group compile --group dev pyproject.toml -o requirements/dev.txt

clean: ## Remove the environment and what the demo left in this folder
	rm -rf $(VENV) $(CLIENTS) .demo .specroute dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
