#include "server/base/device_names.h"

#include "absl/strings/str_cat.h"

#include "server/base/resource_names.h"

namespace octavo::base {

std::string DeviceNames::Name(int index) const {
  return IsForJobs(index) ? std::string(kHostDeviceName) : DeviceName(index);
}

std::optional<int> DeviceNames::Find(absl::string_view name) const {
  if (name == kHostDeviceName) return host_for_jobs_ ? std::optional<int>(numbered_) : std::nullopt;
  const std::optional<int> index = DeviceIndex(name);
  return index.has_value() && *index < numbered_ ? index : std::nullopt;
}

std::string DeviceNames::Numbered() const {
  if (numbered_ == 1) return DeviceName(0);
  return absl::StrCat(DeviceName(0), " to ", DeviceName(numbered_ - 1));
}

std::string DeviceNames::All() const {
  return host_for_jobs_ ? absl::StrCat(Numbered(), ", ", kHostDeviceName) : Numbered();
}

}  // namespace octavo::base
