# Everything a person or CI runs. `make help` lists the targets.
# Set-up happens by itself: each target depends on a stamp that is made once.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
PIP_QUIET := --quiet --quiet --disable-pip-version-check --no-input
EXTRAS := control,redis,node,fast,dev,docs
ENGINE := docker
PYTEST := $(BIN)/pytest
MODULES := tests/interop/node_modules/.installed tools/site/node_modules/.installed
LONG := long or gpu
# Real programs and real links: they wait more than they compute, so two run at a time.
PROGRAMS := webrtc or browser or model or room or redis or coturn or netns or prometheus
# Compiled once: an environment that turns this off pays for it at every start of a program.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

# ---- set-up -------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.installed ## install poolhouse and its tools into .venv (once)

$(VENV)/.installed: pyproject.toml constraints.txt tools/find-python
	@python="$$(tools/find-python)"; \
	echo "Setting up $(VENV) with $$python (torch is large: this takes some minutes the first time)"; \
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_QUIET) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.test-programs: tools/need-debian
	@tools/need-debian chromium=chromium redis-server=redis-server turnserver=coturn haproxy=haproxy ip=iproute2 systemd-analyze=systemd promtool=prometheus curl=curl openssl=openssl
	@touch $@

$(VENV)/.image-programs: tools/need-debian
	@tools/need-debian buildah=buildah debootstrap=debootstrap
	@touch $@

%/node_modules/.installed: %/package.json
	@command -v npm >/dev/null || { echo "$* needs npm (Debian: apt-get install npm)" >&2; exit 1; }
	@cd $* && npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts
	@touch $@

.PHONY: model
model: $(VENV)/.installed
	@$(BIN)/poolhouse models pull smollm2-135m --quiet-if-present

# ---- the two commands of the README -------------------------------------------------------------

.PHONY: demo
demo: model ## a room of three devices on this machine answers a question
	@$(BIN)/poolhouse up --devices 3 --ask "What is a swimming pool?"

.PHONY: test
test: lint types walls model $(VENV)/.test-programs $(MODULES) ## every test but long and gpu ones
	@failed=0; \
	$(PYTEST) -q -n auto -m 'not ($(LONG) or $(PROGRAMS) or perf)' || failed=1; \
	$(PYTEST) -q -n 2 --dist worksteal --durations 10 -m '($(PROGRAMS)) and not ($(LONG) or perf)' || failed=1; \
	$(PYTEST) -m 'perf and not ($(LONG))' || failed=1; \
	exit $$failed

# ---- the fast loop ------------------------------------------------------------------------------

.PHONY: check
check: lint types walls unit ## format, lint, types, walls, unit tests: a minute or so

.PHONY: fmt
fmt: $(VENV)/.installed ## format and fix what can be fixed
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

.PHONY: lint
lint: $(VENV)/.installed
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .

.PHONY: types
types: $(VENV)/.installed
	@$(BIN)/mypy

.PHONY: walls
walls: $(VENV)/.installed
	@said="$$($(BIN)/lint-imports 2>&1)" || { echo "$$said"; exit 1; }

.PHONY: unit
unit: $(VENV)/.installed
	@$(PYTEST) -q -n auto -m 'not ($(LONG) or $(PROGRAMS) or perf or slow)'

# ---- what takes longer --------------------------------------------------------------------------

.PHONY: test-long
test-long: model $(VENV)/.test-programs $(VENV)/.image-programs $(MODULES) ## soaks, real waits, big fuzz runs, images
	@$(PYTEST) -m long --timeout 1200

.PHONY: test-gpu
test-gpu: ## tests that need a GPU (uses the Python on the path when there is no .venv)
	@if [ -x $(BIN)/pytest ]; then $(PYTEST) -m gpu; else python3 -m pytest -m gpu; fi

.PHONY: bench
bench: model ## the figures of docs/reference/benchmarks.md
	@$(BIN)/poolhouse bench wire
	@$(BIN)/poolhouse bench decode

.PHONY: docs
docs: $(VENV)/.installed tools/site/node_modules/.installed ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: images
images: ## build the images of deploy/ (ENGINE=podman for another engine than docker)
	@$(ENGINE) build --file deploy/control.Dockerfile --tag poolhouse-control:latest .
	@$(ENGINE) build --file deploy/relay.Dockerfile --tag poolhouse-relay:latest .
	@for kind in cpu cuda; do \
	  $(ENGINE) build --file deploy/node.Dockerfile --target $$kind --tag poolhouse-node:$$kind \
	    --build-arg TORCH_INDEX="$$([ $$kind = cuda ] || echo '$(TORCH_INDEX)')" .; \
	done

.PHONY: clean
clean: ## remove the set-up and everything made by it
	rm -rf $(VENV) tests/interop/node_modules tools/site/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
