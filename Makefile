# The two commands a newcomer needs: `make run` and `make test`.

# The pin is a CPU build on the project's test machines. Elsewhere the CPU index of PyTorch gives
# one (see README).
TORCH ?= torch==2.13.0
PIP_ARGS ?=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test

.PHONY: help run test lint bench bench-full dist clean

help:            ## show these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

run: $(STAMP)    ## run the gate on this machine, host side only; reports in reports/
	PREFLIGHT_REPORT_DIR=reports $(BIN)/preflight run --thresholds cpu

test: $(TEST_STAMP)  ## run all tests
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --sort=cover

lint: $(TEST_STAMP)  ## ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(TEST_STAMP)  ## the numbers in README, in under nine minutes
	$(BIN)/python -m bench

bench-full: $(TEST_STAMP)  ## the same a hundred times over, which takes hours
	$(BIN)/python -m bench --repeat 100 > bench-full.txt

dist: $(TEST_STAMP)  ## sdist and wheel in dist/
	$(BIN)/python -m build --no-isolation

$(VENV):
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(VENV)
	$(BIN)/pip install -q $(PIP_ARGS) $(TORCH) 'setuptools>=77'
	$(BIN)/pip install -q $(PIP_ARGS) --no-build-isolation -e .
	@touch $@

$(TEST_STAMP): $(STAMP)
	$(BIN)/pip install -q $(PIP_ARGS) --no-build-isolation -e '.[test]'
	@touch $@

clean:           ## remove what make made
	rm -rf $(VENV) build dist reports *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache
