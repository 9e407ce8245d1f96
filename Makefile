# make demo   the main job on a real network
# make test   lint and all tests (make test-core, test-relax, test-relay: one suite)
# make networks  all float32 networks verified on two accelerators, and all cases of the ONNX package in Relay
# make fuzz   random regions on fresh seeds, in the core and under both TVMs (SUITES="core relax relay"); prints the seed,
#             and SEED=... COUNT=... run the same again
# make sanitize  the engine under TSan, ASan and UBSan, on a corpus and on damaged programs; needs a C compiler only,
#             and takes clang's libFuzzer where there is one. SECONDS_TO_RUN=60, SEED=... (printed)
# make lint   ruff and mypy
# make clean  removes what was built, the environments too
#
# Environments stand in .venv/ and are brought up to date when setup.py changes. PYTHON=... picks another Python,
# PYTHON310=... the one for Relay.

PYTHON ?= python3
export PYTHON310

CORE := .venv/core/bin
RELAX := .venv/relax/bin
RELAY := .venv/relay/bin

.PHONY: demo fuzz sanitize test test-core test-relax test-relay networks lint clean
.NOTPARALLEL:

demo: .venv/relax/.installed
	model=$$($(RELAX)/python networks/fetch.py centerface) && \
	$(RELAX)/sramtile verify "$$model" --spec edge-256k --shape input.1=1,3,256,256
	@if .ci/find_python310 >/dev/null; then $(MAKE) --no-print-directory demo-relay; else echo "demo on Relay skipped"; fi

.PHONY: demo-relay
demo-relay: .venv/relay/.installed
	model=$$($(RELAY)/python networks/fetch.py mtcnn_pnet) && \
	$(RELAY)/sramtile verify "$$model" --frontend relay --spec tiny-64k --shape input_1=1,128,128,3

test:
	@MAKE="$(MAKE)" .ci/suites

test-core: .venv/core/.installed
	$(CORE)/python -m pytest -n 2 tests/core

test-relax: .venv/relax/.installed
	$(RELAX)/python -m pytest -n 2 --dist loadfile tests/relax

test-relay: .venv/relay/.installed
	$(RELAY)/python -m pytest -n 2 --dist loadfile tests/relay

networks: .venv/relax/.installed
	$(RELAX)/python -m pytest tests/networks/relax
	@if .ci/find_python310 >/dev/null; then $(MAKE) --no-print-directory networks-relay; else echo "networks in Relay skipped"; fi

.PHONY: networks-relay
networks-relay: .venv/relay/.installed
	$(RELAY)/python -m pytest tests/networks/relay

# Random regions on fresh seeds: in the core, and three ways in Relax and in Relay.
SUITES ?= core relax relay
fuzz: $(SUITES:%=fuzz-%)

fuzz-%: .venv/%/.installed
	.venv/$*/bin/python -X faulthandler tests/fuzz.py $* $(SEED:%=--seed %) $(COUNT:%=--count %)

sanitize: .venv/core/.installed
	@.ci/sanitize "$$PWD/$(CORE)/python"

lint: .venv/core/.installed
	$(CORE)/ruff check
	$(CORE)/ruff format --check
	$(CORE)/mypy

# No TVM here: the core's tests prove that it needs none.
.venv/core/.installed: setup.py
	@.ci/venv core "$(PYTHON)" cli,test,dev

.venv/relax/.installed: setup.py
	@.ci/venv relax "$(PYTHON)" relax,cli,test

.venv/relay/.installed: setup.py
	@python310=$$(.ci/find_python310) && .ci/venv relay "$$python310" relay,cli,test

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
