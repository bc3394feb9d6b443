#!/usr/bin/env bash
# Time to first token against prompt length, with reuse and without; further arguments go to loadtest/bench.py.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ -f loadtest/requirements.txt ]]; then
  scripts/setup.sh bench
fi
export PROMPTCACHED_MODEL=$MODEL_DIR
export PROMPTCACHED_BINARY=$PROJECT_DIR/build/promptcached
step "benchmark" "$VENV/bin/python" loadtest/bench.py "$@"
