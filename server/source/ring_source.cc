// The source of records that a process on this host writes into a ring of shared memory; it lends
// them to the upload in place.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/resolved_scan.h"
#include "server/source/ring_port.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace {

constexpr int64_t kMostSlots = 65536, kMostRingBytes = int64_t{64} << 30;

class RingRecords final : public Source, public ZeroCopySource {
 public:
  explicit RingRecords(std::shared_ptr<RingPort> port) : port_(std::move(port)) {}
  ~RingRecords() override { port_->CloseMemory(); }

  // Copies the records for callers that need them in a slot (means of records).
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    if (copied_ == current_.block.records) {
      OCTAVO_ASSIGN_OR_RETURN(current_, port_->Lend(stop));
      copied_ = 0;
    }
    const int64_t bytes = port_->limits().record_bytes;
    SourceBlock block = current_.block;
    block.first_record += copied_;
    block.records = std::min(block.records - copied_, max_records);
    if (block.records > 0)
      std::memcpy(slot, current_.data + copied_ * bytes,
                  static_cast<size_t>(block.records * bytes));
    copied_ += block.records;
    if (block.records > 0 && copied_ == current_.block.records) port_->Return(current_.loan);
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override {
    (void)records;
    (void)stop;
    return absl::InternalError("a ring is filled by its producer; it never skips");
  }
  bool CanWait() const override { return port_->limits().producer_waits; }
  void Want(int64_t total_records) override { port_->Want(total_records); }
  void OnNews(std::function<void(const std::string&)> tell) override {
    port_->OnNews(std::move(tell));
  }
  model::SourceCounts Counts() override { return port_->Counts(); }
  void Close() override { port_->Close(); }
  std::shared_ptr<RingPort> ring() override { return port_; }
  ZeroCopySource* lender() override { return this; }

  int64_t slots() const override { return port_->limits().slots; }
  absl::Status OpenMemory(Device& device) override { return port_->OpenMemory(device); }
  absl::StatusOr<BorrowedBlock> Lend(std::stop_token stop) override { return port_->Lend(stop); }
  void Return(int64_t loan) override { port_->Return(loan); }
  double Occupancy() override { return port_->Occupancy(); }
  void CloseMemory() override { port_->CloseMemory(); }

 private:
  const std::shared_ptr<RingPort> port_;
  BorrowedBlock current_;  // the block of Next
  int64_t copied_ = 0;     // records of it that are copied
};

}  // namespace

model::RingSource WithDefaults(const model::RingSource& given) {
  model::RingSource s = given;
  if (s.idle_timeout_s == 0) s.idle_timeout_s = 60;
  if (s.restart_grace_s == 0) s.restart_grace_s = s.idle_timeout_s > 0 ? s.idle_timeout_s : 60;
  return s;
}

absl::StatusOr<model::SourceTraits> InspectRing(const model::ScanSpec& spec,
                                                const model::RingSource& given) {
  for (const auto& [field, seconds] : {std::pair("ring.idle_timeout", given.idle_timeout_s),
                                       std::pair("ring.restart_grace", given.restart_grace_s)}) {
    if (!std::isfinite(seconds) || seconds > 1e9)
      return FieldNotAllowed(field, seconds, "at most 1e9");
  }
  return TraitsOfDelivered(spec.acquisition, "a ring");
}

absl::Status ResolveRing(model::ScanSpec* spec, int64_t volume_records) {
  auto& ring = std::get<model::RingSource>(spec->source);
  ring = WithDefaults(ring);
  const model::Acquisition& a = spec->acquisition;
  // As much memory as the slots of other sources take, in pieces of a block, because uploads
  // combine neighbours.
  if (ring.slots == 0)
    ring.slots = std::min(kMostSlots, a.ring_blocks * (model::UploadRecords(*spec, volume_records) /
                                                       a.records_per_block));
  const int64_t slot_bytes =
      a.records_per_block * a.SourceRecordBytes() * std::max<int64_t>(a.record_average, 1);
  const int64_t most = std::min(kMostSlots, kMostRingBytes / slot_bytes);
  if (ring.slots < 2 || ring.slots > most) {
    return InvalidField("ring.slots", absl::StrCat("is ", ring.slots, "; allowed 0 (chosen), 2 to ",
                                                   most, " of ", slot_bytes, " bytes"));
  }
  return absl::OkStatus();
}

RingLimits LimitsOfRing(const model::ScanSpec& resolved) {
  const auto& s = std::get<model::RingSource>(resolved.source);
  const model::Acquisition& a = resolved.acquisition;
  return {.record_bytes = a.SourceRecordBytes(),
          .block_records = a.records_per_block * std::max<int64_t>(a.record_average, 1),
          .slots = s.slots,
          .samples_per_record = a.samples_per_record,
          .channels = std::max<int64_t>(a.channels, 1),
          .raw_type = RawTypeNumber(a.raw_type, a.packing),
          .idle_timeout_s = s.idle_timeout_s,
          .restart_grace_s = s.restart_grace_s,
          .producer_waits = s.producer_waits,
          .fail_on_overrun = resolved.overrun == model::Overrun::kFailScan};
}

std::unique_ptr<Source> OpenRing(const model::ScanSpec& resolved, const Clock* clock) {
  return std::make_unique<RingRecords>(std::make_shared<RingPort>(LimitsOfRing(resolved), clock));
}

std::string DescribeRing(const model::ScanSpec& resolved) {
  const RingLimits limits = LimitsOfRing(resolved);
  return absl::StrCat("ring: a producer on this host fills ", limits.slots, " slots of ",
                      limits.slot_bytes(), " bytes (", limits.block_records, " records), ",
                      limits.total_bytes(), " bytes of shared page-locked memory; ",
                      resolved.acquisition.record_average > 1
                          ? "records are copied once, to be averaged"
                          : "uploaded without a copy",
                      "\n");
}

}  // namespace octavo::source
