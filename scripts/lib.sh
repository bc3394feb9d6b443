# Shared by the scripts in this folder: sourced, not run. Leaves the shell in the project's root.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PROJECT_DIR=$PWD
# shellcheck disable=SC2034  # used by the scripts that source this
VENV=$PROJECT_DIR/.venv
# shellcheck disable=SC2034
MODEL_DIR=$PROJECT_DIR/models/smollm2-135m-instruct

# Other clones of the project share the compiler cache.
export CCACHE_BASEDIR=$PROJECT_DIR

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# step TITLE COMMAND...: say what is done, do it, say how long it took.
step() {
  local title=$1 begin end
  shift
  say "$title"
  begin=$(date +%s%N)
  "$@"
  end=$(date +%s%N)
  printf '    done in %d.%01d s\n' $(((end - begin) / 1000000000)) $(((end - begin) / 100000000 % 10)) >&2
}

# The libtorch to build with: the user's own, or the one in the virtual environment.
torch_root() {
  if [[ -n ${TORCH_ROOT:-} ]]; then
    printf '%s\n' "$TORCH_ROOT"
  else
    "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"] + "/torch")'
  fi
}

# Parallel compile jobs: one a core, but no more than memory carries (a file that includes libtorch takes about 1.5 GB).
jobs_here() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
  ((memory_gb < 1)) && memory_gb=1
  printf '%s\n' "${JOBS:-$((cores < memory_gb ? cores : memory_gb))}"
}
