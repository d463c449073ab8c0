# make demo   three kernels on this machine share one model and answer
# make lab    a JupyterLab with the examples
# make test   everything that is checked, with its needs
# make help   the rest
# Each sets up .venv first; a second run goes straight to work, and one after an interrupted set-up takes
# it up again.
#
# PYTHON=/path/to/python3      the Python to make .venv with
# PIP_EXTRA='--find-links …'   more options for pip: a folder of wheels, another index
# POOLED_CHROMIUM=/path/to/it  the browser for the tests in JupyterLab

FITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
            $(if $(shell $(p) -c '$(FITS)' 2>/dev/null && echo ok),$(p))))
VENV := .venv
BIN := $(VENV)/bin
PIP_EXTRA ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints/test.txt $(PIP_EXTRA)
PYTEST := $(BIN)/python -m pytest
# Side by side, a process a core: tests/sides.py says which.
SIDES := -n logical --maxprocesses=4
# These of tests/e2e wait for what happens and not for a time: beside others they only take longer.
PATIENT := $(addprefix tests/e2e/test_,bad_input.py benchmarks.py browser.py host_again.py lying_server.py npm_peer.py)
# Real rooms, kernels and terminals, on real clocks: one at a time, with the cores for themselves.
CLOCKS := $(filter-out $(PATIENT),$(wildcard tests/e2e/test_*.py)) \
          $(wildcard $(addprefix tests/front/test_,*_kernel.py room_notebook.py terminal*.py))
# Folders with a package-lock.json of their own.
PEER := tests/e2e/js
VITEST := tests/widgets/js
# What finds the browser leaves its path there.
CHROMIUM := $(VENV)/.chromium

.PHONY: demo lab test setup setup-test lint types test-light test-rest js test-lab nbval test-kernels test-gpu \
        fuzz sim chaos soak bench docs protocol notebooks chromium coturn hooks help clean npm
.DEFAULT_GOAL := demo
# Each part is made for all the cores; side by side they would only disturb each other.
.NOTPARALLEL:

demo: setup                               ## three kernels on this machine share one model and answer
	$(BIN)/pooled-nb demo

lab: $(VENV)/.ready-lab                   ## a JupyterLab with the examples
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/examples/01_a_room_answers.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

test: setup-test lint types docs test-light js test-rest test-lab nbval  ## everything that is checked

setup: $(VENV)/.ready                     ## .venv with the package

# npm first: what is missing is said before minutes of set-up.
setup-test: npm $(VENV)/.ready-test $(PEER)/node_modules/.ready $(VITEST)/node_modules/.ready chromium coturn  ## the needs of the tests

lint: $(VENV)/.ready-test                 ## ruff, its format, which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.ready-test                ## mypy, strict, as on each system
	printf '%s\n' linux win32 darwin | xargs -P 2 -I@ $(BIN)/mypy --platform @ --cache-dir .mypy_cache/@

test-light: $(VENV)/.ready-test           ## the mesh and the room, as where torch and Jupyter are absent
	$(PYTEST) $(SIDES) -p no:nbval -p tests.without_torch

test-rest: $(VENV)/.ready-test $(PEER)/node_modules/.ready  ## all other tests in Python
	$(PYTEST) $(SIDES) --rest $(addprefix --ignore=,tests/lab $(CLOCKS))
	$(PYTEST) --rest $(CLOCKS)

js: $(VITEST)/node_modules/.ready         ## the panels' JavaScript, by vitest
	cd $(VITEST) && npx --no-install vitest run

test-lab: $(VENV)/.ready-test chromium    ## notebooks in a real JupyterLab, in Chromium
	POOLED_CHROMIUM="$$(cat $(CHROMIUM))" $(PYTEST) tests/lab

nbval: $(VENV)/.ready-test                ## the examples that need no other give what they show
	$(PYTEST) --nbval-lax --nbval-current-env examples/0*.ipynb

test-kernels: $(VENV)/.ready-test chromium  ## the notebook parts with several versions of ipykernel
	POOLED_CHROMIUM="$$(cat $(CHROMIUM))" $(BIN)/python tools/kernels.py --pip='$(PIP_EXTRA)' --test

# A process for each of them has a context of its own on the device.
test-gpu: $(if $(GPU_PYTHON),,$(VENV)/.ready-test)  ## what needs a CUDA device; GPU_PYTHON=python3: a Python that has all of it
	POOLED_TEST_DEVICE=cuda $(or $(GPU_PYTHON),$(BIN)/python) -m pytest -p no:benchmark -n logical --maxprocesses=8 $(GPU_TESTS)

fuzz: $(VENV)/.ready-test                 ## what comes from the network, N=1000000 times nearly right
	$(BIN)/python -m tests.fuzz.runs --n $(or $(N),1000000)

sim: $(VENV)/.ready-test                  ## whole rooms and what befalls them, SEEDS=10000 FROM=0
	$(BIN)/python -m tests.sim.runs --seeds $(or $(SEEDS),1000) --from $(or $(FROM),0) --shrink

chaos: $(VENV)/.ready-test                ## all that befalls real devices: frozen, killed, cut off, bad networks
	POOLED_CHAOS=all $(PYTEST) tests/e2e/test_chaos_*.py tests/e2e/test_shaped_*.py tests/e2e/test_weights*.py

soak: $(VENV)/.ready-test                 ## a link at 1 % loss for MINUTES=10: nothing lost, memory flat
	$(BIN)/python -m tests.shaper.soak --minutes $(or $(MINUTES),10)

bench: $(VENV)/.ready-test                ## each benchmark in short, one after the other
	for name in room panel engine quant gate chaos wire weights; do $(BIN)/python -m benchmarks.$$name --quick || exit 1; done

docs: $(VENV)/.ready-docs                 ## the documentation, in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

protocol: $(VENV)/.ready-test             ## the rules of the protocol that no test names
	$(BIN)/python tools/protocol.py

notebooks: $(VENV)/.ready-test            ## run the examples again and keep their outputs
	$(BIN)/python tools/notebooks.py

chromium: $(VENV)/.ready-test             ## find a Chromium, or install one
	@$(BIN)/python tools/chromium.py > $(CHROMIUM)

# Where it cannot be had the tests over a relay say why they are skipped.
coturn: $(VENV)/.ready-test               ## find coturn, for the tests over a relay, or install it
	-@$(BIN)/python tools/coturn.py > /dev/null

hooks: $(VENV)/.ready-test                ## run the linters before each commit of yours
	$(BIN)/pre-commit install

help:                                     ## this list
	@sed -n 's/^\([a-z-]*\):.*  *## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

clean:                                    ## remove all that was made here
	rm -rf $(VENV) .venv-kernels $(PEER)/node_modules $(VITEST)/node_modules docs/_build build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Stamped once pip works in it; what an interrupt left half made is made anew.
$(VENV)/.made:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(FITS)' 2>/dev/null || { echo "Python 3.11 or newer with venv is needed. Install it, or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -c 'import pip; $(FITS)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.ready: pyproject.toml constraints/test.txt | $(VENV)/.made
	@echo "Setting up $(VENV) (some minutes the first time) …"
	@$(PIP) -e '.[gguf]'
	@touch $@

$(VENV)/.ready-lab: $(VENV)/.ready
	@$(PIP) -e '.[gguf,lab]'
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(PIP) -e '.[gguf,lab,test]'
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	@$(PIP) -e '.[docs,gguf]'
	@touch $@

npm:
	@command -v npm >/dev/null && node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' || { echo "Node.js 20.19 or newer with npm is needed by the tests of the panels and against the real PeerJS server. Install it." >&2; exit 1; }

%/node_modules/.ready: %/package-lock.json | npm
	cd $* && npm ci --no-audit --no-fund --silent
	@touch $@
