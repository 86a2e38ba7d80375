# make check   what this machine can do for TensorFlow
# make test    the tests
# make matrix  the tests of every TensorFlow, Keras and NVML binding that is supported, each in an environment of its own
# make lint    ruff and mypy
# make bench   the benchmarks, or those that BENCHMARKS names
# make clean   remove what the others made
#
# Each sets up what it needs in .venv first. Beside make it takes a Python from 3.10 to 3.13 with its venv module, and
# for the tests a C compiler. PYTHON chooses the interpreter, PYTEST_ARGS goes to pytest: make test PYTEST_ARGS="-k policy"

# A name on the path may be a shim without a Python behind it, and a Python may come without ensurepip: each is tried.
SUITABLE = import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python3.10; do \
	$$python -c '$(SUITABLE)' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: check test matrix lint bench clean

check: .venv/.installed
	$(BIN)/hwprobe check

test: .venv/.installed-test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# One environment alone: make matrix NOX_ARGS="-s tensorflow-2.15"
matrix: .venv/.installed-matrix
	$(BIN)/nox $(NOX_ARGS)

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed-test
	$(BIN)/python -m benchmarks $(BENCHMARKS)

clean:
	rm -rf .venv .nox build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python from 3.10 to 3.13 with its venv module is on the path; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The versions that the tests were written against; the ranges that hwprobe accepts are in pyproject.toml.
.venv/.installed: $(BIN)/python pyproject.toml tests/constraints.txt
	$(PIP) install --constraint tests/constraints.txt --editable '.[tensorflow]'
	touch $@

.venv/.installed-test: .venv/.installed
	$(PIP) install --constraint tests/constraints.txt --editable '.[tensorflow,test]'
	touch $@

.venv/.installed-matrix: $(BIN)/python
	$(PIP) install 'nox[uv]>=2024.10.9'
	touch $@
