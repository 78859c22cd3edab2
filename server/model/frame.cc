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
  }
  return "?";
}

const char* Name(Delivery delivery) {
  switch (delivery) {
    case Delivery::kLatest: return "latest";
    case Delivery::kDropOldest: return "drop_oldest";
    case Delivery::kLossless: return "lossless";
  }
  return "?";
}

}  // namespace octavo::model
