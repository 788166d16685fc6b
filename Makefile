# Everything runs in .venv, which the first target that needs it sets up. PYTHON=... chooses the interpreter.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
FLOWER := .venv-flower
QUALITY := .venv-quality
PAR := .venv-par
# Files of tests that run side by side, WORKERS=0 one after the other. In their order: by number of tests, files of few long ones came last.
WORKERS ?= 5
STAMP := $(VENV)/.installed
# Without bytecode each of the hundreds of processes that tests start would compile the tree anew.
export PYTHONDONTWRITEBYTECODE :=
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14 python

.PHONY: help demo test test-slow test-mutants test-flower lint check fmt bench bench-link bench-load bench-utility bench-overhead bench-secagg bench-flower bench-quality bench-tables bench-par bench-tda bench-mtl robustness docs pictures wheels zipapp bundle setup clean

help:
	@echo "make demo       run DistAIM under MPC on generated data, on this machine"
	@echo "make test       run the tests"
	@echo "make test-slow  run the long statistical tests"
	@echo "make test-mutants  put 500 small faults into the code, one at a time: some test has to find each (hours; goes on where it was)"
	@echo "make test-flower  run FLAIM on Flower's own engines, as processes (minutes)"
	@echo "make check      linter, formatter, types, import direction; changes nothing"
	@echo "make fmt        format the code"
	@echo "make docs       the guides as a site, in build/site"
	@echo "make pictures   the pictures in the guides, from runs of this machine (wants chromium)"
	@echo "make bench      measure the engine; writes bench/results (an hour and a half)"
	@echo "make bench-link  measure joining two sources on shares; writes bench/results/link.* (minutes)"
	@echo "make bench-load  10,000 owners at once, studies for an hour, long runs; adds to bench/results/load.* (hours)"
	@echo "make robustness  all attacks, a million damaged inputs, a thousand faults of runs and of services; adds to bench/results/robustness.* (many hours)"
	@echo "make bench-utility  measure the methods' utility; adds to bench/results/utility.* (a night; goes on where it was; DASK=ADDRESS: on a cluster)"
	@echo "make bench-overhead  measure what clients and servers move; bench/results/overhead.* (an hour; goes on where it was)"
	@echo "make bench-secagg   measure SecAgg beside Flower's; writes bench/results/secagg.* (up to an hour)"
	@echo "make bench-flower   measure FLAIM on Flower beside our own connections; bench/results/flower.* (minutes)"
	@echo "make bench-mtl    silos' own models: School and the pandemic task; bench/results/mtl.*, pandemic.* (hours)"
	@echo "make bench-tda    silos whose labels differ, Fed-TDA beside others; adds to bench/results/tda.* (hours; goes on where it was)"
	@echo "make bench-quality  synthetic tables by SDMetrics' score; adds to bench/results/quality.* (an hour; goes on where it was)"
	@echo "make bench-tables  persons and their rows, beside the same tables flattened; adds to bench/results/tables.* (two hours; goes on where it was)"
	@echo "make bench-par  the same by SDV's PAR, which needs torch; adds to bench/results/tables.* (half an hour; goes on where it was)"
	@echo "make wheels     what images and owners' packages are made of, in wheels/ (asks the package index)"
	@echo "make zipapp     an owner's one file, dist/syncret.pyz (of wheels/)"
	@echo "make bundle     an owner's wheels in one zip file, in dist/ (of wheels/)"
	@echo "make setup      only set up $(VENV); PYTHON=python3.12 chooses the interpreter (3.11 or newer)"

setup: $(STAMP)

# The stamp is written last, so that an interrupted set-up starts again.
$(STAMP): pyproject.toml setup.py $(wildcard protocols/*.[ch]) constraints.txt
	@for candidate in $(if $(PYTHON),"$(PYTHON)",$(CANDIDATES)); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        found=$$candidate; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "Syncret needs Python 3.11 or newer; looked at: $(if $(PYTHON),$(PYTHON) ($$("$(PYTHON)" --version 2>&1 | tail -n 1)),$(CANDIDATES))." >&2; \
	    echo "Install one, or name one: make PYTHON=/path/to/python3.11 ..." >&2; \
	    exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version) (once)"; \
	"$$found" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/syncret demo

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --timeout 1800

test-mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: lint
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

fmt: $(STAMP)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m mkdocs build --strict

wheels zipapp bundle: $(STAMP)
	$(BIN)/python deploy/pack.py $@

pictures: $(STAMP)
	rm -rf build/pictures
	$(BIN)/syncret demo --out build/pictures/demo
	$(BIN)/python docs/drawings.py
	$(BIN)/python docs/pictures.py report build/pictures/demo
	$(BIN)/python docs/pictures.py console build/pictures/study

bench: $(STAMP)
	$(BIN)/syncret bench engine --sweep --security semi-honest --security malicious --network loopback --network lan --network wan --whole counts --output bench/results

bench-link: $(STAMP)
	$(BIN)/syncret bench link --output bench/results

# The owners take minutes, the soak its hour, and the long runs another two.
bench-load: $(STAMP)
	$(BIN)/syncret bench load owners --output bench/results
	$(BIN)/syncret bench load long rounds --output bench/results
	$(BIN)/syncret bench load long columns --output bench/results
	$(BIN)/syncret bench load long rows --output bench/results
	$(BIN)/syncret bench load long clients --minutes 120 --output bench/results
	$(BIN)/syncret bench load soak --minutes 60 --output bench/results

robustness: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.robustness full --finds build/finds --results build/kills.jsonl --output bench/results

# DASK=tcp://HOST:PORT runs on the workers of that scheduler. Tables 3 and 7 have bytes, which bench-overhead measures.
bench-utility: WHERE = $(if $(DASK),--dask $(DASK),--jobs 2)
bench-utility: $(STAMP) bench-overhead
	$(BIN)/syncret bench mwem --repeats 3 --output bench/results
	$(BIN)/syncret bench gan --dataset adult --repeats 10 --output bench/results
	$(BIN)/syncret bench gan --dataset covtype --repeats 3 --output bench/results
# Few have Credit.
	-$(BIN)/syncret bench gan --dataset credit --repeats 3 --output bench/results
	$(BIN)/syncret bench utility --sweep all --repeats 3 $(WHERE) --results bench/results/utility.jsonl --output bench/results
	$(BIN)/syncret bench utility --sweep all --dataset adult --repeats 10 $(WHERE) --results bench/results/utility.jsonl --output bench/results

bench-tda: $(STAMP)
	$(BIN)/syncret bench tda --sweep all --results bench/results/tda.jsonl --output bench/results

bench-mtl: $(STAMP)
	$(BIN)/syncret bench mtl --task school --output bench/results
	$(BIN)/syncret bench mtl --task school --scaling public --epsilon 1,3,6,12 --output bench/results
	$(BIN)/syncret bench mtl --task pandemic --persons 100000 --output bench/results

bench-overhead: $(STAMP)
	$(BIN)/syncret bench overhead --sweep --output bench/results

# Flower needs older versions of some packages, hence an environment of its own.
$(FLOWER)/.installed: $(STAMP) constraints-flower.txt
	$(BIN)/python -m venv --clear $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt -e '.[flower]' \
	    hypothesis pytest pytest-asyncio pytest-timeout trustme
	@touch $@

test-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest tests/flower

bench-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/syncret bench flower --clients 100 --rounds 2 --repeats 2 --malicious --output bench/results

bench-secagg: $(FLOWER)/.installed
	$(FLOWER)/bin/syncret bench secagg --with flower --output bench/results
	$(BIN)/syncret bench secagg --signed --output bench/results
	$(BIN)/syncret bench secagg --clients 100 --neighbours 21 --neighbours 28 --threshold 6 --repeats 9 --output bench/results
	$(BIN)/syncret bench secagg --clients 100 --neighbours 78 --threshold 45 --repeats 5 --signed --output bench/results
	$(BIN)/syncret bench secagg --clients 1000 --neighbours 72 --length 100000 --dropout 0.1 --output bench/results
	$(BIN)/syncret bench secagg --clients 10000 --neighbours 86 --length 64 --dropout 0.1 --output bench/results

# The packages that judge, and those beside ours, are no part of this project's environment.
$(QUALITY)/.installed: $(STAMP) constraints-quality.txt
	$(BIN)/python -m venv --clear $(QUALITY)
	$(QUALITY)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints-quality.txt
	@touch $@

# PAR needs torch, which the packages above do without.
$(PAR)/.installed: $(STAMP) constraints-quality.txt constraints-par.txt
	$(BIN)/python -m venv --clear $(PAR)
	$(PAR)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints-quality.txt -r constraints-par.txt
	@touch $@

# Another project's synthesizers have 600 seconds of a processor for tables of up to 15 columns, 300 for wider ones.
NARROW := adult body_performance heart_failure magic
WIDE := census covtype intrusion marketing school
UGLY := ugly-clinic ugly-shop
ATTACKED := adult magic school
ATTACKS := real permuted standard aim distaim flaim flaim-pairs

bench-quality: $(QUALITY)/.installed
	$(BIN)/syncret bench quality --output bench/results
	$(BIN)/syncret bench quality --dataset adult --method distaim --columns shaped --mpc --output bench/results
	$(BIN)/syncret bench quality $(NARROW:%=--dataset %) --method smartnoise-mst --method smartnoise-aim --output bench/results
	$(BIN)/syncret bench quality $(WIDE:%=--dataset %) --method smartnoise-mst --method smartnoise-aim --limit 300 --output bench/results
	$(BIN)/syncret bench quality $(UGLY:%=--dataset %) --rows 10000 --repeats 3 --method real --method permuted --method standard --method sdv-copula --columns uniform --columns shaped --output bench/results
	$(BIN)/syncret bench quality $(UGLY:%=--dataset %) --rows 10000 --repeats 3 --method smartnoise-mst --output bench/results
	$(BIN)/syncret bench quality $(UGLY:%=--dataset %) --rows 10000 --method smartnoise-aim --limit 300 --output bench/results
	for epsilon in 1 10; do $(BIN)/syncret bench quality --membership $(ATTACKED:%=--dataset %) $(ATTACKS:%=--method %) --columns uniform --rows 4000 --epsilon $$epsilon --output bench/results; done

# SDV's HMA takes 80 milliseconds of a processor for each person.
bench-tables: $(QUALITY)/.installed
	$(BIN)/syncret bench tables --repeats 3 --output bench/results
	$(BIN)/syncret bench tables --method again --method sdv-hma --persons 1000 --limit 900 --output bench/results

# PAR takes a quarter of a second of a processor for each person, and more for long histories.
bench-par: $(QUALITY)/.installed $(PAR)/.installed
	$(BIN)/syncret bench tables --method sdv-par --persons 1000 --limit 1800 --output bench/results

clean:
	rm -rf $(VENV) $(FLOWER) $(QUALITY) $(PAR) build dist wheels *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
