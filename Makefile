# Two commands for a new machine with python3 and pip: `make demo` and `make test`.
# Everything Python lives in .venv; uv is brought into it when the machine has none.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.synced
# Tests run with loopback as their only network; see src/remuda/testing/offline.py.
OFFLINE := $(BIN)/python -m remuda.testing.offline --
# Two for each core of a small machine: most tests wait for others most of the time.
WORKERS ?= 4

.PHONY: setup system-packages demo test soak lint type bench format clean

setup: $(STAMP)

# A real venv first: it carries pip, and uv is installed into it, so that nothing outside is touched.
$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(STAMP): pyproject.toml uv.lock | $(BIN)/uv
	UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --frozen --inexact
	@touch $@

# What others' programs are measured with.
$(VENV)/.synced-bench: $(STAMP)
	UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --frozen --inexact --group bench
	@touch $@

system-packages:
	@sh scripts/system-packages tmux strace curl ps:procps

demo: setup
	$(BIN)/remuda demo

test: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(OFFLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

soak: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	REMUDA_SOAK=1 $(OFFLINE) $(BIN)/python -m pytest -m "soak or hypothesis" -n 2 --timeout 3600

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

type: setup
	$(BIN)/mypy

bench: $(VENV)/.synced-bench
	@sh scripts/system-packages tmux dtach
	$(BIN)/python -m remuda.testing.real_cli fetch
	@# As it is where pip installed it: without that every start would compile all it loads.
	$(BIN)/python -m compileall -q src/remuda
	$(OFFLINE) $(BIN)/python benchmarks/run.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
