#!/usr/bin/env bash
# Random spectral chains against the model in double precision on a GPU, from a bundle (deploy/bundle): 2,000 with the cuda backend and 200
# with the host's. A line for each backend, and the whole configuration of what is wrong; ends with 1 if a chain is.
#   tests/bench/run_gpu_chains.sh BUNDLE LOGS [SEED]      (a fresh seed unless given)
. "$(dirname "$0")/gpu_bundle.sh"
seed=${1:-$RANDOM$RANDOM}
failed=0
for run in "cuda 2000" "host 200"; do
  set -- $run
  LD_LIBRARY_PATH=$libraries "$bundle/bin/random_chains" --backend "$1" --count "$2" --seed "$seed" >"$logs/chains_$1.log" 2>&1 || failed=1
  tail -1 "$logs/chains_$1.log"
  grep -A 20 '^WRONG' "$logs/chains_$1.log" | head -60
done
exit $failed
