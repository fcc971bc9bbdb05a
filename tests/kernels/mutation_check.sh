#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whether the tests notice small faults in the CUDA sources: copies the tree, puts in one fault of mutations.txt after the
# other, builds the emulated backend and runs the tests that must fail, in the three orders of the default run.
# Usage: mutation_check.sh [--check] [--folder WORK] [--list FILE] [--jobs N] [--only TEXT]
#   --check         only whether each text is in its file; nothing is built
#   --folder WORK   where the copy and its build lie, kept for the next run (default: a new one, removed at the end)
#   --only TEXT     only mutations whose first line or file contains TEXT
# Exit: 0 all were noticed, 1 one survived, 2 usage, a text that is not in its file, a mutation that does not compile,
# or tests that fail without one.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
list=$root/tests/kernels/mutations.txt work='' only='' jobs=1 check=0
while [ $# -gt 0 ]; do
  case "$1" in
    --check) check=1 ;;
    --folder) work=${2:?}; shift ;;
    --list) list=${2:?}; shift ;;
    --only) only=${2:?}; shift ;;
    --jobs) jobs=${2:?}; shift ;;
    -h | --help) sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "mutation_check.sh: unknown argument '$1', see --help" >&2; exit 2 ;;
  esac
  shift
done
list=$(realpath "$list")
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work/tree"
work=$(realpath "$work")
tree=$work/tree build=$work/build log=$work/log how_noticed=

# Only what differs is written, so that a kept build stays good.
copy_tree() {
  (cd "$root" && find CMakeLists.txt kernels quant lora finetune recipes tests -type f -print0) |
    while IFS= read -r -d '' f; do
      cmp -s "$root/$f" "$tree/$f" || { mkdir -p "$tree/$(dirname "$f")" && cp "$root/$f" "$tree/$f"; }
    done
}
make() { cmake --build "$build" --parallel "$jobs" --target "$@" >"$log" 2>&1; }
if [ "$check" -eq 1 ]; then
  tree=$root
else
  copy_tree
  cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBANTAM_BUILD_TESTS=ON >"$log" 2>&1 ||
    { cat "$log"; exit 2; }
  make backend_seam_test bantam_cuda_on_cpu || { tail -30 "$log"; exit 2; }
fi

# The device's half of the tests; a mutation that never ends is noticed as well.
noticed() {  # filter
  local how
  for how in "COC_SCHED=fwd" "COC_SCHED=rev COC_GUARD=1" "COC_SCHED=rand:1 COC_DEFER=1"; do
    # shellcheck disable=SC2086
    { env $how COC_LEAKS=1 timeout 120 "$build/bin/backend_seam_test" --test-case="$1" --subcase=device \
      --subcase-filter-levels=1; } >"$log" 2>&1 || { how_noticed=$how; return 0; }
    grep -qE 'test cases: +[1-9]' "$log" || { echo "no test case matches '$1'" >&2; exit 2; }
  done
  return 1
}

total=0 killed=0 broken=0 survivors=()
name='' file='' tests='' from=''
# Without a mutation all of these pass.
while IFS= read -r tests; do
  if noticed "$tests" </dev/null; then
    echo "the tests '$tests' fail without a mutation ($how_noticed):" >&2
    tail -20 "$log" >&2
    exit 2
  fi
done < <([ "$check" -eq 1 ] || sed -n 's/^tests //p' "$list" | sort -u)
mutate() {  # one whole record; $1 is the replacement
  [[ "$name $file" == *"$only"* ]] || return 0
  total=$((total + 1))
  [ -f "$tree/$file" ] || { echo "$name: no file $file" >&2; exit 2; }
  grep -qF -- "$from" "$tree/$file" || { echo "$name: $file does not contain: $from" >&2; exit 2; }
  [ "$check" -eq 0 ] || return 0
  FROM=$from TO=$1 awk 'BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
    !done && (at = index($0, from)) { $0 = substr($0, 1, at - 1) to substr($0, at + length(from)); done = 1 }
    { print }' "$root/$file" >"$tree/$file"
  if ! make bantam_cuda_on_cpu; then
    echo "NO BUILD $name ($file): $(grep -m1 'error:' "$log")"
    broken=$((broken + 1))
  elif noticed "$tests"; then
    killed=$((killed + 1))
    echo "noticed  $name ($how_noticed)"
  else
    survivors+=("$name ($file)")
    echo "SURVIVED $name ($file)"
  fi
  cp "$root/$file" "$tree/$file"
}
while IFS= read -r line || [ -n "$line" ]; do
  case "$line" in
    '#'* | '') ;;
    '= '*) name=${line#= } file='' tests='' from='' ;;
    'file '*) file=${line#file } ;;
    'tests '*) tests=${line#tests } ;;
    'from '*) from=${line#from } ;;
    'to' | 'to '*)
      if [ -z "$name" ] || [ -z "$file" ] || [ -z "$tests" ] || [ -z "$from" ]; then
        echo "$list: '$name' lacks a line before its 'to'" >&2
        exit 2
      fi
      to=${line#to}
      mutate "${to# }" </dev/null ;;
    *) echo "$list: cannot read: $line" >&2; exit 2 ;;
  esac
done <"$list"

[ "$total" -gt 0 ] || { echo "no mutation" >&2; exit 2; }
[ "$check" -eq 0 ] || { echo "$total mutations, each in its file"; exit 0; }
echo "$killed of $total mutations were noticed"
for s in "${survivors[@]}"; do echo "survived: $s"; done
[ "$broken" -eq 0 ] || exit 2
[ ${#survivors[@]} -eq 0 ]
