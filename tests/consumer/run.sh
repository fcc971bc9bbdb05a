#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build tree, builds tests/consumer against it, and trains with it. Usage: run.sh BUILD_DIR MODEL DATA.jsonl
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/prefix" > "$work/install.log"
cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug > "$work/configure.log"
cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/build/consumer" "$2" "$3" "$work/out"
test -s "$work/out/adapter_model.safetensors"
