#!/usr/bin/env bash
# The benchmarks of a bundle (deploy/bundle) on a machine with a GPU and no build tree; each verifies what it times. JSON lines, also in the
# folder given.
#   tests/bench/run_gpu_bench.sh BUNDLE LOGS
. "$(dirname "$0")/gpu_bundle.sh"
here=$(cd "$(dirname "$0")" && pwd)
failed=0
# run NAME COMMAND ...
run() {
  local name=$1
  shift
  "$@" 2>"$logs/$name.err" | tee -a "$logs/$name.jsonl"
  [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "FAILED: $*" && tail -3 "$logs/$name.err" && failed=1; }
}
program() { LD_LIBRARY_PATH=$libraries "$@"; }
for backend in cuda host; do run chain program "$bundle/bin/bench_chain" --backend $backend --seconds 0.5; done
for options in "sirt" "sirt --slices 1" "mlem" "mlem --slices 1" "fbp" "cgls --iterations 20"; do
  # shellcheck disable=SC2086
  run tomography program "$bundle/bin/bench_tomo" --backend cuda --algorithm $options
done
run prepare program "$bundle/bin/bench_prepare" --backend cuda
run live program "$bundle/bin/bench_live" --backend cuda --size 2048 --angles 256
if python3 -c "import cupy" 2>/dev/null; then
  run array_ops python3 "$here/bench_array_ops_cupy.py" "$bundle/bin/bench_array_ops" --libraries "$libraries"
else
  run array_ops program "$bundle/bin/bench_array_ops" --backend cuda
fi
if python3 -c 'import cupyx.scipy.ndimage' 2>/dev/null; then
  run filters python3 "$here/bench_filters_cupy.py" "$bundle/bin/bench_filters" --libraries "$libraries"
else
  run filters program "$bundle/bin/bench_filters" --backend cuda
fi
run mosaic program "$bundle/bin/bench_mosaic" --backend cuda
wrap_programs
run octavo "$bundle/bin/octavo" bench --backend cuda
run jobs python3 "$here/bench_job.py" --backend cuda
run service python3 "$here/bench_service.py"
exit $failed
