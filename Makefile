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

# The machine with the GPU: it has Python and PyTorch, and need not reach an index.
GPU_PYTHON ?= 3.12
GPU_PLATFORM ?= x86_64
GPU_VENV := .venv-gpu
GPU_PIP := $(GPU_VENV)/bin/pip install -q --no-index --find-links gpu-wheels
PACKAGES := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
NEEDS := "from importlib.metadata import requires; print(*(need for need in \
  requires('node-preflight') if 'extra ==' not in need and not need.startswith('torch')), sep='\n')"

.PHONY: help run test lint bench bench-full cases gpu-wheels gpu-test image lock engine-test dist clean

help:            ## show these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

run: $(STAMP)    ## run the gate on this machine, host side only; reports in reports/
	PREFLIGHT_REPORT_DIR=reports $(BIN)/preflight run --thresholds cpu

test: $(TEST_STAMP)  ## run all tests
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist worksteal
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --sort=cover

lint: $(TEST_STAMP)  ## ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(TEST_STAMP)  ## the numbers in README,
	$(BIN)/python -m bench

bench-full: $(TEST_STAMP)  ## the same a hundred times over, which takes hours
	$(BIN)/python -m bench --repeat 100 > bench-full.txt

cases: $(TEST_STAMP)  ## real bottlenecks and failures, staged: each cause, and its remedy followed (root)
	$(BIN)/python -m pytest tests/cases/test_three_causes.py -p no:cacheprovider
	$(BIN)/python -m tests.cases

gpu-wheels: $(TEST_STAMP)  ## fetch what gpu-test needs on a machine with PyTorch and no index
	rm -rf gpu-wheels && mkdir gpu-wheels
	$(BIN)/python -c $(NEEDS) > gpu-wheels/requirements.txt
	$(BIN)/pip download -q $(PIP_ARGS) --dest gpu-wheels --only-binary :all: \
	  --implementation cp --python-version $(GPU_PYTHON) \
	  --platform manylinux_2_28_$(GPU_PLATFORM) --platform manylinux2014_$(GPU_PLATFORM) \
	  -r gpu-wheels/requirements.txt pytest pytest-timeout 'setuptools>=77'

gpu-test:        ## test on this machine's GPU beside its own PyTorch, with the wheels above
	$(PYTHON) -m venv --clear --system-site-packages $(GPU_VENV)
	@# PyTorch may itself live in a virtual environment, which the line above does not reach into.
	$(PYTHON) $(PACKAGES) > "$$($(GPU_VENV)/bin/python $(PACKAGES))/beneath.pth"
	$(GPU_PIP) 'setuptools>=77' pytest pytest-timeout
	$(GPU_PIP) --no-build-isolation -e .
	$(GPU_VENV)/bin/python -m pytest tests/gpu -s -rs -p no:cacheprovider

image:           ## the container image, on BASE_IMAGE where given
	docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
	  --build-arg REVISION=$$(git rev-parse HEAD) -t preflight .

lock: $(TEST_STAMP)  ## docker/requirements.lock: what the image adds, with hashes
	$(BIN)/pip install -q $(PIP_ARGS) uv
	sh docker/lock.sh $(BIN)/python

engine-test: $(TEST_STAMP)  ## podman, docker, Compose, Slurm: installed and started by the tests (root)
	$(BIN)/python -m pytest tests/engines -n 2 -rs -p no:cacheprovider

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
	rm -rf $(VENV) $(GPU_VENV) gpu-wheels build dist reports *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache
