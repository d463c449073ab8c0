# make demo   three kernels on this machine share one model and answer
# make test   everything that is checked, with its needs
# Both set up .venv first; a second run of either goes straight to work, and one after an
# interrupted set-up takes it up again.
#
# PYTHON=/path/to/python3      the Python to make .venv with
# PIP_EXTRA='--find-links …'   more options for pip: a folder of wheels, another index

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
            $(if $(shell $(p) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo ok),$(p))))
VENV := .venv
BIN := $(VENV)/bin
PIP_EXTRA ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints/test.txt $(PIP_EXTRA)
PEER := tests/e2e/js

.PHONY: demo test setup setup-test lint protocol notebooks clean npm
.DEFAULT_GOAL := demo

demo: setup
	$(BIN)/pooled-nb demo

test: setup-test lint
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --nbval-lax --nbval-current-env examples/01_a_room_answers.ipynb

setup: $(VENV)/.ready

# npm first: what is missing is said before minutes of set-up.
setup-test: npm $(VENV)/.ready-test $(PEER)/node_modules/.ready

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

protocol: $(VENV)/.ready-test
	$(BIN)/python tools/protocol.py

# Runs the example notebooks and keeps their outputs.
notebooks: $(VENV)/.ready-test
	$(BIN)/python tools/notebooks.py

clean:
	rm -rf $(VENV) $(PEER)/node_modules build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Stamped once pip works in it; what an interrupt left half made is made anew.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed. Install it, or say where it is: make PYTHON=/path/to/python3"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.ready: pyproject.toml constraints/test.txt | $(VENV)/.made
	@echo "Setting up $(VENV) (some minutes the first time) …"
	@$(PIP) -e '.[gguf]'
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(PIP) -e '.[gguf,test]'
	@touch $@

npm:
	@command -v npm >/dev/null || { echo "npm is needed by the tests against the real PeerJS server. Install Node.js 18 or newer."; exit 1; }

$(PEER)/node_modules/.ready: $(PEER)/package-lock.json | npm
	cd $(PEER) && npm ci --no-audit --no-fund --silent
	@touch $@
