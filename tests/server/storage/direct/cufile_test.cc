// Why cuFile is used or not: by what the library and the host say.

#include "server/storage/direct/cufile.h"

#include <filesystem>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/storage/direct/read_way.h"
#include "tests/server/storage/direct/cufile_shim.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::CuFileShim;
using ::testing::HasSubstr;

class CuFileTest : public ::testing::Test {
 protected:
  void Expect(const CuFile::Options& options, WhyNot why, const std::string& text) {
    const auto cufile = CuFile::Open(options);
    EXPECT_STREQ(Name(cufile->refusal().why), Name(why)) << cufile->refusal().text;
    EXPECT_THAT(cufile->refusal().text, HasSubstr(text));
    EXPECT_EQ(cufile->usable(), why == WhyNot::kNone);
  }
  /// A host's files, with /run/udev.
  CuFile::Options Host() {
    std::filesystem::create_directories(host_ / "run/udev");
    CuFile::Options options = CuFileShim::Options();
    options.check_host = true;
    options.root = host_.path();
    return options;
  }
  const octavo::testing::TempFolder host_;
  CuFileShim shim_;
};

TEST_F(CuFileTest, IsUsableOnlyWithoutCompatMode) {
  const auto cufile = CuFile::Open(CuFileShim::Options());
  EXPECT_TRUE(cufile->usable()) << cufile->refusal().text;
  EXPECT_EQ(cufile->version(), "cuFile 1.13, nvidia-fs 2.17");
  shim_.Set("nvfs_major", 0);  // the kernel's peer-to-peer DMA
  Expect(CuFileShim::Options(), WhyNot::kNone, "");
  shim_.Set("sticky_compat", 1);
  Expect(CuFileShim::Options(), WhyNot::kCompat, "without the kernel module nvidia-fs");
  shim_.Set("nvfs_major", 2);
  Expect(CuFileShim::Options(), WhyNot::kCompat, "allow_compat_mode");
  CuFile::Options allowed = CuFileShim::Options();
  allowed.allow_compat = true;
  Expect(allowed, WhyNot::kNone, "");
}

TEST_F(CuFileTest, LibrariesThatAreMissingOrOld) {
  Expect({.library = host_ / "libcufile.so.0"}, WhyNot::kNoLibrary, "cannot be loaded");
  Expect({.library = OCTAVO_CUFILE_SHIM_OLD, .check_host = false}, WhyNot::kNoLibrary,
         "has no cuFileRead");
}

TEST_F(CuFileTest, WhatTheHostSays) {
  CuFile::Options options = Host();
  Expect(options, WhyNot::kNone, "");
  std::filesystem::remove_all(host_ / "run");
  Expect(options, WhyNot::kNoUdev, "/run/udev is missing");
  options = Host();
  shim_.Set("open_error", 5001);
  Expect(options, WhyNot::kNoModule, "nvidia-fs is not loaded");
  Expect(options, WhyNot::kNoModule, "5001 (DRIVER_NOT_INITIALIZED)");
  std::filesystem::create_directories(host_ / "sys/module/nvidia_fs");
  Expect(options, WhyNot::kDriver, "5001 (DRIVER_NOT_INITIALIZED)");
  std::filesystem::create_directories(host_ / "sys/class/iommu/dmar0");
  std::filesystem::create_directories(host_ / "proc");
  host_.Write("proc/cmdline", "quiet");
  Expect(options, WhyNot::kIommu, "iommu=pt");
  host_.Write("proc/cmdline", "quiet iommu=pt");
  shim_.Set("open_error", 7777);
  Expect(options, WhyNot::kDriver, "answers 7777");
}

TEST_F(CuFileTest, EveryReasonHasAWordOfItsOwn) {
  std::set<std::string> words;
  for (int why = 0; why < kWhyNots; ++why) words.insert(Name(static_cast<WhyNot>(why)));
  EXPECT_EQ(std::ssize(words), kWhyNots);
  EXPECT_EQ(words.count("?"), 0u);
  EXPECT_STREQ(Name(static_cast<WhyNot>(kWhyNots)), "?");
}

}  // namespace
}  // namespace octavo::storage
