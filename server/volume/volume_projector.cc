#include "server/volume/volume_projector.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/scalar.h"
#include "server/memory/frame_pool.h"
#include "server/volume/volume_pieces.h"

namespace octavo::volume {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kMostSums = 1 << 18;  // results over the slowest axis that are summed together
constexpr int64_t kGrain = 1 << 14;     // the least numbers that are worth a task

/// Runs f(begin, end) over [0, count), in tasks of at least kGrain numbers of `numbers` an item.
template <class F>
void ForRanges(int64_t count, int64_t numbers, F f) {
  tbb::parallel_for(tbb::blocked_range<int64_t>(
                        0, count, std::max<int64_t>(1, kGrain / std::max<int64_t>(numbers, 1))),
                    [&](const auto& range) { f(range.begin(), range.end()); });
}

/// Reduces pieces to results, in host memory.
class HostReduction {
 public:
  HostReduction(const BoxProjection& projection, DType dtype, void* out)
      : p_(projection),
        in_(ScalarOf(dtype)),
        to_(ScalarOf(ResultOf(projection, dtype))),
        part_(dtype == DType::kC64 ? math::Part::kMagnitude : math::Part::kAll),
        element_(SizeOf(dtype)),
        out_(static_cast<char*>(out)) {}

  /// A plane: copies the elements of the piece to their places.
  void Copy(const Piece& piece) const {
    const int64_t* n = piece.box.count;
    for (int64_t y = 0; y < n[0]; ++y) {
      for (int64_t x = 0; x < n[1]; ++x) {
        std::memcpy(out_ + IndexOf(piece, y, x) * element_,
                    piece.data + (y * piece.Plane() + x * piece.row) * element_,
                    static_cast<size_t>(n[2] * element_));
      }
    }
  }
  /// Over the fastest axis: each A-scan gives one result.
  void AlongRows(const Piece& piece) const {
    const int64_t* n = piece.box.count;
    ForRanges(n[0] * n[1], n[2], [&](int64_t begin, int64_t end) {
      for (int64_t a = begin; a < end; ++a) {
        const int64_t y = a / n[1], x = a % n[1], first = y * piece.Plane() + x * piece.row;
        math::Accumulator sum;
        for (int64_t z = 0; z < n[2]; ++z) math::Include(*p_.kind, At(piece, first + z), &sum);
        Store(IndexOf(piece, y, x), sum);
      }
    });
  }
  /// Over the other two axes: the results of a piece follow each other along the fastest axis, in
  /// `groups` of one for each position on the axis that is kept.
  void Add(const Piece& piece) {
    const int64_t* n = piece.box.count;
    const bool slowest = p_.axis == 0;
    const int64_t groups = slowest ? n[1] : n[0], length = slowest ? n[0] : n[1];
    const int64_t group_step = slowest ? piece.row : piece.Plane(),
                  step = slowest ? piece.Plane() : piece.row;
    if (sums_.empty()) sums_.resize(static_cast<size_t>(groups * n[2]));
    ForRanges(groups * n[2], length, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < length; ++i) {
        int64_t group = begin / n[2], z = begin % n[2];
        for (int64_t k = begin; k < end; ++k) {
          const int64_t at = group * group_step + z + i * step;
          math::Include(*p_.kind, At(piece, at), &sums_[static_cast<size_t>(k)]);
          if (++z == n[2]) z = 0, ++group;
        }
      }
    });
  }
  /// The sums are complete: stores them as results from index `first` on.
  void Finish(int64_t first) {
    for (size_t r = 0; r < sums_.size(); ++r) Store(first + static_cast<int64_t>(r), sums_[r]);
    sums_.clear();
  }

 private:
  math::Number At(const Piece& piece, int64_t index) const {
    return math::PartOf(part_, math::Load(in_, piece.data, index));
  }
  void Store(int64_t index, const math::Accumulator& sum) const {
    math::Store(to_, out_, index, math::Finish(*p_.kind, /*skip_nan=*/true, sum));
  }
  /// Of the first result of A-scan (y, x) of the piece.
  int64_t IndexOf(const Piece& piece, int64_t y, int64_t x) const {
    const Box3 &box = piece.box, &all = p_.box;
    y += box.start[0] - all.start[0];
    x += box.start[1] - all.start[1];
    const int64_t z = box.start[2] - all.start[2];
    return p_.axis == 0   ? x * all.count[2] + z
           : p_.axis == 1 ? y * all.count[2] + z
                          : y * all.count[1] + x;
  }

  const BoxProjection& p_;
  const Scalar in_, to_;
  const math::Part part_;
  const int64_t element_;
  char* const out_;
  std::vector<math::Accumulator> sums_;
};

}  // namespace

absl::Status VolumeProjector::Project(const VolumeHold& hold, const BoxProjection& projection,
                                      const std::function<bool()>& unwanted, void* out) {
  // Planes of whole rows are copied as they are, without device memory.
  const bool copied = !projection.kind.has_value() && projection.axis != 2;
  if (hold.slot != nullptr && hold.slot->stripes.empty() && !copied) {
    const absl::Status made = ProjectOnDevice(hold, projection, out);
    if (!absl::IsResourceExhausted(made)) return made;
  }
  return ProjectOnHost(hold, projection, unwanted, out);
}

absl::Status VolumeProjector::ProjectOnDevice(const VolumeHold& hold, const BoxProjection& p,
                                              void* out) {
  const model::VolumeStatus& volume = hold.status;
  Device& device = context_.devices.device(hold.device);
  const StreamRef stream = context_.streams[static_cast<size_t>(hold.device)];
  const int64_t bytes = p.results() * SizeOf(ResultOf(p, volume.dtype)),
                scratch_bytes = ProjectBoxScratch(p);
  // The memory is free before its charge ends.
  OCTAVO_ASSIGN_OR_RETURN(
      const std::vector<memory::Ledger::ChargeId> charges,
      context_.ledger->Reserve(hold.device, volume.name, volume.title,
                               {{.kind = model::NeedKind::kProjectionScratch,
                                 .bytes = ((bytes + 255) / 256 + (scratch_bytes + 255) / 256) * 256,
                                 .count = 1}},
                               nullptr));
  const absl::Cleanup charged = [&] {
    for (const auto id : charges) context_.ledger->Release(id);
  };
  OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer made, device.Allocate(bytes));
  DeviceBuffer scratch;
  if (scratch_bytes > 0) {
    OCTAVO_ASSIGN_OR_RETURN(scratch, device.Allocate(scratch_bytes));
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto staging,
                          context_.devices.frames(hold.device)
                              ->Get(std::min(bytes, kPieceBytes), memory::FramePool::Use::kClient));
  absl::Status status = ProjectBox(stream, device,
                                   {.data = hold.slot->volume.data(),
                                    .dtype = volume.dtype,
                                    .shape = {volume.shape[0], volume.shape[1], volume.shape[2]}},
                                   p, scratch.data(), made.data());
  for (int64_t at = 0; status.ok() && at < bytes; at += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - at);
    status = device.CopyToHost(stream, staging.get(), made.as<char>() + at, count);
    if (status.ok()) status = stream.Synchronize();
    if (status.ok())
      std::memcpy(static_cast<char*>(out) + at, staging.get(), static_cast<size_t>(count));
  }
  // What is enqueued uses the memory that ends here.
  if (!status.ok()) (void)stream.Synchronize();
  return status;
}

absl::Status VolumeProjector::ProjectOnHost(const VolumeHold& hold, const BoxProjection& p,
                                            const std::function<bool()>& unwanted, void* out) {
  const model::VolumeStatus& volume = hold.status;
  const int64_t element = SizeOf(volume.dtype);
  // One row always fits.
  const int64_t staging_bytes = std::max(kPieceBytes, volume.shape[2] * element);
  OCTAVO_ASSIGN_OR_RETURN(
      auto staging,
      context_.devices.frames(hold.device)->Get(staging_bytes, memory::FramePool::Use::kClient));
  PieceReader reader(context_.devices.device(hold.device),
                     context_.streams[static_cast<size_t>(hold.device)], hold, std::move(staging));
  HostReduction reduction(p, volume.dtype, out);
  const auto read = [&](const Box3& box) -> absl::StatusOr<Piece> {
    if (unwanted != nullptr && unwanted())
      return absl::CancelledError("nobody waits for the projection any more");
    return reader.Read(box);
  };
  const int64_t most_rows = std::max<int64_t>(1, kPieceBytes / (reader.RowOf(p.box) * element));
  const int64_t end_y = p.box.start[0] + p.box.count[0], end_x = p.box.start[1] + p.box.count[1];
  if (!p.kind.has_value() || p.axis == 2) {
    // Each A-scan by itself: whole B-scans where they fit, else parts of one.
    const int64_t rows = std::min(most_rows, p.box.count[1]),
                  planes = std::max<int64_t>(1, most_rows / p.box.count[1]);
    for (int64_t y = p.box.start[0]; y < end_y; y += planes) {
      for (int64_t x = p.box.start[1]; x < end_x; x += rows) {
        OCTAVO_ASSIGN_OR_RETURN(const Piece piece,
                                read({.start = {y, x, p.box.start[2]},
                                      .count = {std::min(planes, end_y - y),
                                                std::min(rows, end_x - x), p.box.count[2]}}));
        if (p.kind.has_value()) {
          reduction.AlongRows(piece);
        } else {
          reduction.Copy(piece);
        }
      }
    }
    return absl::OkStatus();
  }
  if (p.axis == 1) {
    for (int64_t y = p.box.start[0]; y < end_y; ++y) {
      for (int64_t x = p.box.start[1]; x < end_x; x += most_rows) {
        OCTAVO_ASSIGN_OR_RETURN(
            const Piece piece,
            read({.start = {y, x, p.box.start[2]},
                  .count = {1, std::min(most_rows, end_x - x), p.box.count[2]}}));
        reduction.Add(piece);
      }
      reduction.Finish((y - p.box.start[0]) * p.box.count[2]);
    }
    return absl::OkStatus();
  }
  // Over the slowest axis: strips of A-scans, so that the sums take little memory.
  const int64_t strip = std::min(most_rows, std::max<int64_t>(1, kMostSums / p.box.count[2]));
  for (int64_t x = p.box.start[1]; x < end_x; x += strip) {
    const int64_t rows = std::min(strip, end_x - x),
                  planes = std::max<int64_t>(1, most_rows / rows);
    for (int64_t y = p.box.start[0]; y < end_y; y += planes) {
      OCTAVO_ASSIGN_OR_RETURN(const Piece piece,
                              read({.start = {y, x, p.box.start[2]},
                                    .count = {std::min(planes, end_y - y), rows, p.box.count[2]}}));
      reduction.Add(piece);
    }
    reduction.Finish((x - p.box.start[1]) * p.box.count[2]);
  }
  return absl::OkStatus();
}

}  // namespace octavo::volume
