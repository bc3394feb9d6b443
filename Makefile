# Everything a person types. The work is in scripts/; a target here only says in which order.
# ARGS goes on to the program a target ends in: make run ARGS="--threads 4", make test ARGS="-k stream".

ARGS ?=
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build model run test bench bench-kernels bench-peers bench-structured bench-tiers models lint format asan tsan gpu-check image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing: Debian packages, and .venv with libtorch
	@scripts/setup.sh

build: setup ## build build/promptcached and the tests (Release)
	@scripts/build.sh

model: ## make the default model, models/smollm2-135m-instruct and the GGUF file beside it
	@scripts/setup.sh packages model

run: build ## do all set-up, build, and serve the default model on 127.0.0.1:8080
	@scripts/setup.sh model
	@scripts/run.sh $(ARGS)

test: build ## do all set-up, build, and run every test
	@scripts/setup.sh model test
	@scripts/test.sh $(ARGS)

bench: build ## time to first token with reuse and without, into docs/benchmarks.md
	@scripts/setup.sh model
	@scripts/bench.sh bench.py $(ARGS)

bench-kernels: setup ## the CPU's innermost loops, operations and bytes a second on one thread
	@scripts/build.sh bench_kernels
	@build/bench_kernels $(ARGS)

bench-peers: build ## the same workloads on us, llama.cpp and vLLM (an hour and more), into docs/benchmarks.md
	@scripts/setup.sh model
	@scripts/bench.sh bench_peers.py $(ARGS)

bench-structured: build ## decoding with a grammar against decoding without, into docs/benchmarks.md
	@scripts/setup.sh model
	@scripts/bench.sh structured.py $(ARGS)

bench-tiers: build ## time to first token by the tier a module lies in, into docs/benchmarks.md
	@scripts/setup.sh model
	@scripts/bench.sh tiers.py $(ARGS)

models: build ## compare every family of models with transformers, into docs/models.md
	@scripts/setup.sh model
	@scripts/models.sh

lint: build ## every static check: formatting, clang-tidy (minutes), ruff, shellcheck
	@scripts/setup.sh lint
	@scripts/lint.sh $(ARGS)

format: setup ## format all C++, Python and Rust in place
	@scripts/setup.sh lint
	@scripts/lint.sh --fix

asan: setup ## unit and parity tests under ASan and UBSan
	@scripts/setup.sh model test
	@scripts/sanitize.sh asan

tsan: setup ## tests of threads, pool and scheduler under TSan
	@scripts/sanitize.sh tsan

gpu-check: ## the parity tests on CUDA, with a tree that is built; skipped where there is no GPU
	@scripts/gpu_check.sh

image: ## build the CPU container image
	@docker/build.sh $(ARGS)

clean: ## remove what was built (not .venv, not models)
	rm -rf build build-debug build-asan build-tsan
