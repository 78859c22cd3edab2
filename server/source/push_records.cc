#include "server/source/push_records.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::source {
namespace {

// A number further ahead than this is an error, not a gap: accepting it would discard all records
// that follow.
constexpr int64_t kMostAhead = int64_t{1} << 31;
constexpr size_t kMostMarks = 4096, kMostMarksPerBlock = 64;
constexpr size_t kMostGaps = 1024;  // gaps remembered, to recognise records that arrive late
constexpr size_t kLook =
    256 << 10;  // bytes of the first records that are examined, which takes some milliseconds

}  // namespace

absl::Status PushPort::CheckConnection(int64_t connection) const {
  if (connection == connection_) return absl::OkStatus();
  return WithInfo(absl::AbortedError("another connection pushes to this scan now"),
                  {.reason = Reason::kReplaced, .field = "", .numbers = {}});
}

int64_t PushPort::Connect() {
  int64_t connection = 0;
  {
    MutexLock lock(mutex_);
    connection = ++connection_;
    received_ = 0;
    ++counts_.connections;
    counts_.connected = true;
  }
  Notify();  // notifies the earlier connection that it was replaced
  Tell(absl::StrCat("client ", connection, " connected"));
  return connection;
}

void PushPort::OnProgress(int64_t connection, std::function<void()> notify) {
  MutexLock lock(notify_mutex_);
  if (connection < notify_connection_) return;  // the connection was replaced already
  notify_ = std::move(notify);
  notify_connection_ = connection;
}

absl::Status PushPort::Offer(int64_t connection, PushBlock block) {
  std::string doubt;
  Look(&block);
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(CheckConnection(connection));
    if (block.records < 1 || block.records > limits_.block_records) {
      return FieldOutOfRange("records", block.records, 1, limits_.block_records);
    }
    size_t bytes = 0;
    for (const auto& [data, size] : block.parts) bytes += size;
    if (static_cast<int64_t>(bytes) != block.records * limits_.record_bytes) {
      return InvalidField("data",
                          absl::StrCat("has ", bytes, " bytes; ", block.records, " records have ",
                                       block.records * limits_.record_bytes));
    }
    OCTAVO_RETURN_IF_ERROR(CheckMarks(block));
    if (static_cast<int64_t>(queue_.size()) >= limits_.credit_blocks) {
      return WithInfo(absl::ResourceExhaustedError(
                          absl::StrCat("block ", received_ + 1, " came without credit; ",
                                       queue_.size(), " blocks wait for the device")),
                      {.reason = Reason::kCreditExceeded,
                       .field = "",
                       .numbers = {{"credit", absl::StrCat(received_)},
                                   {"next_record", absl::StrCat(next_record_)},
                                   {"retryable", "true"}}});
    }
    ++received_;
    doubt = DoubtNumbers(block);
    Accept(std::move(block));
  }
  Notify();
  if (!doubt.empty()) Doubt(doubt);
  return absl::OkStatus();
}

absl::Status PushPort::Mark(int64_t connection, std::vector<SourceMark> marks) {
  PushBlock block;
  block.marks = std::move(marks);
  MutexLock lock(mutex_);
  OCTAVO_RETURN_IF_ERROR(CheckConnection(connection));
  OCTAVO_RETURN_IF_ERROR(CheckMarks(block));
  if (closed_) {
    counts_.ignored_markers += std::ssize(block.marks);
    return absl::OkStatus();
  }
  for (SourceMark& mark : block.marks) marks_.emplace(mark.record, std::move(mark));
  return absl::OkStatus();
}

// Records from here on belong to no volume of the scan, or their number is wrong.
int64_t PushPort::RecordLimit() const {
  const int64_t plausible = next_record_ + kMostAhead;
  return total_records_ > 0 ? std::min(total_records_, plausible) : plausible;
}

absl::Status PushPort::CheckMarks(const PushBlock& block) const {
  if (block.marks.size() > kMostMarksPerBlock) {
    return InvalidField("markers", absl::StrCat("has ", block.marks.size(), " markers; allowed ",
                                                kMostMarksPerBlock));
  }
  const uint64_t limit = static_cast<uint64_t>(RecordLimit());
  for (const auto& mark : block.marks) {
    if (mark.name.empty() || mark.name.size() > 63) {
      return InvalidField("markers.name",
                          absl::StrCat("has ", mark.name.size(), " characters; allowed 1 to 63"));
    }
    // A client may push more than the scan wants: markers of surplus records are left out with
    // them. Elsewhere the number is a mistake.
    const auto record = static_cast<uint64_t>(mark.record);
    const bool surplus = record >= block.first_record &&
                         record - block.first_record < static_cast<uint64_t>(block.records);
    if (mark.record < 0 || (record >= limit && !surplus)) {
      return InvalidField("markers.record",
                          absl::StrCat("is ", mark.record, " (marker '", mark.name,
                                       "'); allowed 0 to ", limit - 1));
    }
  }
  if (marks_.size() + block.marks.size() > kMostMarks) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        marks_.size(), " markers wait for their records; with ", block.marks.size(),
                        " more they would be more than the ", kMostMarks, " that may")),
                    {.reason = Reason::kMarkersWaiting,
                     .field = "markers",
                     .numbers = {{"waiting", absl::StrCat(marks_.size())}}});
  }
  return absl::OkStatus();
}

bool PushPort::HasSurplus(const PushBlock& block) const {
  return total_records_ > 0 && block.first_record + static_cast<uint64_t>(block.records) >
                                   static_cast<uint64_t>(total_records_);
}

// A warning about suspicious record numbers of a block; empty for none.
std::string PushPort::DoubtNumbers(const PushBlock& block) {
  const int64_t limit = RecordLimit();
  if (!ended_ && !closed_ && next_record_ < limit &&
      block.first_record >= static_cast<uint64_t>(limit) &&
      block.first_record > static_cast<uint64_t>(next_record_)) {
    if (std::exchange(outside_told_, true)) return "";
    return absl::StrCat(
        "Records were pushed with numbers outside of ",
        total_records_ > 0 ? "the scan's 0" : absl::StrCat("those that may follow, ", next_record_),
        " to ", limit - 1, ", the first of them ", block.first_record,
        ": they are left out, and counted as out_of_range_records.");
  }
  if (HasSurplus(block)) {
    return absl::StrCat(
        "More records were pushed than the ", total_records_,
        " that the scan takes: the surplus is left out, and counted as out_of_range_records.");
  }
  const auto first = static_cast<int64_t>(block.first_record), end = first + block.records;
  const auto late = std::find_if(given_up_.begin(), given_up_.end(), [&](const auto& gap) {
    return first < gap.second && end > gap.first;
  });
  if (late == given_up_.end() || std::exchange(late_told_, true)) return "";
  return absl::StrCat("Records came out of order: record ", std::max(first, late->first),
                      " came when ", next_record_ - 1,
                      " was there already. Records are taken in the order of their numbers: what "
                      "comes behind a later one is left out, and is missing in "
                      "its volume.");
}

// Counts those repeated records of a block that had been given up as lost.
void PushPort::CountLate(int64_t first, int64_t end) {
  for (const auto& [begin, behind] : given_up_)
    counts_.late_records += std::max<int64_t>(0, std::min(end, behind) - std::max(first, begin));
}

// Collects the first records, and judges their form once there are enough, or once no more will
// come (called without a block).
void PushPort::Look(const PushBlock* block) {
  if (limits_.form.samples < 1) return;
  const int64_t total = total_records();
  std::string seen;
  {
    MutexLock lock(look_mutex_);
    if (looked_) return;
    bool last = block == nullptr;
    if (block != nullptr) {
      size_t bytes = 0;
      for (const auto& [data, size] : block->parts) bytes += size;
      if (block->records < 1 ||
          static_cast<int64_t>(bytes) != block->records * limits_.record_bytes)
        return;  // the message is refused
      for (const auto& [data, size] : block->parts)
        look_.append(data, std::min(size, kLook - std::min(kLook, look_.size())));
      last = total > 0 && block->first_record + static_cast<uint64_t>(block->records) >=
                              static_cast<uint64_t>(total);
    }
    if (look_.size() < kLook && !last) return;
    looked_ = true;
    seen.swap(look_);
  }
  seen.resize(seen.size() - seen.size() % static_cast<size_t>(limits_.record_bytes));
  for (const std::string& doubt : storage::FindRecordDoubts(seen, limits_.form)) Doubt(doubt);
}

void PushPort::Doubt(const std::string& text) {
  MutexLock lock(doubt_mutex_);
  if (doubt_) doubt_(text);
}

// The part of the block that continues the accepted records.
void PushPort::Accept(PushBlock block) {
  const int64_t limit = RecordLimit();
  if (ended_ || closed_ || block.first_record >= static_cast<uint64_t>(limit)) {
    int64_t known = 0;
    if (block.first_record < static_cast<uint64_t>(next_record_)) {
      const auto from = static_cast<int64_t>(block.first_record);
      known = std::min(next_record_ - from, block.records);
      CountLate(from, from + known);
    }
    counts_.duplicate_records += known;
    counts_.out_of_range_records += block.records - known;
    counts_.ignored_markers += std::ssize(block.marks);
    return;
  }
  const auto first = static_cast<int64_t>(block.first_record);
  if (const int64_t beyond = first + block.records - total_records_;
      total_records_ > 0 && beyond > 0) {
    counts_.out_of_range_records += beyond;
    block.records -= beyond;
  }
  const int64_t known = std::clamp<int64_t>(next_record_ - first, 0, block.records);
  counts_.duplicate_records += known;
  if (known > 0) CountLate(first, first + known);
  // A repeated block repeats its markers: drop those of known records with it.
  const bool again = known == block.records;
  for (auto& mark : block.marks) {
    if (mark.record >= limit || (again && mark.record < next_record_)) {
      ++counts_.ignored_markers;
    } else {
      marks_.emplace(mark.record, std::move(mark));
    }
  }
  block.marks.clear();
  if (again) return;
  if (first > next_record_) {
    ++counts_.gaps;
    counts_.lost_records += first - next_record_;
    if (given_up_.size() < kMostGaps) given_up_.emplace_back(next_record_, first);
  }
  next_record_ = first + block.records;
  queue_.push_back({.block = std::move(block), .offset = known, .arrived = clock_->Now()});
  cv_.NotifyAll();
}

absl::Status PushPort::EndOfRecords(int64_t connection) {
  Look(nullptr);
  MutexLock lock(mutex_);
  OCTAVO_RETURN_IF_ERROR(CheckConnection(connection));
  ended_ = true;
  cv_.NotifyAll();
  return absl::OkStatus();
}

void PushPort::Disconnect(int64_t connection) {
  {
    MutexLock lock(mutex_);
    if (connection == connection_) counts_.connected = false;
  }
  {
    MutexLock lock(notify_mutex_);
    if (notify_connection_ == connection) notify_ = nullptr;
  }
  Tell(absl::StrCat("client ", connection, " gone"));
}

void PushPort::OnNews(std::function<void(const std::string&)> tell) {
  MutexLock lock(news_mutex_);
  news_ = std::move(tell);
}

void PushPort::OnDoubt(std::function<void(const std::string&)> tell) {
  MutexLock lock(doubt_mutex_);
  doubt_ = std::move(tell);
}

void PushPort::Tell(const std::string& news) {
  MutexLock lock(news_mutex_);
  if (news_) news_(news);
}

absl::StatusOr<PushProgress> PushPort::Progress(int64_t connection) {
  MutexLock lock(mutex_);
  OCTAVO_RETURN_IF_ERROR(CheckConnection(connection));
  return PushProgress{
      .credit = received_ + limits_.credit_blocks - static_cast<int64_t>(queue_.size()),
      .received = received_,
      .next_record = next_record_,
      .done = closed_,
      .counts = counts_};
}

int64_t PushPort::total_records() {
  MutexLock lock(mutex_);
  return total_records_;
}

void PushPort::Want(int64_t total_records) {
  MutexLock lock(mutex_);
  total_records_ = total_records;
}

int64_t PushPort::Copy(Waiting& waiting, char* slot, int64_t records) const {
  const int64_t count = std::min(records, waiting.block.records - waiting.offset);
  auto skip = static_cast<size_t>(waiting.offset * limits_.record_bytes),
       wanted = static_cast<size_t>(count * limits_.record_bytes);
  for (const auto& [data, size] : waiting.block.parts) {
    if (skip >= size) {
      skip -= size;
      continue;
    }
    const size_t n = std::min(size - skip, wanted);
    std::memcpy(slot, data + skip, n);
    slot += n;
    wanted -= n;
    skip = 0;
    if (wanted == 0) break;
  }
  waiting.offset += count;
  return count;
}

absl::StatusOr<SourceBlock> PushPort::Next(char* slot, int64_t max_records, std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  SourceBlock out;
  for (;;) {
    if (current_.offset == current_.block.records) {
      MutexLock lock(mutex_);
      if (out.records == 0) OCTAVO_RETURN_IF_ERROR(WaitForRecords(lock, stop));
      if (stop.stop_requested() || queue_.empty()) return out;
      current_ = std::move(queue_.front());
      queue_.pop_front();
    }
    const int64_t first = static_cast<int64_t>(current_.block.first_record) + current_.offset;
    if (out.records == 0) {
      out.first_record = first;
    } else if (first != out.first_record + out.records) {
      return out;  // a gap: the next slot begins behind it
    }
    out.acquired = current_.arrived;
    const int64_t copied =
        Copy(current_, slot + out.records * limits_.record_bytes, max_records - out.records);
    out.records += copied;
    {
      MutexLock lock(mutex_);
      counts_.records += copied;
    }
    if (current_.offset == current_.block.records) {
      current_ = {};  // release its memory before more credit is granted
      Notify();
    }
    if (out.records == max_records) return out;
  }
}

// Waits until there is a block, the records have ended, or `stop`.
absl::Status PushPort::WaitForRecords(MutexLock& lock, const std::stop_token& stop) {
  using Seconds = std::chrono::duration<double>;
  const auto began = std::chrono::steady_clock::now();
  while (queue_.empty() && !ended_ && !stop.stop_requested()) {
    if (limits_.idle_timeout_s <= 0) {
      cv_.Wait(lock);
      continue;
    }
    const Seconds left =
        Seconds(limits_.idle_timeout_s) - (std::chrono::steady_clock::now() - began);
    if (left.count() <= 0) {
      const char* who = counts_.connections == 0 ? "no client ever connected"
                        : counts_.connected      ? "a client is connected, but silent"
                                                 : "no client is connected";
      return WithInfo(absl::DeadlineExceededError(
                          absl::StrCat("no records came for ", limits_.idle_timeout_s, " s (", who,
                                       "); the next would be record ", next_record_)),
                      {.reason = Reason::kSourceStalled,
                       .field = "push.idle_timeout",
                       .numbers = {{"next_record", absl::StrCat(next_record_)}}});
    }
    cv_.WaitFor(
        lock, std::chrono::duration_cast<std::chrono::nanoseconds>(std::min(left, Seconds(3600))));
  }
  return absl::OkStatus();
}

std::vector<SourceMark> PushPort::TakeMarks(int64_t before_record) {
  MutexLock lock(mutex_);
  std::vector<SourceMark> taken;
  const auto end = marks_.lower_bound(before_record);
  for (auto it = marks_.begin(); it != end; ++it) taken.push_back(std::move(it->second));
  marks_.erase(marks_.begin(), end);
  return taken;
}

model::SourceCounts PushPort::Counts() {
  MutexLock lock(mutex_);
  return counts_;
}

void PushPort::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    queue_.clear();
    counts_.ignored_markers += std::ssize(marks_);
    marks_.clear();
    current_ = {};
  }
  OnNews(nullptr);
  Notify();
}

void PushPort::Notify() {
  MutexLock lock(notify_mutex_);
  if (notify_) notify_();
}

}  // namespace octavo::source
