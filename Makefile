# Everything that is done with this repository, one readable command each. Start with 'make demo'.

PYTHON := .venv/bin/python
HEADWATER := .venv/bin/headwater
FIRE := examples/fire/fire.yaml examples/fire/flat.yaml
FAST := $(wildcard tests/test_layers.py tests/test_public.py tests/unit tests/law tests/golden)
WHOLE := $(wildcard tests/story/test_place_story.py tests/docs)
REAL := $(wildcard tests/contract)
RUNS := $(wildcard tests/story/test_run_story.py tests/story/test_control_story.py tests/story/test_testbed_story.py \
    tests/story/test_bench_story.py tests/story/test_remote_story.py tests/story/test_goals_story.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo place test check spark fmt lint golden law bench experiments docs clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with everything in it; does nothing when it is up to date
	@sh tools/setup.sh

demo: setup ## run the fire pipeline over an emulated thin link, all in the data centre and placed, and compare
	@sh tools/demo.sh

place: setup ## place the fire example with every method and draw the best placement
	@mkdir -p out
	$(HEADWATER) compare $(FIRE)
	$(HEADWATER) place $(FIRE) --draw out/fire.svg --out out/fire-placement.yaml
	$(HEADWATER) draw $(FIRE) out/fire-placement.yaml --out out/fire.png
	@echo "The picture is in out/fire.svg and out/fire.png, the placement in out/fire-placement.yaml."

test: lint ## all checks and all tests, the fast ones first
	$(PYTHON) -m pytest -q -n 2 --doctest-modules src/headwater $(FAST) $(WHOLE)
	$(PYTHON) -m pytest -q -n 2 --dist loadfile $(REAL)
	$(PYTHON) -m pytest -q -n 2 --dist loadfile $(RUNS)

spark: setup ## the tests on real Spark and Kafka alone
	$(PYTHON) -m pytest -q -n 2 --dist loadfile $(REAL)
	$(PYTHON) -m pytest -q -n 2 --dist loadfile $(RUNS)

check: lint ## what to run after every change: format, lint, types, fast tests
	$(PYTHON) -m pytest -q -n 2 -m "not slow" --doctest-modules src/headwater $(FAST)

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

fmt: setup ## format the code and repair what can be repaired
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

golden: setup ## write the expected outputs of tests/golden again; review the difference
	HEADWATER_GOLDEN=write $(PYTHON) -m pytest -q tests/golden

law: setup ## the properties with many more examples than usual
	HYPOTHESIS_PROFILE=long $(PYTHON) -m pytest -q tests/law

bench: setup ## measure every method of placement
	$(PYTHON) -m bench.placement

experiments: setup ## repeat the papers' experiments on a testbed (more than an hour) and write docs/experiments.md
	for name in fire traffic offload cut; do $(HEADWATER) bench $$name --out out/bench-$$name || exit 1; done
	$(PYTHON) -m bench.experiments

docs: setup ## run the examples of the documentation
	$(PYTHON) -m pytest -q $(wildcard tests/docs) --doctest-modules src/headwater

clean: ## remove what the targets above have made
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
