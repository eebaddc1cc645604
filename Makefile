# The two commands are `make run` (the main matrix, from nothing to the printed table) and `make test`.
# Each goal first installs what it needs, and no more: programs (bootstrap.sh), the Python environment (.venv, from
# requirements.lock) and the guest image. All are made once; after that the check takes well under a second and changes
# nothing.
#
# Variables: PYTHON   the interpreter for .venv (>= 3.11; default: the first one found)
#            JOBS     how many tests run in parallel (default: one per processor)
#            T        for `make unit` and `make vm`: a module, such as T=test_nfs (default: all)
#            PROFILE  how many examples property tests try: check (10, always the same), contributor (100), nightly (1000)

SHELL := /bin/bash
.SHELLFLAGS := -O globstar -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Make runs the steps one after the other; JOBS sets how many tests run in parallel.
.NOTPARALLEL:

JOBS ?= $(shell nproc)
PROFILE ?= contributor
export PYTHON
export PYTHONUNBUFFERED := 1
unexport PYTHONPATH

BIN := .venv/bin
PYTEST = $(BIN)/pytest -n $(JOBS) --dist worksteal --hypothesis-profile=$(PROFILE)
# The stamp identifies what the environment was made from: a new lock, new entry points or a moved clone make a new one.
KEY := $(shell { cat requirements.lock pyproject.toml; pwd; } | sha256sum | cut -c1-16)
STAMP := .venv/.made-from-$(KEY)
# The manual is built in an environment of its own, which no run and no test needs.
DOCS_STAMP := .venv-docs/.made-from-$(shell { cat requirements-docs.lock; pwd; } | sha256sum | cut -c1-16)

.PHONY: help run claims bench check test test-all representative rest machines lint unit vm durability durations docs image clean programs programs-of-test

help:  ## list the goals
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*##/\t/' | expand -t 16

run: programs $(STAMP) image  ## measure what is lost at each setting, and print the table (3 min)
	@$(BIN)/rig run

claims: programs $(STAMP)  ## check what documents claim, and print every verdict
	@$(BIN)/rig claims || test $$? -eq 3

bench: programs $(STAMP) image  ## measure the rig itself against its budgets
	@$(BIN)/rig bench

check: programs $(STAMP)  ## style, types and the fast unit tests, before each commit (1 min)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy & types=$$!; status=0; \
	$(BIN)/pytest -n $(JOBS) --dist worksteal --hypothesis-profile=check -m 'not slow' tests/unit || status=$$?; \
	wait $$types && exit $$status

test: lint unit representative  ## style, types, all unit tests, and the representative tests in machines (10 to 14 min)

test-all: lint unit machines  ## everything (30 to 52 min)

representative: programs-of-test $(STAMP) image  ## the tests in machines that make test runs
	@$(PYTEST) --durations 20 -m representative tests/vm tests/durability

rest: programs-of-test $(STAMP) image  ## the tests in machines that only make test-all runs
	@$(PYTEST) --durations 60 --rig-profile=smoke -m 'not representative' tests/vm tests/durability

machines: programs-of-test $(STAMP) image  ## all tests in machines: those of representative and of rest
	@$(PYTEST) --durations 60 --rig-profile=smoke tests/vm tests/durability

lint: programs $(STAMP)  ## ruff and mypy --strict
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy

unit: programs-of-test $(STAMP)  ## the tests that need no virtual machine
	@$(PYTEST) --durations 10 --durations-min 3 tests/unit$(if $(T),/**/$(T).py)

vm: programs-of-test $(STAMP) image  ## the tests that start virtual machines
	@$(PYTEST) --durations 20 --durations-min 10 tests/vm$(if $(T),/$(T).py)

durability: programs-of-test $(STAMP) image  ## the durability matrix as tests
	@$(PYTEST) --durations 20 --durations-min 10 tests/durability

durations: programs-of-test $(STAMP) image  ## measure how long each test takes (tests/durations.json)
	@$(PYTEST) --store-durations tests

docs: programs $(STAMP) $(DOCS_STAMP)  ## build the manual as a site (build/site)
	@$(BIN)/python -m tests.unit.docs.reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "make: the manual is build/site/index.html"

image: programs $(STAMP)  ## build the guest image, unless the cache has it
	@$(BIN)/rig image build

clean:  ## remove everything generated inside this clone
	rm -rf .venv .venv-docs .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info build runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

programs:
	@./bootstrap.sh run

programs-of-test:
	@./bootstrap.sh test

# The stamp is written last, so that an interrupted installation starts over. Nothing is compiled from source.
$(STAMP): | programs
	@echo "make: installing requirements.lock into .venv"
	@python=$$(./bootstrap.sh python) && rm -rf .venv && "$$python" -m venv .venv
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: --requirement requirements.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DOCS_STAMP): | programs
	@echo "make: installing requirements-docs.lock into .venv-docs"
	@python=$$(./bootstrap.sh python) && rm -rf .venv-docs && "$$python" -m venv .venv-docs
	@.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: --requirement requirements-docs.lock
	@touch $@
