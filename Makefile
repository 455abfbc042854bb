# make demo | test | latest | lint | sanitize | format | clean      On a fresh machine: Python 3.11 or newer and g++ are all it takes.
# PYTHON chooses the interpreter of the virtual environment; ARGS are handed to pytest or to the demo.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
JOBS   ?= 3

.PHONY: demo test latest lint format sanitize setup clean

demo: setup
	$(BIN)/python -m workloads demo $(ARGS)

# in JOBS processes, one more than there are cores since some tests wait; each file's tests in one of them, in order: the last
# ones are short. ARGS='-m slow' runs what is left out here: somebody dies in stages that are much like others.
test: setup
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow' $(ARGS)

# the tests that Dask can break, with its newest release, in an environment of their own
latest:
	$(MAKE) setup VENV=.venv-latest
	.venv-latest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade dask distributed
	.venv-latest/bin/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS) tests/cluster tests/exchange tests/graph tests/runtime

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the host kernels' tests with tiles of 32 lanes, under AddressSanitizer and UBSan, and under ThreadSanitizer
sanitize: setup
	PYTHON=$(BIN)/python bash tests/sanitize.sh

setup: $(STAMP)

# installs again when pyproject.toml changed; checks first what pip cannot install
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "mgraph needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@set -- $${CXX:-g++}; command -v "$$1" >/dev/null \
	  || { echo "mgraph needs a C++17 compiler: install g++, or set CXX" >&2; exit 1; }
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
