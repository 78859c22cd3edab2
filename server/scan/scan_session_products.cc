// The compute thread's products: projections, planes and angiograms of volumes, on their way to
// subscribers.
//
// Products yield to the scan. Those that subscribers ask for are made beside the chain, on the same
// device and, on the host, by the same cores. They keep their volume's slot, and those of the
// volumes that come after it, until they are made: enough of them fill the ring of blocks behind
// them, and a source that cannot wait loses records. What one costs is not known before, and what
// is enqueued cannot be taken back, so each volume has an allowance of them: it grows while volumes
// get through in time and halves when they pile up; a volume behind which others wait already, or
// with a ring that fills, has none. The others are left out and counted as dropped frames (policy
// "yielded"). Which of them comes first goes around, so that each has its turn. A source that can
// wait does: nothing is left out then. The scan's own projections cost next to nothing, they are
// made with the volume.

#include <algorithm>
#include <utility>

#include "gpu/array/motion_contrast.h"
#include "gpu/base/status.h"
#include "server/pattern/plan.h"
#include "server/processing/display_scale.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {
namespace {

VolumeView ViewOf(const model::ResolvedScan& scan, const memory::VolumeSlot& slot) {
  return {.data = slot.volume.data(),
          .dtype = scan.chain.output,
          .shape = {scan.shape[0], scan.shape[1], scan.shape[2]}};
}

}  // namespace

absl::Status ScanSession::EnqueueProducts(const ActiveVolume& volume, bool complete,
                                          Completion* item) {
  const DType dtype = scan_.chain.output, projection = ProjectionOf(dtype);
  const VolumeView view = ViewOf(scan_, *volume.slot);
  const auto wanted = context_.publisher->WantedOf(name_);
  const auto is_wanted = [&](const publish::TopicKey& key) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const auto& w) { return w.key == key && (complete || w.previews); });
  };
  const publish::TopicKey mip{.product = model::Product::kMip},
      aip{.product = model::Product::kAip};
  if (scan_.spec.products.mip && (complete || is_wanted(mip))) {
    OCTAVO_RETURN_IF_ERROR(
        EnqueueFrame(volume, mip, volume.slot->mip.data(), projection, complete, item));
  }
  if (scan_.spec.products.aip && (complete || is_wanted(aip))) {
    OCTAVO_RETURN_IF_ERROR(
        EnqueueFrame(volume, aip, volume.slot->aip.data(), DType::kF32, complete, item));
  }
  if (!complete) return absl::OkStatus();
  size_t allowance = ProductAllowance();
  const auto left_out = [&](const publish::TopicKey& key) {
    item->frames.push_back({.key = key, .frame = {}, .lost = true, .yielded = true});
  };
  if (scan_.spec.products.angiography != 0 && allowance == 0) {
    left_out({.product = model::Product::kAngiogram});
  } else if (scan_.spec.products.angiography != 0) {
    OCTAVO_RETURN_IF_ERROR(EnqueueAngiogram(volume, item));
  }
  bool full = false;
  const size_t first = wanted.empty() ? 0 : product_turn_ % wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const publish::TopicKey& key = wanted[(first + i) % wanted.size()].key;
    const Axis axis = key.axis == model::FrameAxis::kX   ? Axis::kX
                      : key.axis == model::FrameAxis::kY ? Axis::kY
                                                         : Axis::kZ;
    const int64_t extent = scan_.shape[static_cast<int>(axis)];
    const bool bscan = key.product == model::Product::kBscan &&
                       key.plane_index < extent;  // else of another scan's volumes
    if (!bscan &&
        !(key.product == model::Product::kMip && (axis != Axis::kZ || !scan_.spec.products.mip)))
      continue;
    if (allowance > 0 && RingFills()) allowance = 0;
    if (allowance == 0) {
      if (!full) product_turn_ = first + i;  // it goes first the next time
      full = true;
      left_out(key);
      continue;
    }
    --allowance;
    if (bscan) {
      const int64_t index = key.plane_index < 0 ? extent / 2 : key.plane_index;
      if (striped() && axis == Axis::kY) {
        OCTAVO_RETURN_IF_ERROR(ExtractBscan(*volume.slot, index));
      } else if (striped()) {  // across devices: refused when a subscription names the scan
        item->frames.push_back({.key = key, .frame = {}, .lost = true});
        continue;
      } else {
        OCTAVO_RETURN_IF_ERROR(
            ExtractPlane(products_.ref(), device_, view, axis, index, scratch_.data()));
      }
    } else if (striped() && key.product == model::Product::kMip && axis != Axis::kZ) {
      item->frames.push_back({.key = key, .frame = {}, .lost = true});
      continue;
    } else if (striped() && key.product == model::Product::kMip && !scan_.spec.products.mip) {
      OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, key, volume.slot->mip.data(), projection,
                                          complete, item));  // it is made anyway
      continue;
    } else {
      OCTAVO_RETURN_IF_ERROR(Mip(products_.ref(), device_, view, axis, 0, scan_.shape[0],
                                 /*accumulate=*/false, scratch_.data()));
    }
    OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, key, scratch_.data(),
                                        key.product == model::Product::kMip ? projection : dtype,
                                        complete, item));
  }
  return absl::OkStatus();
}

size_t ScanSession::ProductAllowance() {
  constexpr size_t kMost = 1 << 16;
  constexpr int kPiledUp = 2;  // volumes; the next ones wait for their slots
  if (source_->CanWait()) return kMost;
  int behind = 0;
  {
    MutexLock lock(retire_mutex_);
    behind = volumes_retiring_;
  }
  if (behind == 0) product_allowance_ = std::min(product_allowance_ * 2, kMost);
  if (behind < kPiledUp) return RingFills() ? 0 : product_allowance_;
  product_allowance_ = std::max<size_t>(product_allowance_ / 2, 1);
  return 0;
}

bool ScanSession::RingFills() { return !source_->CanWait() && RingOccupancy() >= 0.75; }

absl::Status ScanSession::EnqueueAngiogram(const ActiveVolume& volume, Completion* item) {
  const pattern::Pattern& p = scan_.spec.pattern;
  OCTAVO_RETURN_IF_ERROR(AngiogramEnFace(
      products_.ref(), device_, static_cast<MotionContrast>(scan_.spec.products.angiography - 1),
      {.data = volume.slot->volume.data(),
       .dtype = scan_.chain.output,
       .rows = scan_.shape[0],
       .columns = scan_.shape[1],
       .depth = scan_.shape[2],
       .order = repeat_rows_.as<int32_t>(),
       .bscans = p.bscans_per_volume,
       .repeats = p.repeat_count},
      processing::ScaleOf(volume.status), scan_.chain.slab_begin,
      scan_.chain.slab_end > 0 ? scan_.chain.slab_end : scan_.chain.depth, angiogram_.as<float>()));
  // Integers do not tell by themselves that a repeat was missing.
  if (volume.assembly.missing_ascans() > 0) {
    std::vector<int64_t> bscan_of(static_cast<size_t>(p.rows()));
    for (int64_t b = 0; b < p.bscans_per_volume; ++b) {
      for (int64_t r = 0; r < p.repeat_count; ++r)
        bscan_of[static_cast<size_t>(pattern::RepeatRow(p, b, r))] = b;
    }
    const int64_t columns = p.ascans_per_bscan;
    for (const auto& [first, count] : volume.assembly.missing()) {
      for (int64_t a = first; a < first + count; a = (a / columns + 1) * columns) {
        const int64_t end = std::min(first + count, (a / columns + 1) * columns);
        OCTAVO_RETURN_IF_ERROR(
            device_.Fill(products_.ref(),
                         angiogram_.as<float>() +
                             bscan_of[static_cast<size_t>(a / columns)] * columns + a % columns,
                         (end - a) * 4, FillPattern(DType::kF32)));
      }
    }
  }
  return EnqueueFrame(volume, {.product = model::Product::kAngiogram}, angiogram_.data(),
                      DType::kF32, /*complete=*/true, item);
}

absl::Status ScanSession::EnqueueFrame(const ActiveVolume& volume, const publish::TopicKey& key,
                                       const void* device_data, DType dtype, bool complete,
                                       Completion* item) {
  static constexpr const char* kNames[3] = {"y", "x", "z"};
  PendingFrame pending{.key = key, .frame = {}, .lost = false};
  model::Frame& frame = pending.frame;
  frame.scan = name_;
  frame.volume = volume.status.name;
  frame.volume_index = volume.index;
  frame.product = key.product;
  frame.axis = key.axis;
  frame.acquired = volume.status.acquired_end;
  frame.dtype = dtype;
  frame.complete = complete;
  frame.display_lo = volume.display_lo;
  frame.display_hi = volume.display_hi;
  const int gone = key.axis == model::FrameAxis::kY ? 0 : key.axis == model::FrameAxis::kX ? 1 : 2;
  const bool angiogram = key.product == model::Product::kAngiogram;
  if (angiogram) {
    frame.display_lo = 0;
    frame.display_hi = processing::ContrastDisplayHi(
        static_cast<MotionContrast>(scan_.spec.products.angiography - 1), volume.status);
  }
  int64_t bytes = SizeOf(dtype);
  for (int d = 0; d < 3; ++d) {
    if (d == gone) continue;
    const int64_t extent =
        d == 0 && angiogram ? scan_.spec.pattern.bscans_per_volume : scan_.shape[d];
    frame.shape.push_back(extent);
    frame.axes.emplace_back(kNames[d]);
    frame.spacing_um.push_back(scan_.spacing_um[d]);
    bytes *= extent;
  }
  auto memory = context_.frames->Get(bytes, memory::FramePool::Use::kFrame);
  if (memory == nullptr) {
    pending.lost = true;
  } else {
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(ProductStream(complete), memory.get(), device_data, bytes));
    frame.payload = {.owner = memory, .data = memory.get(), .size = bytes};
  }
  item->frames.push_back(std::move(pending));
  return absl::OkStatus();
}

absl::Status ScanSession::EnqueuePreview(const source::SourceBlock& block) {
  const double rate = scan_.spec.products.preview_rate_hz;
  if (active_ != nullptr) {
    MutexLock lock(status_mutex_);
    status_.current_fraction = active_->assembly.fraction();
  }
  if (active_ == nullptr || active_->slot == nullptr || rate <= 0) return absl::OkStatus();
  const int64_t now = context_.clock->Now().monotonic_ns;
  if (static_cast<double>(now - last_preview_ns_) < 1e9 / rate) return absl::OkStatus();
  last_preview_ns_ = now;
  OCTAVO_RETURN_IF_ERROR(JoinPeers());
  Completion item;
  item.acquired = block.acquired;
  item.enqueued_ns = now;
  OCTAVO_RETURN_IF_ERROR(EnqueueProducts(*active_, /*complete=*/false, &item));
  return item.frames.empty() ? absl::OkStatus() : PushRetire(std::move(item));
}

}  // namespace octavo::scan
