#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU: builds the CUDA backend for it, runs all tests of label gpu, compute-sanitizer over the op
# tests where that is installed, and the benchmark, whose table comes last. Every part has a time limit.
# Usage: tests/bench/gpu.sh [--folder BUILD] [--no-build] [--bench-only] [--limit SECONDS] [-- benchmark arguments]
#   --folder BUILD    build folder, default build-cuda      --bench-only  neither ctest nor compute-sanitizer
#   --no-build        what is in the folder, as it is       --limit N     seconds in all, default 480
# Exit: 0, 1 when something failed or was not finished, 2 usage or no toolkit, 77 without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

folder=build-cuda build=1 tests=1 limit=480
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=${2:?}; shift ;;
    --no-build) build=0 ;;
    --bench-only) tests=0 ;;
    --limit)
      limit=${2:-}
      [[ "$limit" =~ ^[1-9][0-9]*$ ]] || { echo "gpu.sh: --limit needs a number" >&2; exit 2; }
      shift ;;
    --) shift; break ;;
    -h | --help) sed -n '3,8s/^# \{0,1\}//p' "tests/bench/gpu.sh"; exit 0 ;;
    *) echo "gpu.sh: unknown argument '$1', see --help" >&2; exit 2 ;;
  esac
  shift
done

if [ ! -e /dev/nvidiactl ] && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "no GPU: nothing measured (neither /dev/nvidiactl nor an answer of nvidia-smi)"
  exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free,clocks.max.sm,power.limit --format=csv 2>/dev/null ||
  echo "nvidia-smi does not answer"

SECONDS=0
failed=0
report=()
# part NAME SECONDS COMMAND...: runs it within its limit and what is left of the whole; says what came of it.
part() {
  local name=$1 most=$2 left=$((limit - SECONDS)) start=$SECONDS status=0
  shift 2
  [ "$left" -lt "$most" ] && most=$left
  if [ "$most" -lt 5 ]; then
    report+=("$name: left out, the time is over")
    failed=1
    return 1
  fi
  echo
  echo "== $name"
  timeout --kill-after=5 "$most" "$@" || status=$?
  case $status in
    0) report+=("$name: ok ($((SECONDS - start)) s)") ;;
    77) report+=("$name: skipped") ;;
    124 | 137) report+=("$name: not finished within $most s"); failed=1 ;;
    *) report+=("$name: FAILED (exit $status)"); failed=1 ;;
  esac
  return "$status"
}

if [ "$build" -eq 1 ]; then
  nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  [ -x "$nvcc" ] || { echo "gpu.sh: no nvcc: set CUDACXX, or build elsewhere and use --no-build" >&2; exit 2; }
  part configure 60 cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBANTAM_BUILD_TESTS=ON \
    -DBANTAM_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=native || exit 1
  part build 270 cmake --build "$folder" --parallel "$(nproc)" --target \
    bantam_cuda backend_seam_test bantam_tests_device with_device bantam_gpu_bench || exit 1
fi
library=$(realpath -m "$folder")/lib/bantam/libbantam_cuda.so  # a path, not a name: absolute
[ -e "$library" ] || { echo "gpu.sh: no $library" >&2; exit 2; }

if [ "$tests" -eq 1 ]; then
  part "gpu tests" 90 ctest --test-dir "$folder" -L gpu --no-tests=error --output-on-failure
  if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
    # The device's half of each op test.
    ops=("$folder/bin/backend_seam_test" --source-file-exclude=*backend_load_test.cc --subcase=device --subcase-filter-levels=1)
    export BANTAM_TEST_BACKEND=$library
    for tool in memcheck racecheck; do
      part "compute-sanitizer $tool" 75 "$sanitizer" --tool "$tool" --error-exitcode 1 "${ops[@]}"
    done
    unset BANTAM_TEST_BACKEND
  else
    report+=("compute-sanitizer: not installed, left out")
  fi
fi

left=$((limit - SECONDS - 10))
part benchmark $((left + 5)) "$folder/bin/bantam_gpu_bench" --backend "$library" --limit "$((left > 10 ? left : 10))" "$@" |
  tee "$folder/gpu_bench.txt"
status=${PIPESTATUS[0]}
[ "$status" -eq 0 ] || failed=1

echo
echo "== Parts ($SECONDS s)"
printf '%s\n' "${report[@]}" "benchmark: $([ "$status" -eq 0 ] && echo ok || echo "FAILED (exit $status)")"
sed -n '/^== Summary/,$p' "$folder/gpu_bench.txt"
exit "$failed"
