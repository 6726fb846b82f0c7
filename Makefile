# make study   the default study on this machine, set-up included; ends with a table of verdicts
# make report  the study's report and audit page, for an auditor; runs what is missing first
# make test    all checks and tests that can run on this machine
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= config/study.yaml
NAME = $(shell sed -n "s/^name: *//p" $(STUDY))
PROFILE ?= profiles/local
# Snakemake finds an executor as a package on its path. One line in a .pth file puts it there: relative to the virtual
# environment, so that the checkout can move, and with no build, which would need a network.
ADD_EXECUTOR := import sysconfig, os; site = sysconfig.get_path("purelib"); \
  open(f"{site}/assize-executor.pth", "w").write(os.path.relpath("executor", site) + "\n")

# The scientific packages of SciCode's steps: a venv of its own, from a Python that any user can run.
SCICODE := .venv-scicode
SCICODE_TEST := .scicode-test
SCICODE_PYTHON ?= $(firstword $(wildcard /usr/bin/python3.12 /usr/bin/python3.11) $(PYTHON))
# Local tasks of ProgramBench: images in podman's store, and all else in this folder.
PROGRAMBENCH_LOCAL := .programbench-local
# SciCode's dev split, staged as the study declares it.
SCICODE_PROBLEMS := results/staged/193968aff23b7ed931c8f6d196b611e2f6694adb49e6cc085444a60ad2fc4f7b/problems_dev.jsonl

.PHONY: study report test lint bench bench-programbench setup setup-test setup-scicode setup-scicode-image setup-scicode-test setup-programbench setup-programbench-local test-programbench lock cluster-up cluster-down clean

study: setup $(if $(shell grep -s '^  scicode:' $(STUDY)),setup-scicode) \
  $(if $(shell grep -s '^  programbench:' $(STUDY)),setup-programbench) \
  $(if $(shell grep -s '$(PROGRAMBENCH_LOCAL)/' $(STUDY)),setup-programbench-local)
	$(BIN)/snakemake --profile $(PROFILE) --configfile $(STUDY)
	@$(BIN)/python scripts/census.py --table --study results/$(NAME)/study.json

report: study
	$(BIN)/snakemake --profile $(PROFILE) --configfile $(STUDY) --report results/$(NAME)/report.html
	@echo "Open results/$(NAME)/report.html; every grade: results/$(NAME)/audit.html"

test: setup-test setup-scicode-test lint
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

# How much faster the dev references are graded than one process a step, one after another; the audit of 2,000 grades.
bench: setup setup-scicode
	$(BIN)/snakemake --profile profiles/local $(SCICODE_PROBLEMS) --configfile config/studies/scicode-dev.yaml
	$(BIN)/python scripts/scicode_adapter.py bench --problems $(SCICODE_PROBLEMS) --output results/bench-scicode.json
	PYTHONPATH=scripts $(BIN)/python tests/generated_study.py 2000

# What a grade of ProgramBench costs beside the official evaluator alone.
bench-programbench: setup-programbench-local
	$(BIN)/python scripts/programbench_adapter.py --resource-mode none --manifest $(PROGRAMBENCH_LOCAL)/manifest.json \
	  --tasks $(PROGRAMBENCH_LOCAL)/tasks --blobs $(PROGRAMBENCH_LOCAL)/blobs \
	  --evaluator-wheelhouse $(PROGRAMBENCH_LOCAL)/runtime/evaluator-wheelhouse \
	  bench --instance-id assize__lines.8525aaa --submission $(PROGRAMBENCH_LOCAL)/submissions/correct.json \
	  --output results/bench-programbench.json

setup-scicode: setup $(SCICODE)/.assize-lock

$(SCICODE)/.assize-lock: envs/scicode.lock
	$(SCICODE_PYTHON) -c 'import sys; sys.version_info[:2] in ((3, 11), (3, 12)) or sys.exit("SciCode needs Python 3.11 or 3.12; try: make SCICODE_PYTHON=python3.11")'
	$(SCICODE_PYTHON) -m venv --clear --without-pip $(SCICODE)
	$(BIN)/python -m pip --python $(SCICODE)/bin/python install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@sha256sum $< | cut -d ' ' -f 1 > $@

# The image of SciCode's container lane, built from a local base image where it is missing.
setup-scicode-image: setup
	$(BIN)/python scripts/scicode_adapter.py images ensure

setup-scicode-test: setup-scicode $(SCICODE_TEST)/.ready

$(SCICODE_TEST)/.ready: envs/scicode-test.lock
	rm -rf $(SCICODE_TEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target $(SCICODE_TEST) --requirement $<
	@touch $@

# The official package, into the same environment: a study without ProgramBench never needs it.
setup-programbench: $(VENV)/.programbench-ready

$(VENV)/.programbench-ready: envs/programbench.lock $(VENV)/.study-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

setup-programbench-local: setup-programbench
	$(BIN)/python tests/images/build $(PROGRAMBENCH_LOCAL)
	$(BIN)/python scripts/programbench_adapter.py --tasks $(PROGRAMBENCH_LOCAL)/tasks --blobs $(PROGRAMBENCH_LOCAL)/blobs \
	  manifest --images localhost/programbench --pin-images --output $(PROGRAMBENCH_LOCAL)/manifest.json

# PROGRAMBENCH_TEST_ROOT, a checkout of the official package, is tested where it is given; else the installed wheel.
test-programbench: setup-test
	$(BIN)/python -m pytest tests/protocol/test_programbench_adapter.py

lock: setup-test
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/requirements.in --output-file envs/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/programbench.in --constraint envs/requirements.lock --output-file envs/programbench.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/test-requirements.in --constraint envs/requirements.lock --output-file envs/test-requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  envs/scicode.in --output-file envs/scicode.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-deps \
	  envs/scicode-test.in --output-file envs/scicode-test.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
	  --no-emit-package colorama envs/evaluator-wheelhouse.in --output-file envs/evaluator-wheelhouse.lock

cluster-up:
	tests/cluster/up

cluster-down:
	tests/cluster/down

clean:
	rm -rf $(VENV) $(SCICODE) $(SCICODE_TEST) $(PROGRAMBENCH_LOCAL) .snakemake .pytest_cache .ruff_cache
