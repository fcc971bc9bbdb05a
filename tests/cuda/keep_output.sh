#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A compiler launcher: runs the command and keeps what it says as OBJECT.log, beside the object that -o names.
object=
before=
for word in "$@"; do
  [ "$before" = -o ] && object=$word
  before=$word
done
[ -n "$object" ] || exec "$@"
"$@" >"$object.log" 2>&1 && exit 0
status=$?
cat "$object.log"
rm -f "$object.log"
exit "$status"
