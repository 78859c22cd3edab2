#!/usr/bin/env bash
# The daemon's integration tests from a bundle (deploy/bundle), on a machine that has no build tree: with the cuda backend, or what
# OCTAVO_DEVICE_BACKEND says. A line for each test, and all of them as a table at the end; whole logs go to the folder given.
#   tests/bench/run_gpu_daemon.sh BUNDLE LOGS [TEST ...]       (all below unless named; nothing_grows_over_time runs for OCTAVO_SOAK_SECONDS, default 40)
# Test data: OCTAVO_TEST_DATA, else BUNDLE/data if it is there. Ends with 1 if a test failed.
. "$(dirname "$0")/gpu_bundle.sh"
here=$(cd "$(dirname "$0")/../.." && pwd)
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(main_path real_spectra chain streaming storage buffer jobs queue push pattern_scans image memory handoff handoff_feed handoff_overdue handoff_wire
  ring tomography tomography_push damaged_files several_devices nothing_grows_over_time)
wrap_programs
export OCTAVO_DEVICE_BACKEND=${OCTAVO_DEVICE_BACKEND:-cuda} OCTAVO_SOAK_SECONDS=${OCTAVO_SOAK_SECONDS:-40}

table="" failed=0
for test in "${tests[@]}"; do
  begun=$(date +%s)
  for program in "$here"/tests/{integration/*,fault}/"${test}_test.py"; do [ ! -f "$program" ] || break; done
  PYTHONPATH="$here/tests/integration" timeout 300 python3 "$program" -v >"$logs/$test.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begun))
  # What unittest says last: "OK (skipped=2)", "FAILED (failures=1)".
  said=$(grep -E '^(OK|FAILED)' "$logs/$test.log" | tail -1)
  if [ $code -eq 124 ]; then said="more than 300 s"; fi
  if [ $code -eq 0 ]; then verdict=pass; else verdict=FAIL failed=$((failed + 1)); fi
  line=$(printf '| %-16s | %-4s | %5d | %s |' "$test" "$verdict" "$seconds" "${said:-exit code $code}")
  echo "$line"
  table="$table$line"$'\n'
done
echo
printf '| test             |      |     s | %s |\n|---|---|---|---|\n%s' "$OCTAVO_DEVICE_BACKEND" "$table" | tee "$logs/table.md"
echo "$failed of ${#tests[@]} failed; logs in $logs"
[ "$failed" -eq 0 ]
