#include "server/storage/direct/read_way.h"

namespace octavo::storage {

const char* Name(ReadWay way) {
  switch (way) {
    case ReadWay::kUnmeasured: return "unmeasured";
    case ReadWay::kBuffered: return "buffered";
    case ReadWay::kDirect: return "direct";
    case ReadWay::kCufile: return "cufile";
  }
  return "?";
}

std::optional<ReadSetting> ReadSettingNamed(const std::string& name) {
  constexpr const char* kNames[] = {"auto", "off", "buffered", "direct", "cufile"};
  for (int i = 0; i < 5; ++i) {
    if (name == kNames[i]) return static_cast<ReadSetting>(i);
  }
  return std::nullopt;
}

const char* Name(WhyNot why) {
  switch (why) {
    case WhyNot::kNone: return "";
    case WhyNot::kOff: return "off";
    case WhyNot::kNoGpu: return "no_gpu";
    case WhyNot::kNoLibrary: return "no_library";
    case WhyNot::kNoUdev: return "no_udev";
    case WhyNot::kWsl: return "wsl";
    case WhyNot::kNoModule: return "no_module";
    case WhyNot::kIommu: return "iommu";
    case WhyNot::kDriver: return "driver";
    case WhyNot::kCompat: return "compat";
    case WhyNot::kFileSystem: return "file_system";
    case WhyNot::kFailed: return "failed";
    case WhyNot::kSlower: return "slower";
    case WhyNot::kDemoted: return "demoted";
  }
  return "?";
}

}  // namespace octavo::storage
