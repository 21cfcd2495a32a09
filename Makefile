# Everything sets itself up: Python 3.11+, make and the package registries are enough.
PY := .venv/bin/python
# Where it is set, as in many images, each of a test run's processes compiles all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

# uv where it is on the PATH, else the pinned uv from PyPI: both install exactly what uv.lock says.
.venv/.ready: pyproject.toml uv.lock
	@command -v uv >/dev/null 2>&1 && uv sync --quiet --frozen || { \
	  { [ -x .venv/bin/python ] || python3 -m venv .venv; } && \
	  .venv/bin/python -m pip install --quiet --disable-pip-version-check uv && \
	  .venv/bin/uv sync --quiet --frozen --inexact; }
	@touch $@

setup: .venv/.ready  ## create .venv with what uv.lock pins

demo: .venv/.ready  ## the main job on the embedded emulator: too little P, a verdict, the cure, a second run
	@$(PY) -m benchmarks.demo

# A machine that is busy with something else can make a measured time wrong: what failed is run once
# more, alone, and both results are printed.
PURE := -m "not process and not full and not compose"
PROCESSES := -m "process and not full"

check: .venv/.ready  ## ruff, mypy, pure tests
	$(PY) -m ruff check . && $(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -q -n 2 $(PURE) || $(PY) -m pytest -q --lf --lfnf=none $(PURE)

test: .venv/.ready  ## check, then the tests with real processes
	$(MAKE) --no-print-directory check
	$(PY) -m pytest -q -n 2 --dist worksteal $(PROCESSES) || $(PY) -m pytest -q --lf --lfnf=none $(PROCESSES)

test-full: .venv/.ready  ## the whole matrices, cuts and fuzzing
	HYPOTHESIS_PROFILE=explore $(PY) -m pytest -q -m "not compose"

# Root only. A daemon and a base image of its own; nothing is fetched but packages.
test-compose: .venv/.ready  ## docker-compose.yml with a real Docker, made for the test and removed
	@command -v dockerd >/dev/null && command -v docker-compose >/dev/null && command -v debootstrap >/dev/null || { \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    docker.io docker-compose debootstrap; } >/dev/null 2>&1 \
	  || echo "Docker could not be installed: the tests say what is missing"
	$(PY) -m pytest -q -rs -m compose tests/test_compose.py

bench: bench-client bench-demo  ## measurements, side by side; not a test

bench-client: .venv/.ready  ## the client against a server that knows the truth
	$(PY) -m benchmarks.client

bench-planner: .venv/.ready  ## the planner beside others, on random clusters (20 minutes)
	$(PY) -m benchmarks.planner --write

bench-lag: .venv/.ready  ## how late arrivals go out
	$(PY) -m benchmarks.schedule_lag

bench-emulator: .venv/.ready  ## how late the emulator ticks
	$(PY) -m benchmarks.emulator_speed

bench-demo: .venv/.ready  ## both verdicts of the demo, five times
	@$(PY) -m benchmarks.demo --repeat 5

bench-scaling: .venv/.ready  ## what one master and a second worker carry
	$(PY) -m benchmarks.backpressure
	$(PY) -m benchmarks.workers

bench-soak: .venv/.ready  ## 20 minutes at 100 req/s: does anything grow?
	$(PY) -m benchmarks.soak

fix: .venv/.ready  ## format and mend what ruff can
	$(PY) -m ruff format . && $(PY) -m ruff check --fix .

.PHONY: help setup demo check test test-full test-compose bench bench-client bench-emulator bench-lag bench-planner bench-demo bench-scaling bench-soak fix
