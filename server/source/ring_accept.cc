// Accepts published slots: reads each word of the producer once and checks it.

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/ring_port.h"
#include "server/source/ring_words.h"

namespace octavo::source {
namespace {

// A number further ahead than this is an error, not a gap: accepting it would discard all records
// that follow.
constexpr int64_t kMostAhead = int64_t{1} << 31;
constexpr int64_t kOldestNs = 60'000'000'000;  // a block is at most a minute old

}  // namespace

// Accepts the slots published since the last call.
void RingPort::Look() {
  if (!feeding_) return;
  const auto state = static_cast<RingProducerState>(
      // read before the counter, so that everything published before the end is seen
      Load(producer()->state));
  const uint64_t published = Load(producer()->published), fresh = published - seen_;
  const uint64_t room = static_cast<uint64_t>(limits_.slots) - (seen_ - released_);
  if (fresh > room) {
    Break(absl::StrCat("published ", published, " blocks; ", seen_,
                       " were there before and there was room for ", room));
    return;
  }
  const uint64_t before = seen_;
  while (feeding_ && seen_ != published) Accept(seen_);
  if (feeding_ && state == RingProducerState::kEnded) Ended();
  if (feeding_ && state == RingProducerState::kFailed) {
    Ended();
    failed_ = WithInfo(absl::UnavailableError(
                           absl::StrCat("the producer failed: ", memory_->ring.ProducersError())),
                       {.reason = Reason::kSourceLost,
                        .field = "",
                        .numbers = {{"next_record", absl::StrCat(next_record_)}}});
  }
  if (seen_ == before) return;
  const bool useless = count_ == 0 && returned_ == lent_;  // the scan can use none of its records
  if (useless) GiveBack(seen_);
  TellProducer();
  if (useless) memory_->ring.WakeProducer();
}

// The part of the block that continues the accepted records.
void RingPort::Accept(uint64_t number) {
  const auto slot = static_cast<int64_t>(number % static_cast<uint64_t>(limits_.slots));
  const RingDescriptor& given = memory_->ring.descriptor(slot);
  const uint64_t given_number = Load(given.number), given_first = Load(given.first_record);
  const int64_t given_records = Load(given.records), time_ns = Load(given.time_ns);
  const bool overrun = (Load(given.flags) & kRingOverrun) != 0;
  if (given_number != number) {
    Break(absl::StrCat("block ", number, " says of itself that it is block ", given_number));
    return;
  }
  ++seen_;
  if (given_records < 1 || given_records > limits_.block_records) {
    ++counts_.broken_blocks;
    return;
  }
  if (closed_) {
    counts_.out_of_range_records += given_records;
    return;
  }
  const int64_t limit = total_records_ > 0 ? std::min(total_records_, next_record_ + kMostAhead)
                                           : next_record_ + kMostAhead;
  if (given_first >= static_cast<uint64_t>(limit)) {
    counts_.out_of_range_records += given_records;
    return;
  }
  const auto first = static_cast<int64_t>(given_first);
  int64_t records = given_records;
  if (const int64_t beyond = first + records - total_records_; total_records_ > 0 && beyond > 0) {
    counts_.out_of_range_records += beyond;
    records -= beyond;
  }
  const int64_t known = std::clamp<int64_t>(next_record_ - first, 0, records);
  counts_.duplicate_records += known;
  if (known == records) return;
  Waiting waiting{.slot = slot, .offset = known, .end = seen_};
  if (first > next_record_) {
    ++counts_.gaps;
    counts_.lost_records += first - next_record_;
    if (overrun) {
      ++counts_.overruns;
      counts_.overrun_records += first - next_record_;
      waiting.overrun = true;
    }
  }
  next_record_ = first + records;
  TimePoint acquired = clock_->Now();
  if (time_ns > 0 && time_ns < acquired.monotonic_ns &&
      acquired.monotonic_ns - time_ns < kOldestNs) {  // the word may hold any number
    acquired.unix_ns -= acquired.monotonic_ns - time_ns;
    acquired.monotonic_ns = time_ns;
  }
  waiting.block = {.first_record = first + known, .records = records - known, .acquired = acquired};
  queue_[(first_ + count_++) % queue_.size()] = waiting;  // at most the slots that are not released
}

// The producer is no longer trustworthy: accepted records count, but nothing that it writes from
// now on.
void RingPort::Break(const std::string& what) {
  feeding_ = false;
  ++counts_.broken_blocks;
  const std::string text = absl::StrCat("the ring is broken: the producer ", what);
  memory_->ring.Refuse(text);
  TellProducer();
  memory_->ring.WakeProducer();
  gone_ = std::chrono::steady_clock::now();
  cut_now_ = std::exchange(producer_.cut, nullptr);
  broken_ = text;
}

// Count the records dropped after its last block now, because no later block will report them.
void RingPort::Ended() {
  feeding_ = false;
  ended_ = true;
  const uint64_t next = Load(producer()->next_record), dropped = Load(producer()->overrun_records);
  const int64_t limit = total_records_ > 0 ? total_records_ : next_record_ + kMostAhead;
  const int64_t end = next > static_cast<uint64_t>(limit)
                          ? (total_records_ > 0 ? limit : next_record_)
                          : static_cast<int64_t>(next);
  const int64_t lost = end - next_record_;
  if (lost <= 0) return;
  ++counts_.gaps;
  counts_.lost_records += lost;
  const auto counted = static_cast<uint64_t>(counts_.overrun_records - overruns_before_);
  if (counted < dropped) {
    ++counts_.overruns;
    counts_.overrun_records +=
        static_cast<int64_t>(std::min(dropped - counted, static_cast<uint64_t>(lost)));
  }
}

}  // namespace octavo::source
