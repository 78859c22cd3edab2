#!/usr/bin/env bash
# Everything that must be checked on a GPU, from a bundle (deploy/bundle): unit tests, the daemon's
# integration tests with the cuda backend, random chains, compute-sanitizer, the benchmarks. Whole
# logs go to the folder given. Some 30 minutes on one GPU; each part runs alone, too.
#   tests/bench/run_gpu_suite.sh BUNDLE LOGS
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,/^set/p' "$0" | grep '^#'; exit 2; }
here=$(dirname "$0")
mkdir -p "$2"
failed=0
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$2/gpu.txt"
for part in tests chains daemon sanitizers bench; do
  echo "-- $part"
  "$here/run_gpu_$part.sh" "$1" "$2/$part" || failed=1
done
exit $failed
