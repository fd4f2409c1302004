# Every target sets up .venv by itself; a newcomer needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= auto
# One thread per worker, and neighbours stay on one worker, which makes their fixtures once.
PYTEST   = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo test test-slow test-core lint format bench docs gallery pictures clean

help:
	@echo "make demo    fuse a real example and write an HTML report (about a minute with the set-up)"
	@echo "make test    run the test suite, without the slow tests"
	@echo "make test-slow   the slow tests: processes, experiments, benchmarks"
	@echo "make test-core   the test suite without any extra"
	@echo "make lint    ruff and mypy"
	@echo "make bench   benchmarks against peers, as ratios measured in one run, and what moved"
	@echo "make docs    run every example of the documentation, and build its pages into site/"
	@echo "make gallery run the scripts of examples/gallery and write their pages"
	@echo "make pictures   the documentation's pictures of the report (needs chromium)"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("klfusion needs Python >= 3.11, got " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp per set of extras, renewed when pyproject.toml changes.
$(VENV)/.core: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

# These ask for torchvision, which nothing here needs and which breaks one of them.
NO_DEPS := bayesian-torch laplace-torch asdfghjkl==0.1a4 backpack-for-pytorch \
           curvlinops-for-pytorch einconv unfoldNd

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[test]'
	$(BIN)/python -m pip install --quiet --no-deps $(NO_DEPS)
	@touch $@ $(VENV)/.core

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/python -m pip install --quiet -e '.[lint]'
	@touch $@

demo: $(VENV)/.core
	$(BIN)/klfusion demo --out out/demo

test: $(VENV)/.test
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.test
	$(PYTEST) -m slow

# The core alone: no extra installed, tests that need one are skipped by name.
$(VENV)-core/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-core/bin/python -m pip install --quiet -e . pytest pytest-xdist hypothesis
	@touch $@

test-core: BIN := $(VENV)-core/bin
test-core: $(VENV)-core/.core
	$(PYTEST) -m "not slow"

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python mkdocs_hooks.py

bench: $(VENV)/.test
	@mkdir -p out
	$(BIN)/python -m benchmarks all --out out/benchmarks.json

$(VENV)/.docs: $(VENV)/.test
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m pytest tests/test_docs.py tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gallery: $(VENV)/.test
	$(BIN)/python examples/make_gallery.py

pictures: $(VENV)/.test
	KLFUSION_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/report/test_browser.py

clean:
	rm -rf $(VENV) $(VENV)-core out build dist site
