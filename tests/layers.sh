#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom: kernels <- quant <- lora <- finetune <- recipes; no CUDA outside kernels/; no output outside recipes/.
# Prints each offending line; exit 1 when there is one.
set -u
cd "$(dirname "$0")/.." || exit 2
bad=0
check() {  # folder, pattern of folders that it must not include
  local found
  found=$(grep -rnE "#include +[\"<]((\.\./)*|bantam/)($2)/" "$1" --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh')
  [ -n "$found" ] && { echo "$1/ must not include $2:"; echo "$found"; bad=1; }
}
check kernels 'quant|lora|finetune|recipes'
check quant 'lora|finetune|recipes'
check lora 'finetune|recipes'
check finetune 'recipes'
for d in kernels quant lora finetune recipes; do
  found=$(grep -rnE '#include +[<"]((\.\./)*tests/|doctest)' "$d" --include='*.h' --include='*.cc')
  [ -n "$found" ] && { echo "$d/ must not include tests:"; echo "$found"; bad=1; }
done
found=$(grep -rnlE '#include +<(cuda|cublas)' quant lora finetune recipes --include='*.h' --include='*.cc'; find quant lora finetune recipes -name '*.cu' -o -name '*.cuh' | grep .)
[ -n "$found" ] && { echo "CUDA outside kernels/:"; echo "$found"; bad=1; }
found=$(grep -rnE 'std::(cout|cerr|clog)|\b(printf|puts|abort|exit) *\(|fprintf *\( *std(out|err)' kernels quant lora finetune --include='*.h' --include='*.cc' | grep -vE '_exit|snprintf|vsnprintf|cuda_on_cpu/')
[ -n "$found" ] && { echo "the library never prints, aborts or exits:"; echo "$found"; bad=1; }
exit $bad
