#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ptxas_check.sh passes what it should and fails what it should, on made-up words of ptxas.
set -u
check=$(cd "$(dirname "$0")" && pwd)/ptxas_check.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2

kernel() {  # mangled name, architecture, spill stores, spill loads, registers
  echo "ptxas info    : Compiling entry function '$1' for '$2'"
  echo "ptxas info    : Function properties for $1"
  echo "    0 bytes stack frame, $3 bytes spill stores, $4 bytes spill loads"
  echo "ptxas info    : Used $5 registers, used 0 barriers, 380 bytes cmem[0]"
}
a=_ZN6bantam4cuda52_GLOBAL__N__f0ab1c23_12_copy_cuda_cu_0a1b2c3d_45678911copy_kernelIfNS_4bf16EEEvPKT_lPT0_lllb
b=_ZN6bantam4cuda12_GLOBAL__N_112adamw_kernelEPfPKf
{ echo "ptxas info    : 0 bytes gmem"; kernel $a sm_80 0 0 24; } >copy.log
kernel $b sm_80 0 0 40 >adamw.log
printf '# comment\n0 copy_kernel\n0 adamw_kernel\n' >list

failed=0
expect() {  # 0 or 1, words of the output, arguments
  local status=0 want=$1 words=$2
  shift 2
  "$check" "$@" >out 2>&1 || status=$?
  if [ "$status" -ne "$want" ] || ! grep -qF -- "$words" out; then
    echo "ptxas_check.sh $*: exit $status, expected $want with '$words':"
    cat out
    failed=1
  fi
}
expect 0 "sm_80: 2 kernels, at most 40 registers (adamw_kernel)" list copy.log adamw.log
expect 1 "no kernel adamw_kernel" list copy.log
printf '0 copy_kernel\n' >short
expect 1 "kernel adamw_kernel is in no line" short copy.log adamw.log
printf '0 copy_kernel<float, float>\n0 adamw_kernel\n' >instance
expect 1 "kernel copy_kernel<float, bf16> is in no line" instance copy.log adamw.log
kernel $b sm_80 8 4 255 >spills.log
expect 1 "kernel adamw_kernel spills: 8 bytes stored, 4 loaded; allowed: 0" list copy.log spills.log
printf '0 copy_kernel\n12 adamw_kernel\n' >allows
expect 0 "2 kernels" allows copy.log spills.log
kernel $b sm_90 4 0 255 >>adamw.log  # each architecture counts by itself
kernel $a sm_90 0 0 24 >>copy.log
expect 1 "sm_90: kernel adamw_kernel spills" list copy.log adamw.log
{ kernel $a sm_80 0 0 24; kernel $b sm_80 0 0 24; kernel $b sm_90 0 0 24; } >one.log
expect 1 "sm_90: no kernel copy_kernel" list one.log
{ kernel $a sm_80 0 0 24; kernel $b sm_80 0 0 24
  echo "ptxas info    : Function properties for _Z6helperv"
  echo "    16 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads"; } >helper.log
expect 1 "function helper spills" list helper.log
: >empty.log
expect 1 "were they compiled with -Xptxas -v" list empty.log
[ "$failed" -eq 0 ] && echo "ptxas_check.sh: all as expected"
exit "$failed"
