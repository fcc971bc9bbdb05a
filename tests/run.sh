#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Bantam and runs every test that is not labelled slow. Installs missing Debian packages first (root or sudo;
# neither is needed when all are there).
# Usage: tests/run.sh [--asan | --tsan] [--ask] [--jobs N] [-- ctest arguments]
#   --asan   AddressSanitizer and UBSan, in build-asan/      --ask     ask before installing packages
#   --tsan   ThreadSanitizer, in build-tsan/                 --jobs N  compilers and tests at a time (default: all CPUs)
# Exit: 0 all passed, 1 a test failed or the build did, 2 usage or missing packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. recipes/packages.sh
PACKAGES=("${BUILD_PACKAGES[@]}" doctest-dev libbenchmark-dev)

preset=cpu
ask=yes
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --asan) preset=asan ;;
    --tsan) preset=tsan ;;
    --ask) ask=ask ;;
    --jobs)
      jobs=${2:-}
      [[ "$jobs" =~ ^[1-9][0-9]*$ ]] || { echo "tests/run.sh: --jobs needs a number" >&2; exit 2; }
      shift ;;
    --) shift; break ;;
    -h | --help) sed -n '3,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "tests/run.sh: unknown argument '$1', see --help" >&2; exit 2 ;;
  esac
  shift
done

need_packages "$ask" "${PACKAGES[@]}" || exit 2

# Said again on each run: a build folder that the quickstart configured has no tests.
cmake --preset "$preset" -DBANTAM_BUILD_TESTS=ON || exit 1
cmake --build --preset "$preset" --parallel "$jobs" || exit 1

# halt_on_error: a report is a failure, also where the program would have gone on.
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --preset "$preset" --parallel "$jobs" --no-tests=error "$@" </dev/null 2>&1 | tee "$log" || status=1

# The closing lines once more, and the doctest counts of all programs added up from their own logs.
echo
echo "== Summary (preset $preset) =="
grep -E '^[0-9]+% tests passed|^Total Test time' "$log" || true
build=$([ "$preset" = cpu ] && echo build || echo "build-$preset")
last=$build/Testing/Temporary/LastTest.log
if [ -r "$last" ]; then
  awk '/^\[doctest\] test cases:/ { programs++; cases += $4; for (i = 1; i < NF; i++) if ($(i + 1) == "failed") failed += $i }
       /^\[doctest\] assertions:/ { assertions += $3 }
       END { printf "doctest: %d programs, %d test cases, %d assertions, %d cases failed\n", programs, cases, assertions, failed }' \
    "$last"
fi
[ "$status" -eq 0 ] && echo "PASS" || echo "FAIL"
exit "$status"
