# Two commands for a new machine with python3 and pip: `make demo` and `make test`.
# Everything Python lives in .venv; uv is brought into it when the machine has none.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.synced
# Tests run with loopback as their only network; see src/remuda/testing/offline.py.
OFFLINE := $(BIN)/python -m remuda.testing.offline --
# Three for each core of a small machine: most tests wait for others most of the time.
WORKERS ?= 6
# Older versions of Claude Code, on which part of the tests runs as well. Their hashes are pinned for this platform.
OLDER := $(shell [ "$$(uname -sm)" = "Linux x86_64" ] && echo 2.1.300)
LINUX := $(filter Linux,$(shell uname -s))
# Agents beside Claude Code that are tested: each has its binary in an npm package.
OTHERS := $(if $(OLDER),codex opencode copilot)
OLDER_IN_SOAK := $(if $(OLDER),2.1.197 2.1.240 2.1.280 2.1.300 2.1.315 2.1.324)

.PHONY: setup system-packages demo quick test soak pauses versions lint type docs reference screenshots bench audit coverage format clean

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

# What builds the site.
$(VENV)/.synced-docs: $(STAMP)
	UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --frozen --inexact --group docs
	@touch $@

system-packages:
	@sh scripts/system-packages tmux strace curl ps:procps chromium $(if $(OLDER),npm) $(if $(LINUX),ip:iproute2)

demo: setup
	$(BIN)/remuda demo

test: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(if $(OLDER),$(BIN)/python -m remuda.testing.real_cli fetch $(OLDER) $(OTHERS))
	$(OFFLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
	$(if $(OLDER),REMUDA_CLAUDE_VERSION=$(OLDER) $(OFFLINE) $(BIN)/python -m pytest -m versions -n $(WORKERS) tests/real)

# For the inner loop: the unit tests, on all cores.
quick: setup
	$(OFFLINE) $(BIN)/python -m pytest -q -n auto tests/unit

soak: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(if $(OTHERS),$(BIN)/python -m remuda.testing.real_cli fetch $(OTHERS))
	$(if $(OLDER),$(MAKE) versions)
	REMUDA_SOAK=1 $(OFFLINE) $(BIN)/python -m pytest -m "soak or hypothesis" -n 2 --timeout 3600

# All but the unit tests, with random pauses in the event loops of keepers, bosses and pools: rare orders come often.
pauses: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(if $(OTHERS),$(BIN)/python -m remuda.testing.real_cli fetch $(OTHERS))
	PYTHONPATH=$(CURDIR)/tests/pauses $(OFFLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore tests/unit

# What holds on which version of Claude Code: runs on each, records the results, and writes docs/reference/versions.md.
versions: setup system-packages
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(BIN)/python -m remuda.testing.real_cli fetch $(OLDER_IN_SOAK)
	@for version in $(OLDER_IN_SOAK) pinned; do \
	    [ $$version = pinned ] && version=; \
	    results=$$(mktemp) && echo "== Claude Code $${version:-pinned}" && \
	    { REMUDA_CLAUDE_VERSION=$$version $(OFFLINE) $(BIN)/python -m pytest -m versions -n 2 tests/real \
	        --junitxml=$$results || failed=1; } && \
	    REMUDA_CLAUDE_VERSION=$$version $(BIN)/python tests/support/version_table.py record $$results && rm -f $$results || exit 1; \
	done; \
	$(BIN)/python tests/support/version_table.py write && $(BIN)/python scripts/canary.py && [ -z "$$failed" ]

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/lang.py --check
	$(BIN)/python scripts/measure.py --check

type: setup
	$(BIN)/mypy

# The site, in build/site. A broken link or a page that is in no menu fails.
# Not --quiet: that drops the warnings before they are counted (mkdocs 1.6.1).
docs: reference $(VENV)/.synced-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

# The pages that are written from the code.
reference: setup
	$(BIN)/python scripts/reference.py

# The pictures of the page in docs/pictures.
screenshots: setup system-packages
	$(BIN)/python scripts/screenshots.py

# Where systemd runs, the package of sshd would start a service: there it is not installed, and `far` says so.
SSHD := $(if $(wildcard /run/systemd/system),,sshd:openssh-server)

bench: $(VENV)/.synced-bench
	@PATH="$$PATH:/usr/sbin" sh scripts/system-packages tmux dtach chromium $(if $(OTHERS),npm) $(if $(LINUX),ip:iproute2 ssh:openssh-client $(SSHD))
	$(BIN)/python -m remuda.testing.real_cli fetch
	$(if $(OTHERS),$(BIN)/python -m remuda.testing.real_cli fetch $(OTHERS))
	@# As it is where pip installed it: without that every start would compile all it loads.
	$(BIN)/python -m compileall -q src/remuda $(VENV)/lib
	@mkdir -p build
	$(OFFLINE) $(BIN)/python benchmarks/run.py --json build/bench.json
	@echo "$(BIN)/python scripts/figures.py build/bench.json writes docs/why/benchmarks.md, docs/data and docs/pictures"

# Whether any locked dependency has a known vulnerability. Asks the network.
audit: $(BIN)/uv
	$(BIN)/uv export --quiet --frozen --no-emit-project --all-groups --output-file $(VENV)/requirements.txt
	$(BIN)/uv tool run pip-audit --requirement $(VENV)/requirements.txt --disable-pip --require-hashes --strict

# Which lines the tests run, keepers and agents included; fails below `fail_under` of pyproject.toml.
# Installs its tool beside what is locked. The real CLI is left out: this takes long enough.
coverage: setup system-packages
	UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv pip install --quiet --python $(BIN)/python "coverage>=7.10"
	$(BIN)/coverage erase
	$(OFFLINE) $(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal tests/unit tests/integration tests/crash
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build/site .coverage* .mypy_cache .ruff_cache .hypothesis
