#!/usr/bin/env bash
# Formatting and static checks; any finding fails. The tree is set up and configured, and the Rust library built.
#
#   scripts/lint.sh [--quick | --fix]
#
# --quick   everything but clang-tidy, which takes many minutes on two cores
# --fix     format everything in place, and check nothing
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SOURCES="^$PROJECT_DIR/(core|api|server)/[^ ]*\.cpp\$"

mode=${1:-full}
mapfile -t cpp_files < <(find core api server tests loadtest \( -name target -o -name CMakeFiles \) -prune -o \
  -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -print | sort)
mapfile -t python_files < <(find scripts tests loadtest -name '*.py' | sort)
mapfile -t shell_files < <(find scripts loadtest .ci docker -type f \( -name '*.sh' -o -path '.ci/run' \) | sort)
ruff=("$VENV/bin/ruff")
ruff_options=(--quiet)
rust=core/Cargo.toml

format_rust() { # nothing to do where this Rust came without its formatter
  if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --all --manifest-path "$rust" "$@"
  else
    echo "    cargo fmt is not installed: skipped" >&2
  fi
}

if [[ $mode == --fix ]]; then
  ((${#cpp_files[@]})) && step "clang-format" clang-format-19 -i "${cpp_files[@]}"
  step "ruff format" "${ruff[@]}" format "${ruff_options[@]}" "${python_files[@]}"
  step "cargo fmt" format_rust
  exit
fi

step "clang-format: ${#cpp_files[@]} files" clang-format-19 --dry-run -Werror "${cpp_files[@]}"
step "ruff: ${#python_files[@]} files" "${ruff[@]}" check "${ruff_options[@]}" "${python_files[@]}"
step "ruff format" "${ruff[@]}" format --check "${ruff_options[@]}" "${python_files[@]}"
step "shellcheck: ${#shell_files[@]} files" shellcheck -x -P SCRIPTDIR "${shell_files[@]}"
step "cargo fmt" format_rust --check

[[ $mode == --quick ]] && exit
tidy() {
  local log
  log=$(mktemp)
  # The build's flags are gcc's: clang may not know every warning they turn off, nor come with an omp.h.
  if ! run-clang-tidy-19 -p build -j "$(jobs_here)" -quiet -extra-arg=-Wno-unknown-warning-option -extra-arg=-fno-openmp \
    "$SOURCES" >"$log" 2>/dev/null; then
    grep -v -E '^(/usr/bin/)?clang-tidy' "$log" >&2 || true
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
step "clang-tidy" tidy
