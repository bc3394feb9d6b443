#!/usr/bin/env bash
# The parity tests on an NVIDIA GPU, with a tree that is built: under five minutes. Without a GPU it says so and succeeds.
#
# TORCH_ROOT=<directory with include/ and lib/>: take libtorch (with its CUDA part) from there, not from .venv.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ! -e /dev/nvidiactl ]]; then
  say "gpu-check: SKIPPED, this machine has no NVIDIA GPU"
  exit 0
fi
if [[ -n ${TORCH_ROOT:-} ]]; then
  # Used where the build's own rpath leads nowhere, as on a machine that was only given the build.
  site_packages=$(dirname "$TORCH_ROOT")
  LD_LIBRARY_PATH=$TORCH_ROOT/lib:$(printf '%s:' "$site_packages"/nvidia/*/lib)${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH
else
  scripts/setup.sh cuda
fi
export PROMPTCACHED_MODEL=$MODEL_DIR
export PROMPTCACHED_TEST_DEVICE=cuda
ran=0
for name in model parity engine; do
  [[ -x build/test_$name ]] || continue
  step "test_$name on CUDA" "build/test_$name"
  ran=$((ran + 1))
done
((ran > 0)) || die "no tests are built: run make build first"
say "gpu-check: $ran test programs passed on $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)"
