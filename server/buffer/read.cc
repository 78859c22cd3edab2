// Reads of buffers and of volumes, for clients.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {

/// Where one replica, or a volume, is read.
struct BufferStore::ReadPlace {
  int device = 0;
  const void* data = nullptr;
  std::shared_ptr<BufferReplica> replica;  // null: a volume's, which nobody changes
  std::shared_ptr<const void> keep;
  uint64_t version = 0;  // of the replica when it was opened
  model::BufferState state = model::BufferState::kReady;
};

/// Reads the box of each source in turn, piece by piece; prefetches one piece.
struct BoxWalk {
  int64_t shape[3] = {1, 1, 1};
  Box3 box;
  int64_t element_bytes = 1;
  size_t source = 0, sources = 1;
  int64_t at[3] = {0, 0, 0};

  bool done() const { return source == sources; }
  /// The next piece of at most max_bytes (an element at least): planes, rows of a plane, or a part
  /// of a row.
  Box3 Next(int64_t max_bytes) {
    const int64_t row = box.count[2] * element_bytes, plane = row * box.count[1];
    Box3 piece;
    for (int d = 0; d < 3; ++d) piece.start[d] = box.start[d] + at[d], piece.count[d] = 1;
    if (at[1] == 0 && at[2] == 0 && plane <= max_bytes) {
      piece.count[0] = std::min(box.count[0] - at[0], max_bytes / plane);
      piece.count[1] = box.count[1];
      piece.count[2] = box.count[2];
      at[0] += piece.count[0];
    } else if (at[2] == 0 && row <= max_bytes) {
      piece.count[1] = std::min(box.count[1] - at[1], max_bytes / row);
      piece.count[2] = box.count[2];
      at[1] += piece.count[1];
    } else {
      piece.count[2] =
          std::min(box.count[2] - at[2], std::max<int64_t>(1, max_bytes / element_bytes));
      at[2] += piece.count[2];
    }
    if (at[2] == box.count[2]) at[2] = 0, ++at[1];
    if (at[1] == box.count[1]) at[1] = 0, ++at[0];
    if (at[0] == box.count[0]) at[0] = 0, ++source;
    return piece;
  }
};

/// Up to 16 MiB: copied in full when the read is opened, so that no writer waits for the client.
class SmallReader final : public BufferStore::Reader {
 public:
  SmallReader(ArrayType type, std::vector<uint64_t> versions, std::vector<uint32_t> replicas) {
    type_ = std::move(type);
    versions_ = std::move(versions);
    replicas_ = std::move(replicas);
  }
  absl::StatusOr<model::Bytes> Next(int64_t max_bytes) override {
    if (next_ == parts_.size()) return model::Bytes{};
    Part& part = parts_[next_];
    if (part.event != nullptr) OCTAVO_RETURN_IF_ERROR(part.event->Synchronize());
    const int64_t n = std::min(max_bytes, part.bytes - at_);
    model::Bytes out{
        .owner = part.memory, .data = static_cast<const char*>(part.memory.get()) + at_, .size = n};
    if ((at_ += n) == part.bytes) ++next_, at_ = 0;
    return out;
  }
  struct Part {
    std::shared_ptr<void> memory;
    SharedEvent event;
    int64_t bytes = 0;
  };
  std::vector<Part> parts_;

 private:
  size_t next_ = 0;
  int64_t at_ = 0;
};

/// Above 16 MiB: keeps a shared lease until the last piece is copied or the client is too slow.
class LargeReader final : public BufferStore::Reader {
 public:
  LargeReader(BufferStore* store, ArrayType type, std::vector<uint64_t> versions,
              std::vector<uint32_t> replicas, std::vector<BufferStore::ReadPlace> sources,
              BoxWalk walk, session::LeaseTable::Guard guard)
      : store_(store), sources_(std::move(sources)), walk_(walk), guard_(std::move(guard)) {
    type_ = std::move(type);
    versions_ = std::move(versions);
    replicas_ = std::move(replicas);
    last_ns_ = store_->context_.clock->Now().monotonic_ns;
  }

  absl::StatusOr<model::Bytes> Next(int64_t max_bytes) override {
    MutexLock lock(mutex_);
    if (cut_) {
      return WithInfo(
          absl::AbortedError(absl::StrCat("the client took nothing for ",
                                          store_->context_.slow_reader_seconds,
                                          " s; the buffer was let go: read it again")),
          {.reason = Reason::kSlowReader, .field = "", .numbers = {{"retryable", "true"}}});
    }
    last_ns_ = store_->context_.clock->Now().monotonic_ns;
    if (ahead_.memory == nullptr) OCTAVO_RETURN_IF_ERROR(Copy(max_bytes));
    if (ahead_.memory == nullptr) return model::Bytes{};
    OCTAVO_RETURN_IF_ERROR(ahead_.event->Synchronize());
    model::Bytes piece{.owner = ahead_.memory, .data = ahead_.memory.get(), .size = ahead_.bytes};
    ahead_ = {};
    if (absl::Status next = Copy(max_bytes); !next.ok() && !absl::IsResourceExhausted(next))
      return next;
    return piece;
  }

  void CutIfSlow(int64_t now_ns) override {
    MutexLock lock(mutex_);
    if (cut_ || walk_.done() ||
        static_cast<double>(now_ns - last_ns_) * 1e-9 < store_->context_.slow_reader_seconds)
      return;
    cut_ = true;
    guard_.Done();
    sources_.clear();
  }

 private:
  absl::Status Copy(int64_t max_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (walk_.done()) return absl::OkStatus();
    const BoxWalk before = walk_;
    const BufferStore::ReadPlace& source = sources_[walk_.source];
    const Box3 piece = walk_.Next(max_bytes);
    SmallReader::Part part{.bytes = piece.count[0] * piece.count[1] * piece.count[2] *
                                    walk_.element_bytes};
    part.memory = store_->context_.frames[static_cast<size_t>(source.device)]->Get(
        part.bytes, memory::FramePool::Use::kClient);
    if (part.memory == nullptr) {
      walk_ = before;
      return NoStaging(part.bytes);
    }
    {
      MutexLock lock(store_->mutex_);
      if (source.replica != nullptr && source.replica->state == model::BufferState::kLost) {
        return WithInfo(absl::DataLossError(absl::StrCat("replica ", replicas_[before.source],
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
          part.event,
          store_->EnqueueReadLocked(source, walk_.shape, walk_.element_bytes, piece, part.memory));
    }
    ahead_ = std::move(part);
    if (walk_.done()) guard_.Done();  // the copy is ordered before whatever is written from now on
    return absl::OkStatus();
  }

  BufferStore* const store_;
  Mutex mutex_;
  std::vector<BufferStore::ReadPlace> sources_ ABSL_GUARDED_BY(mutex_);
  BoxWalk walk_ ABSL_GUARDED_BY(mutex_);
  session::LeaseTable::Guard guard_ ABSL_GUARDED_BY(mutex_);
  SmallReader::Part ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

/// The requested box of an array of `type`; `type` becomes that of the box.
absl::StatusOr<BoxWalk> WalkOf(const model::BufferReadSpec& spec, size_t sources, ArrayType* type) {
  BoxWalk walk{.element_bytes = SizeOf(type->scalar) * type->lanes, .sources = sources};
  const size_t rank = type->dims.size();
  for (const auto& [name, values] :
       {std::pair{"start", &spec.start}, std::pair{"count", &spec.count}}) {
    if (!values->empty() && values->size() != rank)
      return BadRange(name,
                      absl::StrCat("has ", values->size(), " numbers; allowed none or ", rank));
  }
  for (int d = 0; d < 3; ++d) walk.box.count[d] = 1;
  for (size_t d = 0; d < rank; ++d) {
    const auto extent = static_cast<uint64_t>(type->dims[d]),
               start = spec.start.empty() ? 0 : spec.start[d];
    if (start >= extent)
      return BadRange("start", absl::StrCat("[", d, "] is ", start, "; allowed 0 to ", extent - 1));
    const uint64_t count = spec.count.empty() ? extent - start : spec.count[d];
    if (count < 1 || count > extent - start)
      return BadRange("count",
                      absl::StrCat("[", d, "] is ", count, "; allowed 1 to ", extent - start));
    walk.shape[3 - rank + d] = type->dims[d];
    walk.box.start[3 - rank + d] = static_cast<int64_t>(start);
    walk.box.count[3 - rank + d] = type->dims[d] = static_cast<int64_t>(count);
  }
  return walk;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> BufferStore::ReplicasToRead(
    const Buffer& buffer, const model::BufferReadSpec& spec) const {
  const auto& replicas = buffer.replicas;
  if (spec.which == model::BufferReadSpec::Which::kReplica) {
    if (spec.replica >= replicas.size())
      return BadReplica("selector.replica", spec.replica, replicas.size());
    OCTAVO_RETURN_IF_ERROR(CheckReadable(buffer, spec.replica, spec.allow_uninitialized));
    return std::vector<uint32_t>{spec.replica};
  }
  // An error that all replicas share comes first: nothing was written, a device is gone. Otherwise
  // the error is that they differ.
  const bool same = std::all_of(replicas.begin(), replicas.end(), [&](const auto& r) {
    return r->version == replicas[0]->version && r->state == replicas[0]->state;
  });
  if (!same && !spec.allow_incoherent) {
    std::string text;
    for (const auto& r : replicas)
      absl::StrAppend(&text, text.empty() ? "" : ", ", r->version, " ", Name(r->state));
    return Precondition(Reason::kIncoherent,
                        absl::StrCat("the replicas of ", spec.name, " differ (versions ", text,
                                     "); name one, use SyncReplicas, or allow_incoherent"));
  }
  absl::Status first;
  std::vector<uint32_t> readable;
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (absl::Status status = CheckReadable(buffer, i, spec.allow_uninitialized); status.ok()) {
      readable.push_back(static_cast<uint32_t>(i));
    } else if (first.ok()) {
      first = status;
    }
  }
  if (spec.which == model::BufferReadSpec::Which::kStacked) {
    OCTAVO_RETURN_IF_ERROR(first);
    return readable;
  }
  if (readable.empty()) return first;
  return std::vector<uint32_t>{*std::max_element(
      readable.begin(), readable.end(),
      [&](uint32_t a, uint32_t b) { return replicas[a]->version < replicas[b]->version; })};
}

absl::StatusOr<SharedEvent> BufferStore::EnqueueReadLocked(const ReadPlace& source,
                                                           const int64_t shape[3],
                                                           int64_t element_bytes, const Box3& box,
                                                           const std::shared_ptr<void>& to) {
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(source.device));
  AccessTracker none;
  AccessTracker& memory = source.replica == nullptr ? none : source.replica->order;
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, memory));
  const absl::Status copied =
      order_.device(source.device)
          .CopyBoxToHost(stream, to.get(), source.data, shape, element_bytes, box);
  // Enqueued work uses the memory, so it is kept even if a later step failed.
  const absl::Status ended =
      order_.End(source.device, stream, {&memory}, {}, {source.keep, to}, nullptr);
  OCTAVO_RETURN_IF_ERROR(copied);
  OCTAVO_RETURN_IF_ERROR(ended);
  totals_.read_bytes += box.count[0] * box.count[1] * box.count[2] * element_bytes;
  return memory.reads_since.back();
}

absl::StatusOr<std::shared_ptr<BufferStore::Reader>> BufferStore::OpenReadNow(
    const model::BufferReadSpec& spec, const model::Caller& caller) {
  const bool volume = absl::StartsWith(spec.name, "volumes/");
  ArrayType type;
  std::vector<ReadPlace> sources;
  std::vector<uint64_t> versions;
  std::vector<uint32_t> indices;
  BufferTurn turn(turn_mutex_, context_.leases);
  if (volume) {
    OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                            context_.volumes->Hold(spec.name, volume::HoldKind::kDevice));
    if (spec.which == model::BufferReadSpec::Which::kReplica && spec.replica != 0)
      return BadReplica("selector.replica", spec.replica, 1);
    type = {.scalar = ScalarOf(pinned.status.dtype),
            .lanes = 1,
            .dims = {pinned.status.shape, pinned.status.shape + 3}};
    sources.push_back({.device = pinned.device,
                       .data = pinned.slot->volume.data(),
                       .replica = nullptr,
                       .keep = pinned.slot});
    versions = {1};
    indices = {0};
    if (spec.if_version > 1) return WrongVersion(spec.name, 0, 1, spec.if_version);
  } else {
    {
      MutexLock lock(mutex_);
      OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
    }
    OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kShared, spec.lease_token,
                                      spec.lease_fence, "ReadBuffer"));
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(turn.Stands());
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(spec.name, caller));
    type = buffer->status.type;
    OCTAVO_ASSIGN_OR_RETURN(indices, ReplicasToRead(*buffer, spec));
    for (const uint32_t i : indices) {
      const auto& replica = buffer->replicas[i];
      if (spec.if_version != 0 && replica->version != spec.if_version)
        return WrongVersion(spec.name, i, replica->version, spec.if_version);
      versions.push_back(replica->version);
      sources.push_back({.device = replica->device,
                         .data = replica->memory.data(),
                         .replica = replica,
                         .keep = replica,
                         .version = replica->version,
                         .state = replica->state});
    }
  }
  OCTAVO_ASSIGN_OR_RETURN(const BoxWalk walk, WalkOf(spec, sources.size(), &type));
  const int64_t bytes = type.bytes();  // of each source
  if (spec.which == model::BufferReadSpec::Which::kStacked)
    type.dims.insert(type.dims.begin(), static_cast<int64_t>(sources.size()));
  if (type.bytes() > kStagedWhole) {
    auto reader =
        std::make_shared<LargeReader>(this, type, versions, indices, std::move(sources), walk,
                                      volume ? session::LeaseTable::Guard() : turn.Keep());
    MutexLock lock(mutex_);
    readers_.remove_if([](const auto& r) { return r.expired(); });
    readers_.push_back(reader);
    return reader;
  }
  auto reader = std::make_shared<SmallReader>(type, versions, indices);
  for (const ReadPlace& source : sources) {
    SmallReader::Part part{.bytes = bytes};
    part.memory = context_.frames[static_cast<size_t>(source.device)]->Get(
        bytes, memory::FramePool::Use::kClient);
    if (part.memory == nullptr) return NoStaging(bytes);
    reader->parts_.push_back(std::move(part));
  }
  MutexLock lock(mutex_);
  for (size_t i = 0; i < sources.size(); ++i) {
    SmallReader::Part& part = reader->parts_[i];
    OCTAVO_ASSIGN_OR_RETURN(
        part.event,
        EnqueueReadLocked(sources[i], walk.shape, walk.element_bytes, walk.box, part.memory));
  }
  return reader;
}

}  // namespace octavo::buffer
