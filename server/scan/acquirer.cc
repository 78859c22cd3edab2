#include "server/scan/acquirer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/scan/resolve_scan.h"
#include "server/source/push_records.h"
#include "server/source/record_groups.h"
#include "server/source/ring_port.h"

namespace octavo::scan {
namespace {

// How long a small block waits for more while the device is busy anyway.
constexpr std::chrono::milliseconds kPatience(1);

}  // namespace

Acquirer::Acquirer(std::unique_ptr<source::Source> source, const model::ResolvedScan& scan,
                   ScanProgress* progress)
    : source_(std::move(source)),
      push_(source_->push()),
      ring_port_(source_->ring()),
      progress_(progress),
      can_wait_(source_->CanWait()),
      record_average_(scan.chain.record_average),
      record_bytes_(RecordBytes(scan.chain)),
      block_records_(scan.spec.acquisition.records_per_block),
      upload_records_(scan.chain.max_records_per_block),
      volume_records_(scan.volume_records),
      wanted_records_(RecordsWanted(scan)),
      overrun_(scan.spec.overrun),
      ring_blocks_(scan.spec.acquisition.ring_blocks),
      lent_slots_(source_->lender() == nullptr ? 0 : source_->lender()->slots()) {}

absl::Status Acquirer::Allocate(Device& device) {
  const int64_t block_bytes = upload_records_ * record_bytes_;
  if (source::ZeroCopySource* lender = source_->lender(); lender != nullptr) {
    OCTAVO_RETURN_IF_ERROR(lender->OpenMemory(device));
    if (record_average_ == 1) lender_ = lender;  // the slots are needed for averaging
  }
  for (int64_t i = 0; lender_ == nullptr && i < ring_blocks_; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(auto memory, device.AllocatePinned(block_bytes));
    memory_.push_back(std::move(memory));
  }
  const auto parts = lender_ == nullptr ? std::ssize(memory_) : lent_slots_;
  ring_ = std::make_unique<BlockRing>(
      static_cast<int>(parts),
      GatherRule{.enough_records = upload_records_, .patience = kPatience});
  source_->Want(wanted_records_ * record_average_);
  return absl::OkStatus();
}

void Acquirer::Run(const std::stop_token& stop, const std::stop_token& aborted) {
  lender_ == nullptr ? RunCopying(stop, aborted) : RunLent(stop, aborted);
}

void Acquirer::RunCopying(const std::stop_token& stop, const std::stop_token& aborted) {
  absl::Status ended = absl::OkStatus();
  source::RecordGroups groups(record_average_, record_bytes_ / record_average_);
  int64_t next = 0;    // the first record that was neither taken nor skipped
  int64_t beyond = 0;  // consecutive records past the last volume
  int slot = -1;       // being filled
  int64_t held = 0;    // records in it
  const auto seal = [&] {
    if (slot >= 0) ring_->Seal(slot);
    slot = -1;
    held = 0;
  };
  while (!stop.stop_requested() && !aborted.stop_requested()) {
    // Takes no more records than a counted scan wants, because another scan may be waiting for the
    // source.
    int64_t records =
        wanted_records_ > 0 ? std::min(block_records_, wanted_records_ - next) : block_records_;
    if (records <= 0) {
      all_acquired_ = true;
      break;
    }
    if (slot < 0) slot = can_wait_ ? ring_->Acquire(stop) : ring_->TryAcquire();
    if (slot < 0 && can_wait_) break;
    if (slot < 0) {
      if (overrun_ == model::Overrun::kFailScan) {
        ended = WithInfo(
            absl::DataLossError(absl::StrCat("the source overran the ring of ", memory_.size(),
                                             " blocks: the device was too slow for it")),
            {.reason = Reason::kSourceOverrun, .field = "", .numbers = {}});
        break;
      }
      const auto skipped = groups.Skip(*source_, records, stop);
      if (!skipped.ok() || skipped->records == 0) {
        ended = skipped.status();
        break;
      }
      ++progress_->blocks_dropped;
      next = skipped->first_record + skipped->records;
      continue;
    }
    records = std::min(records, upload_records_ - held);
    const auto block = groups.Next(
        *source_, memory_[static_cast<size_t>(slot)].as<uint8_t>() + held * record_bytes_, records,
        stop);
    if (!block.ok() || block->records == 0) {
      ended = block.status();
      break;
    }
    // Records outside all volumes do not count towards the end. But a source that stays past the
    // end for a whole volume has lost the remaining records and will not return to them.
    if (wanted_records_ == 0 ||
        (block->first_record >= 0 && block->first_record < wanted_records_)) {
      next = std::max(next, block->first_record + block->records);
      beyond = 0;
    } else if (block->first_record >= wanted_records_ &&
               (beyond += block->records) >= volume_records_) {
      next = wanted_records_;
    }
    ring_->PublishPart(slot, held, *block);
    held += block->records;
    // A volume's last record is passed on at once; waiting for records of the next volume gains
    // nothing.
    const int64_t end = block->first_record + block->records;
    if (held == upload_records_ || (block->first_record >= 0 &&
                                    block->first_record / volume_records_ != end / volume_records_))
      seal();
  }
  seal();
  ring_->Close(ended);
}

// The same for a source that lends its memory: nothing is copied here.
void Acquirer::RunLent(const std::stop_token& stop, const std::stop_token& aborted) {
  absl::Status ended = absl::OkStatus();
  int64_t next = 0;  // the first record that was not taken
  while (!stop.stop_requested() && !aborted.stop_requested()) {
    if (wanted_records_ > 0 && next >= wanted_records_) {
      all_acquired_ = true;
      break;
    }
    const auto loan = lender_->Lend(stop);
    if (!loan.ok() || loan->block.records == 0) {
      ended = loan.status();
      break;
    }
    next = loan->block.first_record + loan->block.records;
    const bool last = loan->block.first_record / volume_records_ != next / volume_records_;
    ring_->PublishLent(loan->data, loan->block.records * record_bytes_, loan->loan, loan->block,
                       last);
  }
  ring_->Close(ended);
}

const uint8_t* Acquirer::DataOf(const BlockRing::Part& part) const {
  return part.lent != nullptr
             ? part.lent
             : memory_[static_cast<size_t>(part.slot)].as<uint8_t>() + part.offset * record_bytes_;
}

void Acquirer::Release(int slot, int64_t loan) {
  if (slot >= 0) ring_->Release(slot);
  if (loan > 0) {
    ring_->ReleaseLent();
    lender_->Return(loan);
  }
}

double Acquirer::Occupancy() {
  if (lender_ == nullptr) return ring_->Occupancy();
  MutexLock lock(source_mutex_);  // its memory is freed with the source
  return source_gone_ ? 0 : lender_->Occupancy();
}

model::SourceCounts Acquirer::Counts() {
  MutexLock lock(source_mutex_);
  if (!source_gone_) return source_->Counts();
  if (push_ == nullptr) return last_counts_;
  model::SourceCounts counts =
      push_->Counts();  // clients may still send records that the scan does not take
  counts.connected = false;
  return counts;
}

void Acquirer::FreeMemory() {
  memory_.clear();
  if (source::ZeroCopySource* lender = source_->lender(); lender != nullptr) lender->CloseMemory();
}

void Acquirer::LetGo() {
  std::unique_ptr<source::Source> source;  // destroyed without the lock: a camera takes its time
  MutexLock lock(source_mutex_);
  last_counts_ = source_->Counts();
  last_counts_.connected = false;  // a destroyed source has no producer
  source_gone_ = true;
  source = std::move(source_);
}

}  // namespace octavo::scan
