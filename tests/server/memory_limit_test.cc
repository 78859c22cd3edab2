// The share of the machine's memory that a process may use: control groups of both versions, in
// simulated folders; and the budgets that the daemon derives.

#include "gpu/base/memory_limit.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "server/host_budget.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo {
namespace {

using octavo::testing::TempFolder;
constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() { Machine(16 * kGiB, 12 * kGiB); }

  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ / name).parent_path());
    root_.Write(name, text + "\n");
  }
  void Machine(int64_t total, int64_t available) {
    Write("proc/meminfo",
          absl::StrCat("MemTotal:       ", total / 1024,
                       " kB\nMemFree:  77 kB\nMemAvailable:   ", available / 1024, " kB"));
  }
  // Puts the process into `path` of the second version, whose hierarchy is mounted as systemd
  // mounts it.
  void Second(const std::string& path, const std::string& from = "/") {
    Write("proc/self/cgroup", "0::" + path);
    Write("proc/self/mountinfo", "23 1 0:22 / /proc rw - proc proc rw\n31 23 0:28 " + from +
                                     " /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 "
                                     "cgroup2 rw,nsdelegate,memory_recursiveprot");
  }
  void Limit(const std::string& folder, const std::string& max, int64_t used = 0, int64_t cache = 0,
             const std::string& high = "max") {
    Write("sys/fs/cgroup" + folder + "/memory.max", max);
    Write("sys/fs/cgroup" + folder + "/memory.high", high);
    Write("sys/fs/cgroup" + folder + "/memory.current", absl::StrCat(used));
    Write("sys/fs/cgroup" + folder + "/memory.stat",
          absl::StrCat("anon 5\nfile 9\ninactive_file ", cache, "\nactive_file 3"));
  }
  MemoryLimit Read() { return ReadMemoryLimit(root_.path()); }

  TempFolder root_;
};

TEST_F(MemoryLimitTest, WithoutGroupsTheMachineIsTheLimit) {
  for (const bool group : {false, true}) {
    if (group) {
      Second("/a/b");
      for (const char* folder : {"/a", "/a/b"}) Limit(folder, "max");
    }
    const MemoryLimit limit = Read();
    EXPECT_EQ(limit.total_bytes, 16 * kGiB);
    EXPECT_EQ(limit.available_bytes, 12 * kGiB);
    EXPECT_EQ(limit.machine_bytes, 16 * kGiB);
    EXPECT_EQ(limit.limited_by, "");
  }
}

// The smallest limit of all folders and of both files counts.
TEST_F(MemoryLimitTest, TheLeastOfAllAncestorsCounts) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  for (int round = 0; round < 200; ++round) {
    Machine(16 * kGiB, 12 * kGiB);
    Second("/system.slice/octavo.slice/octavod.service");
    int64_t total = 16 * kGiB, available = 12 * kGiB;
    std::string by;
    for (const std::string& folder :
         {std::string("/system.slice/octavo.slice/octavod.service"),
          std::string("/system.slice/octavo.slice"), std::string("/system.slice"), std::string()}) {
      const auto draw = [&]() -> int64_t {
        return random() % 3 == 0 ? 32 * kGiB : static_cast<int64_t>(1 + random() % (20 * kGiB));
      };
      const int64_t max = draw(), high = draw(), used = static_cast<int64_t>(random() % (2 * kGiB));
      const int64_t cache = static_cast<int64_t>(random() % (4 * kGiB));
      Limit(folder, max == 32 * kGiB ? "max" : absl::StrCat(max), used, cache,
            high == 32 * kGiB ? "max" : absl::StrCat(high));
      for (const auto& [bytes, file] :
           {std::pair(max, "memory.max"), std::pair(high, "memory.high")}) {
        if (bytes >= 16 * kGiB) continue;
        if (bytes < total) total = bytes, by = absl::StrCat("/sys/fs/cgroup", folder, "/", file);
        available = std::clamp<int64_t>(bytes - std::max<int64_t>(0, used - cache), 0, available);
      }
    }
    const MemoryLimit limit = Read();
    ASSERT_EQ(limit.total_bytes, total);
    ASSERT_EQ(limit.available_bytes, available);
    ASSERT_EQ(limit.limited_by, by);
  }
}

// In a container with its own view, the process seems to be in the root.
TEST_F(MemoryLimitTest, AContainersOwnView) {
  Second("/");
  Limit("", absl::StrCat(1536 * kMiB), 100 * kMiB);
  EXPECT_EQ(Read().total_bytes, 1536 * kMiB);
  EXPECT_EQ(Read().available_bytes, 1436 * kMiB);
  EXPECT_EQ(Read().limited_by, "/sys/fs/cgroup/memory.max");
  // Only a part of the hierarchy is mounted: the process is below it, or outside of the visible
  // part.
  Second("/docker/abc/inner", "/docker/abc");
  Limit("/inner", absl::StrCat(512 * kMiB));
  EXPECT_EQ(Read().limited_by, "/sys/fs/cgroup/inner/memory.max");
  for (const char* outside : {"/docker/abcdef/inner", "/../../elsewhere", "/else"}) {
    Second(outside, "/docker/abc");
    EXPECT_EQ(Read().limited_by, "/sys/fs/cgroup/memory.max") << outside;
  }
}

TEST_F(MemoryLimitTest, TheFirstVersion) {
  Write("proc/self/cgroup",
        "9:name=systemd:/\n4:cpu,cpuacct:/x\n3:hugetlb,memory:/docker/abc\n0::/");
  Write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n33 31 0:30 / "
        "/sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "34 31 0:31 /docker/abc /sys/fs/cgroup/mem\\040ory rw shared:1 - cgroup cgroup rw,memory");
  const std::string folder = "sys/fs/cgroup/mem ory/";
  Write(folder + "memory.limit_in_bytes", "9223372036854771712");
  Write(folder + "memory.usage_in_bytes", absl::StrCat(300 * kMiB));
  Write(folder + "memory.stat", absl::StrCat("cache 7\ninactive_file 1\nhierarchical_memory_limit "
                                             "9223372036854771712\ntotal_inactive_file ",
                                             100 * kMiB));
  EXPECT_EQ(Read().total_bytes, 16 * kGiB);
  Write(folder + "memory.limit_in_bytes", absl::StrCat(2 * kGiB));
  EXPECT_EQ(Read().total_bytes, 2 * kGiB);
  EXPECT_EQ(Read().available_bytes, 2 * kGiB - 200 * kMiB);
  EXPECT_EQ(Read().limited_by, "/sys/fs/cgroup/mem ory/memory.limit_in_bytes");
  // A parent folder that is not visible.
  Write(folder + "memory.stat",
        absl::StrCat("hierarchical_memory_limit ", kGiB, "\ntotal_inactive_file 0"));
  EXPECT_EQ(Read().total_bytes, kGiB);
  EXPECT_EQ(Read().limited_by, "/sys/fs/cgroup/mem ory/memory.stat");
}

TEST_F(MemoryLimitTest, NonsenseLimitsNothing) {
  for (const char* text :
       {"", "::::", "0", "0::", "0::relative", "x\ny\nz", "4:memory:/a\n4:memory"}) {
    Write("proc/self/cgroup", text);
    for (const char* mounts :
         {"", "1 2 3", "a b c d e - cgroup2", "31 23 0:28 / /nowhere rw - cgroup2 cgroup2 rw"}) {
      Write("proc/self/mountinfo", mounts);
      EXPECT_EQ(Read().total_bytes, 16 * kGiB) << text << " / " << mounts;
    }
  }
  Second("/a");
  for (const char* text : {"", "-1", "many", "99999999999999999999999"}) {
    Limit("/a", text);
    EXPECT_EQ(Read().total_bytes, 16 * kGiB) << text;
  }
  EXPECT_EQ(ReadMemoryLimit(root_ / "nowhere").total_bytes, 0);
  EXPECT_GT(ReadMemoryLimit().total_bytes, 0) << "this machine";
}

TEST(HostBudgetTest, WhatHasItsDefaultGivesWay) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  const Config defaults;
  for (int round = 0; round < 2000; ++round) {
    const int devices = static_cast<int>(1 + random() % 8);
    MemoryLimit memory;
    memory.total_bytes = static_cast<int64_t>((256 + random() % 65536)) * kMiB;
    memory.available_bytes = memory.total_bytes / 100 * static_cast<int64_t>(50 + random() % 50);
    const bool on_host = random() % 2 == 0;
    const int64_t of_devices =
        on_host ? memory.available_bytes / 100 * static_cast<int64_t>(random() % 70) : 0;
    const HostBudget budget = FitHostMemory(defaults, memory, of_devices, devices);
    // Frames have a minimum; everything else fits.
    ASSERT_LE(budget.sum(devices), std::max(memory.available_bytes / 10 * 9, of_devices) +
                                       devices * 16 * kMiB + 64 * kMiB + 32 * kMiB + 16 * kMiB + 1);
    ASSERT_GE(budget.picture_bytes, 32 * kMiB);
    ASSERT_LE(budget.picture_bytes, kGiB);
    ASSERT_GE(budget.shared_frame_bytes, 16 * kMiB);
    ASSERT_LE(budget.shared_frame_bytes, kGiB);
    ASSERT_GE(budget.frame_pool_bytes, 16 * kMiB);
    ASSERT_LE(budget.frame_pool_bytes, defaults.frame_pool_bytes);
    ASSERT_GE(budget.listen_bytes, 64 * kMiB);
    ASSERT_LE(budget.listen_bytes, defaults.listen_memory_bytes);
    ASSERT_LE(budget.spill_host_bytes, defaults.spill_host_bytes);
    ASSERT_LE(budget.projection_bytes, memory.total_bytes / 2);
    // Configured values stay unchanged, regardless of the others.
    Config set;
    set.frame_pool_bytes = static_cast<int64_t>(16 + random() % 100'000) * kMiB;
    set.projection_bytes = static_cast<int64_t>(1 + random() % 100'000) * kMiB;
    // What has its default is not configured.
    if (set.frame_pool_bytes == defaults.frame_pool_bytes) set.frame_pool_bytes += kMiB;
    if (set.projection_bytes == defaults.projection_bytes) set.projection_bytes += kMiB;
    const HostBudget fixed = FitHostMemory(set, memory, of_devices, devices);
    ASSERT_EQ(fixed.frame_pool_bytes, set.frame_pool_bytes);
    ASSERT_EQ(fixed.projection_bytes, set.projection_bytes);
    ASSERT_GE(fixed.spill_host_bytes, 0);
  }
  // On a machine with enough memory nothing changes, except that projections leave room for the
  // other uses.
  MemoryLimit roomy;
  roomy.total_bytes = roomy.available_bytes = 64 * kGiB;
  const HostBudget budget = FitHostMemory(defaults, roomy, 38 * kGiB, 1);
  EXPECT_EQ(budget.frame_pool_bytes, defaults.frame_pool_bytes);
  EXPECT_EQ(budget.spill_host_bytes, defaults.spill_host_bytes);
  EXPECT_EQ(budget.projection_bytes, roomy.available_bytes / 10 * 9 - 40 * kGiB -
                                         defaults.listen_memory_bytes - budget.picture_bytes -
                                         budget.shared_frame_bytes);
  EXPECT_EQ(budget.picture_bytes, kGiB);
  EXPECT_EQ(budget.shared_frame_bytes, kGiB);
}

}  // namespace
}  // namespace octavo
