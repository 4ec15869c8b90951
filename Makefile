# make setup   .venv with everything, locked
# make demo    the whole flight: real pages to an answering model   (STORE=s3: on a real S3 server; ARGS=--serve)
# make test    lint, types, house rules, every test                 (test-fast: under two minutes)
# make soak    long sweeps: kills, fuzz, faults by the thousand

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  ?= folder
ARGS   ?=
# TORCH: what to install. Without an NVIDIA GPU the CPU build is tried first; TORCH_INDEX names an
# extra package index that has it (PyTorch's install page gives the address).
TORCH_INDEX ?=
TORCH_PIN   := $(shell grep '^torch==' constraints.txt)
INDEX       := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: setup demo test test-fast lint soak clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Eyas needs Python 3.11 or newer; say make PYTHON=python3.x"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	if command -v nvidia-smi >/dev/null 2>&1; then \
	  $(BIN)/pip install --quiet $(INDEX) '$(TORCH_PIN)'; \
	else \
	  $(BIN)/pip install --quiet $(INDEX) '$(TORCH_PIN)+cpu' 2>/dev/null || $(BIN)/pip install --quiet $(INDEX) '$(TORCH_PIN)'; \
	fi
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
ifeq ($(STORE),s3)
	$(BIN)/python -m tests.seaweed --dir runs/s3 -- $(BIN)/eyas run recipes/demo.toml --set store=s3://eyas/demo --out out/demo-s3
else
	$(BIN)/eyas run recipes/demo.toml $(ARGS)
endif

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 -m 'not soak'

test-fast: setup
	$(BIN)/pytest -n 2 -m 'not slow and not soak'

soak: setup
	$(BIN)/pytest -m soak -s

clean:
	rm -rf $(VENV) build dist runs out
