#include "server/volume/volume_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/array_box.h"
#include "server/base/exception_to_status.h"
#include "server/volume/volume_pieces.h"

namespace octavo::volume {
namespace {

class Reader final : public VolumeReader, public std::enable_shared_from_this<Reader> {
 public:
  Reader(VolumeHold hold, Box3 box, Device* device, StreamRef stream, Event event,
         std::shared_ptr<memory::FramePool> pool, base::WorkerPool* workers)
      : hold_(std::move(hold)),
        box_(box),
        shape_(box.count, box.count + 3),
        device_(device),
        stream_(stream),
        event_(std::move(event)),
        pool_(std::move(pool)),
        workers_(workers),
        element_bytes_(SizeOf(hold_.status.dtype)),
        walk_(box_.count, element_bytes_) {}

  ~Reader() override {
    if (ahead_.owner != nullptr) (void)event_.Synchronize();  // its memory is still being written
  }

  const model::VolumeStatus& volume() const override { return hold_.status; }
  const std::vector<int64_t>& shape() const override { return shape_; }
  DType dtype() const override { return hold_.status.dtype; }
  int64_t total_bytes() const override {
    return shape_[0] * shape_[1] * shape_[2] * element_bytes_;
  }

  void Next(int64_t max_bytes, std::function<void(absl::StatusOr<model::Bytes>)> done) override {
    workers_->Post([self = shared_from_this(), max_bytes, done = std::move(done)] {
      done(base::ExceptionToStatus([&] { return self->Read(max_bytes); }));
    });
  }

 private:
  absl::StatusOr<model::Bytes> Read(int64_t max_bytes) {
    if (ahead_.owner == nullptr) OCTAVO_RETURN_IF_ERROR(StartCopy(max_bytes));
    if (ahead_.owner == nullptr) return model::Bytes{};
    OCTAVO_RETURN_IF_ERROR(event_.Synchronize());
    model::Bytes piece = std::exchange(ahead_, model::Bytes{});
    if (absl::Status next = StartCopy(max_bytes); !next.ok() && !absl::IsResourceExhausted(next))
      return next;
    return piece;
  }

  // Enqueues the copy of the next piece.
  absl::Status StartCopy(int64_t max_bytes) {
    if (walk_.done()) return absl::OkStatus();
    const Box3 next = walk_.Next(max_bytes);
    Box3 piece = next;
    for (int d = 0; d < 3; ++d) piece.start[d] += box_.start[d];
    const int64_t bytes = piece.count[0] * piece.count[1] * walk_.row_bytes();
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                            pool_->Get(bytes, memory::FramePool::Use::kClient));
    if (hold_.cursor != nullptr) {
      OCTAVO_RETURN_IF_ERROR(
          ReadBox(*hold_.cursor, hold_.status.shape, element_bytes_, piece, memory.get()));
    } else {
      OCTAVO_RETURN_IF_ERROR(
          memory::CopyVolumeBox(*device_, stream_, memory.get(), *hold_.slot, hold_.status, piece));
      OCTAVO_RETURN_IF_ERROR(event_.Record(stream_));
    }
    walk_.Advance(next);
    ahead_ = {.owner = memory, .data = memory.get(), .size = bytes};
    return absl::OkStatus();
  }

  const VolumeHold hold_;
  const Box3 box_;
  const std::vector<int64_t> shape_;
  Device* const device_;
  const StreamRef stream_;
  Event event_;
  const std::shared_ptr<memory::FramePool> pool_;
  base::WorkerPool* const workers_;
  const int64_t element_bytes_;
  PieceWalk walk_;
  model::Bytes ahead_;
};

}  // namespace

absl::StatusOr<Box3> BoxOf(const int64_t shape[3], const std::vector<int64_t>& start,
                           const std::vector<int64_t>& count) {
  OCTAVO_ASSIGN_OR_RETURN(const base::ArrayBox asked,
                          base::ResolveBox(start, count, {shape, shape + 3}));
  Box3 box;
  std::copy(asked.start.begin(), asked.start.end(), box.start);
  std::copy(asked.count.begin(), asked.count.end(), box.count);
  return box;
}

absl::StatusOr<std::shared_ptr<VolumeReader>> MakeVolumeReader(
    VolumeHold hold, const std::vector<int64_t>& start, const std::vector<int64_t>& count,
    Device* device, StreamRef stream, std::shared_ptr<memory::FramePool> pool,
    base::WorkerPool* workers) {
  OCTAVO_ASSIGN_OR_RETURN(const Box3 box, BoxOf(hold.status.shape, start, count));
  OCTAVO_ASSIGN_OR_RETURN(Event event, device->NewEvent());
  return std::make_shared<Reader>(std::move(hold), box, device, stream, std::move(event),
                                  std::move(pool), workers);
}

}  // namespace octavo::volume
