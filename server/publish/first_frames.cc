#include "server/publish/first_frames.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/publish/frames.h"
#include "server/publish/plane_frame.h"

namespace octavo::publish {
namespace {

// How many B-scans of held volumes LATEST tries, from the newest on: a volume may leave memory
// meanwhile.
constexpr size_t kMostTried = 16;

bool Wants(const model::SubscribeSpec& spec, model::Product product) {
  return std::count(spec.products.begin(), spec.products.end(), product) > 0;
}

// The error of a subscription to an ended scan that would get nothing, and what to do.
// `first_kept`: the oldest frame that resume could give.
absl::Status NothingKept(const model::SubscribeSpec& spec, std::optional<uint64_t> first_kept) {
  const std::string names = absl::StrJoin(
      spec.products, ", ",
      [](std::string* out, model::Product product) { absl::StrAppend(out, Name(product)); });
  const std::string why =
      first_kept.has_value()
          ? absl::StrCat("; its frames of ", names,
                         " that are kept come with resume from sequence ", *first_kept,
                         ", one product at a time")
          : absl::StrCat(
                " and no frame of ", names, " is kept",
                Wants(spec, model::Product::kBscan) || Wants(spec, model::Product::kAscan)
                    ? ", nor is one of its volumes held; subscribe "
                      "while it runs, or open a committed file"
                : Wants(spec, model::Product::kSpectrum)
                    ? "; spectra are not held: subscribe while it runs"
                : Wants(spec, model::Product::kVolume) ? "; read its volumes while they are held "
                                                         "(ReadVolume), or subscribe while it runs"
                : Wants(spec, model::Product::kEvent)
                    ? "; subscribe while it runs (of a scan, Scan.events has the last ones)"
                    : "; derive one from a volume while that is held (DeriveVolume), or subscribe "
                      "while it runs");
  return WithInfo(absl::FailedPreconditionError(absl::StrCat(spec.parent, " has ended", why)),
                  {.reason = Reason::kNothingKept, .field = "scan", .numbers = {}});
}

// The products that the scan does not compute.
absl::Status CheckProducts(const model::SubscribeSpec& spec, const TopicTable::Scan& scan) {
  const Show& show = scan.show;
  if (Wants(spec, model::Product::kAip) && !show.has_aip) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(spec.parent, " computes no AIP; submit it with products.aip")),
                    {.reason = Reason::kNoAip, .field = "products", .numbers = {}});
  }
  if (Wants(spec, model::Product::kAngiogram) && !show.has_angiogram) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            spec.parent, " computes no angiogram; submit it with products.angiography")),
        {.reason = Reason::kNoAngiogram, .field = "products", .numbers = {}});
  }
  const auto no_spectra = [&](const char* product, const std::string& why) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat("products: ", product, " of ", spec.parent, " ", why)),
                    {.reason = Reason::kNoSpectra, .field = "products", .numbers = {}});
  };
  for (const model::Product product : spec.products) {
    if (!model::IsLine(product)) continue;
    const char* const name = product == model::Product::kAscan ? "ASCAN" : "SPECTRUM";
    if (!show.has_records) {
      return no_spectra(name,
                        "is asked for, but only scans take spectra from an instrument; of a job "
                        "allowed MIP, BSCAN, VOLUME, EVENT");
    }
    const bool alone = product == model::Product::kAscan || spec.corrected;
    if (alone && !show.no_ascans.empty() && !scan.ended)
      return no_spectra(product == model::Product::kAscan ? name : "SPECTRUM (CORRECTED)",
                        show.no_ascans);
  }
  return absl::OkStatus();
}

// Jobs and striped volumes have no slabs of a subscriber's choice.
absl::Status CheckSlab(const model::DepthRange& slab, const std::string& parent, const Show& show) {
  if (!show.has_records) {
    return InvalidField("slab", absl::StrCat("is for scans only, and ", parent,
                                             " is a job; allowed unset (RenderVolume shows slabs "
                                             "of held volumes)"));
  }
  if (show.striped) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        "slab: the volumes of ", parent,
                        " are striped over several devices; allowed unset (the scan's own "
                        "slab), or a scan that is spread but not striped")),
                    {.reason = Reason::kStriped, .field = "slab", .numbers = {}});
  }
  const int64_t depth = show.extents[2];
  if (slab.end <= depth) return absl::OkStatus();
  return WithInfo(absl::OutOfRangeError(absl::StrCat("slab.end is ", slab.end, "; the depth has ",
                                                     depth, " samples, allowed 1 to ", depth)),
                  {.reason = Reason::kBadRange,
                   .field = "slab.end",
                   .numbers = {{"extent", absl::StrCat(depth)}}});
}

// The axis and the plane of one topic. A B-scan of an ended scan is read from a held volume, across
// its devices, too.
absl::Status CheckPlane(const model::SubscribeSpec& spec, const TopicTable::Scan& scan,
                        const TopicKey& key) {
  const Show& show = scan.show;
  const bool across =
      (key.product == model::Product::kBscan && key.axis != model::FrameAxis::kY && !scan.ended) ||
      (key.product == model::Product::kMip && key.axis != model::FrameAxis::kZ);
  if (show.striped && across) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat("axis: the frames would cross the devices of ", spec.parent,
                                     ", whose volumes are striped; allowed B-scans along y and "
                                     "MIPs along z, or a scan that is spread but not striped")),
                    {.reason = Reason::kStriped, .field = "axis", .numbers = {}});
  }
  const size_t dim = key.axis == model::FrameAxis::kY   ? 0
                     : key.axis == model::FrameAxis::kX ? 1
                                                        : 2;
  if (key.slab.given()) OCTAVO_RETURN_IF_ERROR(CheckSlab(key.slab, spec.parent, show));
  const bool line = model::IsLine(key.product);
  const int64_t extent = show.extents[line ? 1 : dim];
  if ((line || key.product == model::Product::kBscan) && key.plane_index >= extent) {
    return WithInfo(absl::OutOfRangeError(absl::StrCat("index is ", key.plane_index, "; the axis",
                                                       line ? " x" : "", " has 0 to ", extent - 1)),
                    {.reason = Reason::kBadRange,
                     .field = "index",
                     .numbers = {{"extent", absl::StrCat(extent)}}});
  }
  return absl::OkStatus();
}

absl::Status CheckResume(const model::SubscribeSpec& spec, const TopicTable::Topic& topic) {
  const uint64_t first =
      topic.recent.empty() ? topic.next_sequence : topic.recent.front()->sequence;
  if (spec.from_sequence >= first && spec.from_sequence <= topic.next_sequence)
    return absl::OkStatus();
  return WithInfo(
      absl::OutOfRangeError(absl::StrCat("from_sequence is ", spec.from_sequence, "; kept are ",
                                         first, " to ", topic.next_sequence)),
      {.reason = Reason::kSequenceGone,
       .field = "from_sequence",
       .numbers = {{"first_available", absl::StrCat(first)},
                   {"next", absl::StrCat(topic.next_sequence)}}});
}

// The kept complete frames of a B-scan topic, and those that its held volumes can still give, in
// the order of their volumes; for LATEST the newest first. Frames of held volumes have no payload
// yet (it is loaded when their turn comes), and their numbers follow those of the topic.
std::vector<model::FramePtr> BscansOfEnded(const model::SubscribeSpec& spec, const TopicKey& key,
                                           const TopicTable::Topic& topic,
                                           const std::vector<model::VolumeStatus>& held,
                                           const Clock& clock) {
  std::vector<model::FramePtr> frames;
  std::set<std::string> kept;
  for (const model::FramePtr& frame : topic.recent) {
    if (!frame->complete) continue;
    frames.push_back(frame);
    kept.insert(frame->volume);
  }
  uint64_t sequence = topic.next_sequence;
  const bool latest = spec.DeliveryOf(key.product) == model::Delivery::kLatest && !spec.resume;
  const auto tried = latest ? std::min(held.size(), kMostTried) : held.size();
  for (const model::VolumeStatus& volume : absl::MakeConstSpan(held).last(tried)) {
    if (kept.contains(volume.name)) continue;
    std::optional<model::Frame> frame = PlaneFrame(spec.parent, volume, key);
    if (!frame.has_value()) continue;
    frame->sequence = sequence++;
    frame->published = clock.Now();
    frames.push_back(std::make_shared<const model::Frame>(*std::move(frame)));
  }
  std::stable_sort(frames.begin(), frames.end(),
                   [](const model::FramePtr& a, const model::FramePtr& b) {
                     return a->volume_index < b->volume_index;
                   });
  if (!latest) return frames;
  std::reverse(frames.begin(), frames.end());
  const auto at_hand = std::find_if(frames.begin(), frames.end(), [](const model::FramePtr& frame) {
    return frame->payload.data != nullptr;
  });
  // The frame at hand is certain; try newer ones first, if they are not too many.
  const model::FramePtr sure = at_hand == frames.end() ? nullptr : *at_hand;
  frames.erase(at_hand, frames.end());
  frames.resize(std::min(frames.size(), kMostTried));
  if (sure != nullptr) frames.push_back(sure);
  return frames;
}

}  // namespace

absl::Status CheckSpec(const model::SubscribeSpec& spec) {
  if (spec.products.empty()) return InvalidField("products", "is empty; name at least one product");
  if (spec.queue_length.has_value() && (*spec.queue_length < 1 || *spec.queue_length > 1024)) {
    return FieldOutOfRange("queue_length", *spec.queue_length, 1, 1024);
  }
  if (!(spec.max_rate_hz >= 0)) return FieldNotAllowed("max_rate_hz", spec.max_rate_hz, ">= 0");
  if (Wants(spec, model::Product::kAip) && spec.axis_given && spec.axis != model::FrameAxis::kZ) {
    return InvalidField("axis", "the server makes the AIP over z only; allowed Z");
  }
  const auto line = std::find_if(spec.products.begin(), spec.products.end(), model::IsLine);
  if (line != spec.products.end() && spec.delivery == model::Delivery::kLossless) {
    return InvalidField("delivery",
                        absl::StrCat("is LOSSLESS, but a ", Name(*line),
                                     " shows one record of many; allowed LATEST and DROP_OLDEST"));
  }
  if (spec.resume && (spec.parent.empty() || spec.products.size() != 1)) {
    return InvalidField("from_sequence", "needs one scan and one product");
  }
  return absl::OkStatus();
}

absl::StatusOr<FirstFrames> FindFirstFrames(const model::SubscribeSpec& spec,
                                            const TopicTable::Scan& scan,
                                            const std::vector<model::VolumeStatus>& held,
                                            const Clock& clock) {
  OCTAVO_RETURN_IF_ERROR(CheckProducts(spec, scan));
  const auto wanted = [&](const model::FramePtr& frame) {
    return frame->complete || spec.previews;
  };
  const TopicTable::Topic none;  // of which nothing was published
  FirstFrames first;
  std::optional<uint64_t> first_kept;
  for (const TopicKey& key : KeysOf(spec, scan)) {
    OCTAVO_RETURN_IF_ERROR(CheckPlane(spec, scan, key));
    const auto found = scan.topics.find(key);
    const TopicTable::Topic& topic = found == scan.topics.end() ? none : found->second;
    const bool all_of_ended =
        scan.ended && IsCut(key.product) && (!spec.resume || spec.from_sequence == 0);
    if (spec.resume && !all_of_ended) OCTAVO_RETURN_IF_ERROR(CheckResume(spec, topic));
    const auto newest = std::find_if(topic.recent.rbegin(), topic.recent.rend(), wanted);
    const bool at_once = !spec.resume && spec.DeliveryOf(key.product) == model::Delivery::kLatest &&
                         newest != topic.recent.rend();
    const std::vector<model::FramePtr> frames = all_of_ended
                                                    ? BscansOfEnded(spec, key, topic, held, clock)
                                                    : std::vector<model::FramePtr>();
    if (!frames.empty()) {
      first.replay.insert(first.replay.end(), frames.begin(), frames.end());
    } else if (spec.resume) {
      std::copy_if(topic.recent.begin(), topic.recent.end(), std::back_inserter(first.replay),
                   [&](const model::FramePtr& frame) {
                     return frame->sequence >= spec.from_sequence && wanted(frame);
                   });
    } else if (at_once && (IsImage(key.product) || IsLine(key.product))) {
      first.at_once.emplace_back(key, *newest);
    } else if (at_once && scan.ended && key.product == model::Product::kVolume) {
      first.replay.push_back(*newest);
    }
    if (newest != topic.recent.rend()) first_kept = topic.recent.front()->sequence;
  }
  if (scan.ended && first.at_once.empty() && first.replay.empty() &&
      (!spec.resume || spec.from_sequence == 0))
    return NothingKept(spec, first_kept);
  return first;
}

TopicTable::Scan EndedScanOf(const model::VolumeStatus& held) {
  TopicTable::Scan scan;
  scan.ended = true;
  int64_t* extent = scan.show.extents.data();
  for (const model::FrameAxis axis :
       {model::FrameAxis::kY, model::FrameAxis::kX, model::FrameAxis::kZ})
    *extent++ = held.shape[PositionOf(held, axis)];
  scan.show.has_records = held.job.empty() && held.axes[2] == Name(model::FrameAxis::kZ);
  if (held.axes[0] == Name(model::FrameAxis::kZ)) scan.show.bscan_axis = model::FrameAxis::kZ;
  return scan;
}

}  // namespace octavo::publish
