# Two commands on a fresh machine: `make demo` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test test-peers lint format docs clean

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "riskpath needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: install
	$(BIN)/riskpath demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

test: lint
	$(BIN)/pytest -n 2

# With the real Stable-Baselines3, which brings PyTorch: in an environment of its own.
test-peers: .venv-peers/.installed
	.venv-peers/bin/pytest tests/peers

.venv-peers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . pytest beartype stable-baselines3==2.9.2
	@touch $@

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation, strictly: every warning is an error. Nothing is read from other servers.
docs: .venv/.docs-installed
	$(BIN)/sphinx-build -W --keep-going -q -E -b html docs site
	@echo "open site/index.html"

.venv/.docs-installed: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

clean:
	rm -rf .venv .venv-peers site build dist .pytest_cache .ruff_cache .hypothesis
