#!/bin/sh
# side_by_side.sh PROGRAM ARGUMENTS...: the emulator's tests in two processes, sm_80's and all others. Warps take turns, so that a
# process keeps one processor busy.
set -u
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" "--test-case=sm_80:*" >"$log" 2>&1 &
sm80=$!
status=0
"$@" "--test-case-exclude=sm_80:*" || status=$?
wait "$sm80" || status=$?
cat "$log"
exit "$status"
