#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "gpu/device/digest.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/io/files.h"
#include "tests/support/status_matchers.h"

namespace octavo::storage::testing {

/// Each test has its own root and state directory. When a death test runs the test again, they have
/// the same names.
class StorageTest : public ::testing::Test {
 protected:
  StorageTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = absl::StrCat(test->test_suite_name(), ".", test->name());
    for (char& c : name) c = c == '/' ? '_' : c;
    directory_ = std::filesystem::weakly_canonical(std::filesystem::path(::testing::TempDir()) /
                                                   ("octavo-" + name))
                     .string();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(root());
  }
  ~StorageTest() override {
    ArmFailpoint("");
    std::filesystem::permissions(root(), std::filesystem::perms::owner_all,
                                 std::filesystem::perm_options::add);
    std::filesystem::remove_all(directory_);
  }

  std::string root() const { return directory_ + "/data"; }
  std::unique_ptr<CommitStore> Open() {
    report_.clear();
    auto store = CommitStore::Open(directory_ + "/state", {root()}, &report_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(store).value() : nullptr;
  }

  /// Makes a random volume [y, x, z] and its metadata with the digest. The shape is the seed,
  /// because the second run of a death test must see the same data.
  static std::vector<uint8_t> MakeVolume(VolumeMeta* meta, int64_t y, int64_t x, int64_t z,
                                         DType dtype = DType::kU8) {
    *meta = VolumeMeta{.volume_name = "volumes/test-1",
                       .scan_name = "scans/test",
                       .title = "eye",
                       .index = 3,
                       .shape = {y, x, z},
                       .dtype = dtype,
                       .spacing_um = {12, 6, 3.5},
                       .value_kind = "db",
                       .labels = {{"side", "left"}},
                       .missing_ranges = {{4, 2}}};
    std::mt19937 random(static_cast<uint32_t>(y * 1000003 + x * 1009 + z));
    std::vector<uint8_t> data(static_cast<size_t>(y * x * z * SizeOf(dtype)));
    for (auto& b : data) b = static_cast<uint8_t>(random() % 61);
    meta->digest = absl::StrCat(
        "sum64:", absl::Hex(DigestBytes(data.data(), static_cast<int64_t>(data.size()), 0),
                            absl::kZeroPad16));
    return data;
  }

  static absl::StatusOr<CommitOutcome> Commit(CommitStore& store, const std::string& destination,
                                              const VolumeMeta& meta,
                                              const std::vector<uint8_t>& data,
                                              const WriterOptions& options) {
    auto begun = store.Begin("test-1", destination, meta, options);
    if (!begun.ok()) return begun.status();
    const int64_t plane = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype),
                  slab = (*begun)->SlabBscans();
    for (int64_t y = 0; y < meta.shape[0]; y += slab) {
      const absl::Status written =
          (*begun)->WriteSlab(y, std::min(slab, meta.shape[0] - y), data.data() + y * plane);
      if (!written.ok()) return written;
    }
    return (*begun)->Publish();
  }

  /// Everything below the root, relative, sorted; directories end in '/'.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
      names.push_back(std::filesystem::relative(entry.path(), root()).string() +
                      (entry.is_directory() ? "/" : ""));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::vector<uint8_t> ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
  std::vector<std::string> report_;
};

}  // namespace octavo::storage::testing
