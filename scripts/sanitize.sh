#!/usr/bin/env bash
# The tests under a sanitizer.
#
#   scripts/sanitize.sh asan     AddressSanitizer and UndefinedBehaviorSanitizer: unit and parity tests
#   scripts/sanitize.sh tsan     ThreadSanitizer: the tests of the parts that share state between threads, none of which runs
#                                libtorch (which is not built for it)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TSAN_TESTS=(base kv engine)
suppressions=$PROJECT_DIR/scripts/sanitizers
export PROMPTCACHED_MODEL=$MODEL_DIR

case ${1:-} in
  asan)
    scripts/build.sh --preset asan
    # libtorch and the dynamic loader keep what they allocate once; two copies of an inline variable are libtorch's own affair.
    export ASAN_OPTIONS=detect_leaks=1:detect_odr_violation=0:strict_string_checks=1:detect_stack_use_after_return=1
    export LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    step "tests under ASan and UBSan" ctest --test-dir build-asan --output-on-failure --no-tests=error
    ;;
  tsan)
    scripts/build.sh --preset tsan --configure-only
    known=$(ninja -C build-tsan -t targets all)
    targets=()
    tests=()
    for name in "${TSAN_TESTS[@]}"; do
      if grep -q "^test_$name:" <<<"$known"; then
        targets+=("test_$name")
        tests+=("$name")
      fi
    done
    ((${#targets[@]} > 0)) || die "none of these tests exists: ${TSAN_TESTS[*]}"
    scripts/build.sh --preset tsan "${targets[@]}"
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$suppressions/tsan.supp
    step "tests under TSan: ${tests[*]}" \
      ctest --test-dir build-tsan --output-on-failure --no-tests=error -R "^($(IFS='|'; printf '%s' "${tests[*]}"))$"
    ;;
  *) die "usage: scripts/sanitize.sh asan|tsan" ;;
esac
