#!/usr/bin/env bash
# Configure where needed and build.
#
#   scripts/build.sh [--preset NAME] [--configure-only] [TARGET...]      presets: release (default), debug, asan, tsan
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=release
configure_only=false
targets=()
while (($# > 0)); do
  case $1 in
    --preset) preset=$2; shift 2 ;;
    --configure-only) configure_only=true; shift ;;
    *) targets+=("$1"); shift ;;
  esac
done
if [[ $preset == release ]]; then build_dir=build; else build_dir=build-$preset; fi

root=$(torch_root)
[[ -e $root/include/ATen/ATen.h ]] || die "no libtorch at $root: run scripts/setup.sh, or set TORCH_ROOT"

# Configure again when the presets, libtorch or the compiler changed; CMake itself sees to its own files.
key=$({ cat CMakePresets.json; printf '%s\n' "$root" "$PROJECT_DIR" "${CXX:-}" "${CC:-}"; } | sha256sum | cut -d ' ' -f 1)
stamp=$build_dir/.configured
if [[ ! -f $build_dir/build.ninja || ! -f $stamp || $(<"$stamp") != "$key" ]]; then
  # --fresh is newer than the oldest CMake supported: drop the cache by hand, keep the objects.
  rm -f "$build_dir/CMakeCache.txt"
  step "configuring $build_dir" cmake --preset "$preset" -DTORCH_ROOT="$root"
  printf '%s' "$key" >"$stamp"
fi
$configure_only && exit

if ((${#targets[@]} > 0)); then
  step "building ${targets[*]} in $build_dir" cmake --build "$build_dir" --parallel "$(jobs_here)" --target "${targets[@]}"
else
  step "building $build_dir" cmake --build "$build_dir" --parallel "$(jobs_here)"
fi
