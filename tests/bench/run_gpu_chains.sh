#!/usr/bin/env bash
# Random spectral chains against the model in double precision on a GPU, from a bundle (deploy/bundle): 2,000 with the cuda backend, five
# programs at a time, and 600 with the host's. A line for each program, and the whole configuration of what is wrong; ends with 1 if a chain is.
#   tests/bench/run_gpu_chains.sh BUNDLE LOGS [SEED]      (a fresh seed unless given)
. "$(dirname "$0")/gpu_bundle.sh"
seed=${1:-$RANDOM$RANDOM}
export LD_LIBRARY_PATH=$libraries
one() {
  local log=$2/chains_$3_$5.log code
  "$1/bin/random_chains" --backend "$3" --count "$4" --seed "$5" >"$log" 2>&1
  code=$?
  tail -1 "$log"
  grep -A 20 '^WRONG' "$log" | head -60
  return $code
}
export -f one
for k in 0 1 2 3 4; do echo "cuda 400 $((seed + 400 * k))"; done | xargs -P 5 -L 1 bash -c 'one "$@"' one "$bundle" "$logs" || exit 1
one "$bundle" "$logs" host 600 "$seed"
