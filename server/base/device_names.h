#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::base {

/// The host as a device for jobs, beside numbered devices.
inline constexpr absl::string_view kHostDeviceName = "devices/host";
/// Behind its name in an error, on a server without it.
inline constexpr absl::string_view kNoHostForJobs =
    ", which this server does not have (device.host_for_jobs of its configuration is false)";

/// The names of a server's devices by index: devices/0, devices/1, …, and, where the server has it,
/// devices/host after them. A small value.
class DeviceNames {
 public:
  /// `devices` of them; the last one is devices/host if `host_for_jobs`.
  explicit DeviceNames(int devices, bool host_for_jobs = false)
      : numbered_(host_for_jobs ? devices - 1 : devices), host_for_jobs_(host_for_jobs) {}

  int size() const { return numbered_ + (host_for_jobs_ ? 1 : 0); }
  /// The devices that any work may use, which the server chooses among: those before devices/host.
  int numbered() const { return numbered_; }
  /// Whether only jobs that name the device run on it.
  bool IsForJobs(int index) const { return host_for_jobs_ && index == numbered_; }
  std::string Name(int index) const;
  /// The index of the device of this name; nullopt for every other text.
  std::optional<int> Find(absl::string_view name) const;

  /// What a request may name, for an error: "devices/0 to devices/3", or "devices/0" if it is the
  /// only one.
  std::string Numbered() const;
  /// The same with devices/host, if it is there: "devices/0 to devices/3, devices/host".
  std::string All() const;

 private:
  int numbered_ = 0;
  bool host_for_jobs_ = false;
};

}  // namespace octavo::base
