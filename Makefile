# One way to do each thing. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
HUB5 := .venv-hub5
PY := $(VENV)/bin/python
LABEXT := server_ext/allotment/labextension/package.json
# What decides whether an environment is still right.
PROJECT := pyproject.toml package.json hatch_build.py scripts/venv.sh

.PHONY: help
help: ## list what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

# --- set-up --------------------------------------------------------------------------------------

$(VENV)/.stamp: requirements/dev.txt $(PROJECT)
	@echo "Setting up $(VENV) …"
	@scripts/venv.sh $(VENV) requirements/dev.txt

$(HUB5)/.stamp: requirements/hub5.txt $(PROJECT)
	@echo "Setting up $(HUB5) (JupyterHub 5) …"
	@scripts/venv.sh $(HUB5) requirements/hub5.txt

.PHONY: setup
setup: $(VENV)/.stamp ## set up .venv with everything that development needs
