#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the CUDA backend's library with nvcc and CMake in a folder of its own, and holds what ptxas says of its kernels
# against a list (ptxas_check.sh).
# Usage: build.sh SOURCE FOLDER NVCC GENERATOR ARCHITECTURES LIST     ARCHITECTURES: "80 90", each as code and PTX
# The toolkit's words are kept beside each object, so that a build that has nothing to do is checked too.
set -euo pipefail
source=$1 folder=$2 nvcc=$3 generator=$4 list=$(realpath "$6")
here=$(cd "$(dirname "$0")" && pwd)

known=$("$nvcc" --list-gpu-code)
architectures=
for a in $5; do
  if grep -qx "sm_$a" <<<"$known"; then
    architectures+="${architectures:+;}$a"
  else
    echo "sm_$a: not known to this nvcc, left out"
  fi
done
[ -n "$architectures" ] || { echo "none of the architectures '$5' is known to $nvcc"; exit 1; }

cmake -S "$source" -B "$folder" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DBANTAM_CUDA=ON -DBANTAM_BUILD_TESTS=OFF \
  -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS="-Xptxas -v" \
  -DCMAKE_CUDA_COMPILER_LAUNCHER="$here/keep_output.sh" >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
start=$SECONDS
# One compiler: ctest runs other tests beside this one.
cmake --build "$folder" --target bantam_cuda --parallel 1 || exit 1
echo "built for $architectures in $((SECONDS - start)) s, one core"
[ -s "$folder/lib/bantam/libbantam_cuda.so" ] || { echo "no libbantam_cuda.so"; exit 1; }

# The sources of this configuration: the log of one that is gone does not count.
logs=
for name in $(sed -n 's|.*"file": ".*/\([^/"]*\.cu\)".*|\1|p' "$folder/compile_commands.json"); do
  log=$(cd "$folder" && find kernels/cuda/CMakeFiles/bantam_cuda.dir -name "$name.o.log")
  [ -n "$log" ] || { echo "no words of the compiler about $name"; exit 1; }
  logs+=" $log"
done
[ -n "$logs" ] || { echo "no .cu file in compile_commands.json"; exit 1; }
cd "$folder"
# shellcheck disable=SC2086
exec "$here/ptxas_check.sh" "$list" $logs
