#include "server/storage/commit/commit_store.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <new>
#include <pthread.h>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "zstd.h"

#include "gpu/base/failpoint.h"
#include "server/storage/commit/find_published.h"
#include "server/storage/commit/journal.h"
#include "server/storage/commit/publish.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/crc32c.h"
#include "tests/server/storage/storage_test_base.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::StorageTest;

struct ZarrCase {
  int64_t shape[3], chunk[3], shard[3];
  bool compress;
  DType dtype;
};

class ZarrRoundTrip : public StorageTest, public ::testing::WithParamInterface<ZarrCase> {
 protected:
  // Decodes one chunk as its file (or its part of a shard) holds it.
  static std::vector<uint8_t> Decode(const uint8_t* data, size_t bytes, bool compressed,
                                     size_t wanted) {
    if (!compressed) return {data, data + bytes};
    std::vector<uint8_t> out(wanted);
    EXPECT_EQ(ZSTD_decompress(out.data(), out.size(), data, bytes), wanted);
    EXPECT_EQ(ZSTD_getFrameContentSize(data, bytes), wanted)
        << "some readers need the size in the frame";
    return out;
  }
};

// A reader in this file, which follows the Zarr v3 specification, reads the files back voxel by
// voxel. Edges hold the fill value.
TEST_P(ZarrRoundTrip, EveryVoxelAndTheEdges) {
  const ZarrCase& c = GetParam();
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, c.shape[0], c.shape[1], c.shape[2], c.dtype);
  auto store = Open();
  WriterOptions options{.compress = c.compress};
  std::copy_n(c.chunk, 3, options.chunk);
  std::copy_n(c.shard, 3, options.shard);
  ASSERT_OK_AND_ASSIGN(const CommitOutcome outcome, Commit(*store, "a/b", meta, data, options));
  EXPECT_EQ(outcome.path, root() + "/a/b.ome.zarr");
  EXPECT_EQ(outcome.raw_bytes, static_cast<int64_t>(data.size()));
  EXPECT_EQ(outcome.checksum,
            absl::StrCat("crc32c:", absl::Hex(Crc32c(data.data(), data.size()), absl::kZeroPad8)));
  const bool sharded = c.shard[0] != 0;
  const int64_t* file = sharded ? c.shard : c.chunk;
  const int64_t size = SizeOf(c.dtype), chunk_bytes = c.chunk[0] * c.chunk[1] * c.chunk[2] * size;
  const int64_t inner[3] = {file[0] / c.chunk[0], file[1] / c.chunk[1], file[2] / c.chunk[2]};
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t seen = 0, disk = 0;
  for (int64_t fy = 0; fy < ceil(c.shape[0], file[0]); ++fy) {
    for (int64_t fx = 0; fx < ceil(c.shape[1], file[1]); ++fx) {
      for (int64_t fz = 0; fz < ceil(c.shape[2], file[2]); ++fz) {
        const auto bytes = ReadFile(absl::StrCat(outcome.path, "/0/c/", fy, "/", fx, "/", fz));
        ASSERT_FALSE(bytes.empty());
        disk += static_cast<int64_t>(bytes.size());
        const int64_t count = inner[0] * inner[1] * inner[2];
        std::vector<uint64_t> index(static_cast<size_t>(2 * count));
        if (sharded) {
          const size_t at = bytes.size() - static_cast<size_t>(16 * count + 4);
          std::memcpy(index.data(), bytes.data() + at, static_cast<size_t>(16 * count));
          uint32_t crc;
          std::memcpy(&crc, bytes.data() + bytes.size() - 4, 4);
          EXPECT_EQ(crc, Crc32c(index.data(), static_cast<size_t>(16 * count)));
        } else {
          index = {0, bytes.size()};
        }
        for (int64_t i = 0; i < count; ++i) {
          const int64_t y0 = fy * file[0] + i / (inner[1] * inner[2]) * c.chunk[0],
                        x0 = fx * file[1] + i / inner[2] % inner[1] * c.chunk[1];
          const int64_t z0 = fz * file[2] + i % inner[2] * c.chunk[2];
          const uint64_t offset = index[static_cast<size_t>(2 * i)],
                         length = index[static_cast<size_t>(2 * i + 1)];
          if (y0 >= c.shape[0] || x0 >= c.shape[1] || z0 >= c.shape[2]) {
            EXPECT_EQ(offset, ~uint64_t{0});
            EXPECT_EQ(length, ~uint64_t{0});
            continue;
          }
          const auto chunk =
              Decode(bytes.data() + offset, length, c.compress, static_cast<size_t>(chunk_bytes));
          ASSERT_EQ(static_cast<int64_t>(chunk.size()), chunk_bytes);
          for (int64_t v = 0; v < chunk_bytes / size; ++v) {
            const int64_t y = y0 + v / (c.chunk[1] * c.chunk[2]),
                          x = x0 + v / c.chunk[2] % c.chunk[1], z = z0 + v % c.chunk[2];
            const uint8_t* got = chunk.data() + v * size;
            if (y < c.shape[0] && x < c.shape[1] && z < c.shape[2]) {
              ASSERT_EQ(
                  std::memcmp(got, data.data() + ((y * c.shape[1] + x) * c.shape[2] + z) * size,
                              static_cast<size_t>(size)),
                  0)
                  << y << " " << x << " " << z;
              ++seen;
            } else if (c.dtype == DType::kF32) {
              float value;
              std::memcpy(&value, got, 4);
              ASSERT_TRUE(value != value);
            } else {
              ASSERT_EQ(*got, 0);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(seen, c.shape[0] * c.shape[1] * c.shape[2]);
  EXPECT_LT(disk, outcome.disk_bytes);
  EXPECT_THAT(VerifyDirectory(outcome.path), IsOk());
  const auto group = nlohmann::json::parse(ReadFile(outcome.path + "/zarr.json"));
  EXPECT_EQ(group["attributes"]["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]
                 [0]["scale"],
            (std::vector<double>{12, 6, 3.5}));
  EXPECT_EQ(group["attributes"]["octavo"]["labels"]["side"], "left");
  const auto array = nlohmann::json::parse(ReadFile(outcome.path + "/0/zarr.json"));
  EXPECT_EQ(array["shape"], (std::vector<int64_t>{c.shape[0], c.shape[1], c.shape[2]}));
  EXPECT_EQ(array["chunk_grid"]["configuration"]["chunk_shape"],
            (std::vector<int64_t>{file[0], file[1], file[2]}));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ZarrRoundTrip,
    ::testing::Values(ZarrCase{{8, 16, 32}, {4, 8, 16}, {0, 0, 0}, false, DType::kU8},
                      ZarrCase{{7, 13, 31}, {4, 8, 16}, {0, 0, 0}, true, DType::kU16},
                      ZarrCase{{7, 13, 31}, {4, 8, 16}, {0, 0, 0}, false, DType::kF32},
                      ZarrCase{{9, 17, 65}, {2, 8, 16}, {4, 16, 64}, true, DType::kU8},
                      ZarrCase{{9, 17, 65}, {2, 8, 16}, {8, 16, 32}, false, DType::kF32},
                      ZarrCase{{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, true, DType::kU8},
                      ZarrCase{{3, 5, 7}, {8, 8, 8}, {0, 0, 0}, true, DType::kU16}));

using CommitStoreTest = StorageTest;

TEST_F(CommitStoreTest, NpyHoldsTheBytesAndTheMetadataBesideIt) {
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    VolumeMeta meta;
    const auto data = MakeVolume(&meta, 5, 7, 11, dtype);
    auto store = Open();
    ASSERT_OK_AND_ASSIGN(
        const CommitOutcome outcome,
        Commit(*store, absl::StrCat("v", Info(dtype).name), meta, data, {.format = Format::kNpy}));
    const auto file = ReadFile(outcome.path);
    ASSERT_GE(file.size(), data.size() + 64);
    const size_t head = 10 + file[8] + 256u * file[9];
    EXPECT_EQ(head % 64, 0u);
    const std::string text(file.begin() + 10, file.begin() + static_cast<int64_t>(head));
    EXPECT_NE(text.find(absl::StrCat("'descr': '", Info(dtype).numpy, "'")), std::string::npos)
        << text;
    EXPECT_NE(text.find("'shape': (5, 7, 11)"), std::string::npos) << text;
    EXPECT_EQ(std::vector<uint8_t>(file.begin() + static_cast<int64_t>(head), file.end()), data);
    const auto side = nlohmann::json::parse(ReadFile(outcome.path + ".json"));
    EXPECT_EQ(side["volume"], "volumes/test-1");
    EXPECT_EQ(side["file"]["bytes"], file.size());
  }
}

// The journal forgets commits that have ended; the files do not.
TEST_F(CommitStoreTest, AFinishedCommitIsFoundByItsFiles) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 6, 8);
  auto store = Open();
  for (const Format format : {Format::kOmeZarr05, Format::kNpy, Format::kNifti}) {
    WriterOptions options;
    options.format = format;
    const std::string destination = absl::StrCat("found/", static_cast<int>(format));
    ASSERT_OK_AND_ASSIGN(const CommitOutcome outcome,
                         Commit(*store, destination, meta, data, options));
    for (const std::string& asked : {destination, outcome.path}) {
      const auto found = FindPublished({root()}, "test-1", meta.volume_name, asked);
      ASSERT_TRUE(found.has_value()) << asked;
      EXPECT_EQ(found->path, outcome.path);
      EXPECT_EQ(found->format, format);
    }
    EXPECT_FALSE(FindPublished({root()}, "another", "volumes/another", destination).has_value());
    std::filesystem::remove_all(outcome.path);
    EXPECT_FALSE(FindPublished({root()}, "test-1", meta.volume_name, destination).has_value());
  }
  EXPECT_FALSE(FindPublished({root()}, "test-1", meta.volume_name, "../x").has_value());
}

TEST_F(CommitStoreTest, DestinationsAreConfined) {
  std::filesystem::create_directories(root() + "/in/side");
  std::filesystem::create_directory_symlink("/etc", root() + "/etc");
  std::filesystem::create_directory_symlink(root() + "/in", root() + "/within");
  const std::vector<std::string> roots = {root()};
  for (const char* good : {"a", "a/b/c", "./a", "a//b", "in/side/x", "within/x", ".a", "a b .npy"})
    EXPECT_THAT(ResolveDestination(roots, good), IsOk()) << good;
  std::string deep = "x";
  for (int folders = 0; folders < 63; ++folders) deep = "a/" + deep;
  EXPECT_THAT(ResolveDestination(roots, deep), IsOk());
  EXPECT_THAT(ResolveDestination(roots, "a/" + deep),
              IsError(absl::StatusCode::kInvalidArgument, "through 64 folders; allowed are 63"));
  EXPECT_EQ(ResolveDestination(roots, "a//./b").value(), root() + "/a/b");
  EXPECT_EQ(ResolveDestination(roots, "within/x").value(), root() + "/in/x");
  EXPECT_EQ(ResolveDestination(roots, root() + "/abs").value(), root() + "/abs");
  for (const std::string& itself : {root(), root() + "/"})
    EXPECT_THAT(
        ResolveDestination(roots, itself),
        IsError(absl::StatusCode::kInvalidArgument,
                "'" + itself + "' is a storage root itself; allowed is a name below it, as "));
  for (const std::string& bad : std::vector<std::string>{"",
                                                         ".",
                                                         "/",
                                                         "..",
                                                         "a/../../b",
                                                         "../data/x",
                                                         "/etc/passwd",
                                                         "etc/passwd",
                                                         "etc/x/y",
                                                         root(),
                                                         root() + "x/y",
                                                         ".octavo-1.tmp/x",
                                                         "a/.octavo-quarantine/x",
                                                         " ",
                                                         " .npy",
                                                         "a/ /b",
                                                         " .ome.zarr",
                                                         std::string("a\0b", 3),
                                                         "a\nb",
                                                         "\xff\xfe",
                                                         std::string(300, 'x'),
                                                         std::string(9000, 'x')}) {
    EXPECT_THAT(ResolveDestination(roots, bad),
                IsError(absl::StatusCode::kInvalidArgument, "destination"))
        << bad;
  }
}

TEST_F(CommitStoreTest, BadOptionsAreRefusedByName) {
  VolumeMeta meta;
  MakeVolume(&meta, 8, 8, 8);
  const auto with = [](auto change) {
    WriterOptions options;
    change(options);
    return options;
  };
  EXPECT_THAT(ResolveOptions(with([](auto& o) { o.chunk[0] = -1; }), meta),
              IsError(absl::StatusCode::kInvalidArgument, "options.chunk"));
  EXPECT_THAT(ResolveOptions(with([](auto& o) { o.zstd_level = 20; }), meta),
              IsError(absl::StatusCode::kInvalidArgument, "options.zstd_level"));
  EXPECT_THAT(
      ResolveOptions(with([](auto& o) { std::fill_n(o.chunk, 3, 4), std::fill_n(o.shard, 3, 6); }),
                     meta),
      IsError(absl::StatusCode::kInvalidArgument, "options.shard"));
}

TEST_F(CommitStoreTest, NothingIsWrittenThroughALink) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  ASSERT_THAT(Commit(*store, "there", meta, data, {.format = Format::kNpy}), IsOk());
  for (const std::string target : {"there.npy", "nothing.npy"}) {
    const std::string link = root() + "/link.npy",
                      told = absl::StrCat("a link to '", target, "', which is not followed");
    std::filesystem::create_symlink(target, link);
    const auto before = Files();
    EXPECT_THAT(store->Check("link.npy", {.format = Format::kNpy}),
                IsError(absl::StatusCode::kAlreadyExists, told));
    EXPECT_THAT(Commit(*store, "link", meta, data, {.format = Format::kNpy}),
                IsError(absl::StatusCode::kAlreadyExists, told));
    EXPECT_EQ(Files(), before);
    std::filesystem::remove(link);
  }
}

TEST_F(CommitStoreTest, NeverOverwritesAndTheLoserLeavesNothing) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  for (const Format format : kFormats) {
    const std::string name = FormatName(format);
    ASSERT_THAT(Commit(*store, name, meta, data, {.format = format}), IsOk());
    const auto before = Files();
    EXPECT_THAT(Commit(*store, name, meta, data, {.format = format}),
                IsError(absl::StatusCode::kAlreadyExists, name));
    EXPECT_EQ(Files(), before);
    // Another program takes the name after the commit began: detected at the rename.
    const std::string late = absl::StrCat(root(), "/late", Extension(format));
    ASSERT_OK_AND_ASSIGN(auto transaction,
                         store->Begin("test-2", "late", meta, {.format = format}));
    std::ofstream(late) << "theirs";
    for (int64_t y = 0; y < 4; y += transaction->SlabBscans()) {
      ASSERT_THAT(transaction->WriteSlab(y, std::min(transaction->SlabBscans(), 4 - y),
                                         data.data() + y * 128),
                  IsOk());
    }
    EXPECT_THAT(transaction->Publish(), IsError(absl::StatusCode::kAlreadyExists, "late"));
    transaction = nullptr;
    EXPECT_EQ(ReadFile(late), (std::vector<uint8_t>{'t', 'h', 'e', 'i', 'r', 's'}));
    std::filesystem::remove(late);
    EXPECT_EQ(Files(), before);
  }
}

TEST_F(CommitStoreTest, TwoAtOnceToOneNameTheSecondIsRefused) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  ASSERT_OK_AND_ASSIGN(auto first, store->Begin("a", "same", meta, {}));
  EXPECT_THAT(store->Begin("b", "same", meta, {}),
              IsError(absl::StatusCode::kAlreadyExists, "same"));
  first = nullptr;
  EXPECT_THAT(Commit(*store, "same", meta, data, {}), IsOk());
}

TEST_F(CommitStoreTest, DataThatChangedSinceTheSealIsNotPublished) {
  VolumeMeta meta;
  auto data = MakeVolume(&meta, 4, 8, 16);
  data[200] ^= 1;
  auto store = Open();
  EXPECT_THAT(Commit(*store, "x", meta, data, {}),
              IsError(absl::StatusCode::kDataLoss, "changed since it was sealed"));
  EXPECT_EQ(Files(), std::vector<std::string>());
}

TEST_F(CommitStoreTest, MetadataMayComeAfterTheVoxels) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  VolumeMeta early = meta;
  early.digest.clear();
  auto store = Open();
  const auto written = [&](const std::string& destination, Format format) {
    auto transaction = store->Begin("test-1", destination, early, WriterOptions{.format = format});
    if (transaction.ok()) EXPECT_THAT((*transaction)->WriteSlab(0, 4, data.data()), IsOk());
    return transaction;
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto late, written("late", Format::kNpy));
    ASSERT_THAT(late->Describe(meta), IsOk());
    EXPECT_THAT(late->Publish(), IsOk());
    const std::vector<uint8_t> side = ReadFile(root() + "/late.npy.json");
    EXPECT_THAT(std::string(side.begin(), side.end()), ::testing::HasSubstr(meta.digest));
  }
  {
    VolumeMeta changed = meta;
    changed.digest = "sum64:0000000000000001";
    ASSERT_OK_AND_ASSIGN(const auto late, written("changed", Format::kNpy));
    ASSERT_THAT(late->Describe(changed), IsOk());
    EXPECT_THAT(late->Publish(),
                IsError(absl::StatusCode::kDataLoss, "changed since it was sealed"));
  }
  {
    VolumeMeta taller = meta;
    taller.shape[0] = 5;
    ASSERT_OK_AND_ASSIGN(const auto late, written("taller", Format::kNpy));
    EXPECT_THAT(late->Describe(taller),
                IsError(absl::StatusCode::kInternal, "of another geometry or type"));
  }
  ASSERT_OK_AND_ASSIGN(const auto head, written("head", Format::kNifti));
  EXPECT_THAT(head->Describe(meta),
              IsError(absl::StatusCode::kInternal, "has its metadata before the voxels"));
}

TEST_F(CommitStoreTest, GivingUpRemovesParentsItMadeAndNoOthers) {
  VolumeMeta meta;
  MakeVolume(&meta, 4, 8, 16);
  std::filesystem::create_directories(root() + "/there");
  auto store = Open();
  ASSERT_OK_AND_ASSIGN(auto transaction, store->Begin("a", "there/new/deeper/x", meta, {}));
  EXPECT_TRUE(std::filesystem::exists(root() + "/there/new/deeper"));
  transaction = nullptr;
  EXPECT_EQ(Files(), std::vector<std::string>{"there/"});
}

TEST_F(CommitStoreTest, OneProcessHoldsTheStateDirectory) {
  auto store = Open();
  EXPECT_THAT(CommitStore::Open(directory_ + "/state", {root()}, nullptr),
              IsError(absl::StatusCode::kFailedPrecondition, "another process"));
  store = nullptr;
  EXPECT_NE(Open(), nullptr);
}

TEST_F(CommitStoreTest, TheJournalDoesNotGrowForEver) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  ASSERT_OK_AND_ASSIGN(auto open, store->Begin("open", "stays/open", meta, {}));
  meta.volume_name += std::string(1500, 'x');  // long lines, so that fewer lines suffice
  for (int i = 0; i < 100; ++i) ASSERT_THAT(store->Begin("a", "given/up", meta, {}), IsOk());
  EXPECT_LT(std::filesystem::file_size(directory_ + "/state/commits.journal"), 100'000);
  // The next process knows the entry that stayed open all the time.
  std::filesystem::create_directories(directory_ + "/later");
  std::filesystem::copy_file(directory_ + "/state/commits.journal",
                             directory_ + "/later/commits.journal");
  ASSERT_OK_AND_ASSIGN(const auto later,
                       CommitStore::Open(directory_ + "/later", {root()}, &report_));
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], ::testing::HasSubstr("stays/open"));
}

// -- faults

// Files cannot grow beyond a limit. As on a full disk, there may be no room for the journal line of
// an abandoned commit.
TEST_F(CommitStoreTest, AFullJournalDoesNotKeepWhatWasGivenUp) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  const std::string journal = directory_ + "/state/commits.journal";
  for (int i = 0; i < 20; ++i) ASSERT_THAT(store->Begin("a", "x", meta, {}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto transaction, store->Begin("a", "x", meta, {}));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{.rlim_cur = std::filesystem::file_size(journal) + 10,
                    .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  transaction = nullptr;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(Files(), std::vector<std::string>()) << "it fills the disk";
  EXPECT_THAT(Commit(*store, "x", meta, data, {}), IsOk()) << "once there is room again";
  store = nullptr;
  store = Open();
  EXPECT_THAT(VerifyDirectory(root() + "/x.ome.zarr"), IsOk())
      << "the next start leaves what was published";
}

// Half a line, which could be neither completed nor removed, does not destroy the next one.
TEST_F(CommitStoreTest, AHalfLineInTheJournalHurtsNoOther) {
  const std::string path = directory_ + "/journal";
  std::vector<nlohmann::json> records;
  {
    ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(path, &records));
    ASSERT_THAT(journal->Append({{"n", 1}}), IsOk());
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit full{.rlim_cur = std::filesystem::file_size(path) + 12,
                      .rlim_max = before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ArmFailpoint("journal_cut:errno=5");
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    const absl::Status refused = journal->Append({{"n", 2}});
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "could not be cut back"));
    EXPECT_THAT(journal->Append({{"n", 3}}), IsOk());
    EXPECT_THAT(journal->Append({{"n", 4}}), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(path, &records));
  EXPECT_EQ(records, (std::vector<nlohmann::json>{{{"n", 1}}, {{"n", 3}}, {{"n", 4}}}));
}

TEST_F(CommitStoreTest, ADamagedJournalIsKeptAndSaid) {
  const std::string path = directory_ + "/state/commits.journal";
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  {
    auto store = Open();
    ASSERT_THAT(Commit(*store, "x", meta, data, {}), IsOk());
  }
  const std::string bytes("\x01\xff random\n\0\0\0\nmore of it", 22);
  int n = 0;
  for (const std::string& aside : {path + ".damaged", path + ".damaged.1"}) {
    std::ofstream(path, std::ios::binary) << bytes;
    auto store = Open();
    ASSERT_NE(store, nullptr);
    ASSERT_EQ(report_.size(), 1u);
    EXPECT_THAT(report_[0], ::testing::HasSubstr(absl::StrCat(path,
                                                              ": damaged (lines that are no "
                                                              "records: ")));
    EXPECT_THAT(report_[0], ::testing::HasSubstr("; put aside as " + aside + ";"));
    std::ifstream in(aside, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), bytes);
    struct stat info {};
    ASSERT_EQ(::stat(aside.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_THAT(Commit(*store, absl::StrCat("y", ++n), meta, data, {}), IsOk()) << "it goes on";
  }
  EXPECT_NE(Open(), nullptr);
  EXPECT_EQ(report_, std::vector<std::string>()) << "once";
}

TEST_F(CommitStoreTest, TheSoundRecordsOfADamagedJournalCount) {
  const std::string path = directory_ + "/journal";
  std::vector<nlohmann::json> records;
  {
    ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(path, &records));
    ASSERT_THAT(journal->Append({{"n", 1}}), IsOk());
  }
  std::ofstream(path, std::ios::app) << "somebody's text\n";
  std::vector<std::string> report;
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(path, &records, &report));
  EXPECT_EQ(records, (std::vector<nlohmann::json>{{{"n", 1}}}));
  ASSERT_EQ(report.size(), 1u);
  EXPECT_THAT(report[0], ::testing::HasSubstr("no records: 1); put aside as "));
  EXPECT_THAT(report[0], ::testing::EndsWith("sound records, which count: 1"));
}

// Also before anything is computed for the destination.
TEST_F(CommitStoreTest, AFolderThatTheServerMayNotWriteIntoIsToldFirst) {
  VolumeMeta meta;
  (void)MakeVolume(&meta, 4, 8, 16);
  auto store = Open();
  std::filesystem::create_directories(root() + "/locked");
  std::filesystem::permissions(root() + "/locked", std::filesystem::perms(0555));
  const bool is_root = ::geteuid() == 0;
  if (is_root) ASSERT_EQ(::seteuid(65534), 0);
  for (const char* destination : {"locked/a", "locked/new/folder/a"}) {
    for (const absl::Status& refused :
         {store->Check(destination, WriterOptions{.format = Format::kNpy}),
          store->Begin("test-1", destination, meta, WriterOptions{.format = Format::kNpy})
              .status()}) {
      EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied,
                                   "the server may not write into " + root() + "/locked"));
      EXPECT_EQ(InfoOf(refused).reason, Reason::kNoAccess);
      EXPECT_EQ(InfoOf(refused).field, "options.destination");
    }
  }
  if (is_root) ASSERT_EQ(::seteuid(0), 0);
  std::filesystem::permissions(root() + "/locked", std::filesystem::perms(0755));
  EXPECT_THAT(store->Check("locked/a", WriterOptions{.format = Format::kNpy}), IsOk());
}

TEST_F(CommitStoreTest, AJournalOfOthersIsRefused) {
  const std::string path = directory_ + "/journal", elsewhere = directory_ + "/elsewhere";
  std::vector<nlohmann::json> records;
  ASSERT_THAT(Journal::Open(path, &records).status(), IsOk());
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_THAT(Journal::Open(path, &records),
              IsError(absl::StatusCode::kFailedPrecondition,
                      path + " has mode 0666 and can be written by others"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_THAT(Journal::Open(path, &records), IsError(absl::StatusCode::kFailedPrecondition,
                                                       path + " belongs to user 65534; allowed"));
  }
  std::filesystem::rename(path, elsewhere);
  std::filesystem::create_symlink(elsewhere, path);
  EXPECT_THAT(Journal::Open(path, &records),
              IsError(absl::StatusCode::kFailedPrecondition, path + " is a link"));
  EXPECT_EQ(std::filesystem::file_size(elsewhere), 0u);
}

// Complete, but from a program that uses other types.
TEST_F(CommitStoreTest, ARecordOfAnotherKindIsSaidAndLeftOut) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  const nlohmann::json good = CommitPaths{.key = "k",
                                          .id = "a",
                                          .final = root() + "/x.npy",
                                          .temporary = root() + "/.octavo-a.tmp",
                                          .format = Format::kNpy}
                                  .ToJson("begin");
  const std::pair<const char*, nlohmann::json> bad[] = {{"key", 3},
                                                        {"op", nullptr},
                                                        {"final", nlohmann::json::array()},
                                                        {"temporary", 1.5},
                                                        {"temporary", "/tmp/x"},
                                                        {"id", true},
                                                        {"format", "npy"},
                                                        {"format", 0},
                                                        {"format", 257},
                                                        {"folder", "yes"},
                                                        {"made", "a"},
                                                        {"made", {1}},
                                                        {"root", nlohmann::json::object()},
                                                        {"root_id", 7}};
  for (const auto& [member, value] : bad) {
    std::filesystem::remove_all(directory_ + "/state");
    std::filesystem::create_directories(directory_ + "/state");
    {
      std::vector<nlohmann::json> records;
      ASSERT_OK_AND_ASSIGN(const auto journal,
                           Journal::Open(directory_ + "/state/commits.journal", &records));
      nlohmann::json record = good;
      record[member] = value;
      ASSERT_THAT(journal->Append(record), IsOk());
      ASSERT_THAT(journal->Append(good), IsOk());
    }
    auto store = Open();
    ASSERT_NE(store, nullptr);
    ASSERT_EQ(report_.size(), 2u) << member;
    EXPECT_THAT(
        report_[0],
        ::testing::AllOf(::testing::HasSubstr(
                             "/state/commits.journal: a record is no commit's and is left out: "),
                         ::testing::ContainsRegex(absl::StrCat(member, "(\\[0\\])? is ")),
                         ::testing::HasSubstr("; allowed ")));
    EXPECT_THAT(report_[1], ::testing::HasSubstr("/x.npy: nothing was written"))
        << "the others are heard";
    EXPECT_THAT(Commit(*store, "y", meta, data, {}), IsOk());
    std::filesystem::remove_all(root() + "/y.ome.zarr");
  }
}

// A limit on threads (pids of a container) must not end the process. Here, no stack of that size
// can be allocated.
TEST_F(CommitStoreTest, FilesAreSyncedWithoutThreadsWhereNoneCanStart) {
  pthread_attr_t before, none;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(::pthread_attr_init(&none), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&none, size_t{1} << 46), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&none), 0);
  std::atomic<size_t> sum{0};
  const absl::Status synced = SyncMany(10, [&](size_t i) { return sum += i, absl::OkStatus(); });
  ASSERT_EQ(::pthread_setattr_default_np(&before), 0);
  ::pthread_attr_destroy(&none);
  ::pthread_attr_destroy(&before);
  EXPECT_THAT(synced, IsOk());
  EXPECT_EQ(sum, 45u);
  EXPECT_THAT(SyncMany(10,
                       [](size_t i) -> absl::Status {
                         return i == 5 ? throw std::bad_alloc() : absl::OkStatus();
                       }),
              IsError(absl::StatusCode::kInternal, "bad_alloc"));
}

}  // namespace
}  // namespace octavo::storage
