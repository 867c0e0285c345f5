# Everything happens in .venv of this folder; on a fresh Debian machine `make demo` and `make test` set up what they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Container images often set it; then each process compiles 600 files of Python again, over a second of CPU a start.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Bytecode is left to the first import: compiling all files of all packages takes 6 s of CPU, those in use 2 s.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install --no-compile
# uv installs in half the time, on all cores. It does not read the settings of pip: where it finds no packages, pip does.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -e '$(1)' 2>/dev/null || $(PIP_INSTALL) -qq -e '$(1)'
comma := ,
# Four keep two cores busy: many tests mostly wait. With more, brokers wait for seconds among a hundred processes.
TEST_PROCESSES ?= 4

.PHONY: help demo test unit check fmt bench soak stack-up stack-down proto docs lock sbom kernels java kubernetes programs pictures

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: .venv/.runtime .venv/.compiler ## a live run in a scratch folder: write, read, kill, replay; no Java, no Kafka
	@$(BIN)/python -m kernel_build > /dev/null
	@$(BIN)/tsdb demo $(if $(filter-out 0,$(DEMO_OPEN)),--open)

# pytest-timeout cannot end a test whose cleanup hangs too. Then, later, its process ends with the stacks of all threads.
# mypy keeps one core busy and the build of kernels the others, the downloads none. apt-get runs once at a time: for
# python, the compiler, java, then the programs.
test: ## all checks and tests, on real servers
	@$(MAKE) -j3 programs check kernels collected
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations=25 \
		-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

unit: kernels kubernetes ## tests without servers, the slow ones left out: a minute and a half on 2 cores
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
		-m "not slow and not soak" tests/unit tests/property

check: .venv/.dev ## lint, format, prose, types, imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: .venv/.dev ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: kernels java ## all benchmarks; docs/benchmarks.md has the last figures
	@$(BIN)/python -m bench all

soak: programs kernels ## the long drills, and all examples of generated inputs
	@$(BIN)/python -m pytest -m "hypothesis and not soak" --hypothesis-profile full tests/property tests/unit
	@$(BIN)/python -m pytest -m soak tests

stack-up: .venv/.dev java ## start a Kafka broker and a Cassandra node to play with
	@$(BIN)/python -m stack up --cassandra

stack-down: .venv/.dev ## stop them
	@$(BIN)/python -m stack down

proto: .venv/.dev ## generate tsdb/v1 from proto/
	@$(BIN)/python scripts/generate_protos.py

docs: .venv/.dev ## generate docs/cli.md, docs/config.md and docs/metrics.md
	@$(BIN)/python -m tsdb.config.reference > docs/config.md.new
	@$(BIN)/python scripts/generate_metrics_doc.py > docs/metrics.md.new
	@$(BIN)/python -m tsdb.cli.reference > docs/cli.md.new
	@for page in cli config metrics; do mv docs/$$page.md.new docs/$$page.md; done

lock: .venv/bin/python ## write deploy/requirements*.lock, the exact packages of the images; UPGRADE=1 takes newer ones
	@scripts/lock.sh

sbom: .venv/bin/python ## write build/sbom/, the packages of each image as CycloneDX
	@scripts/sbom.sh build/sbom

pictures: .venv/.dev ## draw the pictures of README.md and docs/ anew, into docs/images
	@scripts/ensure-system.sh browser
	@PYTHONPATH=.:tests $(BIN)/python scripts/make_pictures.py

kernels: .venv/.dev .venv/.compiler ## build the library of kernels, of modules whose sources changed; at once if none did
	@$(BIN)/python -m kernel_build > /dev/null

java: .venv/.compiler ## install a JDK and Maven where they are missing; they start Kafka, Cassandra and Spark
	@scripts/ensure-system.sh java

programs: java kubernetes ## install what the tests run: java, kubernetes, Prometheus, a node exporter, an Alertmanager, Chromium, curl
	@scripts/ensure-system.sh browser
	@scripts/ensure-system.sh curl
	@scripts/ensure-system.sh promtool $(BIN)
	@scripts/ensure-system.sh senders $(BIN)

kubernetes: .venv/bin/python ## install kubectl and Helm where they are missing; they render deploy/ in tests
	@scripts/ensure-system.sh kubernetes $(BIN)

# Each process of a run rewrites and compiles 700 files of tests, in 10 s of CPU, where no other did before. Errors are
# left to the run.
collected: kernels kubernetes
	@$(BIN)/python -m pytest -q --collect-only > /dev/null || true

# Two stamps of packages: the demo needs no test tools. Each follows pyproject.toml.
.venv/bin/python:
	@scripts/ensure-system.sh python
	@"$$(scripts/find-python.sh)" -m venv .venv
	@# Python 3.11 brings pip 23, which takes 6 s of CPU more to choose among the files of the index.
	@-$(PIP_INSTALL) --quiet --upgrade pip uv

# cc and the headers of Python, which link the kernels.
.venv/.compiler: | .venv/bin/python
	@scripts/ensure-system.sh compiler $(BIN)
	@touch $@

.venv/.runtime: pyproject.toml setup.py | .venv/bin/python
	@$(call install,.[build$(comma)ui])
	@touch $@

.venv/.dev: pyproject.toml setup.py | .venv/bin/python
	@$(call install,.[dev])
	@touch $@ .venv/.runtime
