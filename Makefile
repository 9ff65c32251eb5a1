# Every target prepares what it needs by itself; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTHON ?=
ROOT ?=
ARGS ?=

# Set-up notes a Java here when the one on PATH would not do.
ifndef JAVA_HOME
export JAVA_HOME = $(shell cat .venv/sparklog-java-home 2>/dev/null)
endif

##@ Use it
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## build .venv: Python packages, Java, jars, kernels (instant when done; PYTHON=/path/to/python3)
	@PYTHON="$(PYTHON)" .ci/setup

.PHONY: demo
demo: setup ## send flights through a log and brokers, kill two, check the totals (ROOT=s3://bucket/prefix)
	@$(BIN)/python -m sparklog.cli.commands.demo $(if $(ROOT),--root "$(ROOT)") $(ARGS)

##@ Work on it
.PHONY: test
test: setup ## run the test suite, three files at a time (ARGS=-k name picks some)
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: test-fast
test-fast: setup ## format, lint, house rules, and unit tests of packages that changed since main
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile $$($(BIN)/python -m tests.harness.changed_tests) $(ARGS)

.PHONY: check
check: setup ## formatting, lint, types and house rules
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/tidy

.PHONY: format
format: setup ## put the code in the project's format
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

.PHONY: soak
soak: setup ## run the tests that take minutes on purpose
	@.ci/kerberos
	@$(BIN)/python -m pytest -m soak $(ARGS)

.PHONY: explore
explore: setup ## draw a thousand new examples for each property (make test draws the same hundred each time)
	@$(BIN)/python -m pytest -m "hypothesis and not soak" --hypothesis-profile=explore -n 2 $(ARGS)

##@ Measure it
.PHONY: bench
bench: bench-log bench-broker bench-groups bench-jobs bench-sql ## run every benchmark

.PHONY: bench-log
bench-log: setup ## compare with Kafka's Spark connector and with Parquet (ARGS=--quick)
	@$(BIN)/python -m tests.bench.log $(ARGS)

.PHONY: bench-broker
bench-broker: setup ## compare brokers with Apache Kafka's (ARGS="--quick --only produce")
	@$(BIN)/python -m tests.bench.broker $(ARGS)

.PHONY: bench-groups
bench-groups: setup ## compare groups and transactions with Kafka's (ARGS="--quick --only commits")
	@$(BIN)/python -m tests.bench.groups $(ARGS)

.PHONY: bench-jobs
bench-jobs: setup ## compare upkeep jobs with Kafka's cleaner and connector (ARGS="--quick --only compaction")
	@$(BIN)/python -m tests.bench.jobs $(ARGS)

.PHONY: bench-sql
bench-sql: setup ## compare SQL over a topic with DuckDB on Parquet and Spark SQL (ARGS="--quick --only queries")
	@$(BIN)/python -m tests.bench.sql $(ARGS)

.PHONY: bench-start
bench-start: setup ## time a start of three brokers, and count its processor seconds (ARGS="--rounds 5")
	@$(BIN)/python -m tests.bench.start $(ARGS)

.PHONY: produce-path
produce-path: setup ## count the modules and functions of a produce request (ARGS=--list)
	@$(BIN)/python -m tests.bench.produce_path $(ARGS)

.PHONY: profile
profile: setup ## sample a broker under produce load; writes bench-results/broker.speedscope.json (ARGS="--seconds 30")
	@$(BIN)/python -m tests.bench.profile $(ARGS)

##@ Clean up
.PHONY: clean
clean: ## remove caches and results; .venv stays
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  spark-warehouse metastore_db derby.log artifacts bench-results demo-root
	@find sparklog jobs tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
