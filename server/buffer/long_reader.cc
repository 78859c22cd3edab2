#include "server/buffer/long_reader.h"

#include <algorithm>
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
      lent_{.sources = std::move(sources), .guard = std::move(guard)},
      walk_(walk),
      last_ns_(environment.table.Now().monotonic_ns) {}

absl::StatusOr<model::Bytes> LongReader::Next(int64_t max_bytes) {
  Lent ended;  // ends after the lock
  MutexLock lock(mutex_);
  if (cut_) {
    return WithInfo(
        absl::AbortedError(absl::StrCat("the client took nothing for ",
                                        environment_.slow_reader_seconds,
                                        " s; the buffer was let go: read it again")),
        {.reason = Reason::kSlowReader, .field = "", .numbers = {{"retryable", "true"}}});
  }
  if (lost_) return Lost();
  last_ns_ = environment_.table.Now().monotonic_ns;
  if (!ahead_) OCTAVO_RETURN_IF_ERROR(Copy(max_bytes, &ended));
  if (!ahead_) return model::Bytes{};
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory, ahead_.Wait());
  model::Bytes piece{.owner = memory, .data = memory.get(), .size = ahead_.bytes()};
  ahead_ = {};
  if (absl::Status next = Copy(max_bytes, &ended); !next.ok() && !absl::IsResourceExhausted(next))
    return next;
  return piece;
}

void LongReader::CutIfSlow(int64_t now_ns) {
  Lent ended;  // ends after the lock
  MutexLock lock(mutex_);
  if (cut_ || lost_ || walk_.done() ||
      static_cast<double>(now_ns - last_ns_) * 1e-9 < environment_.slow_reader_seconds)
    return;
  cut_ = true;
  ended = std::exchange(lent_, {});
}

void LongReader::LetGo(const BufferReplica& replica) {
  Lent ended;  // ends after the lock
  MutexLock lock(mutex_);
  const bool reads =
      std::any_of(lent_.sources.begin(), lent_.sources.end(),
                  [&](const auto& source) { return source.replica.get() == &replica; });
  if (!reads) return;
  lost_ = !walk_.done();
  ended = std::exchange(lent_, {});
}

absl::Status LongReader::Lost() {
  return WithInfo(absl::DataLossError("the memory of the buffer was lost while it was read"),
                  {.reason = Reason::kLost, .field = "name", .numbers = {}});
}

absl::Status LongReader::Copy(int64_t max_bytes, Lent* ended) {
  if (walk_.done()) return absl::OkStatus();
  const BoxWalk before = walk_;
  const ReadPlace& source = lent_.sources[walk_.source];
  const Box3 box = walk_.Next(max_bytes);
  const int64_t bytes = box.count[0] * box.count[1] * box.count[2] * walk_.element_bytes;
  auto memory = environment_.frames[static_cast<size_t>(source.device)]->Get(
      bytes, memory::FramePool::Use::kClient);
  if (!memory.ok()) {
    walk_ = before;
    return std::move(memory).status();
  }
  {
    MutexLock lock(environment_.table.mutex());
    if (source.replica != nullptr && source.replica->state == model::BufferState::kLost)
      return Lost();
    if (source.replica != nullptr && source.replica->loan != nullptr &&
        source.replica->version != source.version) {
      return WithInfo(
          absl::AbortedError(
              "the client that lends the memory has published other bytes while they "
              "were read; read them again"),
          {.reason = Reason::kVersion,
           .field = "name",
           .numbers = {{"version", absl::StrCat(source.replica->version)}, {"retryable", "true"}}});
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
                              walk_.element_bytes, box, *std::move(memory)));
  }
  // The copy is ordered before every later write.
  if (walk_.done()) ended->guard = std::move(lent_.guard);
  return absl::OkStatus();
}

}  // namespace octavo::buffer
