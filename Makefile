# Every target makes .venv first when it is not there.
PYTHON ?= python3
VENV ?= .venv
# Windows keeps programs of an environment in Scripts
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
# what Python compiles is kept beside the environment, also where somebody's shell says otherwise: the tests start
# hundreds of processes, each of which would compile fairkit anew
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
# compiled loops too: once for the tests, and for the commands that they start
export NUMBA_CACHE_DIR := $(abspath $(VENV))/numba
# threads that wait sleep: two workers share two cores
export OMP_WAIT_POLICY := passive
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

OLDEST := $(VENV)-oldest
OLDEST_TESTS := tests/fairkit/test_reports_and_policy.py tests/fairkit/test_bad_input.py tests/fairkit/test_tables.py \
    tests/fairkit/test_mergeable_totals.py tests/fairkit_group/test_group_closed_forms.py tests/fairkit_onnx/test_export.py \
    tests/fairkit_cli/test_audit_command.py

.PHONY: oldest demo test test-all test-long wheel release lint types bench-compare docs site clean

$(READY): pyproject.toml constraints.txt
	test -d $(BIN) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/fairkit demo

# what every change must pass; servers, browsers, fresh environments and long simulations are in test-all
test: $(READY)
	$(PYTEST) -m "not long" $(ARGS)

test-all: $(READY)
	$(PYTEST) $(ARGS)

# what `make test` leaves out
test-long: $(READY)
	$(PYTEST) -m long --durations=50 $(ARGS)

# the core tests with the oldest versions that pyproject.toml allows
$(OLDEST)/.ready: pyproject.toml .ci/oldest.py $(READY)
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(BIN)/python .ci/oldest.py > $(OLDEST)/oldest.txt
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/oldest.txt --editable '.[sklearn,lightgbm]' \
	    pandas hypothesis pytest pytest-timeout pytest-xdist
	touch $(OLDEST)/.ready

oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python -m pytest -q -n 2 $(OLDEST_TESTS) -k 'not xgboost and not mlp and not torch'

# what people install: a wheel in an empty environment, and its demo
wheel:
	rm -rf build/wheel build/empty && $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/empty
	build/empty/$(notdir $(BIN))/python -m pip install --quiet --constraint constraints.txt "$$(ls build/wheel/*.whl)[all]"
	build/empty/$(notdir $(BIN))/fairkit demo

# a law's clause that nobody has checked lately, or without a source, is not released
release: wheel
	build/empty/$(notdir $(BIN))/fairkit packs status --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	! grep -rlE '^(<{7}|>{7}) ' --include='*.*' core plugins cli registry tests docs benchmarks *.md # merges that nobody finished

types: $(READY)
	$(BIN)/mypy

# in pairs against another version: make bench-compare BASE=v0.1.0 ARGS="--cases adult-forest"
bench-compare: $(READY)
	$(BIN)/python benchmarks/commands.py $(ARGS) --against $(BASE)

docs: $(READY)
	$(BIN)/python docs/make.py

# the documentation site in build/site/html: no network, no warning, no broken link
site: $(READY)
	$(BIN)/python docs/site/build.py

clean:
	rm -rf $(VENV) $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache
