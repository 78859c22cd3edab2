// Writes to buffers as they come from clients.

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"
#include "server/buffer/replica_broadcast.h"
#include "server/model/checksum.h"

namespace octavo::buffer {
namespace {

absl::Status CheckVersion(const model::BufferWriteSpec& spec, size_t target, uint64_t version) {
  if (spec.if_version == 0 || version == spec.if_version) return absl::OkStatus();
  return WrongVersion(spec.name, static_cast<uint32_t>(target), version, spec.if_version);
}

}  // namespace

/// A write to one or all replicas: staged whole, or block by block, uploaded once and forwarded
/// along the devices.
class BufferWriter final : public BufferStore::Writer {
 public:
  /// `device`: of the first target. A replica may move to other memory before the write starts, but
  /// never to another device.
  BufferWriter(BufferStore* store, BufferStore::BufferPtr buffer, std::vector<size_t> targets,
               int device, model::BufferWriteSpec spec, session::LeaseTable::Guard guard)
      : store_(store),
        buffer_(std::move(buffer)),
        targets_(std::move(targets)),
        device_(device),
        spec_(std::move(spec)),
        guard_(std::move(guard)) {
    total_ = static_cast<int64_t>(spec_.total_bytes);
    block_bytes_ = total_ <= BufferStore::kStagedWhole ? total_ : int64_t{4} << 20;
  }

  ~BufferWriter() override {
    if (started_ && !closed_) Close(model::BufferState::kPartial);
    guard_.Done();
  }

  absl::Status Chunk(const std::vector<std::pair<const char*, size_t>>& pieces) override {
    absl::Status answer = Take(pieces);
    store_->CountRefusal(answer);
    return answer;
  }

  absl::StatusOr<model::BufferStatus> Finish() override {
    auto answer = End();
    store_->CountRefusal(answer.status());
    return answer;
  }

 private:
  absl::Status Take(const std::vector<std::pair<const char*, size_t>>& pieces) {
    int64_t bytes = 0;
    for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.second);
    if (bytes > BufferStore::kMostChunk)
      return BadField(Reason::kProtocol, "data",
                      absl::StrCat("has ", bytes, " bytes; allowed ", BufferStore::kMostChunk));
    if (bytes > total_ - received_) {
      return BadField(
          Reason::kProtocol, "data",
          absl::StrCat("makes ", received_ + bytes, " bytes; header.total_bytes is ", total_));
    }
    for (auto [data, size] : pieces) {
      crc_ = model::Crc32c(data, size, crc_);
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

  absl::StatusOr<model::BufferStatus> End() {
    if (received_ < total_) {
      return BadField(
          Reason::kShortStream, "data",
          absl::StrCat("ended after ", received_, " bytes; header.total_bytes is ", total_));
    }
    if (spec_.has_crc && spec_.crc32c != crc_) {
      return WithInfo(absl::DataLossError(absl::StrCat("header.crc32c is ", absl::Hex(spec_.crc32c),
                                                       ", that of what came is ", absl::Hex(crc_))),
                      {.reason = Reason::kChecksum, .field = "header.crc32c", .numbers = {}});
    }
    if (staging_ != nullptr) OCTAVO_RETURN_IF_ERROR(Apply());
    Close(model::BufferState::kReady);
    guard_.Done();
    model::BufferStatus status;
    {
      MutexLock lock(store_->mutex_);
      status = store_->StatusLocked(*buffer_);
    }
    store_->Tell(model::BufferEventKind::kChanged, status, buffer_->key, "");
    return status;
  }

  absl::Status NextBlock() {
    staging_bytes_ = std::min(block_bytes_, total_ - received_);
    staged_ = 0;
    // Keeps enough blocks in flight to hide the copies; beyond that, waits for the oldest.
    while (in_flight_.size() >= 4) {
      OCTAVO_RETURN_IF_ERROR(in_flight_.front().first->Synchronize());
      in_flight_.pop_front();
    }
    memory::FramePool& pool = *store_->context_.frames[static_cast<size_t>(device_)];
    for (;;) {
      staging_ = pool.Get(staging_bytes_, memory::FramePool::Use::kClient);
      if (staging_ != nullptr) return absl::OkStatus();
      if (in_flight_.empty()) return NoStaging(staging_bytes_);
      OCTAVO_RETURN_IF_ERROR(in_flight_.front().first->Synchronize());
      in_flight_.pop_front();
    }
  }

  /// The replicas are this write's from here on.
  absl::Status Start() {
    MutexLock lock(store_->mutex_);
    // A slow client's lease may have ended since. Another client may hold one now, may be writing,
    // or may have destroyed the buffer.
    OCTAVO_RETURN_IF_ERROR(guard_.Stands());
    if (!store_->by_name_.contains(spec_.name)) {
      return WithInfo(absl::NotFoundError(absl::StrCat(spec_.name, " is gone")),
                      {.reason = Reason::kNoBuffer, .field = "name", .numbers = {}});
    }
    for (const size_t target :
         targets_) {  // under the same lease it may be written, or have been written since
      const BufferReplica& replica = *buffer_->replicas[target];
      if (replica.state == model::BufferState::kWriting) return BeingWritten(spec_.name);
      OCTAVO_RETURN_IF_ERROR(CheckVersion(spec_, target, replica.version));
    }
    std::vector<ReplicaBroadcast::Stop> stops;
    for (const size_t target : targets_) {
      BufferReplica& replica = *buffer_->replicas[target];
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, store_->order_.Begin(replica.device));
      OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, replica.order));
      streams_.push_back(stream);
      stops.push_back(
          {.device = replica.device, .stream = stream, .memory = replica.memory.as<char>()});
    }
    OCTAVO_ASSIGN_OR_RETURN(ReplicaBroadcast forwarder,
                            ReplicaBroadcast::Create(&store_->order_, std::move(stops)));
    forwarder_.emplace(std::move(forwarder));
    for (const size_t target : targets_) {
      BufferReplica& replica = *buffer_->replicas[target];
      was_partial_ |= replica.state == model::BufferState::kPartial ||
                      replica.state == model::BufferState::kLost;
      replica.state = model::BufferState::kWriting;
    }
    started_ = true;
    return absl::OkStatus();
  }

  /// Uploads the staged bytes to the first target; each further target copies them from the
  /// previous one.
  absl::Status Apply() {
    if (!started_) OCTAVO_RETURN_IF_ERROR(Start());
    // If the write breaks off half-way, copies in flight still use the memory, so Close keeps it.
    OCTAVO_ASSIGN_OR_RETURN(
        SharedEvent uploaded,
        forwarder_->Upload(staging_.get(), static_cast<int64_t>(spec_.byte_offset) + applied_,
                           staged_));
    in_flight_.emplace_back(std::move(uploaded), staging_);
    applied_ += staged_;
    staging_ = nullptr;
    return absl::OkStatus();
  }

  void Close(model::BufferState state) {
    closed_ = true;
    std::vector<std::shared_ptr<const void>> staging;
    for (auto& [event, block] : in_flight_) staging.push_back(std::move(block));
    if (staging_ != nullptr) staging.push_back(std::move(staging_));
    MutexLock lock(store_->mutex_);
    std::vector<std::shared_ptr<BufferReplica>> written;
    for (const size_t target : targets_) written.push_back(buffer_->replicas[target]);
    const uint64_t version = BufferStore::NewestOf(*buffer_) + 1;
    const bool whole = spec_.byte_offset == 0 && total_ == buffer_->status.type.bytes();
    for (size_t i = 0; i < written.size(); ++i) {
      BufferReplica& replica = *written[i];
      std::vector<AccessTracker*> read;
      if (i > 0) read.push_back(&written[i - 1]->order);
      std::vector<std::shared_ptr<const void>> keep = staging;
      keep.insert(keep.end(), written.begin(), written.end());
      const absl::Status ended =
          store_->order_.End(replica.device, streams_[i], read, {&replica.order}, std::move(keep),
                             store_->LostUnlessOk(written[i]));
      replica.state = !ended.ok() ? model::BufferState::kLost
                      : state == model::BufferState::kReady && was_partial_ && !whole
                          ? model::BufferState::kPartial
                          : state;
      if (state == model::BufferState::kReady) replica.version = version;
    }
    if (state == model::BufferState::kReady) {
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
  const int device_;
  const model::BufferWriteSpec spec_;
  session::LeaseTable::Guard guard_;
  int64_t total_ = 0, block_bytes_ = 0, received_ = 0, applied_ = 0;
  uint32_t crc_ = 0;
  std::shared_ptr<void> staging_;
  int64_t staging_bytes_ = 0, staged_ = 0;
  std::vector<StreamRef> streams_;
  std::optional<ReplicaBroadcast> forwarder_;
  std::deque<std::pair<SharedEvent, std::shared_ptr<void>>> in_flight_;
  bool started_ = false, closed_ = false, was_partial_ = false;
};

absl::StatusOr<std::unique_ptr<BufferStore::Writer>> BufferStore::OpenWriteNow(
    const model::BufferWriteSpec& spec, const model::Caller& caller) {
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
  }
  BufferTurn turn(turn_mutex_, context_.leases);
  OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kExclusive, spec.lease_token,
                                    spec.lease_fence, "WriteBuffer"));
  BufferPtr buffer;
  std::vector<size_t> targets;
  int device = 0;
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(turn.Stands());
    OCTAVO_ASSIGN_OR_RETURN(buffer, FindLocked(spec.name, caller));
    const ArrayType& type = buffer->status.type;
    const size_t count = buffer->replicas.size();
    if (!spec.all && spec.replica >= count)
      return BadReplica("header.target.replica", spec.replica, count);
    for (size_t i = 0; i < count; ++i) {
      if (spec.all || i == spec.replica) targets.push_back(i);
    }
    const auto bytes = static_cast<uint64_t>(type.bytes()),
               element = static_cast<uint64_t>(SizeOf(type.scalar) * type.lanes);
    if (spec.total_bytes == 0) return BadRange("header.total_bytes", "is 0; allowed >= 1");
    if (spec.byte_offset > bytes || spec.total_bytes > bytes - spec.byte_offset) {
      return BadRange("header.total_bytes",
                      absl::StrCat("is ", spec.total_bytes, " from byte ", spec.byte_offset,
                                   "; the buffer has ", bytes));
    }
    if (spec.byte_offset % element != 0 || spec.total_bytes % element != 0) {
      return BadField(Reason::kMisaligned,
                      spec.byte_offset % element != 0 ? "header.byte_offset" : "header.total_bytes",
                      absl::StrCat("is no multiple of the element's ", element, " bytes"));
    }
    if (spec.has_type && (spec.scalar != type.scalar ||
                          static_cast<int64_t>(spec.lanes == 0 ? 1 : spec.lanes) != type.lanes)) {
      return BadField(Reason::kTypeMismatch, "header.type",
                      absl::StrCat("is ", NameOf(spec.scalar), " x ", spec.lanes,
                                   "; the buffer is ", type.Text()));
    }
    const bool shaped =
        spec.shape.empty() ||
        std::equal(spec.shape.begin(), spec.shape.end(), type.dims.begin(), type.dims.end(),
                   [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); });
    if (!shaped)
      return BadField(
          Reason::kShapeMismatch, "header.shape",
          absl::StrCat("is ", absl::StrJoin(spec.shape, " x "), "; the buffer is ", type.Text()));
    for (const size_t target : targets) {
      BufferReplica& replica = *buffer->replicas[target];
      if (!context_.devices[static_cast<size_t>(replica.device)]->Health().ok())
        OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, target, true));
      if (replica.state == model::BufferState::kWriting) {
        return WithInfo(
            absl::AbortedError(absl::StrCat(spec.name, " is being written with the same lease")),
            {.reason = Reason::kLeased, .field = "", .numbers = {}});
      }
      OCTAVO_RETURN_IF_ERROR(CheckVersion(spec, target, replica.version));
    }
    device = buffer->replicas[targets[0]]->device;
  }
  return std::make_unique<BufferWriter>(this, std::move(buffer), std::move(targets), device, spec,
                                        turn.Keep());
}

}  // namespace octavo::buffer
