#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Bantam and runs every test that is not labelled slow. Installs missing Debian packages first (root or sudo;
# neither is needed when all are there).
# Usage: tests/run.sh [--asan | --tsan] [--plain] [--ask] [--jobs N] [-- ctest arguments]
#   --asan   AddressSanitizer and UBSan, in build-asan/      --ask     ask before installing packages
#   --tsan   ThreadSanitizer, in build-tsan/                 --jobs N  compilers and tests at a time (default: all CPUs)
#   --plain  without the sanitizers' second run of the CUDA sources
# Exit: 0 all passed, 1 a test failed or the build did, 2 usage or missing packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. recipes/packages.sh
PACKAGES=("${BUILD_PACKAGES[@]}" doctest-dev libbenchmark-dev)

preset=cpu
sanitize=yes
ask=yes
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --asan) preset=asan ;;
    --tsan) preset=tsan ;;
    --plain) sanitize=no ;;
    --ask) ask=ask ;;
    --jobs)
      jobs=${2:-}
      [[ "$jobs" =~ ^[1-9][0-9]*$ ]] || { echo "tests/run.sh: --jobs needs a number" >&2; exit 2; }
      shift ;;
    --) shift; break ;;
    -h | --help) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "tests/run.sh: unknown argument '$1', see --help" >&2; exit 2 ;;
  esac
  shift
done

need_packages "$ask" "${PACKAGES[@]}" || exit 2

# halt_on_error: a report is a failure, also where the program would have gone on.
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
summary=$(mktemp)
log=$(mktemp)
trap 'rm -f "$summary" "$log"' EXIT
status=0

# stage PRESET "TARGET..." CTEST-ARGUMENT...: configures, builds and tests; adds its closing lines to the summary.
stage() {
  local preset=$1 build=build targets last
  read -ra targets <<<"$2"
  shift 2
  [ "$preset" = cpu ] || build=build-$preset
  # BANTAM_BUILD_TESTS is said again on each run: a build folder that the quickstart configured has no tests.
  cmake --preset "$preset" -DBANTAM_BUILD_TESTS=ON || exit 1
  cmake --build --preset "$preset" --parallel "$jobs" --target "${targets[@]}" || exit 1
  ctest --preset "$preset" --parallel "$jobs" --no-tests=error "$@" </dev/null 2>&1 | tee "$log" || status=1
  {
    echo "== Summary (preset $preset) =="
    grep -E '^[0-9]+% tests passed|^Total Test time' "$log" || true
    # The doctest counts of all programs, added up from their own logs.
    last=$build/Testing/Temporary/LastTest.log
    [ ! -r "$last" ] || awk '
      /^\[doctest\] test cases:/ { programs++; cases += $4; for (i = 1; i < NF; i++) if ($(i + 1) == "failed") failed += $i }
      /^\[doctest\] assertions:/ { assertions += $3 }
      END { printf "doctest: %d programs, %d test cases, %d assertions, %d cases failed\n", programs, cases, assertions, failed }' \
      "$last"
  } >>"$summary"
}

stage "$preset" all "$@"
# The CUDA sources' op tests once more under AddressSanitizer and UBSan, which see what no number shows: reads beyond an
# allocation or a shared variable, unaligned vectors. (--asan has everything: it takes the compiler three times as long.)
if [ "$preset" = cpu ] && [ $# -eq 0 ] && [ "$sanitize" = yes ]; then
  if [ -e build/lib/bantam/libbantam_cuda_on_cpu.so ]; then
    stage asan "backend_seam_test cuda_on_cpu_test" --tests-regex '^(backend_seam_test|cuda_on_cpu_test)' \
      --exclude-regex '^backend_seam_test\.rev$'  # guarded memory: plain builds look at that, four times as fast
  else
    echo "No sanitizers over the CUDA sources: this build has no CUDA toolkit headers" >>"$summary"
  fi
fi

echo
cat "$summary"
[ "$status" -eq 0 ] && echo "PASS" || echo "FAIL"
exit "$status"
