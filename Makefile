# Every target makes .venv first when it is not there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types bench docs clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/fairkit demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	for script in benchmarks/*_speed.py; do $(BIN)/python $$script || exit 1; done

docs: $(READY)
	$(BIN)/python docs/make.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
