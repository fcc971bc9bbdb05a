#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# find_package(bantam): a program of somebody else's, built against the installed tree, trains a model.
. "$(dirname "$0")/common.sh"
"$(dirname "$0")/../consumer/run.sh" "$build" "$work/model" "$work/data.jsonl" || fail "the consumer failed"
done_testing
