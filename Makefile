# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer and make.
#
#   make install      create .venv with all extras and the development tools, at pinned versions
#   make demo         solve a betting game exactly, then let three agents learn to play it
#   make test         lint, check types and run the tests; this is what CI runs
#   make unit         only the tests
#   make test-long    repeat some tests in costlier modes
#   make lint         only lint and check types
#   make format       fix what ruff can fix
#   make package      build wheel and sdist, and try them in empty environments of every Python in PYTHONS
#   make test-versions   the same for the oldest and the newest versions of JAX and what else is needed
#   make test-peers   test together with Stable-Baselines3, which installs PyTorch
#   make test-ray     test sweeps, the benchmark, mountain-car and environments on a local Ray cluster
#   make test-onnx    test policies as ONNX models, whose converter installs Flax and Orbax
#   make test-trackers  test TensorBoard, Weights & Biases, MLflow and Optuna, offline
#   make bench-peers-install   add the peers of benchmarks/peers/hedging.py and benchmarks/peers/qrsrm_peer.py to .venv-peers
#   make clean        remove everything that these commands created
PYTHON ?= python3
BIN := .venv/bin
PIP := python -m pip --quiet --disable-pip-version-check
# Python keeps compiled modules, even where the environment says otherwise: the tests start it many times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo test unit test-long test-peers test-ray test-onnx test-trackers test-versions test-oldest test-newest
.PHONY: bench-peers-install lint format build package docs clean

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

# These public settings of JAX and XLA halve the time of compiling; `make test JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS=`
# compiles as users do. The pinned jaxlib knows these flags; other versions refuse flags that they do not know.
unit: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
unit: export XLA_FLAGS ?= --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
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
	.venv-ray/bin/pytest tests/sweeps/test_ray.py tests/envs/test_ray_workers.py

.venv-ray/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/$(PIP) install -c constraints.txt -e ".[all,ray]" hypothesis pytest beartype ray==2.60.0
	@touch $@

# The converter is large as well.
test-onnx: .venv-onnx/.installed
	.venv-onnx/bin/pytest tests/evaluation/test_onnx_policy.py

.venv-onnx/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-onnx
	.venv-onnx/bin/$(PIP) install -c constraints.txt -e ".[all,onnx]" hypothesis pytest beartype
	@touch $@

# So are the trackers. Nothing is sent: their stores are folders.
test-trackers: .venv-trackers/.installed
	.venv-trackers/bin/pytest tests/training/test_trackers.py tests/training/test_callbacks.py tests/sweeps/test_optuna_recipe.py

.venv-trackers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/$(PIP) install -c constraints.txt -e ".[all,mlflow,tensorboard,wandb]" hypothesis pytest beartype optuna
	@touch $@

# pfhedge asks for NumPy 1 but imports none of it, so it is installed without its dependencies.
bench-peers-install: .venv-peers/.installed
	.venv-peers/bin/$(PIP) install -c constraints.txt pandas tqdm
	.venv-peers/bin/$(PIP) install --no-deps pfhedge==0.23.0

# The package is tried from outside of the repository: the wheel with the core dependencies alone, then the source
# distribution with all extras. Pythons that are not installed are skipped.
PYTHONS ?= python3.11 python3.12 python3.13
BUILT = $(CURDIR)/build/package
SMOKE = cd "$$(mktemp -d)" && $(1)/bin/python $(CURDIR)/tests/package/smoke.py

build:
	rm -rf $(BUILT)
	$(PYTHON) -m venv $(BUILT)/tools
	$(BUILT)/tools/bin/$(PIP) install build==1.3.0
	$(BUILT)/tools/bin/python -m build --outdir $(BUILT)/dist . > $(BUILT)/build.log || { cat $(BUILT)/build.log; exit 1; }

package: build
	@set -e; tried=0; for python in $(PYTHONS); do \
	    if ! "$$python" -c "" 2> /dev/null; then echo "$$python is not installed: skipped"; continue; fi; \
	    place=$(BUILT)/python-$$tried; tried=$$((tried + 1)); "$$python" -m venv $$place; "$$place/bin/python" --version; \
	    $$place/bin/$(PIP) install -c constraints.txt $(BUILT)/dist/*.whl; \
	    ($(call SMOKE,$$place) core); \
	    $$place/bin/$(PIP) install --force-reinstall --no-deps $(BUILT)/dist/*.tar.gz; \
	    $$place/bin/$(PIP) install -c constraints.txt "$$(echo $(BUILT)/dist/*.tar.gz)[all]"; \
	    ($(call SMOKE,$$place) all); \
	done; test $$tried -gt 0 || { echo "none of $(PYTHONS) is installed"; exit 1; }

# What pyproject.toml asks for at least, and what is newest, each with a part of the tests.
VERSION_TESTS = tests/risk/test_measures.py tests/mdp/test_solve.py tests/agents/test_losses.py tests/evaluation/test_exported_policy.py \
    tests/serving/test_server.py tests/package/test_versions.py

test-versions: test-oldest test-newest

test-oldest: build
	$(PYTHON) -m venv $(BUILT)/oldest
	$(BUILT)/oldest/bin/$(PIP) install -c constraints-oldest.txt "$$(echo $(BUILT)/dist/*.whl)[all]" pytest beartype hypothesis
	$(call SMOKE,$(BUILT)/oldest) all
	$(BUILT)/oldest/bin/python -m pytest -p no:cacheprovider $(VERSION_TESTS)

test-newest: build
	$(PYTHON) -m venv $(BUILT)/newest
	$(BUILT)/newest/bin/$(PIP) install --upgrade "$$(echo $(BUILT)/dist/*.whl)[all]" pytest beartype hypothesis
	$(call SMOKE,$(BUILT)/newest) all
	$(BUILT)/newest/bin/python -m pytest -p no:cacheprovider $(VERSION_TESTS)

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
	rm -rf .venv .venv-peers .venv-ray .venv-onnx .venv-trackers site build dist .pytest_cache .ruff_cache docs/.ruff_cache .hypothesis
