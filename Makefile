# Every target sets up what it needs in .venv, and does nothing again when that is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready
DOCS_READY := $(VENV)/.docs-ready
BENCH_READY := $(VENV)/.bench-ready
RELEASE_READY := $(VENV)/.release-ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# the archives carry the time of the last commit, so that everybody who builds them gets the same bytes
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
release: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)

.PHONY: demo test test-slow test-gpu lint format bench planted docs lock release clean

demo: $(RUN_READY)  ## credits twelve emoji designers, in minutes on a CPU
	$(BIN)/diffcredit demo

# one thread a process: several side by side would fight for the cores
test: $(DEV_READY)  ## the default test suite, without what is slow or needs a GPU
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(DEV_READY)  ## what takes minutes: the demo's claims, kills at random moments
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -rA --durations=0

test-gpu: $(DEV_READY)  ## what needs a CUDA device
	$(BIN)/python -m pytest -m gpu -rA

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ty check --python $(VENV)

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH_READY)  ## what is claimed, measured; `python -m benchmarks NAME` for one
	$(BIN)/python -m benchmarks

planted: $(BENCH_READY)  ## studies whose credits are known beforehand, with two seeds: runs them and checks every claim
	for seed in 0 1; do \
	  $(BIN)/python -m studies.planted.make results/planted/$$seed --seed $$seed && \
	  $(BIN)/diffcredit run results/planted/$$seed/twins/study.yaml && \
	  $(BIN)/diffcredit run results/planted/$$seed/degraded/study.yaml && \
	  $(BIN)/diffcredit run results/planted/$$seed/shared-labels/study.yaml && \
	  $(BIN)/diffcredit baselines results/planted/$$seed/shared-labels/study.yaml --method conditional_sampling || exit 1; \
	done
	$(BIN)/python -m studies.planted.check results/planted/0 results/planted/1 --figures docs

docs: $(DOCS_READY)
	$(BIN)/mkdocs build --strict

lock: $(RELEASE_READY)  ## requirements-release.txt after a change of versions; UPGRADE=1 takes the newest of what is not pinned
	$(BIN)/python -m release.lock $(if $(UPGRADE),--upgrade)

release: $(RELEASE_READY)  ## wheel, source, locked packages, SBOM and checksums, in dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	cp requirements-release.txt dist
	$(BIN)/python -m release.sbom dist
	$(BIN)/python -m release.sums dist

clean:
	rm -rf $(VENV) dist build site results diffcredit-demo .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) .
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[dev,postgres]"
	@touch $@ $(RUN_READY)

$(BENCH_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[bench]"
	@touch $@ $(RUN_READY)

$(DOCS_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[docs]"
	@touch $@ $(RUN_READY)

$(RELEASE_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[release]"
	@touch $@ $(RUN_READY)
