// Another process probes HDF5 files. The tests give it files that crash or delay it, and check its
// clean-up.

#include "server/storage/projections/hdf5_probe.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/wait.h>
#include <zlib.h>

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using octavo::testing::IsOk;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string Beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

/// Number of open descriptors of this process.
std::ptrdiff_t Descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Volumes are opened with the probe as the server opens them.
VolumeInputOptions Probed(const std::string& dataset) {
  VolumeInputOptions options;
  options.dataset = dataset;
  options.probe_hdf5 = [](const UniqueFd& file, const std::string& path,
                          const VolumeInputOptions& asked) {
    return ProbeHdf5Volume(file, path, {.dataset = asked.dataset, .roots = asked.roots});
  };
  return options;
}

class Hdf5ProbeTest : public ProjectionInputTest {
 protected:
  void SetUp() override { UseHdf5Probe({.command = {Beside("octavo-probe")}}); }
  void TearDown() override {
    UseHdf5Probe({});
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  /// The file claims this length for a string in its global heap. Whether the library crashes on it
  /// depends on what lies behind the heap.
  std::string DamagedHeap(uint64_t bytes) {
    std::string file = Contents(NxTomo());
    const size_t at = file.find("NXtomo", file.find("GCOL"));
    std::memcpy(file.data() + at - sizeof bytes, &bytes, sizeof bytes);
    folder_.Write("damaged.nxs", file);
    return folder_ / "damaged.nxs";
  }
};

TEST_F(Hdf5ProbeTest, WhatIsWholeIsRead) {
  const auto before = Descriptors();
  {
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(NxTomo(), {}));
    EXPECT_EQ(input->info().projections, 5);
    EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kFlat).size(), 3 * kRows * kColumns);
    ASSERT_OK_AND_ASSIGN(
        const auto given,
        OpenProjections(DataExchange(), {.darks = "-", .angle_values = {0, 1, 2, 3, 4}}));
    EXPECT_EQ(given->info().darks, 0);
  }
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(Hdf5ProbeTest, VolumesAreReadAndRefusedAsWithoutIt) {
  const std::string path = DataExchange();
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(path, Probed("/exchange/data")));
  EXPECT_EQ(input->info().axes.size(), 3u);
  std::vector<char> element(static_cast<size_t>(input->info().type.bytes));
  EXPECT_THAT(input->Read({.start = {0, 0, 0}, .count = {1, 1, 1}}, absl::MakeSpan(element)),
              IsOk());
  for (const char* dataset : {"", "/exchange", "/exchange/nothing"}) {
    VolumeInputOptions plain;
    plain.dataset = dataset;
    const absl::Status other = OpenVolumeInput(path, Probed(dataset)).status(),
                       here = OpenVolumeInput(path, plain).status();
    EXPECT_EQ(here.code(), kInvalid) << here;
    EXPECT_EQ(other, here);
  }
}

TEST_F(Hdf5ProbeTest, DamagedVolumesEndTheOtherProcessAlone) {
  const std::string whole = Contents(DataExchange());
  for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 120) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
    folder_.Write("damaged.h5", damaged);
    const UniqueFd file(::open((folder_ / "damaged.h5").c_str(), O_RDONLY | O_CLOEXEC));
    const absl::Status status =
        ProbeHdf5Volume(file, folder_ / "damaged.h5", {"/exchange/data", {}});
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
}

TEST_F(Hdf5ProbeTest, ErrorsAreThoseOfOpening) {
  folder_.Write("text\xff.h5", "no file of this kind");
  const std::pair<std::string, ProjectionOptions> bad[] = {
      {folder_ / "text\xff.h5", {}},
      {DataExchange([](Hdf5Builder& file) { file.Unlink("/exchange/theta"); }), {}},
      {NxTomo(), {.flats = "/x"}},
      {NxTomo(), {.angle_values = {1, 2}}},
  };
  for (const auto& [path, options] : bad) {
    const absl::Status other = OpenProjections(path, options).status();
    UseHdf5Probe({});
    const absl::Status here = OpenProjections(path, options).status();
    UseHdf5Probe({.command = {Beside("octavo-probe")}});
    EXPECT_EQ(here.code(), kInvalid);
    EXPECT_EQ(other, here);  // with its message
  }
}

TEST_F(Hdf5ProbeTest, WhatCrashesTheLibraryIsRefused) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's heap is laid out otherwise, and the library may survive";
#endif
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{17158}, uint64_t{1} << 40}) {
    const auto input = OpenProjections(DamagedHeap(bytes), {});
    EXPECT_THAT(input, IsError(kDataLoss,
                               "damaged.nxs: the file is damaged: the HDF5 library crashes on it"));
    EXPECT_EQ(InfoOf(input.status()).reason, Reason::kDamagedFile);
  }
}

TEST_F(Hdf5ProbeTest, WhatTheLibraryNeverEndsIsRefused) {
  UseHdf5Probe({.command = {Beside("octavo-probe")}, .seconds = 100, .processor_seconds = 1});
  // Then the next object of the heap lies among zeros: it has no length, and the library reads it
  // again and again.
  EXPECT_THAT(
      OpenProjections(DamagedHeap(2048), {}),
      IsError(kDataLoss, "damaged.nxs: the file takes more than 1 s of processor time to open"));
}

TEST_F(Hdf5ProbeTest, AChunkMayNotTakeAllMemory) {
#ifdef OCTAVO_SANITIZED
  GTEST_SKIP() << "address space is not limited under a sanitizer";
#endif
  // A file with small chunks has no room in its index for the size of a large chunk.
  const std::string path = DataExchange({}, {.chunk = {kAngles, kRows, kColumns},
                                             .deflate = 1,
                                             .type = H5T_IEEE_F32LE,
                                             .checksum = true});
  {
    const std::vector<Bytef> zeros(100 << 20);
    uLongf size = ::compressBound(static_cast<uLong>(zeros.size()));
    std::vector<Bytef> chunk(size);
    ASSERT_EQ(::compress2(chunk.data(), &size, zeros.data(), static_cast<uLong>(zeros.size()), 1),
              Z_OK);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                data = H5Dopen2(file, "/exchange/data", H5P_DEFAULT);
    const hsize_t first[3] = {};
    // Chunks with a checksum the library reads; the second filter, the checksum, is left out here.
    ASSERT_GE(H5Dwrite_chunk(data, H5P_DEFAULT, 2, first, size, chunk.data()), 0);
    H5Dclose(data);
    H5Fclose(file);
  }
  // It is looked at before the library inflates it to any length.
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<float> row(kColumns);
  EXPECT_THAT(input->Read({.frames = 1, .rows = 1, .columns = kColumns}, row.data()),
              IsError(kDataLoss, "bytes: allowed are"));
  // A sound one may still be too large for the limit of the other process.
  const std::string sound = folder_ / "sound.h5";
  {
    Hdf5Builder file(sound);
    file.Data("/exchange/data", {1, 4096, 4096}, std::vector<float>(4096 * 4096),
              {.chunk = {1, 4096, 4096}, .deflate = 1, .checksum = true});
    file.Data("/exchange/theta", {1}, Degrees(1));
  }
  EXPECT_THAT(OpenProjections(sound, {}), IsOk());
  UseHdf5Probe({.command = {Beside("octavo-probe")}, .memory_bytes = 192 << 20});
  EXPECT_THAT(OpenProjections(sound, {}),
              IsError(kDataLoss, "takes more than 192 MiB of memory to read"));
}

TEST_F(Hdf5ProbeTest, ChunksThatAreTooLargeAreRefused) {
  const std::string path = DataExchange([](Hdf5Builder& file) {
    file.Unlink("/exchange/data");
    file.Data("/exchange/data", {kAngles, 20000, 30000}, std::vector<uint16_t>(),
              {.chunk = {1, 20000, 30000}, .deflate = 1});
  });
  EXPECT_THAT(OpenProjections(path, {}), IsError(kInvalid,
                                                 "/exchange/data is compressed in chunks of "
                                                 "1200000000 bytes; allowed at most 1073741824"));
}

TEST_F(Hdf5ProbeTest, WhatHangsIsEnded) {
  const auto before = Descriptors();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"/bin/sleep", "100"},
                                                  {"/bin/sh", "-c", "exec >&-; exec sleep 100"}}) {
    UseHdf5Probe({.command = command, .seconds = 0.3});
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(OpenProjections(NxTomo(), {}),
                IsError(kDataLoss, "scan.nxs: the file takes longer than 0.3 s to open"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
  }
  EXPECT_EQ(Descriptors(), before);
}

// A hostile file may control the other process, which may then send any answer.
TEST_F(Hdf5ProbeTest, AnAnswerOfAnyKindDoesNoHarm) {
  for (const char* byte :
       // An array in an array in an array, and so on.
       {"\\201", "\\237", "\\000", "\\377", "\\241"}) {
    UseHdf5Probe(
        {.command = {"/bin/sh", "-c",
                     absl::StrCat("head -c 1040000 /dev/zero | tr '\\000' '", byte, "'")}});
    EXPECT_THAT(OpenProjections(NxTomo(), {}), IsError(kDataLoss, "the HDF5 library crashes on it"))
        << byte;
  }
}

TEST_F(Hdf5ProbeTest, ItInheritsNoDescriptors) {
  const std::string list = folder_ / "list";
  // A descriptor that a library opened this way.
  const UniqueFd open(::open("/dev/null", O_RDONLY));
  UseHdf5Probe({.command = {"/bin/sh", "-c", "ls /proc/self/fd >" + list}});
  EXPECT_THAT(OpenProjections(NxTomo(), {}),
              IsError(kDataLoss, "the HDF5 library crashes on it"));  // no answer came
  EXPECT_EQ(Contents(list), "0\n1\n2\n3\n4\n")
      << "3 is the file to look at, the last is the folder that ls reads";
}

// Another program renames a file to this name before or after the probe.
TEST_F(Hdf5ProbeTest, WhatIsLookedAtIsWhatIsOpened) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's heap is laid out otherwise, and the library may survive";
#endif
  const std::string look = "'" + Beside("octavo-probe") + "'";
  for (const bool before : {false, true}) {
    for (const bool removed : {false, true}) {
      SCOPED_TRACE(absl::StrCat(before, removed));
      const std::string damaged = DamagedHeap(4096), path = NxTomo(), kept = folder_ / "kept.nxs",
                        fresh = folder_ / "fresh.nxs";
      const std::string swap = absl::StrCat(
          "test -e ", kept, " || { ", removed ? "touch " : absl::StrCat("mv ", path, " "), kept,
          "; cp ", damaged, " ", fresh, "; mv ", fresh, " ", path, "; }");  // only once
      UseHdf5Probe({.command = {"/bin/sh", "-c",
                                before ? swap + "; exec " + look
                                       : look + "; rc=$?; " + swap + "; exit $rc"}});
      const auto input = OpenProjections(path, {});
      if (removed) {
        EXPECT_THAT(input, IsError(kDataLoss, "the HDF5 library crashes on it"))
            << "it was looked at anew";
      } else {
        ASSERT_THAT(input, IsOk());
        EXPECT_EQ((*input)->info().projections, 5);
        EXPECT_EQ(ReadAll<uint16_t>(**input, FrameKind::kFlat).size(), 3 * kRows * kColumns);
      }
      std::filesystem::remove(kept);
    }
  }
}

TEST_F(Hdf5ProbeTest, AFileThatIsReplacedAgainAndAgainIsRefused) {
  const std::string path = NxTomo(), other = folder_ / "other.nxs";
  UseHdf5Probe({.command = {"/bin/sh", "-c",
                            "cp '" + path + "' '" + other + "'; mv '" + other + "' '" + path +
                                "'; exec '" + Beside("octavo-probe") + "'"}});
  const absl::Status refused = OpenProjections(path, {}).status();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kAborted,
                               "scan.nxs was replaced or removed while it was opened"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kReplaced);
}

TEST_F(Hdf5ProbeTest, WithoutItNoFileIsOpened) {
  folder_.Write("unstartable", "");
  for (const auto& [command, why] :
       {std::pair<std::vector<std::string>, const char*>{{folder_ / "none"}, "No such file"},
        {{folder_ / "unstartable"}, "Permission denied"},
        {{"/bin/sh", "-c", "exit 126"}, "as one of another version does"}}) {
    UseHdf5Probe({.command = command});
    const std::string text = absl::StrCat("does not start: ", command[0], " (");
    for (const absl::Status& refused :
         {OpenProjections(NxTomo(), {}).status(),
          OpenVolumeInput(DataExchange(), Probed("/exchange/data")).status()}) {
      EXPECT_THAT(refused, IsError(absl::StatusCode::kFailedPrecondition, text));
      EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(why));
    }
  }
  // But not for want of descriptors or memory, which anyone can bring about.
  UseHdf5Probe({.command = {"/bin/sh", "-c", "exit 127"}});
  EXPECT_THAT(OpenProjections(NxTomo(), {}),
              IsError(absl::StatusCode::kResourceExhausted, "no process can start"));
}

TEST_F(Hdf5ProbeTest, AStartLearnsWhetherItIsThere) {
  EXPECT_THAT(CheckHdf5Probe(), IsOk());
  folder_.Write("unstartable", "");
  for (const auto& [program, why] :
       {std::pair<std::string, const char*>{folder_ / "none", "No such file"},
        {folder_ / "unstartable", "Permission denied"},
        {folder_ / ".", "it is no file"}}) {
    UseHdf5Probe({.command = {program}});
    EXPECT_THAT(CheckHdf5Probe(),
                IsError(absl::StatusCode::kFailedPrecondition, absl::StrCat(program, " (", why)));
  }
  UseHdf5Probe({});
  EXPECT_THAT(CheckHdf5Probe(), IsOk()) << "probing is off";
}

}  // namespace
}  // namespace octavo::storage
