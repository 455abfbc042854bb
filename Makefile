# make demo | test | latest | lint | format | sanitize | sanitize-gpu | docs | wheel | notebooks | figures | clean
# On a fresh machine Python 3.11 or newer and g++ are all it takes. Each target installs the extra that it needs.
# PYTHON chooses the interpreter of the virtual environment; ARGS are handed to pytest or to the demo.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=
JOBS   ?= 4
PIP    := -m pip --quiet --disable-pip-version-check
# compiled modules are kept, since the tests start many interpreters
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test bytecode latest lint format sanitize sanitize-gpu docs wheel notebooks figures setup setup-docs clean

demo: $(VENV)/.installed-demo
	@$(BIN)/python -m workloads demo $(ARGS)

# JOBS is two more than there are cores, since many tests wait. A file's tests run in one process, in order; half of the
# processes prefer files that wait. ARGS='-m "slow or combination"' runs the others: further stages at which a process is
# killed, real graphs and options, and the combinations of parameters that bring no new value of one.
# ARGS='-m slurm' runs the batch scripts under a real Slurm. The CPU kernels are optimized less than for users, and so
# compiled in 40% of the time; MGRAPH_HOST_BUILD=plain before `make` tests them as users have them.
test: export MGRAPH_HOST_BUILD ?= quick
test: setup
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# compiles the tests for `make test`, whose processes would each do it; beside other work, as in .ci/run
bytecode: setup
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null

# the tests that Dask can break, with its newest release, in an environment of their own
latest:
	$(MAKE) setup VENV=.venv-latest
	.venv-latest/bin/python $(PIP) install --upgrade dask distributed
	.venv-latest/bin/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS) \
	  tests/client tests/cluster tests/exchange tests/graph tests/worker

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python .ci/language.py
	find mgraph -name '*.cuh' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run -Werror

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find mgraph -name '*.cuh' -o -name '*.h' | xargs $(BIN)/clang-format -i

# the host kernels' tests with tiles of 32 lanes, under AddressSanitizer and UBSan, and under ThreadSanitizer;
# SAMPLE=1, as in .ci/run, leaves out what is much like the rest
sanitize: setup
	SAMPLE=$(SAMPLE) PYTHON=$(BIN)/python bash tests/sanitize.sh

# the structures' tests on a GPU under compute-sanitizer, with the Python that has CuPy
sanitize-gpu:
	PYTHON=$(PYTHON) bash tests/sanitize_gpu.sh

# the site, in docs/_build/html; a warning is an error
docs: setup-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# a wheel in dist/ that carries compiled kernels, for CPUs of x86-64-v3 and x86-64-v4 and, where nvcc is, for GPUs:
# minutes on each core
wheel: setup
	$(BIN)/python -m workloads wheel

# runs the notebooks and stores their outputs, which the site shows
notebooks: setup
	$(BIN)/python -m workloads notebooks

# the tables of the archived benchmarks, where the pages have their markers
figures: setup
	for page in $$(grep -l '^<!-- results:begin' README.md docs/*.md docs/guide/*.md); do \
	  $(BIN)/python -m workloads report --write $$page || exit 1; done
	$(BIN)/python -m workloads report --latencies docs/_static/latency.svg
	$(BIN)/python -m workloads report --speedups docs/_static/speedups.svg

setup: $(VENV)/.installed-dev
setup-docs: $(VENV)/.installed-docs

# installs an extra, again when pyproject.toml changed; checks first what pip cannot install. Python compiles a module at
# its first import: all at once are ten thousand, half of the installation's time.
$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "mgraph needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@set -- $${CXX:-g++}; command -v "$$1" >/dev/null \
	  || { echo "mgraph needs a C++17 compiler: install g++, or set CXX" >&2; exit 1; }
	@echo "installing what make $(MAKECMDGOALS) needs into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) install --no-compile --editable '.[$*]'
	@touch $@

clean:
	rm -rf build dist out docs/_build docs/notebooks *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
