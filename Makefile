# make study   the default study on this machine, set-up included; ends with a table of verdicts
# make test    all checks and tests that can run on this machine
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= config/study.yaml
PROFILE ?= profiles/local
# Snakemake finds an executor as a package on its path. One line in a .pth file puts it there: relative to the virtual
# environment, so that the checkout can move, and with no build, which would need a network.
ADD_EXECUTOR := import sysconfig, os; site = sysconfig.get_path("purelib"); \
  open(f"{site}/assize-executor.pth", "w").write(os.path.relpath("executor", site) + "\n")

.PHONY: study test lint setup setup-test lock cluster-up cluster-down clean

study: setup
	$(BIN)/snakemake --profile $(PROFILE) --configfile $(STUDY)
	@$(BIN)/python scripts/census.py --table --study results/$(shell sed -n "s/^name: *//p" $(STUDY))/study.json

test: setup-test lint
	$(BIN)/python -m pytest

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

setup: $(VENV)/.study-ready

setup-test: $(VENV)/.test-ready

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Assize needs Python 3.11 or later; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.study-ready: envs/requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	$(BIN)/python -c '$(ADD_EXECUTOR)'
	@touch $@

$(VENV)/.test-ready: envs/test-requirements.lock $(VENV)/.study-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

lock: setup-test
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/requirements.in --output-file envs/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/test-requirements.in --constraint envs/requirements.lock --output-file envs/test-requirements.lock

cluster-up:
	tests/cluster/up

cluster-down:
	tests/cluster/down

clean:
	rm -rf $(VENV) .snakemake .pytest_cache .ruff_cache
