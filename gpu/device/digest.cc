#include "gpu/device/digest.h"

#include "absl/strings/str_cat.h"

namespace octavo::inline gpu {

absl::Status CheckPlace(const DigestPlace& place) {
  const auto fine = [](int64_t n) { return n >= 0 && n % 8 == 0; };
  if (fine(place.first_byte) && fine(place.run_bytes) && fine(place.stride_bytes) &&
      place.stride_bytes >= place.run_bytes)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("place: is ", place.first_byte, ", ", place.run_bytes, ", ", place.stride_bytes,
                   "; allowed are multiples of 8 with stride_bytes >= run_bytes"));
}

}  // namespace octavo::inline gpu
