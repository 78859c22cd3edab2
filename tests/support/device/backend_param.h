#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/device/device.h"

namespace octavo::testing {

/// Backends that this machine can run; tests are instantiated over all of them. Without a GPU there
/// are no cuda instances, and the test GpuPresence.Cuda is skipped.
inline std::vector<std::string> AvailableBackends() {
  std::vector<std::string> names = {"host"};
  if (OpenDevices("cuda").ok()) names.push_back("cuda");
  return names;
}

inline Device& SharedDevice(const std::string& backend) {
  static auto& devices = *new std::map<std::string, OpenedDevices>;
  auto it = devices.find(backend);
  if (it == devices.end())
    it = devices.emplace(backend, std::move(OpenDevices(backend)).value()).first;
  return *it->second.devices[0];
}

/// Fresh devices of a backend: at least two, or none if the machine has fewer. A test may lose
/// them.
inline std::vector<std::unique_ptr<Device>> SeveralDevices(const std::string& backend,
                                                           int count = 2) {
  auto opened = OpenDevices(backend, count);
  if (!opened.ok() || static_cast<int>(opened->devices.size()) < count) return {};
  opened->devices.resize(static_cast<size_t>(count));
  return std::move(opened->devices);
}

class BackendTest : public ::testing::TestWithParam<std::string> {
 protected:
  BackendTest()
      : device_(SharedDevice(GetParam())),
        stream_(device_.NewStream(StreamPriority::kNormal).value()) {}

  template <class T>
  DeviceBuffer Upload(const std::vector<T>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
    DeviceBuffer buffer = device_.Allocate(bytes).value();
    EXPECT_TRUE(device_.CopyToDevice(stream_.ref(), buffer.data(), values.data(), bytes).ok());
    EXPECT_TRUE(stream_.ref().Synchronize().ok());
    return buffer;
  }
  /// Device memory full of 0xA5, so that a test notices elements that no kernel writes.
  DeviceBuffer Poisoned(int64_t bytes) {
    DeviceBuffer buffer = device_.Allocate(bytes).value();
    EXPECT_TRUE(device_.Fill(stream_.ref(), buffer.data(), bytes, 0xA5A5A5A5u).ok());
    EXPECT_TRUE(stream_.ref().Synchronize().ok());  // a test may drop it unused
    return buffer;
  }
  template <class T>
  std::vector<T> Download(const DeviceBuffer& buffer, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(device_
                    .CopyToHost(stream_.ref(), values.data(), buffer.data(),
                                static_cast<int64_t>(count * sizeof(T)))
                    .ok());
    const absl::Status status = stream_.ref().Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  Device& device_;
  Stream stream_;
};

inline std::string BackendName(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace octavo::testing
