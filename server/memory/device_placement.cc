#include "server/memory/device_placement.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"

namespace octavo::memory {
namespace {

constexpr absl::string_view kNoScans =
    ", which is for tomography and projection jobs, not for scans";

bool IsAuto(const std::string& device) { return device.empty() || device == "auto"; }

absl::Status Down(const std::string& field, const std::string& text) {
  return WithInfo(
      absl::UnavailableError(text),
      {.reason = Reason::kDeviceDown, .field = field, .numbers = {{"retryable", "true"}}});
}

// The device called `name`, if it can be used.
absl::StatusOr<int> Named(const std::string& field, const std::string& name, const DeviceWish& wish,
                          const std::vector<DeviceLoad>& loads) {
  for (int d = 0; d < static_cast<int>(loads.size()); ++d) {
    if (name != base::DeviceName(d)) continue;
    const absl::Status& health = loads[static_cast<size_t>(d)].health;
    if (!health.ok()) return Down(field, absl::StrCat(name, " is down: ", health.message()));
    return d;
  }
  const absl::string_view why = name != base::kHostDeviceName ? absl::string_view()
                                : wish.host_for_jobs          ? kNoScans
                                                              : base::kNoHostForJobs;
  return InvalidField(
      field,
      absl::StrCat("is '", name, "'", why, "; allowed are ", field == "device" ? "auto, " : "",
                   base::DeviceNames(static_cast<int>(loads.size())).Numbered()));
}

// Healthy ones, the best first.
std::vector<int> InOrder(int64_t bytes, const std::vector<DeviceLoad>& loads) {
  std::vector<int> order;
  for (size_t d = 0; d < loads.size(); ++d) {
    if (loads[d].health.ok()) order.push_back(static_cast<int>(d));
  }
  const auto rank = [&](int d) {
    const DeviceLoad& load = loads[static_cast<size_t>(d)];
    return std::tuple(load.free_bytes < bytes, load.running, load.waiting, -load.free_bytes, d);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  return order;
}

absl::StatusOr<std::vector<int>> NamedPeers(const DeviceWish& wish,
                                            const std::vector<DeviceLoad>& loads) {
  std::vector<int> chosen;
  for (const std::string& name : wish.spread.devices) {
    OCTAVO_ASSIGN_OR_RETURN(const int d, Named("spread.devices", name, wish, loads));
    if (std::find(chosen.begin(), chosen.end(), d) != chosen.end())
      return InvalidField("spread.devices", absl::StrCat("names ", name, " twice"));
    chosen.push_back(d);
  }
  if (IsAuto(wish.device)) return chosen;
  OCTAVO_ASSIGN_OR_RETURN(const int home, Named("device", wish.device, wish, loads));
  const auto it = std::find(chosen.begin(), chosen.end(), home);
  if (it == chosen.end())
    return InvalidField("device",
                        absl::StrCat("is ", wish.device, ", which is none of spread.devices"));
  std::rotate(chosen.begin(), it, it + 1);
  return chosen;
}

}  // namespace

absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceWish& wish,
                                               const std::vector<DeviceLoad>& loads) {
  const model::Spread& spread = wish.spread;
  const auto all = static_cast<int64_t>(loads.size());
  if (spread.count < 0 || spread.count > all) {
    return InvalidField("spread.count", absl::StrCat("is ", spread.count, "; allowed 0 (all) to ",
                                                     all, ", the devices there are"));
  }
  if (!spread.devices.empty()) {
    if (spread.count != 0 && spread.count != std::ssize(spread.devices)) {
      return InvalidField("spread.count",
                          absl::StrCat("is ", spread.count, " and spread.devices names ",
                                       spread.devices.size(), "; give one of them"));
    }
    return NamedPeers(wish, loads);
  }
  std::vector<int> chosen;
  if (IsAuto(wish.device)) {
    const std::vector<int> order = InOrder(wish.home_bytes, loads);
    if (order.empty()) return Down("device", "no device is healthy");
    chosen.push_back(order[0]);
  } else {
    OCTAVO_ASSIGN_OR_RETURN(const int home, Named("device", wish.device, wish, loads));
    chosen.push_back(home);
  }
  if (!spread.given) return chosen;
  for (const int d : InOrder(wish.peer_bytes, loads)) {
    if (d != chosen[0] && (spread.count == 0 || std::ssize(chosen) < spread.count))
      chosen.push_back(d);
  }
  if (std::ssize(chosen) < spread.count) {
    return Down("spread.count", absl::StrCat("spread.count is ", spread.count, " and only ",
                                             chosen.size(), " devices are healthy"));
  }
  return chosen;
}

}  // namespace octavo::memory
