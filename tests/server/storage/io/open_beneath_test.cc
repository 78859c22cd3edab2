#include "server/storage/io/open_beneath.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "server/storage/io/files.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using octavo::storage::testing::Degrees;
using octavo::storage::testing::Frames;
using octavo::storage::testing::ReadAll;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
namespace fs = std::filesystem;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

/// Swaps two names repeatedly until it is destroyed: a folder, and a link that leads elsewhere.
class Swapping {
 public:
  Swapping(std::string a, std::string b)
      : thread_([a = std::move(a), b = std::move(b), this] {
          while (!stop_) {
            swaps_ += ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(),
                                2 /* RENAME_EXCHANGE */) == 0;
          }
        }) {}
  ~Swapping() {
    stop_ = true;
    thread_.join();
  }
  int64_t swaps() const { return swaps_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> swaps_{0};
  std::thread thread_;
};

/// The parameter: whether openat2 is used. There are two roots and a folder outside of both, with
/// the same names inside.
class OpenBeneathTest : public ::testing::TestWithParam<bool> {
 protected:
  OpenBeneathTest() {
    UseOpenat2(GetParam());
    for (const char* name : {"one", "two", "outside"}) {
      fs::create_directories(folder_ / (std::string(name) + "/a/b"));
      folder_.Write(std::string(name) + "/a/b/file", name);
    }
  }
  ~OpenBeneathTest() override { UseOpenat2(true); }

  absl::StatusOr<std::string> Text(const std::string& path, int flags = O_RDONLY) {
    OCTAVO_ASSIGN_OR_RETURN(const OpenedBeneath opened, OpenBeneath(path, roots_, flags));
    std::string text(64, '\0');
    const ssize_t n = ::read(opened.fd.get(), text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }
  void Link(const std::string& to, const std::string& name) {
    fs::create_symlink(to, folder_ / name);
  }

  TempFolder folder_;
  const std::vector<std::string> roots_ = {folder_ / "one", folder_ / "two"};
};

TEST_P(OpenBeneathTest, LinksMayLeadWhereverTheRootsAre) {
  Link("b/file", "one/a/relative");
  Link(folder_ / "one/a", "one/absolute");
  Link(folder_ / "two/a/b", "one/other_root");
  Link("../one/a/relative", "two/chain");
  EXPECT_EQ(Text(folder_ / "one/a/b/file").value(), "one");
  EXPECT_EQ(Text(folder_ / "one/a/./b//file").value(), "one");
  EXPECT_EQ(Text(folder_ / "one/a/b/../b/file").value(), "one");
  EXPECT_EQ(Text(folder_ / "one/a/relative").value(), "one");
  EXPECT_EQ(Text(folder_ / "one/absolute/b/file").value(), "one");
  EXPECT_EQ(Text(folder_ / "one/other_root/file").value(), "two");
  EXPECT_EQ(Text(folder_ / "two/chain").value(), "one");
  ASSERT_OK_AND_ASSIGN(const OpenedBeneath opened,
                       OpenBeneath(folder_ / "one/absolute/b/file", roots_, O_RDONLY));
  EXPECT_EQ(opened.path, folder_ / "one/a/b/file");
  EXPECT_NE(::fcntl(opened.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_THAT(OpenBeneath(folder_ / "one", roots_, O_RDONLY | O_DIRECTORY), IsOk())
      << "a root itself";
  EXPECT_THAT(OpenBeneath(folder_ / "outside/a/b/file", {}, O_RDONLY), IsOk())
      << "no roots: anywhere";
  // A root that is itself a link, and the root directory.
  Link(folder_ / "two", "second");
  EXPECT_THAT(OpenBeneath(folder_ / "second/a/b/file", {folder_ / "second"}, O_RDONLY), IsOk());
  EXPECT_THAT(OpenBeneath(folder_ / "outside/a/b/file", {"/"}, O_RDONLY), IsOk());
}

TEST_P(OpenBeneathTest, NothingOutsideIsOpenedOrToldOf) {
  Link(folder_ / "outside/a/b/file", "one/file");
  Link(folder_ / "outside", "one/folder");
  Link("../../outside/a", "one/a/up");
  Link(folder_ / "outside/nothing", "one/dangling");
  Link("/proc/self/fd", "one/magic");
  Link("loop", "one/loop");
  const std::string told = "leads outside of the configured roots, or to nothing";
  for (const char* path :
       {"one/file", "one/folder/a/b/file", "one/folder/a/nothing", "one/folder/nothing/at/all",
        "one/a/up/b/file", "one/dangling", "one/magic/0", "one/../outside/a/b/file",
        "outside/a/b/file", "outside/nothing", "one/folder"}) {
    const auto opened = OpenBeneath(folder_ / path, roots_, O_RDONLY);
    EXPECT_THAT(opened, IsError(kDenied, told)) << path;
    EXPECT_EQ(InfoOf(opened.status()).reason, Reason::kOutsideRoots);
  }
  EXPECT_THAT(OpenBeneath("/etc/passwd", roots_, O_RDONLY), IsError(kDenied, told));
  EXPECT_THAT(OpenBeneath(folder_ / "oneself", roots_, O_RDONLY), IsError(kDenied, told))
      << "begins with the letters of a root";
  for (const char* path : {"one/nothing", "one/a/nothing/more", "two/a/b/file/below"})
    EXPECT_THAT(OpenBeneath(folder_ / path, roots_, O_RDONLY),
                IsError(absl::StatusCode::kNotFound, "no file"))
        << path;
  EXPECT_FALSE(OpenBeneath(folder_ / "one/loop", roots_, O_RDONLY).ok());
}

TEST_P(OpenBeneathTest, WhatIsMadeIsMadeBeneathOnly) {
  Link(folder_ / "outside/a", "one/link");
  Link(folder_ / "outside/a/new", "one/a/new");
  Link("b", "one/a/inside");
  constexpr int kMake = O_WRONLY | O_CREAT | O_EXCL;
  EXPECT_THAT(OpenBeneath(folder_ / "one/a/inside/new", roots_, kMake, 0640), IsOk());
  struct stat info {};
  ASSERT_EQ(::stat((folder_ / "one/a/b/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777 & ~0640u, 0u);
  EXPECT_EQ(OpenBeneath(folder_ / "one/a/b/new", roots_, kMake, 0640).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(OpenBeneath(folder_ / "one/link/new", roots_, kMake, 0640).ok());
  EXPECT_FALSE(OpenBeneath(folder_ / "one/a/new", roots_, kMake, 0640).ok());
  EXPECT_FALSE(OpenBeneath(folder_ / "one/a/new", roots_, O_WRONLY | O_CREAT, 0640).ok())
      << "through a link to nothing";
  EXPECT_FALSE(fs::exists(folder_ / "outside/a/new"));
}

// Half of the time, a folder of the path is a link to elsewhere.
TEST_P(OpenBeneathTest, SwappedFoldersNeverLeadOutside) {
  Link(folder_ / "outside/a", "one/swap");
  int read = 0, made = 0;
  {
    const Swapping swapping(folder_ / "one/a", folder_ / "one/swap");
    for (int i = 0;
         i < 5'000 || (i < 200'000 && (read == 0 || made == 0 || swapping.swaps() < 1000)); ++i) {
      const auto text = Text(folder_ / "one/a/b/file");
      if (text.ok()) {
        ASSERT_EQ(*text, "one");
        ++read;
      }
      if (i % 16 == 0)
        made += OpenBeneath(folder_ / absl::StrCat("one/a/b/new", i), roots_,
                            O_WRONLY | O_CREAT | O_EXCL, 0600)
                    .ok();
    }
    EXPECT_GE(swapping.swaps(), 1000);
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(made, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "outside/a/b"), {}), 1)
      << "nothing was made outside";
}

/// Writes an .npy file of u16 [5, 4, 6] whose numbers begin at `first`.
void WriteNpy(const std::string& path, const std::string& shape, const std::string& descr,
              const std::string& bytes) {
  std::string head =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  head.resize(117, ' ');
  std::ofstream(path, std::ios::binary)
      << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << head << "\n"
      << bytes;
}
template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The same for real inputs: a swapped folder gives the input beneath the roots, or none.
TEST_P(OpenBeneathTest, SwappedInputsAreThoseBeneathTheRoots) {
  for (const int64_t kind : {0, 1}) {
    const std::string at = folder_ / (kind == 0 ? "one/a/" : "outside/a/");
    WriteNpy(at + "scan.npy", "(5, 4, 6)", "<u2", BytesOf(Frames<uint16_t>(5, kind)));
    WriteNpy(at + "theta.npy", "(5,)", "<f8", BytesOf(Degrees(5)));
    fs::create_directories(at + "zarr/data/c/0/0");
    fs::create_directories(at + "zarr/theta/c");
    const auto array = [](const std::string& shape, const char* type) {
      return absl::StrCat(
          R"({"zarr_format":3,"node_type":"array","shape":)", shape, R"(,"data_type":")", type,
          R"(","chunk_grid":{"name":"regular","configuration":{"chunk_shape":)", shape,
          R"(}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},"codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"fill_value":0})");
    };
    std::ofstream(at + "zarr/zarr.json") << R"({"zarr_format":3,"node_type":"group"})";
    std::ofstream(at + "zarr/data/zarr.json") << array("[5,4,6]", "uint16");
    std::ofstream(at + "zarr/data/c/0/0/0", std::ios::binary) << BytesOf(Frames<uint16_t>(5, kind));
    std::ofstream(at + "zarr/theta/zarr.json") << array("[5]", "float64");
    std::ofstream(at + "zarr/theta/c/0", std::ios::binary) << BytesOf(Degrees(5));
    octavo::storage::testing::Hdf5Builder file(at + "scan.h5");
    file.Data("/exchange/data", {5, 4, 6}, Frames<uint16_t>(5, kind), {});
    file.Data("/exchange/theta", {5}, Degrees(5));
  }
  Link(folder_ / "outside/a", "one/swap");
  const auto inside = Frames<uint16_t>(5, 0);
  const Swapping swapping(folder_ / "one/a", folder_ / "one/swap");
  const struct {
    const char* name;
    const char* angles;
    int tries;
  } inputs[] = {{"scan.npy", "theta.npy", 1000}, {"zarr", "", 1000}, {"scan.h5", "", 40}};
  for (const auto& input : inputs) {
    int opened = 0;
    // On a busy machine, the swapping thread may pause while the file cannot be opened: the test
    // continues until that thread has run.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int i = 0; i < input.tries || (opened == 0 && std::chrono::steady_clock::now() < patience);
         ++i) {
      ProjectionOptions options;
      options.roots = roots_;
      if (*input.angles != '\0') options.angles = folder_ / absl::StrCat("one/a/", input.angles);
      const auto projections =
          OpenProjections(folder_ / absl::StrCat("one/a/", input.name), options);
      if (!projections.ok()) continue;
      std::vector<uint16_t> frames(inside.size());
      const auto& info = (*projections)->info();
      if (!(*projections)
               ->Read({.kind = FrameKind::kProjection,
                       .frames = info.projections,
                       .rows = info.rows,
                       .columns = info.columns},
                      frames.data())
               .ok())
        continue;
      ASSERT_EQ(frames, inside) << input.name;
      ++opened;
    }
    EXPECT_GT(opened, 0) << input.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, OpenBeneathTest, ::testing::Bool(), [](const auto& param_info) {
  return param_info.param ? "openat2" : "step_by_step";
});

}  // namespace
}  // namespace octavo::storage
