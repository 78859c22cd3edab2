// What a scan's run needs over time: free disk space where its volumes are committed.

#include "server/scan/admission.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <vector>

#include "gtest/gtest.h"

#include "server/scan/resolve_scan.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/scan_specs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::TempFolder;

// A folder of the file system in memory, which every Linux has beside that of the tests.
class FolderInMemory {
 public:
  FolderInMemory() : usable_(::mkdtemp(path_.data()) != nullptr) {}
  ~FolderInMemory() {
    std::error_code ignored;
    if (usable_) std::filesystem::remove_all(path_, ignored);
  }
  FolderInMemory(const FolderInMemory&) = delete;
  FolderInMemory& operator=(const FolderInMemory&) = delete;
  bool usable() const { return usable_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/dev/shm/octavo_XXXXXX";
  const bool usable_;
};

dev_t DeviceOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_dev : 0;
}

double FreeBytes(const std::string& path) {
  struct statvfs fs {};
  return ::statvfs(path.c_str(), &fs) == 0
             ? static_cast<double>(fs.f_bavail) * static_cast<double>(fs.f_frsize)
             : -1;
}

AdmissionReport Report(const std::vector<std::string>& roots, Disposition disposition,
                       const std::string& destination) {
  ScanSpec spec = SimulatedScan();
  spec.pattern.volumes = 0;
  spec.retention.mode = RetentionMode::kCapture;
  spec.retention.disposition = disposition;
  spec.retention.auto_commit.destination = destination;
  const auto scan = ResolveScan(spec, {});
  EXPECT_THAT(scan, octavo::testing::IsOk());
  AdmissionReport report;
  if (scan.ok()) AddRunFigures(*scan, roots, 0, &report);
  return report;
}

TEST(AdmissionTest, TheDiskIsTheOneThatAutoCommitWritesTo) {
  const TempFolder here;
  const FolderInMemory there;
  if (!there.usable() || DeviceOf(here.path()) == DeviceOf(there.path()))
    GTEST_SKIP() << "/dev/shm is no file system of its own";
  const std::vector<std::string> roots = {here.path(), there.path()};
  const double of_here = FreeBytes(here.path()), of_there = FreeBytes(there.path());
  // Other programs write while this test runs: a figure is nearer to its own file system's.
  const double tolerance = std::abs(of_here - of_there) / 4;
  ASSERT_GT(tolerance, 0);
  const auto check = [&](Disposition disposition, const std::string& destination, double wanted) {
    const AdmissionReport report = Report(roots, disposition, destination);
    EXPECT_NEAR(static_cast<double>(report.disk_free_bytes), wanted, tolerance) << destination;
    if (disposition == Disposition::kAutoCommit) {
      EXPECT_NEAR(report.seconds_to_disk_full * report.volumes_per_second *
                      static_cast<double>(report.volume_bytes),
                  wanted, tolerance)
          << destination;
    }
  };
  check(Disposition::kAutoCommit, "mouse_{index}", of_here);
  check(Disposition::kAutoCommit, there.path() + "/mouse_{index}", of_there);
  check(Disposition::kAutoCommit, there.path() + "/a/new/{scan}/folder_{index}", of_there);
  check(Disposition::kAutoCommit, here.path() + "/mouse_{index}", of_here);
  check(Disposition::kAsk, "", of_here);
}

}  // namespace
}  // namespace octavo::engine
