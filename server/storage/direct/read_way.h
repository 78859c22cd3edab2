#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octavo::storage {

/// The way of a file's bytes into a device's memory. Values as octavo.v1.StorageBackendKind.
enum class ReadWay : uint8_t {
  kUnmeasured = 0,  // kBuffered is used
  kBuffered = 1,    // through the page cache into page-locked memory, then a copy
  kDirect = 2,      // O_DIRECT into page-locked memory, then a copy
  kCufile = 3,      // from the drive to the device by cuFile, native
};
/// "unmeasured", "buffered", "direct", "cufile": a label of metrics.
const char* Name(ReadWay way);

/// What the configuration says about it (storage.direct).
enum class ReadSetting : uint8_t { kAuto, kOff, kBuffered, kDirect, kCufile };
/// "auto", "off", "buffered", "direct", "cufile".
std::optional<ReadSetting> ReadSettingNamed(const std::string& name);

/// Why cuFile is not used.
enum class WhyNot : uint8_t {
  kNone,        // it is used, or not measured yet
  kOff,         // the configuration says so
  kNoGpu,       // the device is no GPU
  kNoLibrary,   // libcufile.so.0 cannot be loaded, or lacks functions
  kNoUdev,      // /run/udev is missing
  kWsl,         // WSL
  kNoModule,    // nvidia-fs is not loaded
  kIommu,       // the IOMMU translates
  kDriver,      // the driver cannot be opened for another reason
  kCompat,      // cuFile would copy through host memory itself
  kFileSystem,  // the file system or its drive
  kFailed,      // reading the probe failed
  kSlower,      // measured
  kDemoted,     // it failed too often
};
/// A word for a label of metrics: "no_library". kNone: "".
const char* Name(WhyNot why);
inline constexpr int kWhyNots = 14;

}  // namespace octavo::storage
