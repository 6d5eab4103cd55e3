# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer and make.
#
#   make install      create .venv with all extras and the development tools, at pinned versions
#   make demo         solve a betting game exactly, then let three agents learn to play it
#   make test         lint, check types and run the tests; this is what CI runs
#   make unit         only the tests
#   make test-long    repeat some tests in costlier modes
#   make lint         only lint and check types
#   make format       fix what ruff can fix
#   make package      build the wheel, install it into an empty environment and try it there
#   make test-peers   test together with Stable-Baselines3, which installs PyTorch
#   make test-ray     test sweeps, the benchmark and mountain-car on a local Ray cluster of two nodes
#   make test-onnx    test policies as ONNX models, whose converter installs Flax and Orbax
#   make bench-peers-install   add the peers of benchmarks/hedging.py and benchmarks/qrsrm_peer.py to .venv-peers
#   make clean        remove everything that these commands created
PYTHON ?= python3
BIN := .venv/bin
PIP := python -m pip --quiet --disable-pip-version-check
# Python keeps compiled modules, even where the environment says otherwise: the tests start it many times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo test unit test-long test-peers test-ray test-onnx bench-peers-install lint format package docs clean

install: .venv/.installed

# Python compiles what it imports; that is a small part of what is installed.
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "riskpath needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) install --no-compile -c constraints.txt -e ".[all,dev]"
	@touch $@

demo: install
	$(BIN)/riskpath demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

test: install
	$(MAKE) --no-print-directory --jobs 2 lint unit

unit: install
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

test-long: install
	$(BIN)/pytest -m long

# Stable-Baselines3 needs PyTorch, so these tests have an environment of their own.
test-peers: .venv-peers/.installed
	.venv-peers/bin/pytest tests/peers

.venv-peers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/$(PIP) install -c constraints.txt -e ".[all]" pytest beartype stable-baselines3==2.9.2
	@touch $@

# Ray is large, so its tests have an environment of their own, too.
test-ray: .venv-ray/.installed
	.venv-ray/bin/pytest tests/sweeps/test_ray.py

.venv-ray/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/$(PIP) install -c constraints.txt -e ".[all,ray]" hypothesis pytest beartype ray==2.60.0
	@touch $@

# The converter is large as well.
test-onnx: .venv-onnx/.installed
	.venv-onnx/bin/pytest tests/evaluation/test_onnx_policy.py

.venv-onnx/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-onnx
	.venv-onnx/bin/$(PIP) install -c constraints.txt -e ".[all,onnx]" hypothesis pytest beartype jax2onnx==0.17.1
	@touch $@

# pfhedge asks for NumPy 1 but imports none of it, so it is installed without its dependencies.
bench-peers-install: .venv-peers/.installed
	.venv-peers/bin/$(PIP) install -c constraints.txt pandas tqdm
	.venv-peers/bin/$(PIP) install --no-deps pfhedge==0.23.0

# The wheel is tried from outside of the repository: first with the core dependencies alone, then with all extras.
PACKAGE_BIN = $(CURDIR)/build/package-venv/bin
SMOKE = cd "$$(mktemp -d)" && $(PACKAGE_BIN)/python $(CURDIR)/tests/package/smoke.py

package:
	rm -rf build/package-venv build/wheel
	$(PYTHON) -m venv build/package-venv
	$(PACKAGE_BIN)/$(PIP) wheel --no-deps --wheel-dir build/wheel .
	$(PACKAGE_BIN)/$(PIP) install -c constraints.txt build/wheel/*.whl
	$(SMOKE) core
	$(PACKAGE_BIN)/$(PIP) install -c constraints.txt "$$(echo build/wheel/*.whl)[all]"
	$(SMOKE) all

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
	rm -rf .venv .venv-peers .venv-ray .venv-onnx site build dist .pytest_cache .ruff_cache docs/.ruff_cache .hypothesis
