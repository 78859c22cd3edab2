#include "server/model/frame.h"

#include "server/model/subscription.h"

namespace octavo::model {

const char* Name(Product product) {
  switch (product) {
    case Product::kMip: return "mip";
    case Product::kAip: return "aip";
    case Product::kBscan: return "bscan";
    case Product::kVolume: return "volume";
    case Product::kEvent: return "event";
    case Product::kAngiogram: return "angiogram";
    case Product::kSpectrum: return "spectrum";
    case Product::kAscan: return "ascan";
  }
  return "?";
}

bool IsImage(Product product) {
  return product == Product::kMip || product == Product::kAip || product == Product::kBscan ||
         product == Product::kAngiogram;
}

bool IsLine(Product product) { return product == Product::kSpectrum || product == Product::kAscan; }

const char* Name(Delivery delivery) {
  switch (delivery) {
    case Delivery::kLatest: return "latest";
    case Delivery::kDropOldest: return "drop_oldest";
    case Delivery::kLossless: return "lossless";
  }
  return "?";
}

ValueScale ValueScaleOf(const VolumeDescription& volume) {
  ValueScale scale;
  if (volume.quantity == Quantity::kPhaseRad) {
    scale.unit = "rad";
  } else if (volume.quantity == Quantity::kNone && volume.value == ValueKind::kDb) {
    scale.unit = "dB";
  }
  if (!volume.has_levels || !(HighestOf(volume.dtype) > 0)) return scale;
  const auto lowest = static_cast<double>(LowestOf(volume.dtype)),
             lo = static_cast<double>(volume.level_lo);
  scale.step = (static_cast<double>(volume.level_hi) - lo) /
               (static_cast<double>(HighestOf(volume.dtype)) - lowest);
  scale.offset = lo - lowest * scale.step;
  return scale;
}

Delivery SubscribeSpec::DeliveryOf(Product product) const {
  return delivery.value_or(IsImage(product) || IsLine(product) ? Delivery::kLatest
                                                               : Delivery::kLossless);
}

int64_t SubscribeSpec::QueueLengthOf(Product product) const {
  return queue_length.value_or(product == Product::kVolume  ? 2
                               : product == Product::kEvent ? 256
                                                            : 16);
}

}  // namespace octavo::model
