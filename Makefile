# Each target sets up .venv by itself: Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# fixed, because the newest one may bring gigabytes for graphics cards
TORCH  ?= 2.13.0

.PHONY: demo test test-slow check bench results docs clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet 'torch==$(TORCH)'
	$(BIN)/pip install --quiet -e '.[dev,deep]'
	touch $(STAMP)

demo: $(STAMP)            ## learn an embedding without labels, print the table, write the picture
	$(BIN)/rpml demo -o demo-output

test: $(STAMP)            ## the default tests, a few minutes on two cores
	$(BIN)/pytest -n 2

test-slow: $(STAMP)       ## long fuzzing, many kills
	$(BIN)/pytest -m slow

check: $(STAMP)           ## style, types, layers, sizes
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py

bench: $(STAMP)           ## the quick benchmarks, results in benchmarks/results
	cd benchmarks && for f in objective solvers knn aas scaling transform evaluation; do ../$(BIN)/python $$f.py || exit 1; done
	$(BIN)/python benchmarks/performance_page.py

results: $(STAMP)         ## docs/results.md from DATA=folder of .npz files; goes on where it was
	@test -n "$(DATA)" || { echo "say where the feature sets are: make results DATA=folder"; exit 2; }
	$(BIN)/python benchmarks/results_compare.py --data $(DATA)
	$(BIN)/python benchmarks/results_verdict.py --data $(DATA)
	$(BIN)/python benchmarks/results_ablation.py --data $(DATA)
	$(BIN)/python benchmarks/results_limits.py --data $(DATA)
	$(BIN)/pip install --quiet metric-learn
	$(BIN)/python benchmarks/results_groups.py --data $(DATA)
	$(BIN)/python benchmarks/results_page.py
	$(BIN)/python benchmarks/readme_figures.py

docs: $(STAMP)            ## the site, in site/
	$(BIN)/pip install --quiet -e '.[docs]'
	$(BIN)/python scripts/cli_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) demo-output dist site
