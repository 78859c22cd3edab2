#!/usr/bin/env bash
# compute-sanitizer's four tools over the gpu test programs of a bundle (deploy/bundle), two of them over random chains and the engine's too;
# four runs at a time, a line for each.
#   tests/bench/run_gpu_sanitizers.sh BUNDLE LOGS
. "$(dirname "$0")/gpu_bundle.sh"
export LD_LIBRARY_PATH=$libraries

one() {
  local code begun log
  log=$2/$3.$4.$(printf %s "$5" | cksum | cut -d" " -f1).log
  begun=$(date +%s)
  local arguments=(--gtest_filter="$5")
  [ "$4" = random_chains ] && arguments=(--backend cuda --count "$5")
  timeout 500 compute-sanitizer --tool "$3" --error-exitcode 9 "$1/bin/$4" "${arguments[@]}" >"$log" 2>&1
  code=$?
  printf '| %-10s | %-18s | %-6s | %4d s | %s | %s |\n' "$3" "$4" "$([ $code -eq 0 ] && echo clean || echo "FAIL $code")" $(($(date +%s) - begun)) \
    "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1 | sed 's/^=* *//')" "$(grep -oE '^\[  PASSED  \].*' "$log" | tail -1)"
  return $code
}
export -f one
for tool in memcheck racecheck initcheck synccheck; do
  printf '%s\n' "$tool gpu_test *AgreesWithTheModel*/cuda:*CosineByHand/cuda:*RollingTest*/cuda:*TablePlacement*/cuda:*Project*/cuda:*SpectralOptions*/cuda:*Repeats*/cuda:*Resample*/cuda:*SpectralRows*Chunks*/cuda:*SpectralRows*Saturated*/cuda:*DeviceTest*/cuda-*NeverWaits*:*TooMuchMemory*"
  # One reconstruction of each kind; two dozen random preparations are too long for racecheck.
  printf '%s\n' "$tool tomography_test *Tomo*/cuda-*SirtIsAsGood*:*CglsIs*:*Subsets*:*AxisOff*"
  random='*MatchesTheModel/cuda'
  [ $tool = racecheck ] && random=none
  printf '%s\n' "$tool preprocess_test $random:*Phase*/cuda:*MoreRows*/cuda:*Keeps*/cuda:*RingsTest*Model/cuda:*Stitching*/cuda:*BothLay*/cuda:*Overlaps*/cuda"
  printf '%s\n' "$tool fourier_test *SumOverAllFrequencies/cuda:*EachSliceHasItsAxis/cuda:*BatchesAreTheSame*/cuda:*EitherOrder/cuda"
  printf '%s\n' "$tool mosaic_test *EachVoxelIsTheWeightedMean*/cuda:*TypesAreRounded*/cuda:*NaNIsNoMeasurement*/cuda:*ZOverlapTest.FollowsTheDefinition/cuda"
  printf '%s\n' "$tool tomography_test *LivePlanes*APlaneNeedsNoOther/cuda"
  [ $tool = racecheck ] || printf '%s\n' "$tool gpu_test *Ops*/cuda"
  # The engine around the kernels: its copies, and reads of uninitialised memory.
  case $tool in memcheck | initcheck)
    printf '%s\n' "$tool scan_test *StreamSession*/cuda:*SpreadSession*/cuda" "$tool tomography_job_test *Tomography*/cuda" "$tool processing_test *Reprocess*/cuda" "$tool random_chains 100" ;;
  esac
done | xargs -P 4 -L 1 bash -c 'one "$@"' one "$bundle" "$logs"
