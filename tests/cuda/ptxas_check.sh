#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads what `ptxas -v` said and fails when a kernel spills registers beyond what a list allows, when a kernel is not in
# the list, and when a line of the list has no kernel; for each architecture by itself.
# Usage: ptxas_check.sh LIST LOG...     LIST: no_spill_kernels.txt says what a line is
set -euo pipefail
list=$1
shift

# architecture, mangled name, "kernel" or "function", bytes of spill stores, of spill loads, registers
rows=$(awk '
  function flush() { if (name != "") print arch, name, kind, stores, loads, registers; name = "" }
  FNR == 1 { flush(); entry = "" }
  /Compiling entry function/ { flush(); split($0, q, "\047"); entry = q[2]; arch = q[4] }
  /Function properties for/ { flush(); name = $NF; kind = name == entry ? "kernel" : "function"; registers = 0 }
  /bytes spill stores/ { for (i = 3; i <= NF; i++) { if ($i ~ /^stores/) stores = $(i - 3); if ($i ~ /^loads/) loads = $(i - 3) } }
  /Used [0-9]+ registers/ { for (i = 2; i <= NF; i++) if ($i ~ /^registers/) registers = $(i - 1); flush() }
  END { flush() }' "$@")
[ -n "$rows" ] || { echo "no kernel in $*: were they compiled with -Xptxas -v?"; exit 1; }

# `void bantam::cuda::(anonymous namespace)::name<bantam::bf16, 4>(...)` is `name<bf16, 4>` in the list.
names=$(cut -d' ' -f2 <<<"$rows" | c++filt |
  sed -E 's/\(anonymous namespace\):://g; s/bantam::(cuda::)?//g; s/^void //; s/\([A-Za-z_:]+\)([0-9]+)/\1/g; s/\(.*$//')

paste -d'|' <(cut -d' ' -f1,3- <<<"$rows") <(printf '%s\n' "$names") | awk -F'|' -v list="$list" '
  BEGIN {
    while ((getline line < list) > 0) {
      if (line ~ /^ *(#|$)/) continue
      n++
      allowed[n] = line + 0
      sub(/^ *[0-9]+ +/, "", line)
      pattern[n] = line
    }
    if (n == 0) { print list ": no line"; bad = 1 }
  }
  {
    split($1, f, " ")
    arch = f[1]; stores = f[3]; loads = f[4]; registers = f[5]; name = $2
    archs[arch] = 1
    if (f[2] != "kernel") {
      if (stores + loads > 0) { print arch ": function " name " spills: " stores " bytes stored, " loads " loaded"; bad = 1 }
      next
    }
    kernels[arch]++
    if (registers > most[arch]) { most[arch] = registers; whose[arch] = name }
    for (i = 1; i <= n; i++) if (name ~ ("^" pattern[i] "(<.*>)?$")) break
    if (i > n) { print arch ": kernel " name " is in no line of " list; bad = 1; next }
    seen[arch, i] = 1
    if (stores + loads > allowed[i]) {
      print arch ": kernel " name " spills: " stores " bytes stored, " loads " loaded; allowed: " allowed[i]
      bad = 1
    }
  }
  END {
    for (a in archs) {
      for (i = 1; i <= n; i++)
        if (!((a, i) in seen)) { print a ": no kernel " pattern[i] ", which " list " names"; bad = 1 }
      print a ": " kernels[a] + 0 " kernels, at most " most[a] + 0 " registers (" whose[a] ")"
    }
    exit bad
  }'
