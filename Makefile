# make demo, make test: everything they need is fetched on the first call; later calls start at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
# Images of Python often set it; each of the programs that tests start would compile all that it loads.
unexport PYTHONDONTWRITEBYTECODE

# The first Python from 3.11 on that can make a virtual environment; set PYTHON=… to choose another.
PYTHON = $(shell for p in python3.13 python3.12 python3.11 python3; do \
  "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

SOURCES = $(wildcard gateway plugins examples tests benchmarks scripts)
BROWSER_SOURCES = $(shell find browser \( -path browser/node_modules -o -path browser/dist \) -prune -o -type f -print 2>/dev/null)

.PHONY: help demo demo-chat check test test-browser test-collection test-oidc test-interop cluster simulation lint lint-types lint-style lint-layers lint-browser lock bench fuzz wpt corpus clean chromium postgresql redis proxies frameworks

help:
	@echo "make demo   install, start the cart example with its gateway, print the page to open"
	@echo "make demo-chat  the same with a chat: a model, the cart and the board in one conversation"
	@echo "make check  lint, types, layers and unit tests, in about two minutes"
	@echo "make test   lint, types, layers, unit, integration and Chromium tests"
	@echo "make soak   what takes minutes: many kills under load, records of a million lines"
	@echo "make cluster  three nodes behind nginx and Caddy, what may fail of them, the simulation, and all attacks against two"
	@echo "make simulation  10,000 seeds of several nodes on a virtual clock, with faults of all kinds; SEEDS=1-100000 for others"
	@echo "make lint   ruff, mypy, import-linter, tsc"
	@echo "make bench  measure the gateway beside a bare proxy"
	@echo "make fuzz   throw made-up inputs at the packages without I/O and two doors for TIME=60 seconds, at TARGETS (all)"
	@echo "make wpt    run Web Platform Tests of the checkout WPT=… natively and in a view, and print what differs"
	@echo "make corpus use published apps natively and in a view, and write the table of docs/corpus.md"
	@echo "make lock   resolve the lock files anew"
	@echo "make clean  remove what the other targets made"

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later with its venv module is missing (Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.locked: requirements-dev.lock $(VENV)/.made
	@echo "Installing requirements-dev.lock"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

# The build hook runs `npm ci` and the first `npm run build`.
$(VENV)/.installed: $(VENV)/.locked pyproject.toml hatch_build.py browser/package-lock.json
	@echo "Installing webmcp-gateway and building its browser part"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# An installation that is newer than all sources has just built them.
$(VENV)/.built: $(VENV)/.installed $(BROWSER_SOURCES)
	@if [ -n "$$(find $(BROWSER_SOURCES) -newer $(VENV)/.installed -print -quit)" ]; then \
	  echo "Building the browser part"; npm --prefix browser run --silent build; fi
	@touch $@

demo: $(VENV)/.built
	@exec $(BIN)/python examples/cart_app/demo.py

BOARD = examples/board_app/web
BOARD_SOURCES = $(shell find $(BOARD) \( -path $(BOARD)/node_modules -o -path $(BOARD)/dist \) -prune -o -type f -print 2>/dev/null)

$(BOARD)/dist/index.html: $(VENV)/.installed $(BOARD_SOURCES)
	@echo "Building the board"
	@npm --prefix $(BOARD) ci --silent
	@npm --prefix $(BOARD) run --silent build >/dev/null
	@touch $@

demo-chat: $(VENV)/.built $(BOARD)/dist/index.html
	@exec $(BIN)/python -m examples.chat_host.demo

chromium:
	@scripts/chromium

postgresql:
	@scripts/postgresql

redis:
	@scripts/redis

proxies:
	@scripts/proxies

frameworks:
	@scripts/frameworks

# mypy takes as long as the others together, and each of them one processor.
AT_ONCE = $(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
LINTERS = lint-types lint-style lint-layers lint-browser

lint: $(VENV)/.built
	@$(AT_ONCE) $(LINTERS)

lint-types: $(VENV)/.built
	mypy $(SOURCES) hatch_build.py

lint-style: $(VENV)/.built
	ruff check $(SOURCES) hatch_build.py
	ruff format --check $(SOURCES) hatch_build.py

lint-layers: $(VENV)/.built
	lint-imports

lint-browser: $(VENV)/.built
	npm --prefix browser run --silent check

test-browser: $(VENV)/.built
	npm --prefix browser run --silent test

# The authorization server of the tests.
test-oidc: tests/oidc/node_modules/.made

tests/oidc/node_modules/.made: tests/oidc/package-lock.json $(VENV)/.installed
	@npm --prefix tests/oidc ci --silent
	@touch $@

test-interop: tests/interop/node_modules/.made

tests/interop/node_modules/.made: tests/interop/package-lock.json $(VENV)/.installed
	@npm --prefix tests/interop ci --silent
	@touch $@

# Compiles the tests: else each process of a distributed run compiles all of them, at the same time.
test-collection: $(VENV)/.built
	@found=$$(pytest --collect-only -qq) || { echo "$$found"; exit 1; }

test: chromium postgresql redis proxies $(VENV)/.built test-oidc test-interop
	@$(AT_ONCE) $(LINTERS) test-browser test-collection
	pytest --numprocesses 5  # on two processors, too: most tests wait more than they compute

check: $(VENV)/.built
	@$(AT_ONCE) $(LINTERS) test-browser
	pytest --numprocesses 2 -m "not browser and not interop and not slow and not soak and not cluster and not corpus"

soak: chromium frameworks $(VENV)/.built
	pytest -m soak

SEEDS ?= 1-10000

# The order of sets of texts is part of a run: a seed repeats itself with this alone.
simulation: $(VENV)/.built
	@exec env PYTHONHASHSEED=0 $(BIN)/python -m tests.cluster.simulation $(SEEDS)

# The simulation, three nodes behind nginx and Caddy, and all attacks against two nodes whose balancer sends each
# connection to another one than the one before.
cluster: chromium postgresql redis proxies $(VENV)/.built test-oidc simulation
	pytest -m cluster tests/cluster tests/benchmarks
	pytest --cluster tests/attacks

bench: $(VENV)/.built
	@exec $(BIN)/python -m benchmarks

TIME ?= 60
TARGETS ?=

fuzz: $(VENV)/.built
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/python -m pip install --quiet "atheris>=3"
	@exec nice $(BIN)/python -m tests.fuzz --seconds $(TIME) $(TARGETS)

WPT ?=
WPT_TOOLS ?= $(WPT)
WPT_ONLY ?=
WPT_JOBS ?= 2
WPT_RESULTS ?= /tmp/wpt.jsonl
WPT_AGAIN ?=

# Nothing of the checkout is part of this repository. WPT_TOOLS is another, if it has no tools/wptserve of its own.
wpt: chromium $(VENV)/.built
	@test -n "$(WPT)" || { echo "Say where a checkout of web-platform-tests is: make wpt WPT=../wpt" >&2; exit 1; }
	@exec nice $(BIN)/python -m tests.wpt "$(WPT)" --tools "$(WPT_TOOLS)" --jobs "$(WPT_JOBS)" --results "$(WPT_RESULTS)" \
	  $(if $(WPT_ONLY),--only "$(WPT_ONLY)") $(if $(WPT_AGAIN),--again)

CORPUS_ONLY ?=

corpus: chromium $(VENV)/.built test-interop
	@nice $(BIN)/python -m tests.corpus $(if $(CORPUS_ONLY),--only $(CORPUS_ONLY))
	$(if $(CORPUS_ONLY),,nice pytest -m corpus)

# Resolved on the oldest Python we support: later ones need a subset of what it needs.
COMPILE = $(BIN)/python -m piptools compile --quiet --upgrade --strip-extras --allow-unsafe --generate-hashes --no-header \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options --annotation-style=line

# The packages of tests/corpus/lock.txt that are servers; what they need is in tests/corpus/servers.txt. Behind an empty line,
# piptools warns that they themselves are left out.
SERVERS = datasette sqlite-web
SERVER_NEEDS = $(BIN)/python -m piptools compile --quiet --strip-extras --generate-hashes --no-header --no-emit-options \
  --annotation-style=line $(SERVERS:%=--unsafe-package=%) --output-file=- -

lock: $(VENV)/.made
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "The lock files are resolved on Python 3.11: make clean, then make lock PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet "pip-tools>=7.4"
	@$(COMPILE) --extra pack --extra otlp --output-file requirements.lock pyproject.toml
	@$(COMPILE) --extra dev --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml
	@{ echo '# What the servers of lock.txt need beside themselves: made by make lock; pip checks the hashes.'; \
	  awk '$$1 == "pypi" && index(" $(SERVERS) ", " " $$2 " ") { print $$2 "==" $$3 }' tests/corpus/lock.txt \
	  | $(SERVER_NEEDS) | sed '/^$$/,$$d'; \
	  } > tests/corpus/servers.new
	@mv tests/corpus/servers.new tests/corpus/servers.txt
	@if grep -nE '^-|https?://' requirements.lock requirements-dev.lock tests/corpus/servers.txt; then \
	  echo "A lock file names an index." >&2; exit 1; fi

clean:
	rm -rf $(VENV) .fuzz browser/node_modules browser/dist tests/oidc/node_modules tests/interop/node_modules .corpus gateway/static dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
