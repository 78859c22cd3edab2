#include "server/tomography/live_feed.h"

#include <algorithm>
#include <cstring>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/synchronise_at_end.h"

namespace octavo::tomography {
namespace {

// One thread copies a batch of whole frames more slowly than the device takes it.
constexpr int64_t kLeastToShare = 1 << 20;  // bytes
constexpr int64_t kPart = 1 << 14;          // pixels between two looks at `stop`

/// Reads the pixels of frames that are not packed.
template <class T>
struct NumberReader {
  float operator()(const source::ArrivedFrame& frame, int64_t pixel) const {
    return static_cast<float>(reinterpret_cast<const T*>(frame.data)[pixel]);
  }
};
/// Reads the pixels of packed rows.
struct PackedReader {
  math::Packing packing;
  int64_t columns, row_bytes;
  float operator()(const source::ArrivedFrame& frame, int64_t pixel) const {
    const auto* const row =
        reinterpret_cast<const uint8_t*>(frame.data) + pixel / columns * row_bytes;
    return static_cast<float>(math::ReadPacked12(packing, row, pixel % columns));
  }
};

/// Pixels [first, end) of the average of `frames`, to `out`.
template <class Reader>
void MeanOf(std::span<const source::ArrivedFrame> frames, int64_t first, int64_t end,
            const Reader& read, float* out) {
  std::vector<double> sums(static_cast<size_t>(end - first));
  for (const source::ArrivedFrame& frame : frames) {
    for (int64_t i = first; i < end; ++i)
      sums[static_cast<size_t>(i - first)] += static_cast<double>(read(frame, i));
  }
  std::transform(sums.begin(), sums.end(), out + first, [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(frames.size()));
  });
}
template <class Reader>
void MedianOf(std::span<const source::ArrivedFrame> frames, int64_t first, int64_t end,
              const Reader& read, float* out) {
  std::vector<float> values(frames.size());
  for (int64_t i = first; i < end; ++i) {
    std::transform(frames.begin(), frames.end(), values.begin(),
                   [&](const source::ArrivedFrame& frame) { return read(frame, i); });
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    const float above = *middle;
    const float below = values.size() % 2 == 1 ? above : *std::max_element(values.begin(), middle);
    out[i] = 0.5f * (below + above);
  }
}

// Fields that come after the projections are averaged while a subscriber waits for its planes.
template <class Reader>
absl::StatusOr<std::vector<float>> Average(std::span<const source::ArrivedFrame> frames,
                                           int64_t pixels, const Reader& read, FieldAverage average,
                                           const std::stop_token& stop) {
  std::vector<float> out(frames.empty() ? 0 : static_cast<size_t>(pixels));
  tbb::parallel_for(int64_t{0}, (std::ssize(out) + kPart - 1) / kPart, [&](int64_t part) {
    if (stop.stop_requested()) return;
    const int64_t first = part * kPart, end = std::min(first + kPart, pixels);
    if (average == FieldAverage::kMean) {
      MeanOf(frames, first, end, read, out.data());
    } else {
      MedianOf(frames, first, end, read, out.data());
    }
  });
  if (stop.stop_requested()) return absl::CancelledError("cancelled");
  return out;
}

template <class Reader>
absl::StatusOr<LiveFields> AverageOf(std::span<const source::ArrivedFrame> flats,
                                     std::span<const source::ArrivedFrame> darks, int64_t pixels,
                                     const Reader& read, const PrepareConfig& config,
                                     const std::stop_token& stop) {
  LiveFields fields;
  OCTAVO_ASSIGN_OR_RETURN(fields.flat, Average(flats, pixels, read, config.flat_average, stop));
  OCTAVO_ASSIGN_OR_RETURN(fields.dark, Average(darks, pixels, read, config.dark_average, stop));
  return fields;
}

}  // namespace

absl::StatusOr<LiveFields> AverageFields(std::span<const source::ArrivedFrame> flats,
                                         std::span<const source::ArrivedFrame> darks,
                                         const model::PushedProjectionsSpec& push,
                                         const PrepareConfig& config, const std::stop_token& stop) {
  const auto average = [&](const auto& read) {
    tbb::task_arena few(kLiveThreads);
    return few.execute(
        [&] { return AverageOf(flats, darks, push.rows * push.columns, read, config, stop); });
  };
  if (push.packing != math::Packing::kNone) {
    return average(PackedReader{
        .packing = push.packing, .columns = push.columns, .row_bytes = push.row_bytes()});
  }
  switch (push.dtype) {
    case DType::kU8: return average(NumberReader<uint8_t>());
    case DType::kU16: return average(NumberReader<uint16_t>());
    case DType::kI16: return average(NumberReader<int16_t>());
    case DType::kF32: return average(NumberReader<float>());
    default: return absl::InternalError("a push has no such type");
  }
}

absl::StatusOr<std::unique_ptr<LiveFeed>> LiveFeed::Create(job::JobRun& run, std::stop_token stop,
                                                           const TomographyLayout& layout,
                                                           const LiveRange& range,
                                                           const LiveFields& fields) {
  std::unique_ptr<LiveFeed> feed(new LiveFeed(run, std::move(stop), layout, range));
  OCTAVO_RETURN_IF_ERROR(feed->Init(fields));
  return feed;
}

LiveFeed::~LiveFeed() {
  (void)run_.stream().Synchronize();
  planes_.reset();
  one_.reset();
  many_.reset();
  run_.Discharge(charged_);
  for (void* const data : taken_) run_.Free(data);
}

absl::Status LiveFeed::Init(const LiveFields& fields) {
  Device& device = run_.device();
  OCTAVO_ASSIGN_OR_RETURN(const LiveFeedBytes bytes, BytesOfFeed(layout_, range_, device));
  OCTAVO_RETURN_IF_ERROR(Charge(bytes.others));
  OCTAVO_ASSIGN_OR_RETURN(staging_, device.AllocatePinned(bytes.raw));
  OCTAVO_ASSIGN_OR_RETURN(raw_, Take(bytes.raw));
  OCTAVO_ASSIGN_OR_RETURN(void* const prepared, Take(bytes.prepared));
  prepared_ = {static_cast<float*>(prepared), bytes.prepared / static_cast<int64_t>(sizeof(float))};
  // A batch that is not full is prepared with what is there.
  OCTAVO_RETURN_IF_ERROR(device.Fill(run_.stream(), raw_, bytes.raw, 0));
  if (!fields.flat.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(flat_, Upload(fields.flat, bytes.field));
  }
  if (!fields.dark.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(dark_, Upload(fields.dark, bytes.field));
  }
  for (const auto& [preparer, angles] : {std::pair(&one_, int64_t{1}), {&many_, range_.batch}}) {
    OCTAVO_ASSIGN_OR_RETURN(
        *preparer,
        Preparer::Create(LivePrepare(layout_, range_, angles, flat_ != nullptr, dark_ != nullptr),
                         device));
  }
  OCTAVO_ASSIGN_OR_RETURN(planes_, LivePlanes::Create(LivePlanesOf(layout_, range_), device));
  return absl::OkStatus();
}

absl::StatusOr<void*> LiveFeed::Take(int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(bytes));
  taken_.push_back(data);
  return data;
}

absl::Status LiveFeed::Charge(int64_t bytes) {
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  charged_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<void*> LiveFeed::Upload(const std::vector<float>& field, int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(void* const data, Take(bytes));
  const int64_t columns = layout_.columns(), row = columns * static_cast<int64_t>(sizeof(float));
  for (int64_t r = 0; r < rows_.count; ++r) {
    OCTAVO_RETURN_IF_ERROR(
        run_.device().CopyToDevice(run_.stream(), static_cast<char*>(data) + r * row,
                                   field.data() + (rows_.first + r * rows_.step) * columns, row));
  }
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  return data;
}

absl::Status LiveFeed::Begin(const PlaneId& plane) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes,
                          LivePlanes::PlaneBytes(LivePlanesOf(layout_, range_), plane.axis));
  OCTAVO_RETURN_IF_ERROR(Charge(bytes));
  return planes_->Begin(run_.stream(), plane);
}

absl::Status LiveFeed::End(const PlaneId& plane) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes,
                          LivePlanes::PlaneBytes(LivePlanesOf(layout_, range_), plane.axis));
  OCTAVO_RETURN_IF_ERROR(planes_->End(run_.stream(), plane));
  run_.Discharge(bytes);
  charged_ -= bytes;
  return absl::OkStatus();
}

absl::Status LiveFeed::Add(std::span<const source::ArrivedFrame> projections,
                           const std::vector<PlaneId>& planes) {
  const int64_t row = layout_.raw_row_bytes(), frame = rows_.count * row,
                count = std::ssize(projections), pieces = rows_.step == 1 ? 1 : rows_.count,
                piece = rows_.step == 1 ? frame : row;
  LiveProjections live{.data = prepared_, .room = count == 1 ? 1 : range_.batch, .angles_rad = {}};
  for (const source::ArrivedFrame& projection : projections)
    live.angles_rad.push_back(projection.angle_rad);
  const auto copy = [&](int64_t i) {  // piece i of all
    const char* const from = projections[static_cast<size_t>(i / pieces)].data;
    std::memcpy(staging_.as<char>() + i * piece,
                from + (rows_.first + i % pieces * rows_.step) * row, static_cast<size_t>(piece));
  };
  if (count * frame < kLeastToShare) {
    for (int64_t i = 0; i < count * pieces; ++i) copy(i);
  } else {
    copiers_.execute([&] { tbb::parallel_for(int64_t{0}, count * pieces, copy); });
  }
  const SynchroniseAtEnd over(run_.stream());
  OCTAVO_RETURN_IF_ERROR(
      run_.device().CopyToDevice(run_.stream(), raw_, staging_.data(), count * frame));
  Preparer& preparer = count == 1 ? *one_ : *many_;
  OCTAVO_RETURN_IF_ERROR(preparer.Run(
      run_.stream(), {.projections = raw_, .flats = flat_, .darks = dark_, .goes_on = Until(stop_)},
      prepared_.First(preparer.shape().elements())));
  return planes_->Add(run_.stream(), live, planes);
}

absl::Status LiveFeed::Image(const PlaneId& plane, DeviceSpan<float> image) {
  return planes_->Image(run_.stream(), plane, image);
}

}  // namespace octavo::tomography
