#include "server/model/resolved_scan.h"

#include <algorithm>

namespace octavo::model {
namespace {

constexpr int64_t kGatheredBytes =
    2 << 20;  // smaller uploads do not fill a link (tests/bench/RESULTS.md)

}  // namespace

int64_t UploadRecords(const ScanSpec& spec, int64_t volume_records) {
  const Acquisition& a = spec.acquisition;
  const int64_t block_bytes =
      a.records_per_block * a.SourceRecordBytes() * std::max<int64_t>(1, a.record_average);
  const int64_t blocks = std::min((kGatheredBytes + block_bytes - 1) / block_bytes,
                                  volume_records / a.records_per_block);
  return a.records_per_block * std::max<int64_t>(1, blocks);
}

double RecordRateHz(const ScanSpec& spec) {
  const auto* replay = std::get_if<ReplaySource>(&spec.source);
  const double rate = spec.acquisition.record_rate_hz > 0 ? spec.acquisition.record_rate_hz
                      : replay != nullptr                 ? replay->rate_hz
                      : std::holds_alternative<SimulatedSource>(spec.source) ? 100e3
                                                                             : 0;
  return rate / static_cast<double>(std::max<int64_t>(1, spec.acquisition.record_average));
}

}  // namespace octavo::model
