# One way to do each thing; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
HUB5 := .venv-hub5
PY := $(VENV)/bin/python
# The environment's tools (jupyter-builder among them) for npm's scripts.
NPM := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" npm
LABEXT := server_ext/allotment/labextension/package.json
LABEXT_SOURCES := $(shell find labext/src labext/style -type f) package.json tsconfig.json tsconfig.build.json
# What decides whether an environment is still right.
PROJECT := pyproject.toml package.json hatch_build.py scripts/venv.sh
# Two workers by default, as the smallest machine has two cores; a file stays together, as its tests may
# share one hub.
JOBS ?= 2
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadfile

.PHONY: help
help: ## list what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

# --- set-up ---------------------------------------------------------------------------------------

$(VENV)/.stamp: requirements/dev.txt $(PROJECT)
	@echo "Setting up $(VENV): about 200 packages, which takes a few minutes …"
	@scripts/venv.sh $(VENV) requirements/dev.txt

$(HUB5)/.stamp: requirements/hub5.txt $(PROJECT)
	@echo "Setting up $(HUB5), for JupyterHub 5, as long again …"
	@scripts/venv.sh $(HUB5) requirements/hub5.txt

node_modules/.stamp: package-lock.json .npmrc scripts/node.sh
	@echo "Setting up node_modules, a minute or so …"
	@scripts/node.sh

# The version in package.json belongs to the lock file too, but `npm ci` checks that itself.
$(LABEXT): $(LABEXT_SOURCES) node_modules/.stamp $(VENV)/.stamp
	@echo "Building the JupyterLab extension …"
	@$(NPM) run --silent build:prod >/dev/null
	@touch $@

.PHONY: setup labext
setup: $(VENV)/.stamp node_modules/.stamp ## set up .venv and node_modules
labext: $(LABEXT) ## build the JupyterLab extension

# --- use ------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup $(LABEXT) ## start a demonstration hub on loopback; CHECK=1 walks through its story and exits
	@$(VENV)/bin/allotment-hub demo $(if $(CHECK),--check)

# --- check ----------------------------------------------------------------------------------------

.PHONY: test test-fast test-hub5 test-labext lint format bench
test: export HYPOTHESIS_PROFILE = thorough
test: setup $(HUB5)/.stamp $(LABEXT) ## run every test: Python, JupyterHub 6 and 5, PostgreSQL, browser, extension
	@scripts/system-deps.sh
	$(PYTEST)
	$(MAKE) --no-print-directory test-hub5 test-labext

test-fast: setup ## run the tests that take no patience: no hub, browser or slow ones
	$(PYTEST) -m "not slow and not hub and not browser"

# The tests in tests/hub start real hubs of both generations whichever environment they are run from;
# what is imported into JupyterHub itself is tested here with JupyterHub 5 in the same process.
ON_HUB5 := tests/spawner tests/runtime tests/hub/test_wiring.py
test-hub5: $(HUB5)/.stamp node_modules/.stamp ## run what lives inside the hub on the newest JupyterHub 5
	$(HUB5)/bin/python -m pytest -n $(JOBS) --dist loadfile $(ON_HUB5)

test-labext: node_modules/.stamp ## run the JupyterLab extension's tests
	@$(NPM) run --silent test

lint: setup ## check style, types and layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests/support tests/bench conftest.py hatch_build.py
	$(VENV)/bin/lint-imports --no-logo
	$(NPM) run --silent lint

format: setup ## put everything into the common style
	$(VENV)/bin/ruff check --fix --exit-zero .
	$(VENV)/bin/ruff format .
	$(NPM) run --silent format

bench: setup ## run the benchmarks, one JSON line per figure; ONLY=B1,B3 picks, SCALE=0.1 shrinks
	@$(PY) -m tests.bench $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE))

# --- maintain -------------------------------------------------------------------------------------

.PHONY: lock dist clean
lock: ## pin dependencies anew; UPGRADE=1 takes the newest
	@scripts/lock.sh
	@npm install --package-lock-only

dist: setup $(LABEXT) ## build the sdist and the wheel into dist/
	@rm -rf dist
	@$(VENV)/bin/hatchling build

clean: ## remove everything that was built, installed or left behind here
	rm -rf $(VENV) $(HUB5) .venv-lock node_modules dist build coverage htmlcov demo-run
	rm -rf labext/lib server_ext/allotment/labextension
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find hub_ext server_ext tests -name __pycache__ -type d -prune -exec rm -rf {} +
