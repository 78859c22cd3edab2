#!/usr/bin/env bash
# The unit test programs of a bundle (deploy/bundle) on a machine with a GPU and no build tree, four at a time; a line for each, and what
# failed. Whole logs go to the folder given. Ends with 1 if a test failed.
#   tests/bench/run_gpu_tests.sh BUNDLE LOGS [PROGRAM ...]       (all of BUNDLE/bin/*_test unless named)
. "$(dirname "$0")/gpu_bundle.sh"
programs=("$@")
[ ${#programs[@]} -gt 0 ] || for program in "$bundle"/bin/*_test; do programs+=("$(basename "$program")"); done
export LD_LIBRARY_PATH=$libraries

one() {
  local begun seconds code ran failed
  begun=$(date +%s)
  timeout 400 "$1/bin/$2" --gtest_brief=1 >"$3/$2.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begun))
  ran=$(grep -oE '^\[==========\] [0-9]+ tests? from .* ran' "$3/$2.log" | grep -oE '[0-9]+ tests?' | head -1)
  failed=$(grep -E '^\[  FAILED  \] [^ ]+[,.]' "$3/$2.log" | grep -vE '^\[  FAILED  \] [0-9]+ test' | sed 's/^\[  FAILED  \] //; s/,.*//' | sort -u | tr '\n' ' ')
  skipped=$(grep -cE '^\[  SKIPPED \] [^ ]+ \(' "$3/$2.log")
  if [ $code -eq 0 ]; then printf '| %-20s | pass | %4d s | %s, %s skipped |\n' "$2" $seconds "$ran" "$skipped"
  else printf '| %-20s | FAIL | %4d s | exit code %s; %s |\n' "$2" $seconds $code "$failed"; fi
  return $code
}
export -f one
printf '%s\n' "${programs[@]}" | xargs -P 4 -I{} bash -c 'one "$@"' one "$bundle" {} "$logs"
