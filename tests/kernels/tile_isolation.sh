#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tiers' objects are compiled for machines that not everybody has. A shared inline function in one of them could be the
# copy that the linker keeps for the whole program, and stop it on a lesser machine. So: no weak symbol but the NF4 code.
# Usage: tile_isolation.sh <nm> <libbantam_kernels.a>
set -u
found=$("$1" -C -A "$2" 2>/dev/null | grep -E ':tile_(avx2|avx512|avx512bf16)\.cc\.o:' | grep -E ' [WVu] ' | grep -v 'bantam::kNf4Code$')
seen=$("$1" -C -A "$2" 2>/dev/null | grep -cE ':tile_avx2\.cc\.o:.* [DRB] bantam::kTileAvx2$')
if [ "$seen" -ne 1 ]; then
  echo "tile_avx2.cc.o was not found in $2"
  exit 1
fi
if [ -n "$found" ]; then
  echo "weak symbols in the tiers' objects:"
  echo "$found"
  exit 1
fi
