#!/usr/bin/env bash
# Every test, of a tree that is set up and built: the C++ ones through ctest, then those that drive the real server over HTTP.
#
#   scripts/test.sh [PYTEST ARGUMENT...]
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export PROMPTCACHED_MODEL=$MODEL_DIR
step "C++ tests" ctest --test-dir build --output-on-failure --no-tests=error

if compgen -G 'tests/integration/test_*.py' >/dev/null; then
  export PROMPTCACHED_BINARY=$PROJECT_DIR/build/promptcached
  step "integration tests" "$VENV/bin/python" -m pytest -q --timeout 600 tests/integration "$@"
fi
