// The acquisition thread: takes records from the source and puts them into the ring.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {

void ScanSession::Acquire(std::stop_token stop) {
  absl::Status ended = absl::OkStatus();
  const bool can_wait = source_->CanWait();
  source::RecordGroups groups(record_average_, record_bytes_ / record_average_);
  int64_t next = 0;    // the first record that was neither taken nor skipped
  int64_t beyond = 0;  // records in a row past the last volume
  int slot = -1;       // being filled
  int64_t held = 0;    // records in it
  const auto seal = [&] {
    if (slot >= 0) ring_->Seal(slot);
    slot = -1;
    held = 0;
  };
  while (!stop.stop_requested() && !abort_.stop_requested()) {
    // Not one record more than a counted scan wants: another scan may be waiting for the source.
    int64_t records =
        wanted_records_ > 0 ? std::min(block_records_, wanted_records_ - next) : block_records_;
    if (records <= 0) {
      all_acquired_ = true;
      break;
    }
    if (slot < 0) slot = can_wait ? ring_->Acquire(stop) : ring_->TryAcquire();
    if (slot < 0 && can_wait) break;
    if (slot < 0) {
      if (overrun_ == model::Overrun::kFailScan) {
        ended = WithInfo(
            absl::DataLossError(absl::StrCat("the source overran the ring of ", ring_memory_.size(),
                                             " blocks: the device was too slow for it")),
            {.reason = Reason::kSourceOverrun, .field = "", .numbers = {}});
        break;
      }
      const auto skipped = groups.Skip(*source_, records, stop);
      if (!skipped.ok() || skipped->records == 0) {
        ended = skipped.status();
        break;
      }
      ++blocks_dropped_;
      next = skipped->first_record + skipped->records;
      continue;
    }
    records = std::min(records, upload_records_ - held);
    const auto block = groups.Next(
        *source_, ring_memory_[static_cast<size_t>(slot)].as<uint8_t>() + held * record_bytes_,
        records, stop);
    if (!block.ok() || block->records == 0) {
      ended = block.status();
      break;
    }
    // Records of no volume do not bring the end nearer; but a source that stays beyond the end for
    // a whole volume has lost the rest and will not come back.
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
    // With its last record a volume goes on its way; nothing of the next one is worth waiting for.
    const int64_t end = block->first_record + block->records;
    if (held == upload_records_ || (block->first_record >= 0 &&
                                    block->first_record / volume_records_ != end / volume_records_))
      seal();
  }
  seal();
  ring_->Close(ended);
}

// The same of a source that lends its memory: nothing is copied here.
void ScanSession::AcquireLent(std::stop_token stop) {
  absl::Status ended = absl::OkStatus();
  int64_t next = 0;  // the first record that was not taken
  while (!stop.stop_requested() && !abort_.stop_requested()) {
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

}  // namespace octavo::scan
