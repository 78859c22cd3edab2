#include "server/scan/product_maker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gpu/array/motion_contrast.h"
#include "gpu/base/status.h"
#include "server/pattern/plan.h"
#include "server/processing/display_scale.h"

namespace octavo::scan {
namespace {

Axis AxisOf(model::FrameAxis axis) {
  return axis == model::FrameAxis::kX   ? Axis::kX
         : axis == model::FrameAxis::kY ? Axis::kY
                                        : Axis::kZ;
}

}  // namespace

ProductMaker::ProductMaker(const model::ResolvedScan& scan, DeviceLanes* lanes, Context context)
    : scan_(scan), lanes_(*lanes), context_(std::move(context)) {}

absl::Status ProductMaker::Allocate() {
  Device& device = lanes_.home();
  OCTAVO_ASSIGN_OR_RETURN(scratch_, device.Allocate(LargestPlane(scan_)));
  OCTAVO_ASSIGN_OR_RETURN(stream_, device.NewStream(StreamPriority::kHigh));
  OCTAVO_ASSIGN_OR_RETURN(volume_ready_, device.NewEvent());
  // Enough for the newest frames, which the publisher keeps, so that the scan allocates none while
  // it runs.
  context_.frames->Prepare(FrameBytes(scan_), static_cast<int>(PreparedFrames(scan_)));
  if (scan_.spec.products.angiography == 0) return absl::OkStatus();
  const pattern::Pattern& p = scan_.spec.pattern;
  std::vector<int32_t> rows;
  for (int64_t b = 0; b < p.bscans_per_volume; ++b) {
    for (int64_t r = 0; r < p.repeat_count; ++r)
      rows.push_back(static_cast<int32_t>(pattern::RepeatRow(p, b, r)));
  }
  OCTAVO_ASSIGN_OR_RETURN(angiogram_,
                          device.Allocate(p.bscans_per_volume * p.ascans_per_bscan * 4));
  OCTAVO_ASSIGN_OR_RETURN(repeat_rows_, device.Allocate(p.rows() * 4));
  OCTAVO_RETURN_IF_ERROR(
      device.CopyToDevice(stream_.ref(), repeat_rows_.data(), rows.data(), p.rows() * 4));
  return stream_.ref().Synchronize();
}

void ProductMaker::Free() {
  for (DeviceBuffer* buffer : {&scratch_, &repeat_rows_, &angiogram_}) *buffer = DeviceBuffer();
  volume_ready_ = Event();
  stream_ = Stream();
}

absl::Status ProductMaker::Make(const ActiveVolume& volume, Completion* item) {
  OCTAVO_RETURN_IF_ERROR(volume_ready_.Record(lanes_.compute()));
  OCTAVO_RETURN_IF_ERROR(volume_ready_.EnqueueWait(stream_.ref()));
  const auto wanted = context_.publisher->WantedOf(context_.scan);
  OCTAVO_RETURN_IF_ERROR(MakeProjections(volume, /*complete=*/true, wanted, item));
  size_t allowance = Allowance();
  const auto leave_out = [&](const publish::TopicKey& key) {
    item->frames.push_back({.key = key, .frame = {}, .lost = true, .yielded = true});
  };
  if (scan_.spec.products.angiography != 0 && allowance == 0) {
    leave_out({.product = model::Product::kAngiogram});
  } else if (scan_.spec.products.angiography != 0) {
    OCTAVO_RETURN_IF_ERROR(MakeAngiogram(volume, item));
  }
  bool full = false;
  const size_t first = wanted.empty() ? 0 : turn_ % wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const publish::TopicKey& key = wanted[(first + i) % wanted.size()].key;
    if (!Makes(key)) continue;
    if (allowance > 0 && RingFills()) allowance = 0;
    if (allowance == 0) {
      if (!full) turn_ = first + i;  // it is the first of the next volume
      full = true;
      leave_out(key);
      continue;
    }
    --allowance;
    OCTAVO_RETURN_IF_ERROR(MakeWanted(volume, key, item));
  }
  return absl::OkStatus();
}

bool ProductMaker::PreviewIsDue(int64_t now_ns) {
  const double rate = scan_.spec.products.preview_rate_hz;
  if (rate <= 0 || static_cast<double>(now_ns - last_preview_ns_) < 1e9 / rate) return false;
  last_preview_ns_ = now_ns;
  return true;
}

absl::Status ProductMaker::MakePreview(const ActiveVolume& volume, Completion* item) {
  return MakeProjections(volume, /*complete=*/false, context_.publisher->WantedOf(context_.scan),
                         item);
}

// Adds the frames of the projections that the chain makes with the volume.
absl::Status ProductMaker::MakeProjections(const ActiveVolume& volume, bool complete,
                                           const std::vector<publish::Publisher::Wanted>& wanted,
                                           Completion* item) {
  const StreamRef stream = complete ? stream_.ref() : lanes_.compute();
  const auto is_wanted = [&](const publish::TopicKey& key) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const auto& w) { return w.key == key && (complete || w.previews); });
  };
  const publish::TopicKey mip{.product = model::Product::kMip},
      aip{.product = model::Product::kAip};
  if (scan_.spec.products.mip && (complete || is_wanted(mip))) {
    OCTAVO_RETURN_IF_ERROR(AddFrame(volume, mip, volume.slot->mip.data(),
                                    ProjectionOf(scan_.chain.output), stream, complete, item));
  }
  if (scan_.spec.products.aip && (complete || is_wanted(aip))) {
    OCTAVO_RETURN_IF_ERROR(
        AddFrame(volume, aip, volume.slot->aip.data(), DType::kF32, stream, complete, item));
  }
  return absl::OkStatus();
}

// Whether a topic is one of planes or projections that are made for subscribers alone.
bool ProductMaker::Makes(const publish::TopicKey& key) const {
  const Axis axis = AxisOf(key.axis);
  if (key.product == model::Product::kBscan)  // the others belong to another scan's volumes
    return key.plane_index < scan_.shape[static_cast<int>(axis)];
  if (key.slab.given() && key.slab.end > scan_.shape[2]) return false;
  return key.product == model::Product::kMip &&
         (axis != Axis::kZ || key.slab.given() || !scan_.spec.products.mip);
}

absl::Status ProductMaker::MakeWanted(const ActiveVolume& volume, const publish::TopicKey& key,
                                      Completion* item) {
  const Axis axis = AxisOf(key.axis);
  const bool bscan = key.product == model::Product::kBscan;
  const int64_t index =
      key.plane_index < 0 ? scan_.shape[static_cast<int>(axis)] / 2 : key.plane_index;
  OCTAVO_ASSIGN_OR_RETURN(
      const void* const made,
      bscan ? lanes_.CutPlane(stream_.ref(), *volume.slot, axis, index, scratch_.data())
            : lanes_.MakeMip(stream_.ref(), *volume.slot, axis, key.slab, scratch_.data()));
  if (made == nullptr) {  // across devices: the subscription is refused when it names the scan
    item->frames.push_back({.key = key, .frame = {}, .lost = true});
    return absl::OkStatus();
  }
  const DType dtype = scan_.chain.output;
  return AddFrame(volume, key, made, bscan ? dtype : ProjectionOf(dtype), stream_.ref(),
                  /*complete=*/true, item);
}

size_t ProductMaker::Allowance() {
  constexpr size_t kMost = 1 << 16;
  constexpr int kPiledUp = 2;  // volumes; later ones wait for their slots
  if (context_.source_waits) return kMost;
  const int behind = context_.volumes_behind();
  if (behind == 0) allowance_ = std::min(allowance_ * 2, kMost);
  if (behind < kPiledUp) return RingFills() ? 0 : allowance_;
  allowance_ = std::max<size_t>(allowance_ / 2, 1);
  return 0;
}

bool ProductMaker::RingFills() const {
  return !context_.source_waits && context_.ring_occupancy() >= 0.75;
}

absl::Status ProductMaker::MakeAngiogram(const ActiveVolume& volume, Completion* item) {
  const pattern::Pattern& p = scan_.spec.pattern;
  OCTAVO_RETURN_IF_ERROR(
      AngiogramEnFace(stream_.ref(), lanes_.home(),
                      static_cast<MotionContrast>(scan_.spec.products.angiography - 1),
                      {.data = volume.slot->volume.data(),
                       .dtype = scan_.chain.output,
                       .rows = scan_.shape[0],
                       .columns = scan_.shape[1],
                       .depth = scan_.shape[2],
                       .order = repeat_rows_.as<int32_t>(),
                       .bscans = p.bscans_per_volume,
                       .repeats = p.repeat_count},
                      processing::ScaleOf(volume.status), scan_.chain.slab_begin,
                      scan_.chain.slab_end > 0 ? scan_.chain.slab_end : scan_.chain.depth,
                      angiogram_.span<float>()));
  // Integer voxels cannot show that a repeat was missing.
  if (volume.coverage.missing_ascans() > 0) {
    std::vector<int64_t> bscan_of(static_cast<size_t>(p.rows()));
    for (int64_t b = 0; b < p.bscans_per_volume; ++b) {
      for (int64_t r = 0; r < p.repeat_count; ++r)
        bscan_of[static_cast<size_t>(pattern::RepeatRow(p, b, r))] = b;
    }
    const int64_t columns = p.ascans_per_bscan;
    for (const auto& [first, count] : volume.coverage.missing()) {
      for (int64_t a = first; a < first + count; a = (a / columns + 1) * columns) {
        const int64_t end = std::min(first + count, (a / columns + 1) * columns);
        OCTAVO_RETURN_IF_ERROR(lanes_.home().Fill(
            stream_.ref(),
            angiogram_.as<float>() + bscan_of[static_cast<size_t>(a / columns)] * columns +
                a % columns,
            (end - a) * 4, FillPattern(DType::kF32)));
      }
    }
  }
  return AddFrame(volume, {.product = model::Product::kAngiogram}, angiogram_.data(), DType::kF32,
                  stream_.ref(), /*complete=*/true, item);
}

absl::Status ProductMaker::AddFrame(const ActiveVolume& volume, const publish::TopicKey& key,
                                    const void* device_data, DType dtype, StreamRef stream,
                                    bool complete, Completion* item) {
  static constexpr const char* kNames[3] = {"y", "x", "z"};
  PendingFrame pending{.key = key, .frame = {}, .lost = false};
  model::Frame& frame = pending.frame;
  frame.parent = context_.scan;
  frame.volume = volume.status.name;
  frame.volume_index = volume.index;
  frame.product = key.product;
  frame.axis = key.axis;
  frame.slab = key.slab;
  frame.acquired = volume.status.acquired_end;
  frame.dtype = dtype;
  frame.complete = complete;
  frame.display_lo = volume.display_lo;
  frame.display_hi = volume.display_hi;
  frame.scale = model::ValueScaleOf(volume.status);
  const int gone = key.axis == model::FrameAxis::kY ? 0 : key.axis == model::FrameAxis::kX ? 1 : 2;
  const bool angiogram = key.product == model::Product::kAngiogram;
  if (angiogram) {
    frame.display_lo = 0;
    frame.display_hi = processing::ContrastDisplayHi(
        static_cast<MotionContrast>(scan_.spec.products.angiography - 1), volume.status);
    frame.scale = {};
  }
  int64_t bytes = SizeOf(dtype);
  for (int d = 0; d < 3; ++d) {
    if (d == gone) continue;
    const int64_t extent =
        d == 0 && angiogram ? scan_.spec.pattern.bscans_per_volume : scan_.shape[d];
    frame.shape.push_back(extent);
    frame.axes.emplace_back(kNames[d]);
    frame.spacing_um.push_back(scan_.spacing_um[d]);
    frame.row_spacing_assumed =
        std::exchange(frame.column_spacing_assumed, scan_.spacing_assumed[d]);
    bytes *= extent;
  }
  auto memory = context_.frames->Get(bytes, memory::FramePool::Use::kFrame);
  if (!memory.ok()) {
    pending.lost = true;
  } else {
    OCTAVO_RETURN_IF_ERROR(lanes_.home().CopyToHost(stream, memory->get(), device_data, bytes));
    frame.payload = {.owner = *memory, .data = memory->get(), .size = bytes};
  }
  item->frames.push_back(std::move(pending));
  return absl::OkStatus();
}

}  // namespace octavo::scan
