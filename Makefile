# make demo    T5 generates text at many sizes                make test    20 minutes on two cores
# make fuzz    random programs: N=1000                         make test-all  what is marked as long too: the double
# make lint    style, types, import rules, pages of docs/reference   make smoke   the least that shows it works on this machine
# make bench   the measurements behind docs/                    make docs    the pages of docs/reference, from declarations
# make conformance  PyTorch's operator databases: 1 hour
# make dashboard  39 models in four ways as one page, with trends and regressions (docs/dashboard.md)
# make test-cpus    the tests as on other processors: three times as long as make test
# make test-browser  pages in Chromium, which it installs: the HTML report, the site
# make test-gpu  what is marked gpu: on a GPU, or through Triton's interpreter   make gpu-pack  what a GPU machine lacks
# make site    docs/ as a site in build/site, which opens from disk
# make test-torch V=2.15.0  the wheel with another PyTorch (P=python3.12: and Python): smoke, probes, a tenth of the tests
#
# The first target that is made sets up .venv (python3.11 or newer): the exact versions of constraints.txt.

VENV ?= .venv
PIP_FLAGS ?=
JOBS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt

.PHONY: demo test test-all test-browser test-cpus test-gpu gpu-pack test-torch conformance dashboard fuzz lint docs site smoke bench clean
.SILENT:

$(READY): pyproject.toml constraints.txt
	test -n "$(PYTHON)" || { echo "symshape needs python3.11 or newer" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and by exact version: left to itself, pip may take a build that brings gigabytes of GPU libraries.
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) -e '.[test,dev]'
	touch $@

demo: $(READY)
	$(BIN)/symshape demo

test: $(READY)
	$(BIN)/lit -q -j $(JOBS) test examples
	$(BIN)/pytest -n $(JOBS) --dist worksteal test

test-all: $(READY)
	$(BIN)/lit -q -j $(JOBS) test examples
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not browser' test

# What assertions on elements of the HTML report need: Debian's Chromium.
test-browser: $(READY)
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }
	test -x $(BIN)/mkdocs || $(PIP) -e '.[site]'
	$(BIN)/pytest -m browser test/tools test/docs

# PyTorch's kernels and ours held to older processors' instructions, and one thread: test/cpus.py.
test-cpus: $(READY)
	$(BIN)/python test/cpus.py -n $(JOBS) --dist worksteal test

# Takes the packages of the environment if there is one, else those of the machine (a GPU's has its own PyTorch, and the
# archive of gpu-pack); installs nothing. Without a GPU what takes long is left out.
test-gpu:
	python=$(BIN)/python; test -x $$python || python=$(or $(PYTHON),python3); \
	if $$python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
	then TRITON_INTERPRET=0 $$python -m pytest -m gpu test/gpu; \
	else $$python -m pytest -m 'gpu and not long' test/gpu; fi

# Packages for a machine with a GPU that can fetch nothing, as .gpu/site.tar.xz: bench/pack_gpu.py says how it is used.
gpu-pack: $(READY)
	$(BIN)/python bench/pack_gpu.py

# The wheel with another PyTorch, in an environment outside of the repository: test/torch_versions.py.
test-torch: $(READY)
	test -n "$(V)" || { echo "usage: make test-torch V=2.15.0" >&2; exit 2; }
	$(BIN)/python test/torch_versions.py $(V) $(if $(P),--python $(P)) --jobs $(JOBS)

# PyTorch's operator databases; goes on where it was left. CONFORMANCE="--dtype bfloat16" and the like: see run.py.
conformance: $(READY)
	$(BIN)/python test/conformance/run.py --jobs $(JOBS) $(CONFORMANCE)

# Models in four ways, as a page; goes on where it was left. DASHBOARD="--models zoo/bert" and the like: see dashboard.py.
dashboard: $(READY)
	$(BIN)/python -c 'import matplotlib' 2> /dev/null || $(PIP) -e '.[bench]'
	$(BIN)/python bench/dashboard.py $(DASHBOARD)

lint: $(READY)
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check . ; exit 1; }
	$(BIN)/python test/lint/packages.py
	$(BIN)/python test/lint/private_apis.py
	$(BIN)/python test/lint/next_steps.py
	$(BIN)/python -m symshape.tools.reference --check
	$(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log; exit 1; }
	$(BIN)/mypy --no-error-summary

# The pages of docs/reference, from the declarations in the code.
docs: $(READY)
	$(BIN)/python -m symshape.tools.reference

# docs/ as a site that opens from disk. A link that leads nowhere, or a page that no menu has, is an error.
site: $(READY)
	test -x $(BIN)/mkdocs || $(PIP) -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	echo "build/site/index.html"

# Takes the packages of the environment if there is one, else those of the machine; installs nothing.
smoke:
	if test -x $(BIN)/python; then $(BIN)/python -m symshape.tools.smoke; else $(or $(PYTHON),python3) -m symshape.tools.smoke; fi

# Random programs against eager mode, N of them from number FROM on; goes on where it was left.
fuzz: $(READY)
	$(BIN)/python test/fuzz/fuzz.py $(or $(N),100) --from $(or $(FROM),0)

bench: $(READY)
	$(BIN)/symshape bench

clean:
	rm -rf build *.egg-info symshape-debug
