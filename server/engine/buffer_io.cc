// Writes to buffers as they come from clients, and reads of them.

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/engine/buffer_errors.h"
#include "server/engine/buffer_store.h"
#include "server/engine/checksum.h"
#include "server/engine/forwarder.h"

namespace octavo::engine {
namespace {

absl::Status NoStaging(int64_t bytes) {
  return WithInfo(absl::ResourceExhaustedError("no page-locked memory left: too many reads and writes at once; try again"),
                  {.reason = "NO_STAGING", .field = "", .numbers = {{"wanted", absl::StrCat(bytes)}, {"retryable", "true"}}});
}

}  // namespace

/// A write to one or all replicas: staged whole, or block by block, uploaded once and forwarded along the devices.
class BufferWriter final : public BufferStore::Writer {
 public:
  BufferWriter(BufferStore* store, BufferStore::BufferPtr buffer, std::vector<size_t> targets, BufferWriteSpec spec, LeaseTable::Guard guard)
      : store_(store), buffer_(std::move(buffer)), targets_(std::move(targets)), spec_(std::move(spec)), guard_(std::move(guard)) {
    total_ = static_cast<int64_t>(spec_.total_bytes);
    block_bytes_ = total_ <= BufferStore::kStagedWhole ? total_ : int64_t{4} << 20;
  }

  ~BufferWriter() override {
    if (started_ && !closed_) Close(BufferState::kPartial);
    guard_.Done();
  }

  absl::Status Chunk(const std::vector<std::pair<const char*, size_t>>& pieces) override {
    absl::Status answer = Take(pieces);
    store_->CountRefusal(answer);
    return answer;
  }

  absl::StatusOr<BufferStatus> Finish() override {
    auto answer = End();
    store_->CountRefusal(answer.status());
    return answer;
  }

 private:
  absl::Status Take(const std::vector<std::pair<const char*, size_t>>& pieces) {
    int64_t bytes = 0;
    for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.second);
    if (bytes > BufferStore::kMostChunk)
      return BadField("PROTOCOL", "data", absl::StrCat("has ", bytes, " bytes; allowed ", BufferStore::kMostChunk));
    if (bytes > total_ - received_) {
      return BadField("PROTOCOL", "data", absl::StrCat("makes ", received_ + bytes, " bytes; header.total_bytes is ", total_));
    }
    for (auto [data, size] : pieces) {
      crc_ = Crc32c(data, size, crc_);
      while (size > 0) {
        if (staging_ == nullptr) OCTAVO_RETURN_IF_ERROR(NextBlock());
        const auto n = std::min(size, static_cast<size_t>(staging_bytes_ - staged_));
        std::memcpy(static_cast<char*>(staging_.get()) + staged_, data, n);
        data += n;
        size -= n;
        staged_ += static_cast<int64_t>(n);
        received_ += static_cast<int64_t>(n);
        if (staged_ == staging_bytes_ && block_bytes_ < total_) OCTAVO_RETURN_IF_ERROR(Apply());
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BufferStatus> End() {
    if (received_ < total_) {
      return BadField("SHORT_STREAM", "data", absl::StrCat("ended after ", received_, " bytes; header.total_bytes is ", total_));
    }
    if (spec_.has_crc && spec_.crc32c != crc_) {
      return WithInfo(absl::DataLossError(absl::StrCat("header.crc32c is ", absl::Hex(spec_.crc32c), ", that of what came is ", absl::Hex(crc_))),
                      {.reason = "CHECKSUM", .field = "header.crc32c", .numbers = {}});
    }
    if (staging_ != nullptr) OCTAVO_RETURN_IF_ERROR(Apply());
    Close(BufferState::kReady);
    guard_.Done();
    BufferStatus status;
    {
      MutexLock lock(store_->mutex_);
      status = store_->StatusLocked(*buffer_);
    }
    store_->Tell(BufferEventKind::kChanged, status, "");
    return status;
  }

  absl::Status NextBlock() {
    staging_bytes_ = std::min(block_bytes_, total_ - received_);
    staged_ = 0;
    // As many blocks under way as hide the copies; then the oldest must be through.
    while (in_flight_.size() >= 4) {
      OCTAVO_RETURN_IF_ERROR(in_flight_.front().first->Synchronize());
      in_flight_.pop_front();
    }
    FramePool& pool = *store_->context_.frames[static_cast<size_t>(buffer_->replicas[targets_[0]]->device)];
    for (;;) {
      staging_ = pool.Get(staging_bytes_);
      if (staging_ != nullptr) return absl::OkStatus();
      if (in_flight_.empty()) return NoStaging(staging_bytes_);
      OCTAVO_RETURN_IF_ERROR(in_flight_.front().first->Synchronize());
      in_flight_.pop_front();
    }
  }

  /// The replicas are this write's from here on.
  absl::Status Start() {
    MutexLock lock(store_->mutex_);
    std::vector<Forwarder::Stop> stops;
    for (const size_t target : targets_) {
      BufferReplica& replica = *buffer_->replicas[target];
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, store_->order_.Begin(replica.device));
      OCTAVO_RETURN_IF_ERROR(DeviceOrder::BeforeWrite(stream, replica.order));
      streams_.push_back(stream);
      stops.push_back({.device = replica.device, .stream = stream, .memory = replica.memory.as<char>()});
    }
    OCTAVO_ASSIGN_OR_RETURN(Forwarder forwarder, Forwarder::Create(&store_->order_, std::move(stops)));
    forwarder_.emplace(std::move(forwarder));
    for (const size_t target : targets_) {
      BufferReplica& replica = *buffer_->replicas[target];
      was_partial_ |= replica.state == BufferState::kPartial || replica.state == BufferState::kLost;
      replica.state = BufferState::kWriting;
    }
    started_ = true;
    return absl::OkStatus();
  }

  /// Uploads what is staged to the first target; each other one copies it from the one before.
  absl::Status Apply() {
    if (!started_) OCTAVO_RETURN_IF_ERROR(Start());
    // If it breaks off half-way, what is in flight still uses the memory: Close keeps it.
    OCTAVO_ASSIGN_OR_RETURN(SharedEvent uploaded, forwarder_->Upload(staging_.get(), static_cast<int64_t>(spec_.byte_offset) + applied_, staged_));
    in_flight_.emplace_back(std::move(uploaded), staging_);
    applied_ += staged_;
    staging_ = nullptr;
    return absl::OkStatus();
  }

  void Close(BufferState state) {
    closed_ = true;
    std::vector<std::shared_ptr<BufferReplica>> written;
    for (const size_t target : targets_) written.push_back(buffer_->replicas[target]);
    std::vector<std::shared_ptr<const void>> staging;
    for (auto& [event, block] : in_flight_) staging.push_back(std::move(block));
    if (staging_ != nullptr) staging.push_back(std::move(staging_));
    MutexLock lock(store_->mutex_);
    const uint64_t version = BufferStore::NewestOf(*buffer_) + 1;
    const bool whole = spec_.byte_offset == 0 && total_ == buffer_->status.type.bytes();
    for (size_t i = 0; i < written.size(); ++i) {
      BufferReplica& replica = *written[i];
      std::vector<OrderedMemory*> read;
      if (i > 0) read.push_back(&written[i - 1]->order);
      std::vector<std::shared_ptr<const void>> keep = staging;
      keep.insert(keep.end(), written.begin(), written.end());
      const absl::Status ended = store_->order_.End(replica.device, streams_[i], read, {&replica.order}, std::move(keep),
                                                    [store = store_, r = written[i]](const absl::Status& s) {
                                                      if (s.ok()) return;
                                                      MutexLock lost(store->mutex_);
                                                      r->state = BufferState::kLost;
                                                    });
      replica.state = !ended.ok() ? BufferState::kLost : state == BufferState::kReady && was_partial_ && !whole ? BufferState::kPartial : state;
      if (state == BufferState::kReady) replica.version = version;
    }
    if (state == BufferState::kReady) {
      buffer_->status.sequence = ++store_->sequence_;
      buffer_->status.origin.clear();
      store_->totals_.uploaded_bytes += total_;
      store_->totals_.forwarded_bytes += total_ * static_cast<int64_t>(written.size() - 1);
    }
    store_->TouchLocked(*buffer_);
  }

  BufferStore* const store_;
  const BufferStore::BufferPtr buffer_;
  const std::vector<size_t> targets_;
  const BufferWriteSpec spec_;
  LeaseTable::Guard guard_;
  int64_t total_ = 0, block_bytes_ = 0, received_ = 0, applied_ = 0;
  uint32_t crc_ = 0;
  std::shared_ptr<void> staging_;
  int64_t staging_bytes_ = 0, staged_ = 0;
  std::vector<StreamRef> streams_;
  std::optional<Forwarder> forwarder_;
  std::deque<std::pair<SharedEvent, std::shared_ptr<void>>> in_flight_;
  bool started_ = false, closed_ = false, was_partial_ = false;
};

absl::StatusOr<std::unique_ptr<BufferStore::Writer>> BufferStore::OpenWriteNow(const BufferWriteSpec& spec, const Caller& caller) {
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
  }
  MutexLock turn(turn_mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto guard, context_.leases->Enter(spec.name, LeaseMode::kExclusive, spec.lease_token, spec.lease_fence, "WriteBuffer"));
  BufferPtr buffer;
  std::vector<size_t> targets;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(buffer, FindLocked(spec.name, caller));
    const ArrayType& type = buffer->status.type;
    const size_t count = buffer->replicas.size();
    if (!spec.all && spec.replica >= count) return BadReplica("header.target.replica", spec.replica, count);
    for (size_t i = 0; i < count; ++i) {
      if (spec.all || i == spec.replica) targets.push_back(i);
    }
    const auto bytes = static_cast<uint64_t>(type.bytes()), element = static_cast<uint64_t>(SizeOf(type.scalar) * type.lanes);
    if (spec.total_bytes == 0) return BadRange("header.total_bytes", "is 0; allowed >= 1");
    if (spec.byte_offset > bytes || spec.total_bytes > bytes - spec.byte_offset) {
      return BadRange("header.total_bytes", absl::StrCat("is ", spec.total_bytes, " from byte ", spec.byte_offset, "; the buffer has ", bytes));
    }
    if (spec.byte_offset % element != 0 || spec.total_bytes % element != 0) {
      return BadField("MISALIGNED", spec.byte_offset % element != 0 ? "header.byte_offset" : "header.total_bytes",
                      absl::StrCat("is no multiple of the element's ", element, " bytes"));
    }
    if (spec.has_type && (spec.scalar != type.scalar || static_cast<int64_t>(spec.lanes == 0 ? 1 : spec.lanes) != type.lanes)) {
      return BadField("TYPE_MISMATCH", "header.type", absl::StrCat("is ", NameOf(spec.scalar), " x ", spec.lanes, "; the buffer is ", type.Text()));
    }
    const bool shaped = spec.shape.empty() || std::equal(spec.shape.begin(), spec.shape.end(), type.dims.begin(), type.dims.end(),
                                                         [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); });
    if (!shaped)
      return BadField("SHAPE_MISMATCH", "header.shape", absl::StrCat("is ", absl::StrJoin(spec.shape, " x "), "; the buffer is ", type.Text()));
    for (const size_t target : targets) {
      BufferReplica& replica = *buffer->replicas[target];
      if (!context_.devices[static_cast<size_t>(replica.device)]->Health().ok()) OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, target, true));
      if (replica.state == BufferState::kWriting) {
        return WithInfo(absl::AbortedError(absl::StrCat(spec.name, " is being written with the same lease")),
                        {.reason = "LEASED", .field = "", .numbers = {}});
      }
      if (spec.if_version != 0 && replica.version != spec.if_version) {
        return WrongVersion(spec.name, static_cast<uint32_t>(target), replica.version, spec.if_version);
      }
    }
  }
  return std::make_unique<BufferWriter>(this, std::move(buffer), std::move(targets), spec, std::move(guard));
}

// -- reads

struct ReadPlace {
  int device = 0;
  const void* data = nullptr;
  std::shared_ptr<BufferReplica> replica;  // null: a volume's, which nobody changes
  std::shared_ptr<const void> keep;
};

/// The box of each source in turn. Piece by piece, one copied ahead of what was asked for.
struct BoxWalk {
  int64_t shape[3] = {1, 1, 1};
  Box3 box;
  int64_t element_bytes = 1;
  size_t source = 0, sources = 1;
  int64_t at[3] = {0, 0, 0};

  bool done() const { return source == sources; }
  /// The next piece of at most max_bytes (an element at least): planes, rows of a plane, or a part of a row.
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
      piece.count[2] = std::min(box.count[2] - at[2], std::max<int64_t>(1, max_bytes / element_bytes));
      at[2] += piece.count[2];
    }
    if (at[2] == box.count[2]) at[2] = 0, ++at[1];
    if (at[1] == box.count[1]) at[1] = 0, ++at[0];
    if (at[0] == box.count[0]) at[0] = 0, ++source;
    return piece;
  }
};

/// Up to 16 MiB: copied at once when it was opened, so that nobody waits for the client.
class SmallReader final : public BufferStore::Reader {
 public:
  SmallReader(ArrayType type, std::vector<uint64_t> versions, std::vector<uint32_t> replicas) {
    type_ = std::move(type);
    versions_ = std::move(versions);
    replicas_ = std::move(replicas);
  }
  absl::StatusOr<Bytes> Next(int64_t max_bytes) override {
    if (next_ == parts_.size()) return Bytes{};
    Part& part = parts_[next_];
    if (part.event != nullptr) OCTAVO_RETURN_IF_ERROR(part.event->Synchronize());
    const int64_t n = std::min(max_bytes, part.bytes - at_);
    Bytes out{.owner = part.memory, .data = static_cast<const char*>(part.memory.get()) + at_, .size = n};
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

/// More: under a shared lease until the last piece is copied, or the client is too slow.
class LargeReader final : public BufferStore::Reader {
 public:
  LargeReader(BufferStore* store, ArrayType type, std::vector<uint64_t> versions, std::vector<uint32_t> replicas, std::vector<ReadPlace> sources,
              BoxWalk walk, LeaseTable::Guard guard)
      : store_(store), sources_(std::move(sources)), walk_(walk), guard_(std::move(guard)) {
    type_ = std::move(type);
    versions_ = std::move(versions);
    replicas_ = std::move(replicas);
    last_ns_ = store_->context_.clock->Now().monotonic_ns;
  }

  absl::StatusOr<Bytes> Next(int64_t max_bytes) override {
    MutexLock lock(mutex_);
    if (cut_) {
      return WithInfo(absl::AbortedError(absl::StrCat("the client took nothing for ", store_->context_.slow_reader_seconds,
                                                      " s; the buffer was let go: read it again")),
                      {.reason = "SLOW_READER", .field = "", .numbers = {{"retryable", "true"}}});
    }
    last_ns_ = store_->context_.clock->Now().monotonic_ns;
    if (ahead_.memory == nullptr) OCTAVO_RETURN_IF_ERROR(Copy(max_bytes));
    if (ahead_.memory == nullptr) return Bytes{};
    OCTAVO_RETURN_IF_ERROR(ahead_.event->Synchronize());
    Bytes piece{.owner = ahead_.memory, .data = ahead_.memory.get(), .size = ahead_.bytes};
    ahead_ = {};
    if (absl::Status next = Copy(max_bytes); !next.ok() && !absl::IsResourceExhausted(next)) return next;
    return piece;
  }

  void CutIfSlow(int64_t now_ns) override {
    MutexLock lock(mutex_);
    if (cut_ || walk_.done() || static_cast<double>(now_ns - last_ns_) * 1e-9 < store_->context_.slow_reader_seconds) return;
    cut_ = true;
    guard_.Done();
    sources_.clear();
  }

 private:
  absl::Status Copy(int64_t max_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (walk_.done()) return absl::OkStatus();
    const BoxWalk before = walk_;
    const ReadPlace& source = sources_[walk_.source];
    const Box3 piece = walk_.Next(max_bytes);
    SmallReader::Part part{.bytes = piece.count[0] * piece.count[1] * piece.count[2] * walk_.element_bytes};
    part.memory = store_->context_.frames[static_cast<size_t>(source.device)]->Get(part.bytes);
    if (part.memory == nullptr) {
      walk_ = before;
      return NoStaging(part.bytes);
    }
    {
      MutexLock order(store_->mutex_);
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, store_->order_.Begin(source.device));
      OrderedMemory none;
      OrderedMemory& memory = source.replica == nullptr ? none : source.replica->order;
      OCTAVO_RETURN_IF_ERROR(DeviceOrder::BeforeRead(stream, memory));
      OCTAVO_RETURN_IF_ERROR(
          store_->order_.device(source.device).CopyBoxToHost(stream, part.memory.get(), source.data, walk_.shape, walk_.element_bytes, piece));
      OCTAVO_RETURN_IF_ERROR(store_->order_.End(source.device, stream, {&memory}, {}, {source.keep, part.memory}, nullptr));
      part.event = memory.reads_since.back();
      store_->totals_.read_bytes += part.bytes;
    }
    ahead_ = std::move(part);
    if (walk_.done()) guard_.Done();  // the copy is ordered before whatever is written from now on
    return absl::OkStatus();
  }

  BufferStore* const store_;
  Mutex mutex_;
  std::vector<ReadPlace> sources_ ABSL_GUARDED_BY(mutex_);
  BoxWalk walk_ ABSL_GUARDED_BY(mutex_);
  LeaseTable::Guard guard_ ABSL_GUARDED_BY(mutex_);
  SmallReader::Part ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::StatusOr<std::shared_ptr<BufferStore::Reader>> BufferStore::OpenReadNow(const BufferReadSpec& spec, const Caller& caller) {
  const bool volume = absl::StartsWith(spec.name, "volumes/");
  ArrayType type;
  std::vector<ReadPlace> sources;
  std::vector<uint64_t> versions;
  std::vector<uint32_t> indices;
  MutexLock turn(turn_mutex_);
  LeaseTable::Guard guard;
  if (volume) {
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, context_.volumes->Pin(spec.name));
    if (spec.which == BufferReadSpec::Which::kReplica && spec.replica != 0) return BadReplica("selector.replica", spec.replica, 1);
    type = {.scalar = ScalarOf(pinned.status.dtype), .lanes = 1, .dims = {pinned.status.shape, pinned.status.shape + 3}};
    sources.push_back({.device = pinned.device, .data = pinned.slot->volume.data(), .replica = nullptr, .keep = pinned.slot});
    versions = {1};
    indices = {0};
    if (spec.if_version > 1) return WrongVersion(spec.name, 0, 1, spec.if_version);
  } else {
    {
      MutexLock lock(mutex_);
      OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
    }
    OCTAVO_ASSIGN_OR_RETURN(guard, context_.leases->Enter(spec.name, LeaseMode::kShared, spec.lease_token, spec.lease_fence, "ReadBuffer"));
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(spec.name, caller));
    type = buffer->status.type;
    const size_t count = buffer->replicas.size();
    if (spec.which == BufferReadSpec::Which::kReplica) {
      if (spec.replica >= count) return BadReplica("selector.replica", spec.replica, count);
      OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, spec.replica, spec.allow_uninitialized));
      indices = {spec.replica};
    } else {
      // What all have in common is said first: nothing was written, a device is gone. Else it is that they differ.
      const bool same = std::all_of(buffer->replicas.begin(), buffer->replicas.end(), [&](const auto& r) {
        return r->version == buffer->replicas[0]->version && r->state == buffer->replicas[0]->state;
      });
      if (same || spec.allow_incoherent || count == 1) {
        absl::Status first;
        std::vector<uint32_t> readable;
        for (size_t i = 0; i < count; ++i) {
          if (absl::Status status = CheckReadable(*buffer, i, spec.allow_uninitialized); status.ok()) {
            readable.push_back(static_cast<uint32_t>(i));
          } else if (first.ok()) {
            first = status;
          }
        }
        if (spec.which == BufferReadSpec::Which::kStacked) {
          OCTAVO_RETURN_IF_ERROR(first);
          indices = readable;
        } else {
          if (readable.empty()) return first;
          indices = {*std::max_element(readable.begin(), readable.end(),
                                       [&](uint32_t a, uint32_t b) { return buffer->replicas[a]->version < buffer->replicas[b]->version; })};
        }
      } else {
        std::string text;
        for (const auto& r : buffer->replicas) absl::StrAppend(&text, text.empty() ? "" : ", ", r->version, " ", Name(r->state));
        return Precondition("INCOHERENT", absl::StrCat("the replicas of ", spec.name, " differ (versions ", text,
                                                       "); name one, use SyncReplicas, or allow_incoherent"));
      }
    }
    for (const uint32_t i : indices) {
      const auto& replica = buffer->replicas[i];
      if (spec.if_version != 0 && replica->version != spec.if_version) return WrongVersion(spec.name, i, replica->version, spec.if_version);
      versions.push_back(replica->version);
      sources.push_back({.device = replica->device, .data = replica->memory.data(), .replica = replica, .keep = replica});
    }
  }
  BoxWalk walk{.element_bytes = SizeOf(type.scalar) * type.lanes, .sources = sources.size()};
  const size_t rank = type.dims.size();
  for (const auto& [name, values] : {std::pair{"start", &spec.start}, std::pair{"count", &spec.count}}) {
    if (!values->empty() && values->size() != rank) return BadRange(name, absl::StrCat("has ", values->size(), " numbers; allowed none or ", rank));
  }
  for (int d = 0; d < 3; ++d) walk.box.count[d] = 1;
  for (size_t d = 0; d < rank; ++d) {
    const auto extent = static_cast<uint64_t>(type.dims[d]), start = spec.start.empty() ? 0 : spec.start[d];
    if (start >= extent) return BadRange("start", absl::StrCat("[", d, "] is ", start, "; allowed 0 to ", extent - 1));
    const uint64_t count = spec.count.empty() ? extent - start : spec.count[d];
    if (count < 1 || count > extent - start) return BadRange("count", absl::StrCat("[", d, "] is ", count, "; allowed 1 to ", extent - start));
    walk.shape[3 - rank + d] = type.dims[d];
    walk.box.start[3 - rank + d] = static_cast<int64_t>(start);
    walk.box.count[3 - rank + d] = type.dims[d] = static_cast<int64_t>(count);
  }
  const int64_t bytes = type.bytes();  // of each source
  if (spec.which == BufferReadSpec::Which::kStacked) type.dims.insert(type.dims.begin(), static_cast<int64_t>(sources.size()));
  if (type.bytes() > kStagedWhole) {
    auto reader = std::make_shared<LargeReader>(this, type, versions, indices, std::move(sources), walk, std::move(guard));
    MutexLock lock(mutex_);
    readers_.remove_if([](const auto& r) { return r.expired(); });
    readers_.push_back(reader);
    return reader;
  }
  auto reader = std::make_shared<SmallReader>(type, versions, indices);
  for (const ReadPlace& source : sources) {
    SmallReader::Part part{.bytes = bytes};
    part.memory = context_.frames[static_cast<size_t>(source.device)]->Get(bytes);
    if (part.memory == nullptr) return NoStaging(bytes);
    reader->parts_.push_back(std::move(part));
  }
  MutexLock lock(mutex_);
  for (size_t i = 0; i < sources.size(); ++i) {
    const ReadPlace& source = sources[i];
    OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(source.device));
    OrderedMemory none;
    OrderedMemory& memory = source.replica == nullptr ? none : source.replica->order;
    OCTAVO_RETURN_IF_ERROR(DeviceOrder::BeforeRead(stream, memory));
    OCTAVO_RETURN_IF_ERROR(
        order_.device(source.device).CopyBoxToHost(stream, reader->parts_[i].memory.get(), source.data, walk.shape, walk.element_bytes, walk.box));
    OCTAVO_RETURN_IF_ERROR(order_.End(source.device, stream, {&memory}, {}, {source.keep, reader->parts_[i].memory}, nullptr));
    reader->parts_[i].event = memory.reads_since.back();
    totals_.read_bytes += bytes;
  }
  return reader;
}

}  // namespace octavo::engine
