#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/model/frame.h"

namespace octavo::model {

enum class Delivery : uint8_t {
  kLatest = 1,
  kDropOldest = 2,
  kLossless = 3
};                                    // as octavo.v1.Delivery
const char* Name(Delivery delivery);  // "latest"

struct SubscribeSpec {
  std::string parent;  // scans/<id> or jobs/<id>; empty = all present and future ones
  std::map<std::string, std::string> labels;  // only scans and jobs with all of these labels
  std::vector<Product> products;              // at least one
  FrameAxis axis = FrameAxis::kZ;             // kMip: any; kAip: kZ; kBscan: the axis cut across
  bool axis_given =
      false;  // else kZ for projections, for B-scans as the scan or job says (kY; tomograms: kZ)
  // kBscan: the plane, -1 = middle; kSpectrum, kAscan: the column x, -1 = any
  int64_t plane_index = -1;
  DepthRange slab;                      // kMip over z, of complete volumes
  bool corrected = false;               // kSpectrum: as the transform gets it, else as stored
  std::optional<Delivery> delivery;     // unset = the default of each product
  std::optional<int64_t> queue_length;  // of each product, 1 ... 1024; unset = its default
  double max_rate_hz = 0;               // of products that may lose frames; 0 = every frame
  bool resume = false;
  uint64_t from_sequence = 0;
  bool previews = true;
  // kVolume: without the data of volumes that stay long enough to be read (publish::IsRead)
  bool volumes_by_read = false;

  /// An image is worth its newest state; a volume or an event that is dropped is lost.
  Delivery DeliveryOf(Product product) const;
  /// Most frames of the product that may wait (kDropOldest, kLossless).
  int64_t QueueLengthOf(Product product) const;
};

/// A frame taken from a subscription's queue, and the number of frames of its topic that this
/// subscriber lost before it.
struct Delivered {
  FramePtr frame;
  uint64_t dropped_before = 0;
};

/// One subscriber's bounded queue. The publisher pushes and never waits; one consumer takes.
/// Thread-safe.
class Subscription {
 public:
  virtual ~Subscription() = default;
  /// Takes the next frame; false if there is none now (`notify` is called when that changes).
  virtual bool Take(Delivered* out) = 0;
  /// Once true, no frame will come any more (queue drained and scan ended, or cut). `status`: OK,
  /// or ResourceExhausted (numbers.resume_from) for a LOSSLESS queue: SLOW_SUBSCRIBER if it
  /// overflowed, FRAME_LOST if the server could not make a frame.
  virtual bool Ended(absl::Status* status) = 0;
  /// Stops delivery; `notify` is not called any more once this returns. Idempotent.
  virtual void Close() = 0;
};

}  // namespace octavo::model
