#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/source/push_records.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace {

/// The source of records that clients push to a port.
class PushedRecords final : public Source {
 public:
  explicit PushedRecords(std::shared_ptr<PushPort> port) : port_(std::move(port)) {}

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    return port_->Next(static_cast<char*>(slot), max_records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("a push source waits; it never skips");
  }
  bool CanWait() const override { return true; }  // without credit, the client sends no records
  void Want(int64_t total_records) override { port_->Want(total_records); }
  void OnNews(std::function<void(const std::string&)> tell) override {
    port_->OnNews(std::move(tell));
  }
  model::SourceCounts Counts() override { return port_->Counts(); }
  std::vector<SourceMark> TakeMarks(int64_t record) override { return port_->TakeMarks(record); }
  void Close() override { port_->Close(); }
  std::shared_ptr<PushPort> push() override { return port_; }

 private:
  const std::shared_ptr<PushPort> port_;
};

}  // namespace

model::PushSource WithDefaults(const model::PushSource& given) {
  model::PushSource s = given;
  if (s.credit_blocks == 0) s.credit_blocks = 4;
  if (s.idle_timeout_s == 0) s.idle_timeout_s = 60;
  return s;
}

absl::StatusOr<model::SourceTraits> InspectPush(const model::ScanSpec& spec,
                                                const model::PushSource& given) {
  const model::PushSource s = WithDefaults(given);
  if (s.credit_blocks < 1 || s.credit_blocks > 64) {
    return FieldNotAllowed("push.credit_blocks", given.credit_blocks, "0 (4) to 64");
  }
  if (!std::isfinite(s.idle_timeout_s) || s.idle_timeout_s > 1e9) {
    return FieldNotAllowed("push.idle_timeout", given.idle_timeout_s,
                           "at most 1e9; negative = never");
  }
  return TraitsOfDelivered(spec.acquisition, "a push source");
}

std::unique_ptr<Source> OpenPush(const model::ScanSpec& resolved, const model::PushSource& given,
                                 const Clock* clock) {
  const model::PushSource s = WithDefaults(given);
  const model::Acquisition& a = resolved.acquisition;
  const int64_t channels = std::max<int64_t>(a.channels, 1);
  return std::make_unique<PushedRecords>(std::make_shared<PushPort>(
      PushLimits{.record_bytes = a.SourceRecordBytes(),
                 .block_records = a.records_per_block * std::max<int64_t>(a.record_average, 1),
                 .credit_blocks = s.credit_blocks,
                 .idle_timeout_s = s.idle_timeout_s,
                 .form = {.raw_type = a.raw_type,
                          .packing = a.packing,
                          .samples = a.samples_per_record * channels,
                          .channels = channels,
                          .adc_bits = a.adc_bits,
                          .of = "pushed records'"}},
      clock));
}

}  // namespace octavo::source
