#!/usr/bin/env bash
# The benchmarks of a bundle (deploy/bundle) on a machine with a GPU and no build tree; each verifies what it times. JSON lines, also in the
# folder given.
#   tests/bench/run_gpu_bench.sh BUNDLE LOGS
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,4p' "$0"; exit 2; }
bundle=$(cd "$1" && pwd) || exit 2
mkdir -p "$2"
logs=$(cd "$2" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
failed=0
# run NAME COMMAND ...
run() {
  local name=$1
  shift
  "$@" 2>"$logs/$name.err" | tee -a "$logs/$name.jsonl"
  [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "FAILED: $*" && tail -3 "$logs/$name.err" && failed=1; }
}
program() { LD_LIBRARY_PATH="$bundle/lib:/usr/local/cuda/lib64" "$@"; }
for backend in cuda host; do run chain program "$bundle/bin/bench_chain" --backend $backend --seconds 0.5; done
for options in "sirt" "sirt --slices 1" "mlem" "mlem --slices 1" "fbp" "cgls --iterations 20"; do
  # shellcheck disable=SC2086
  run tomography program "$bundle/bin/bench_tomo" --backend cuda --algorithm $options
done
run prepare program "$bundle/bin/bench_prepare" --backend cuda
for program in octavod octavo; do
  [ "$(head -c 2 "$bundle/bin/$program")" = '#!' ] && continue
  mv "$bundle/bin/$program" "$bundle/bin/$program.real"
  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$bundle/lib:/usr/local/cuda/lib64" "$bundle/bin/$program.real" >"$bundle/bin/$program"
  chmod +x "$bundle/bin/$program"
done
export OCTAVO_BUILD_DIR=$bundle PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python PYTHONDONTWRITEBYTECODE=1
run octavo "$bundle/bin/octavo" bench --backend cuda
run jobs python3 "$here/bench_job.py" --backend cuda
run service python3 "$here/bench_service.py"
exit $failed
