#include "server/volume/coarse_reader.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/scalar.h"
#include "server/base/exception_to_status.h"
#include "server/volume/volume_pieces.h"

namespace octavo::volume {
namespace {

constexpr int64_t kStagingBytes = 4 << 20;
// A piece that the host makes: so many sums are in memory, and so many voxels are read for it.
constexpr int64_t kMostSums = 1 << 16, kMostVoxels = 1 << 26;

/// Device memory for one piece, charged while it exists.
class Scratch {
 public:
  Scratch(memory::Ledger* ledger, std::vector<memory::Ledger::ChargeId> charges,
          DeviceBuffer memory)
      : ledger_(ledger), charges_(std::move(charges)), memory_(std::move(memory)) {}
  ~Scratch() {
    memory_ = DeviceBuffer();  // it is free before its charge ends
    for (const auto id : charges_) ledger_->Release(id);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  DeviceBuffer& memory() { return memory_; }

  static absl::StatusOr<std::unique_ptr<Scratch>> Make(Device& device, const VolumeHold& hold,
                                                       memory::Ledger* ledger, int64_t bytes) {
    OCTAVO_ASSIGN_OR_RETURN(std::vector<memory::Ledger::ChargeId> charges,
                            ledger->Reserve(hold.device, hold.status.name, hold.status.title,
                                            {{.kind = model::NeedKind::kProjectionScratch,
                                              .bytes = (bytes + 255) / 256 * 256,
                                              .count = 1}},
                                            nullptr));
    auto scratch = std::make_unique<Scratch>(ledger, std::move(charges), DeviceBuffer());
    OCTAVO_ASSIGN_OR_RETURN(scratch->memory_, device.Allocate(bytes));
    return scratch;
  }

 private:
  memory::Ledger* const ledger_;
  const std::vector<memory::Ledger::ChargeId> charges_;
  DeviceBuffer memory_;
};

class CoarseReader final : public VolumeReader, public std::enable_shared_from_this<CoarseReader> {
 public:
  CoarseReader(VolumeHold hold, const Coarsening& coarsening, Device* device, StreamRef stream,
               Event event, std::shared_ptr<memory::FramePool> pool, memory::Ledger* ledger,
               base::WorkerPool* workers)
      : hold_(std::move(hold)),
        coarsening_(coarsening),
        dtype_(ResultOf(coarsening_, hold_.status.dtype)),
        shape_({coarsening_.results(0), coarsening_.results(1), coarsening_.results(2)}),
        device_(device),
        stream_(stream),
        event_(std::move(event)),
        pool_(std::move(pool)),
        ledger_(ledger),
        workers_(workers),
        walk_(shape_.data(), SizeOf(dtype_)) {}

  ~CoarseReader() override {
    if (ahead_.owner != nullptr) (void)event_.Synchronize();  // its memory is still being written
  }

  const model::VolumeStatus& volume() const override { return hold_.status; }
  const std::vector<int64_t>& shape() const override { return shape_; }
  DType dtype() const override { return dtype_; }
  int64_t total_bytes() const override { return shape_[0] * shape_[1] * walk_.row_bytes(); }

  void Next(int64_t max_bytes, std::function<void(absl::StatusOr<model::Bytes>)> done) override {
    workers_->Post([self = shared_from_this(), max_bytes, done = std::move(done)] {
      done(base::ExceptionToStatus([&] { return self->Read(max_bytes); }));
    });
  }

  void Abandon() override { abandoned_ = true; }

 private:
  absl::StatusOr<model::Bytes> Read(int64_t max_bytes) {
    if (walk_.done() && ahead_.owner == nullptr) return model::Bytes{};
    if (!decided_) OCTAVO_RETURN_IF_ERROR(Decide(max_bytes));
    if (scratch_ == nullptr) return MakeOnHost(max_bytes);
    if (ahead_.owner == nullptr) OCTAVO_RETURN_IF_ERROR(StartOnDevice(max_bytes));
    OCTAVO_RETURN_IF_ERROR(event_.Synchronize());
    model::Bytes piece = std::exchange(ahead_, model::Bytes{});
    if (absl::Status next = StartOnDevice(max_bytes);
        !next.ok() && !absl::IsResourceExhausted(next))
      return next;
    return piece;
  }

  // The device makes the pieces if the volume lies on it as one array, and if it has the room.
  absl::Status Decide(int64_t max_bytes) {
    decided_ = true;
    if (hold_.slot == nullptr || !hold_.slot->stripes.empty()) return absl::OkStatus();
    scratch_bytes_ = std::min(total_bytes(), std::max(max_bytes, walk_.row_bytes()));
    auto scratch = Scratch::Make(*device_, hold_, ledger_, scratch_bytes_);
    if (absl::IsResourceExhausted(scratch.status())) return absl::OkStatus();
    OCTAVO_RETURN_IF_ERROR(scratch.status());
    scratch_ = *std::move(scratch);
    return absl::OkStatus();
  }

  // Enqueues the next piece. The stream orders it behind the copy of the one before, which used the
  // same device memory.
  absl::Status StartOnDevice(int64_t max_bytes) {
    if (walk_.done()) return absl::OkStatus();
    const Box3 next = walk_.Next(std::min(max_bytes, scratch_bytes_));
    const int64_t bytes = next.count[0] * next.count[1] * walk_.row_bytes();
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                            pool_->Get(bytes, memory::FramePool::Use::kClient));
    const model::VolumeStatus& volume = hold_.status;
    absl::Status made = Coarsen(stream_, *device_,
                                {.data = hold_.slot->volume.data(),
                                 .dtype = volume.dtype,
                                 .shape = {volume.shape[0], volume.shape[1], volume.shape[2]}},
                                PartOf(next), scratch_->memory().data());
    if (made.ok())
      made = device_->CopyToHost(stream_, memory.get(), scratch_->memory().data(), bytes);
    if (made.ok()) made = event_.Record(stream_);
    if (!made.ok()) {
      (void)stream_.Synchronize();  // what is enqueued uses the memory that ends here
      return made;
    }
    walk_.Advance(next);
    ahead_ = {.owner = memory, .data = memory.get(), .size = bytes};
    return absl::OkStatus();
  }

  absl::StatusOr<model::Bytes> MakeOnHost(int64_t max_bytes) {
    const int64_t cube = coarsening_.factor * coarsening_.factor * coarsening_.factor;
    const int64_t most = std::clamp<int64_t>(kMostVoxels / cube, 1, kMostSums) * SizeOf(dtype_);
    const Box3 next = walk_.Next(std::min(max_bytes, most));
    const int64_t bytes = next.count[0] * next.count[1] * walk_.row_bytes();
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                            pool_->Get(bytes, memory::FramePool::Use::kClient));
    OCTAVO_RETURN_IF_ERROR(ReduceOnHost(PartOf(next), memory.get()));
    walk_.Advance(next);
    return model::Bytes{.owner = memory, .data = memory.get(), .size = bytes};
  }

  // Reads each B-scan once, in parts that fit, and adds it to the sums of its cubes.
  absl::Status ReduceOnHost(const Coarsening& part, void* out) {
    const model::VolumeStatus& volume = hold_.status;
    OCTAVO_ASSIGN_OR_RETURN(const math::CoarsenSpec spec,
                            PlanCoarsening(part, volume.dtype, volume.shape));
    const int64_t staging_bytes = std::max(kStagingBytes, volume.shape[2] * SizeOf(volume.dtype));
    OCTAVO_ASSIGN_OR_RETURN(auto staging,
                            pool_->Get(staging_bytes, memory::FramePool::Use::kClient));
    PieceReader reader(*device_, stream_, hold_, std::move(staging));
    const int64_t most_rows =
        std::max<int64_t>(1, staging_bytes / (reader.RowOf(part.box) * SizeOf(volume.dtype)));
    std::vector<math::Accumulator> sums(static_cast<size_t>(spec.all()));
    for (int64_t y = 0; y < spec.count[0]; ++y) {
      for (int64_t x = 0; x < spec.count[1]; x += most_rows) {
        // A piece may stand for the whole volume.
        if (abandoned_) return absl::CancelledError("nobody waits for the coarse volume any more");
        OCTAVO_ASSIGN_OR_RETURN(
            const Piece piece,
            reader.Read({.start = {part.box.start[0] + y, part.box.start[1] + x, part.box.start[2]},
                         .count = {1, std::min(most_rows, spec.count[1] - x), spec.count[2]}}));
        Add(spec, y, x, piece, &sums);
      }
    }
    for (int64_t at = 0; at < spec.all(); ++at)
      math::StoreCoarse(spec, sums[static_cast<size_t>(at)], at, out);
    return absl::OkStatus();
  }

  // `piece`: rows of B-scan y, from row x on. Rows of one cube go to one task.
  static void Add(const math::CoarsenSpec& s, int64_t y, int64_t x, const Piece& piece,
                  std::vector<math::Accumulator>* sums) {
    const int64_t end = x + piece.box.count[1];
    tbb::parallel_for(x / s.factor, (end + s.factor - 1) / s.factor, [&](int64_t column) {
      math::Accumulator* const row =
          sums->data() + ((y / s.factor) * s.results[1] + column) * s.results[2];
      for (int64_t i = std::max(x, column * s.factor); i < std::min(end, (column + 1) * s.factor);
           ++i) {
        for (int64_t z = 0; z < s.count[2]; ++z) {
          const math::Number v = math::Load(s.in, piece.data, (i - x) * piece.row + z);
          math::Include(s.kind, math::PartOf(s.part, v), &row[z / s.factor]);
        }
      }
    });
  }

  /// The coarsening of the part of the box that makes this box of the result.
  Coarsening PartOf(const Box3& result) const {
    Coarsening part = coarsening_;
    for (int d = 0; d < 3; ++d) {
      const int64_t first = result.start[d] * coarsening_.factor;
      part.box.start[d] = coarsening_.box.start[d] + first;
      part.box.count[d] =
          std::min(coarsening_.box.count[d] - first, result.count[d] * coarsening_.factor);
    }
    return part;
  }

  const VolumeHold hold_;
  const Coarsening coarsening_;
  const DType dtype_;
  const std::vector<int64_t> shape_;
  Device* const device_;
  const StreamRef stream_;
  Event event_;
  const std::shared_ptr<memory::FramePool> pool_;
  memory::Ledger* const ledger_;
  base::WorkerPool* const workers_;
  PieceWalk walk_;
  std::atomic<bool> abandoned_{false};
  bool decided_ = false;
  std::unique_ptr<Scratch> scratch_;  // set: the device makes the pieces
  int64_t scratch_bytes_ = 0;
  model::Bytes ahead_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<VolumeReader>> MakeCoarseReader(
    VolumeHold hold, const Coarsening& coarsening, Device* device, StreamRef stream,
    std::shared_ptr<memory::FramePool> pool, memory::Ledger* ledger, base::WorkerPool* workers) {
  OCTAVO_RETURN_IF_ERROR(PlanCoarsening(coarsening, hold.status.dtype, hold.status.shape).status());
  OCTAVO_ASSIGN_OR_RETURN(Event event, device->NewEvent());
  return std::make_shared<CoarseReader>(std::move(hold), coarsening, device, stream,
                                        std::move(event), std::move(pool), ledger, workers);
}

}  // namespace octavo::volume
