#include "server/buffer/long_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {

LongReader::LongReader(const ReadEnvironment& environment, About about,
                       std::vector<ReadPlace> sources, const BoxWalk& walk,
                       session::LeaseTable::Guard guard)
    : BufferReader(std::move(about)),
      environment_(environment),
      sources_(std::move(sources)),
      walk_(walk),
      guard_(std::move(guard)),
      last_ns_(environment.table.Now().monotonic_ns) {}

absl::StatusOr<model::Bytes> LongReader::Next(int64_t max_bytes) {
  MutexLock lock(mutex_);
  if (cut_) {
    return WithInfo(
        absl::AbortedError(absl::StrCat("the client took nothing for ",
                                        environment_.slow_reader_seconds,
                                        " s; the buffer was let go: read it again")),
        {.reason = Reason::kSlowReader, .field = "", .numbers = {{"retryable", "true"}}});
  }
  last_ns_ = environment_.table.Now().monotonic_ns;
  if (!ahead_) OCTAVO_RETURN_IF_ERROR(Copy(max_bytes));
  if (!ahead_) return model::Bytes{};
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory, ahead_.Wait());
  model::Bytes piece{.owner = memory, .data = memory.get(), .size = ahead_.bytes()};
  ahead_ = {};
  if (absl::Status next = Copy(max_bytes); !next.ok() && !absl::IsResourceExhausted(next))
    return next;
  return piece;
}

void LongReader::CutIfSlow(int64_t now_ns) {
  MutexLock lock(mutex_);
  if (cut_ || walk_.done() ||
      static_cast<double>(now_ns - last_ns_) * 1e-9 < environment_.slow_reader_seconds)
    return;
  cut_ = true;
  guard_.Done();
  sources_.clear();
}

absl::Status LongReader::Copy(int64_t max_bytes) {
  if (walk_.done()) return absl::OkStatus();
  const BoxWalk before = walk_;
  const ReadPlace& source = sources_[walk_.source];
  const Box3 box = walk_.Next(max_bytes);
  const int64_t bytes = box.count[0] * box.count[1] * box.count[2] * walk_.element_bytes;
  std::shared_ptr<void> memory = environment_.frames[static_cast<size_t>(source.device)]->Get(
      bytes, memory::FramePool::Use::kClient);
  if (memory == nullptr) {
    walk_ = before;
    return NoStaging(bytes);
  }
  {
    MutexLock lock(environment_.table.mutex());
    if (source.replica != nullptr && source.replica->state == model::BufferState::kLost) {
      return WithInfo(absl::DataLossError(absl::StrCat("replica ", replicas()[before.source],
                                                       " was lost while it was read")),
                      {.reason = Reason::kLost, .field = "name", .numbers = {}});
    }
    if (source.replica != nullptr &&
        (source.replica->version != source.version || source.replica->state != source.state)) {
      return WithInfo(
          absl::FailedPreconditionError("the lease ended while the buffer was read, and it was "
                                        "written since; read it again"),
          {.reason = Reason::kLeaseLost,
           .field = "lease_token",
           .numbers = {{"retryable", "true"}}});
    }
    OCTAVO_ASSIGN_OR_RETURN(
        ahead_, CopyBoxToHost(environment_.table, environment_.order, source, walk_.shape,
                              walk_.element_bytes, box, std::move(memory)));
  }
  if (walk_.done()) guard_.Done();  // the copy is ordered before whatever is written from now on
  return absl::OkStatus();
}

}  // namespace octavo::buffer
