#include "gpu/device/operators.h"

#include "absl/strings/str_cat.h"

namespace octavo::inline gpu {

absl::Status Device::TooShort(int64_t room, int64_t wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("a copy of ", wanted, " elements to where ", room, " have room"));
}

absl::Status NoTwin(const Device& device, const OperatorFamily& family) {
  return absl::UnimplementedError(absl::StrCat("the backend ", device.info().backend,
                                               " of devices/", device.info().index,
                                               " has no operators of the family ", family.name));
}

absl::Status CheckBackend(const Device& device, const char* backend, const OperatorFamily& family) {
  if (device.info().backend == backend) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("operators of the family ", family.name, " for the backend ", backend,
                   " cannot be made for devices/", device.info().index, " of the backend ",
                   device.info().backend));
}

}  // namespace octavo::inline gpu
