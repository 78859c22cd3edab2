#!/usr/bin/env bash
# Everything that must be seen on a GPU, from a bundle (deploy/bundle): the gpu tests, the sanitizers on them, the daemon's
# integration tests with the cuda backend, the benchmarks. Full logs go to the directory given.
#   tests/bench/run_gpu_suite.sh BUNDLE LOGS
set -uo pipefail
bundle=$(cd "$1" && pwd)
logs=$2
mkdir -p "$logs"
libraries="$bundle/lib:/usr/local/cuda/lib64"
run() { LD_LIBRARY_PATH=$libraries "$@"; }
row() { printf '%-44s %s\n' "$1" "$2"; }
verdict() { if [ "$1" -eq 0 ]; then echo ok; else echo "FAILED ($1)"; fi; }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$logs/gpu.txt"
run "$bundle/bin/gpu_test" --gtest_filter='*' >"$logs/gpu_test.log" 2>&1
row "gpu_test" "$(verdict $?) $(grep -E '^\[  (PASSED|FAILED)' "$logs/gpu_test.log" | head -2 | tr '\n' ' ')"
run "$bundle/bin/tomography_test" >"$logs/tomography_test.log" 2>&1
row "tomography_test" "$(verdict $?) $(grep -E '^\[  (PASSED|FAILED)' "$logs/tomography_test.log" | head -2 | tr '\n' ' ')"
run "$bundle/bin/tomo_prepare_test" >"$logs/tomo_prepare_test.log" 2>&1
row "tomo_prepare_test" "$(verdict $?) $(grep -E '^\[  (PASSED|FAILED)' "$logs/tomo_prepare_test.log" | head -2 | tr '\n' ' ')"
for tool in memcheck racecheck initcheck synccheck; do
  run compute-sanitizer --tool $tool --error-exitcode 9 "$bundle/bin/gpu_test" \
    --gtest_filter='*AgreesWithTheModel*/cuda:*CosineByHand/cuda:*RollingBackground*/cuda:*TablePlacement*/cuda:*Project*/cuda:*SpectralOptions*/cuda:*Repeats*/cuda:*Resample*/cuda:*DeviceTest*/cuda-*NeverWaits*:*TooMuchMemory*' >"$logs/$tool.log" 2>&1
  row "compute-sanitizer $tool" "$(verdict $?) $(grep 'ERROR SUMMARY' "$logs/$tool.log" | tail -1)"
  run compute-sanitizer --tool $tool --error-exitcode 9 "$bundle/bin/tomography_test" \
    --gtest_filter='*Tomo*/cuda-*SirtIsAsGood*:*CglsIs*:*Subsets*:*AxisOff*' >"$logs/tomography_$tool.log" 2>&1
  row "compute-sanitizer $tool, tomography" "$(verdict $?) $(grep 'ERROR SUMMARY' "$logs/tomography_$tool.log" | tail -1)"
  random='*MatchesTheModel/cuda'
  [ $tool = racecheck ] && random=none  # two dozen rounds, too long for it
  run compute-sanitizer --tool $tool --error-exitcode 9 "$bundle/bin/tomo_prepare_test" \
    --gtest_filter="$random:*Phase*/cuda:*MoreRows*/cuda:*Keeps*/cuda:*RingsTest*Model/cuda:*Stitching*/cuda:*BothLay*/cuda:*Overlaps*/cuda" >"$logs/tomo_prepare_$tool.log" 2>&1
  row "compute-sanitizer $tool, preprocessing" "$(verdict $?) $(grep 'ERROR SUMMARY' "$logs/tomo_prepare_$tool.log" | tail -1)"
done
# The daemon with its own libraries, Python with the machine's.
if [ ! -e "$bundle/bin/octavod.real" ]; then
  for program in octavod octavo; do
    mv "$bundle/bin/$program" "$bundle/bin/$program.real"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$bundle/bin/$program.real" >"$bundle/bin/$program"
    chmod +x "$bundle/bin/$program"
  done
fi
export OCTAVO_BUILD_DIR=$bundle OCTAVO_TEST_DATA=$bundle/data PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python OCTAVO_DEVICE_BACKEND=cuda
for test in real_spectra chain main_path streaming storage pattern_scans push queue jobs buffer memory image; do
  timeout 150 python3 "tests/integration/${test}_test.py" >"$logs/$test.log" 2>&1
  row "daemon on cuda: $test" "$(verdict $?) $(tail -1 "$logs/$test.log")"
done
run "$bundle/bin/bench_chain" --backend cuda --seconds 0.5 | tee "$logs/bench_chain.jsonl"
run "$bundle/bin/bench_chain" --backend host --seconds 0.5 >>"$logs/bench_chain.jsonl"
for options in "sirt" "sirt --slices 1" "mlem" "mlem --slices 1" "fbp" "cgls --iterations 20"; do
  run "$bundle/bin/bench_tomo" --backend cuda --algorithm $options | tee -a "$logs/bench_tomo.jsonl"
done
run "$bundle/bin/bench_prepare" --backend cuda | tee "$logs/bench_prepare.jsonl"
python3 tests/bench/bench_service.py | tee "$logs/bench_service.jsonl"
