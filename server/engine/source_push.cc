#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/push_port.h"
#include "server/engine/sources.h"

namespace octavo::engine {
namespace {

/// Records come through a port that clients push to.
class PushedRecords final : public Source {
 public:
  explicit PushedRecords(std::shared_ptr<PushPort> port) : port_(std::move(port)) {}

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    return port_->Next(static_cast<char*>(slot), max_records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override { return absl::InternalError("a push source waits; it never skips"); }
  bool CanWait() const override { return true; }  // no credit, no records
  void Want(int64_t total_records) override { port_->Want(total_records); }
  void OnNews(std::function<void(const std::string&)> tell) override { port_->OnNews(std::move(tell)); }
  SourceCounts Counts() override { return port_->Counts(); }
  std::vector<SourceMark> TakeMarks(int64_t record) override { return port_->TakeMarks(record); }
  void Close() override { port_->Close(); }
  std::shared_ptr<PushPort> push() override { return port_; }

 private:
  const std::shared_ptr<PushPort> port_;
};

}  // namespace

PushSource WithDefaults(const PushSource& given) {
  PushSource s = given;
  if (s.credit_blocks == 0) s.credit_blocks = 4;
  if (s.idle_timeout_s == 0) s.idle_timeout_s = 60;
  return s;
}

absl::StatusOr<SourceTraits> InspectPush(const ScanSpec& spec, const PushSource& given) {
  const PushSource s = WithDefaults(given);
  if (s.credit_blocks < 1 || s.credit_blocks > 64) {
    return InvalidField("push.credit_blocks", absl::StrCat("is ", given.credit_blocks, "; allowed 0 (4) to 64"));
  }
  if (!std::isfinite(s.idle_timeout_s) || s.idle_timeout_s > 1e9) {
    return InvalidField("push.idle_timeout_s", absl::StrCat("is ", given.idle_timeout_s, "; allowed at most 1e9; negative = never"));
  }
  const Acquisition& a = spec.acquisition;
  if (a.samples_per_record < 16 || a.samples_per_record > 65536) {
    return InvalidField("acquisition.samples_per_record", absl::StrCat("is ", a.samples_per_record, "; a push source needs it, 16 to 65536"));
  }
  return SourceTraits{.samples_per_record = a.samples_per_record,
                      .raw_type = a.raw_type_given ? a.raw_type : DType::kU16,
                      .packing = a.packing,
                      .record_rate_hz = a.record_rate_hz,
                      .full_scale_counts = 0,
                      .total_records = 0,
                      .wavelength_nm = {}};
}

std::unique_ptr<Source> OpenPush(const ScanSpec& resolved, const PushSource& given, const Clock* clock) {
  const PushSource s = WithDefaults(given);
  const Acquisition& a = resolved.acquisition;
  return std::make_unique<PushedRecords>(
      std::make_shared<PushPort>(PushLimits{.record_bytes = a.SourceRecordBytes(),
                                            .block_records = a.records_per_block * std::max<int64_t>(a.record_average, 1),
                                            .credit_blocks = s.credit_blocks,
                                            .idle_timeout_s = s.idle_timeout_s},
                                 clock));
}

}  // namespace octavo::engine
