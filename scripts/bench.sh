#!/usr/bin/env bash
# bench.sh SCRIPT [ARG...]: a benchmark of loadtest/, with the packages it needs and this tree's server and model.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ -f loadtest/requirements.txt ]]; then
  scripts/setup.sh bench
fi
export PROMPTCACHED_MODEL=$MODEL_DIR
export PROMPTCACHED_BINARY=$PROJECT_DIR/build/promptcached
script=$1
shift
step "benchmark" "$VENV/bin/python" "loadtest/$script" "$@"
