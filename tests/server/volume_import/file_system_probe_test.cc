// File systems that are programs of clients: refused, and never waited for.

#include "server/volume_import/file_system_probe.h"

#include <cerrno>
#include <fcntl.h>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::volume_import {
namespace {

using absl::StatusCode;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using std::chrono::milliseconds;

class FileSystemProbeTest : public ::testing::Test {
 protected:
  const octavo::testing::TempFolder folder_;
  const UniqueFd file_{::open(folder_.path().c_str(), O_RDONLY | O_CLOEXEC)};
};

TEST_F(FileSystemProbeTest, OrdinaryFilesAreTaken) {
  FileSystemProbe probe;
  for (int i = 0; i < 3 * FileSystemProbe::kMost; ++i) EXPECT_THAT(probe.Check(file_, "a"), IsOk());
}

TEST_F(FileSystemProbeTest, FuseIsRefusedAndErrorsAreTold) {
  FileSystemProbe fuse([](int, struct statfs* out) {
    out->f_type = 0x65735546;
    return 0;
  });
  const absl::Status refused = fuse.Check(file_, "a.npy");
  EXPECT_THAT(refused, IsError(StatusCode::kInvalidArgument, "a.npy is served by a program"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kUnsupportedFile);
  FileSystemProbe broken([](int, struct statfs*) {
    errno = EIO;
    return -1;
  });
  EXPECT_EQ(InfoOf(broken.Check(file_, "a")).reason, Reason::kIoError);
}

TEST_F(FileSystemProbeTest, WhatTheKernelMakesUpIsRefused) {
  FileSystemProbe probe;
  for (const char* path : {"/proc/self/maps", "/proc/version", "/proc", "/sys", "/sys/kernel/mm"}) {
    const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file) continue;  // no /sys in some containers
    const absl::Status refused = probe.Check(file, path);
    EXPECT_THAT(refused, IsError(StatusCode::kInvalidArgument, "made up by the kernel")) << path;
    EXPECT_EQ(InfoOf(refused).reason, Reason::kUnsupportedFile);
  }
}

TEST_F(FileSystemProbeTest, WaitsForNone) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  FileSystemProbe probe(
      [released](int, struct statfs*) {
        released.wait();
        return 0;
      },
      milliseconds(5));
  for (int i = 0; i < FileSystemProbe::kMost; ++i) {
    const absl::Status late = probe.Check(file_, "slow.npy");
    EXPECT_THAT(late, IsError(StatusCode::kUnavailable, "slow.npy does not answer"));
    EXPECT_EQ(InfoOf(late).reason, Reason::kIoError);
  }
  const absl::Status busy = probe.Check(file_, "a");
  EXPECT_THAT(busy, IsError(StatusCode::kResourceExhausted, "do not answer"));
  EXPECT_EQ(InfoOf(busy).reason, Reason::kBusy);
  release.set_value();
  // All threads end; each frees its place.
  while (!probe.Check(file_, "a").ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace octavo::volume_import
