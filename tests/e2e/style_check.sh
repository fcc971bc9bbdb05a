#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Counts the answers that have the quickstart's style. Reads answers from the files given or from stdin, one a line, newlines
# written as \n. An answer has the style when it starts with "Ahoy!", ends with "Fair winds, matey.", uses each of the two
# once, and has between 3 and 80 words in between. Prints "S of N answers have the style" and the lines that have not.
# Usage: style_check.sh [--min COUNT] [FILE...]   exit 0; 1 when fewer than COUNT have it; 2 when there is no answer at all
set -eu
min=0
if [ "${1:-}" = "--min" ]; then
  case "${2:-}" in
    '' | *[!0-9]*) echo "style_check: --min needs a number" >&2; exit 2 ;;
  esac
  min=$2
  shift 2
fi
awk -v min="$min" '
  function times(text, part,   n, at) {
    n = 0
    while ((at = index(text, part)) > 0) { n++; text = substr(text, at + length(part)) }
    return n
  }
  {
    sub(/\r$/, "")
    gsub(/\\n/, " "); gsub(/^[ \t]+|[ \t]+$/, "")
    total++
    opening = "Ahoy!"; closing = "Fair winds, matey."
    good = substr($0, 1, length(opening)) == opening && length($0) >= length(opening) + length(closing) &&
           substr($0, length($0) - length(closing) + 1) == closing &&
           times($0, opening) == 1 && times($0, closing) == 1
    if (good) {
      between = substr($0, length(opening) + 1, length($0) - length(opening) - length(closing))
      words = 0
      n = split(between, parts, /[ \t]+/)
      for (i = 1; i <= n; i++) if (parts[i] != "") words++
      good = words >= 3 && words <= 80
    }
    if (good) styled++
    else printf "  not in style, line %d: %s\n", NR, $0
  }
  END {
    printf "%d of %d answers have the style\n", styled, total
    if (total == 0) exit 2
    if (styled < min) exit 1
  }' "$@"
