# Each target sets up .venv by itself: Python 3.11+, git and make are enough.
PYTHON ?= python3
# another Python gets an environment of its own: make test PYTHON=python3.13
VENV   := .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
BUCKET := .venv-bucket
# pinned: the newest release may pull in gigabytes of GPU libraries
TORCH  ?= 2.13.0
PAGES  := results_zoo_page results_page bytes_page labels_page knowledge_page deep_page whitening_page performance_page clustering_page \
	decisions_page readme_figures

N      ?= 100

.PHONY: demo test test-thorough test-slow test-bucket mutants check bench results pages docs dist clean

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(DEMO): pyproject.toml | $(BIN)/pip    # the package and what draws pictures: no torch, no tools
	$(PIP) -e '.[report]'
	touch $@

$(DEV): pyproject.toml | $(BIN)/pip     # everything
	$(PIP) 'torch==$(TORCH)'
	$(PIP) -e '.[dev,deep]'
	touch $@ $(DEMO)

demo: $(DEMO)           ## learn embeddings of programs and of drawings without labels, show what they find
	$(BIN)/rpml demo code -o demo-output/code
	$(BIN)/rpml demo drawings -o demo-output/drawings

# two processes share two cores: more threads of BLAS would only wait for each other
test test-thorough test-bucket: export OMP_NUM_THREADS = 1
test test-thorough test-bucket: export OPENBLAS_NUM_THREADS = 1

test: $(DEV)            ## the default tests, a few minutes on two cores
	$(BIN)/pytest -n 2

test-thorough: $(DEV)   ## longer variants of them, as many minutes again
	$(BIN)/pytest -n 2 -m 'thorough and not slow'

test-slow: $(DEV)       ## long fuzzing, many killed workers
	$(BIN)/pytest -m slow

$(BUCKET)/.ready: pyproject.toml        # s3fs and some packages of `dev` want different versions of python-dateutil
	$(PYTHON) -m venv $(BUCKET)
	$(BUCKET)/bin/pip install --quiet s3fs 'moto[server]' pytest -e '.[distributed,parquet,remote]'
	touch $@

test-bucket: $(BUCKET)/.ready   ## rows in s3://, on a server of this machine
	$(BUCKET)/bin/pytest -r s tests/distributed/test_bucket.py

mutants: $(DEV)         ## change the method in N places, one at a time; which changes does no test notice?
	$(BIN)/python scripts/mutants.py $(N)

check: $(DEV)           ## style, types, layers, sizes
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py

bench: $(DEV)           ## the quick benchmarks, results in benchmarks/results
	cd benchmarks && for f in objective solvers knn aas scaling transform evaluation; do ../$(BIN)/python $$f.py || exit 1; done
	$(MAKE) pages

results: $(DEV)         ## docs/results.md from DATA=folder of .npz files; continues where it stopped
	@test -n "$(DATA)" || { echo "say where the feature sets are: make results DATA=folder"; exit 2; }
	$(BIN)/python benchmarks/results_compare.py --data $(DATA)
	$(BIN)/python benchmarks/results_zoo.py --data $(DATA)
	$(BIN)/python benchmarks/results_safety.py --data $(DATA)
	$(BIN)/python benchmarks/bytes.py --data $(DATA)
	$(BIN)/python benchmarks/knowledge.py --data $(DATA)
	$(BIN)/python benchmarks/results_ablation.py --data $(DATA)
	$(BIN)/python benchmarks/results_limits.py --data $(DATA)
	$(PIP) metric-learn
	$(BIN)/python benchmarks/results_groups.py --data $(DATA)
	$(PIP) leidenalg evoc
	$(BIN)/python benchmarks/clustering.py --data $(DATA)
	$(BIN)/python benchmarks/whitening_rules.py --data $(DATA)
	$(MAKE) pages

pages: $(DEV)           ## the generated parts of docs and README, from benchmarks/results; nothing is measured
	for f in $(PAGES); do $(BIN)/python benchmarks/$$f.py || exit 1; done

docs: $(DEV)            ## the site, in site/
	$(PIP) -e '.[docs]'
	$(BIN)/python scripts/cli_reference.py
	$(BIN)/python scripts/gallery_figure.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(DEV)            ## sdist and wheel, in dist/
	$(PIP) build
	$(BIN)/python -m build --quiet

clean:
	rm -rf .venv .venv-* demo-output dist site
