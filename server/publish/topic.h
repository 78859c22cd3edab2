#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "server/model/frame.h"

namespace octavo::publish {

/// The content of a topic; together with a scan it identifies a topic.
struct TopicKey {
  model::Product product = model::Product::kMip;
  model::FrameAxis axis = model::FrameAxis::kZ;
  // kBscan: the plane, -1 = middle; kSpectrum, kAscan: the column x of the A-scan, -1 = any.
  int64_t plane_index = -1;
  model::DepthRange slab;  // kMip over z: chosen by the subscriber
  bool corrected = false;  // kSpectrum only
  auto operator<=>(const TopicKey&) const = default;
};

/// How long a volume can be read once its frame is out.
enum class VolumesStay {
  kUntilAsked,  // until a client commits or discards it, or its time to live ends
  kAWhile,      // until the scan itself gives it up: LIVE, AUTO_COMMIT
  kNot          // AUTO_DISCARD
};

/// The products that a scan or job publishes.
struct Show {
  std::array<int64_t, 3> extents{};                    // along y, x, z: bounds of plane indices
  model::FrameAxis bscan_axis = model::FrameAxis::kY;  // default axis of BSCAN planes
  bool has_aip = false, has_angiogram = false;
  bool has_records = false;  // SPECTRUM and raw records are there
  // Why the chain cannot compute single A-scans and corrected spectra; empty: it can.
  std::string no_ascans;
  // Volumes lie on several devices, so only products that lie on one of them are published.
  bool striped = false;
  int64_t volume_bytes = 0;
  VolumesStay volumes_stay = VolumesStay::kUntilAsked;
};

/// A topic that has subscribers.
struct Wanted {
  TopicKey key;
  bool previews = false;
  bool data = false;  // a subscriber wants them; else all read the volumes, or the topic has none
};

/// Why the server did not make a frame.
enum class Loss {
  kNoMemory,
  kYielded,    // making it would have cost the scan records
  kSuperseded  // a newer record came before it was made, or one of its records was lost
};

}  // namespace octavo::publish
