#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "gpu/base/failpoint.h"
#include "server/storage/commit/convert.h"
#include "server/storage/commit/publish.h"
#include "server/storage/formats/downsample.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/zarr/byte_codec.h"
#include "server/storage/zarr/codec.h"
#include "tests/server/storage/storage_test_base.h"

// Parts of the writers, whose files the tests read back. tests/integration/storage/formats_test.py
// tests that other programs read these files.
namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::StorageTest;

TEST(ChunkCodec, DecodesWhatItEncodedAndRefusesWhatIsDamaged) {
  std::mt19937 random(2);
  std::string chunk(40'000, '\0');
  char run = 0;
  for (char& c : chunk) c = run = random() % 16 == 0 ? static_cast<char>(random() % 9) : run;
  ChunkCoder coder;
  ByteDecoder decoder;
  for (const Codec codec : {Codec::kZstd, Codec::kGzip, Codec::kBloscZstd, Codec::kBloscLz4}) {
    for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kByte, Shuffle::kBit}) {
      const ChunkCodec which{.codec = codec, .level = 5, .shuffle = shuffle, .type_bytes = 4};
      ASSERT_OK_AND_ASSIGN(const auto view, coder.Encode(which, chunk));
      const std::string encoded(view);
      EXPECT_LT(encoded.size(), chunk.size() * 3 / 4);
      const ByteCodec named{.kind = codec == Codec::kZstd   ? ByteCodec::Kind::kZstd
                                    : codec == Codec::kGzip ? ByteCodec::Kind::kGzip
                                                            : ByteCodec::Kind::kBlosc};
      EXPECT_EQ(which.ToJson()["name"], named.Name());
      std::string back(chunk.size(), '\0');
      ASSERT_THAT(decoder.Decode(named, encoded, back.data(), static_cast<int64_t>(back.size())),
                  IsOk());
      EXPECT_EQ(back, chunk);
      for (const size_t length : {size_t{0}, size_t{1}, encoded.size() / 2, encoded.size() - 1}) {
        EXPECT_THAT(decoder.Decode(named, absl::string_view(encoded).substr(0, length), back.data(),
                                   static_cast<int64_t>(back.size())),
                    IsError(absl::StatusCode::kDataLoss, ""));
      }
      EXPECT_FALSE(
          decoder.Decode(named, encoded, back.data(), static_cast<int64_t>(back.size()) - 4).ok())
          << "another size than the chunk's";
      EXPECT_FALSE(
          decoder.Decode(named, encoded + "x", back.data(), static_cast<int64_t>(back.size())).ok())
          << "something behind its end";
      for (int i = 0; i < 200; ++i) {  // must return, with any status
        std::string damaged = encoded;
        damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
        (void)decoder.Decode(named, damaged, back.data(), static_cast<int64_t>(back.size()));
      }
    }
  }
}

TEST(Downsample, RoundsToTheNearestEven) {
  const uint8_t in[] = {0, 1, 1, 2, 2, 3, 254, 255};
  uint8_t out[4];
  HalveSlab(DType::kU8, in, 1, 1, 8, out);
  EXPECT_EQ(std::vector<int>(out, out + 4), (std::vector<int>{0, 2, 2, 254}));
  const int16_t negative[] = {-3, -2, -1, 0, -32768, -32767};
  int16_t means[3];
  HalveSlab(DType::kI16, negative, 1, 1, 6, means);
  EXPECT_EQ(std::vector<int>(means, means + 3), (std::vector<int>{-2, 0, -32768}));
}

TEST(Downsample, LeavesOutNanAndKeepsIt) {
  const float nan = std::nanf("");
  const float in[] = {1, nan, nan, nan, 3, 4};
  float out[3];
  HalveSlab(DType::kF32, in, 1, 1, 6, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], 3.5f);
}

TEST(Downsample, HalfPrecisionIsIeee) {
  // Bit patterns and their values: normal, subnormal, negative, largest, infinity.
  const uint16_t in[] = {0x3C00, 0x4000, 0x0001, 0x0001, 0x8001, 0x8001, 0x7BFF,
                         0x7BFF, 0x7C00, 0x3C00, 0x0001, 0x0002, 0x0400, 0x03FF};
  uint16_t out[7];
  HalveSlab(DType::kF16, in, 1, 1, 14, out);
  // 1.5; 2^-24; -2^-24; 65504; inf; 1.5 * 2^-24 to even; (2^-14 + the largest subnormal) / 2 to
  // even
  EXPECT_EQ(std::vector<int>(out, out + 7),
            (std::vector<int>{0x3E00, 0x0001, 0x8001, 0x7BFF, 0x7C00, 0x0002, 0x0400}));
}

TEST_F(StorageTest, MetadataSurviveTheirText) {
  VolumeMeta meta;
  MakeVolume(&meta, 3, 4, 5, DType::kF32);
  meta.has_levels = true;
  meta.level_lo = -12.5f;
  meta.processing = {{"window", {0.25, 0.5}}};
  meta.acquired_begin_unix_ns = 1795248000000000005;
  ASSERT_OK_AND_ASSIGN(const VolumeMeta back, MetaFromJson(nlohmann::json::parse(MetaText(meta))));
  EXPECT_EQ(MetaText(back), MetaText(meta));
  EXPECT_EQ(back.shape[2], 5);
  nlohmann::json broken = MetaJson(meta);
  broken.erase("spacing_um");
  EXPECT_THAT(MetaFromJson(broken), IsError(absl::StatusCode::kDataLoss, "spacing_um"));
}

TEST_F(StorageTest, WhatIsAssumedDoubtedAndMissingSurvivesTheText) {
  VolumeMeta meta;
  MakeVolume(&meta, 3, 4, 5, DType::kU8);
  const nlohmann::json plain = MetaJson(meta);
  for (const char* name : {"spacing_assumed", "warnings", "missing_frames", "expected_frames"})
    EXPECT_FALSE(plain.contains(name)) << name;
  EXPECT_TRUE(SpacingIsKnown(meta));

  meta.spacing_assumed[0] = meta.spacing_assumed[2] = true;
  for (int i = 0; i < 40; ++i) meta.warnings.push_back(absl::StrCat("doubt ", i));
  meta.missing_ascans = 0;
  meta.missing_frames = 3;
  meta.expected_frames = 180;
  const nlohmann::json told = MetaJson(meta);
  EXPECT_EQ(told["spacing_assumed"], nlohmann::json({"y", "z"}));
  EXPECT_EQ(told["warnings"].size(), 32u);
  EXPECT_EQ(told["complete"], false);
  ASSERT_OK_AND_ASSIGN(const VolumeMeta back, MetaFromJson(nlohmann::json::parse(MetaText(meta))));
  EXPECT_EQ(MetaText(back), MetaText(meta));
  EXPECT_TRUE(std::equal(meta.spacing_assumed, meta.spacing_assumed + 3, back.spacing_assumed));
  EXPECT_FALSE(SpacingIsKnown(back));
  EXPECT_EQ(back.warnings[31], "doubt 31");
  EXPECT_EQ(back.expected_frames, 180);

  for (const auto& [name, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"spacing_assumed", {"t"}},
                                                           {"spacing_assumed", "y"},
                                                           {"warnings", {1}},
                                                           {"missing_frames", "x"}}) {
    nlohmann::json broken = told;
    broken[name] = value;
    EXPECT_THAT(MetaFromJson(broken), IsError(absl::StatusCode::kDataLoss, name));
  }
}

TEST_F(StorageTest, AxesAreXYAndZEachOnce) {
  VolumeMeta meta;
  MakeVolume(&meta, 3, 4, 5, DType::kU8);
  EXPECT_EQ(MetaJson(meta)["axes"], nlohmann::json({"y", "x", "z"}));
  for (const auto& axes : {std::array{"z", "y", "x"}, {"x", "z", "y"}}) {
    std::copy(axes.begin(), axes.end(), meta.axes);
    ASSERT_OK_AND_ASSIGN(const VolumeMeta back,
                         MetaFromJson(nlohmann::json::parse(MetaText(meta))));
    EXPECT_TRUE(std::equal(axes.begin(), axes.end(), back.axes));
    EXPECT_EQ(back.axes[AxisAt(back, 'y')], "y");
    EXPECT_THAT(ResolveOptions({}, meta), IsOk());
  }
  for (const auto& axes : {std::array{"z", "y", "y"}, {"", "zy", "x"}, {"z", "y", "t"}}) {
    std::copy(axes.begin(), axes.end(), meta.axes);
    EXPECT_THAT(MetaFromJson(MetaJson(meta)), IsError(absl::StatusCode::kDataLoss, "axes"));
    EXPECT_THAT(ResolveOptions({}, meta), IsError(absl::StatusCode::kInvalidArgument, "axes"));
  }
}

TEST_F(StorageTest, PagesAreThePlanesAcrossTheFirstAxisUnlessSaidOtherwise) {
  VolumeMeta meta;
  MakeVolume(&meta, 3, 4, 5, DType::kU8);
  const auto plane = [&](std::array<const char*, 3> axes, TiffPlane asked) {
    std::copy(axes.begin(), axes.end(), meta.axes);
    return ResolveOptions({.format = Format::kOmeTiff, .tiff_plane = asked}, meta);
  };
  EXPECT_EQ(plane({"y", "x", "z"}, TiffPlane::kDefault)->tiff_plane, TiffPlane::kBscan);
  EXPECT_EQ(plane({"y", "x", "z"}, TiffPlane::kEnFace)->tiff_plane, TiffPlane::kEnFace);
  EXPECT_EQ(plane({"z", "y", "x"}, TiffPlane::kDefault)->tiff_plane, TiffPlane::kEnFace);
  EXPECT_EQ(plane({"z", "y", "x"}, TiffPlane::kBscan)->tiff_plane, TiffPlane::kBscan);
  EXPECT_EQ(plane({"x", "y", "z"}, TiffPlane::kDefault)->tiff_plane, TiffPlane::kDefault);
  EXPECT_THAT(plane({"x", "y", "z"}, TiffPlane::kBscan),
              IsError(absl::StatusCode::kInvalidArgument, "options.tiff_plane"));
  EXPECT_THAT(plane({"y", "x", "z"}, static_cast<TiffPlane>(3)),
              IsError(absl::StatusCode::kInvalidArgument, "options.tiff_plane"));
}

// An option that a format would ignore is refused, whatever the option and the format.
TEST_F(StorageTest, OptionsOfOtherFormatsAreRefused) {
  VolumeMeta meta;
  MakeVolume(&meta, 8, 8, 8, DType::kU16);
  using enum Format;
  const std::vector<Format> compressed = {kOmeZarr05, kNrrd, kOmeTiff, kMatlab, kHdf5};
  const struct {
    const char* field;
    std::function<void(WriterOptions&)> give;
    std::vector<Format> has;
  } rows[] = {
      {"options.chunk", [](auto& o) { std::fill_n(o.chunk, 3, 2); }, {kOmeZarr05, kHdf5}},
      {"options.shard",
       [](auto& o) {
         std::fill_n(o.chunk, o.format == kOmeZarr05 ? 3 : 0, 2), std::fill_n(o.shard, 3, 4);
       },
       {kOmeZarr05}},
      {"options.codec", [](auto& o) { o.codec = Codec::kGzip; }, compressed},
      {"options.zstd_level", [](auto& o) { o.zstd_level = 19; }, {kOmeZarr05}},
      {"options.level",
       [](auto& o) {
         o.level = 3, o.codec = o.format == kOmeZarr05 ? Codec::kGzip : Codec::kDefault;
       },
       compressed},
      {"options.shuffle",
       [](auto& o) {
         o.shuffle = Shuffle::kByte;
         if (o.format == kOmeZarr05) o.codec = Codec::kBloscZstd;
       },
       {kOmeZarr05, kHdf5}},
      {"options.pyramid_levels", [](auto& o) { o.pyramid_levels = 2; }, {kOmeZarr05}},
      {"options.pyramid_um", [](auto& o) { o.pyramid_um = {20}; }, {kOmeZarr05}},
      {"options.ngff", [](auto& o) { o.ngff = NgffVersion::k04; }, {kOmeZarr05}},
      {"options.nifti_version", [](auto& o) { o.nifti_version = 2; }, {kNifti}},
      {"options.tiff_plane", [](auto& o) { o.tiff_plane = TiffPlane::kEnFace; }, {kOmeTiff}},
      {"options.tiff_stack", [](auto& o) { o.tiff_stack = true; }, {kOmeTiff}}};
  for (const auto& row : rows) {
    for (const Format format : kFormats) {
      SCOPED_TRACE(absl::StrCat(row.field, " with ", FormatName(format)));
      WriterOptions options{.format = format};
      row.give(options);
      const auto resolved = ResolveOptions(options, meta);
      if (std::find(row.has.begin(), row.has.end(), format) != row.has.end()) {
        ASSERT_THAT(resolved, IsOk());
        EXPECT_THAT(ResolveOptions(*resolved, meta), IsOk()) << "its own result";
      } else {
        EXPECT_THAT(resolved, IsError(absl::StatusCode::kInvalidArgument,
                                      absl::StrCat(row.field, ": is given, and the format is ",
                                                   FormatName(format), "; allowed with ",
                                                   FormatName(row.has.front()))));
      }
    }
  }
}

// A level of ZSTD means nothing to another codec.
TEST_F(StorageTest, ALevelOfZstdWithAnotherCodecIsRefused) {
  VolumeMeta meta;
  MakeVolume(&meta, 8, 8, 8, DType::kU16);
  EXPECT_THAT(ResolveOptions({.zstd_level = 3, .codec = Codec::kGzip}, meta),
              IsError(absl::StatusCode::kInvalidArgument, "the codec is GZIP"));
  EXPECT_THAT(ResolveOptions({.zstd_level = 3, .compress = false}, meta),
              IsError(absl::StatusCode::kInvalidArgument, "the codec is NONE"));
  EXPECT_EQ(ResolveOptions({}, meta)->zstd_level, 1);
}

// Entries of a journal from before commits could be folders of TIFF files.
TEST(CommitPaths, OfAnEarlierJournalAreFilesUnlessZarr) {
  for (const Format format : kFormats) {
    CommitPaths paths{.key = "k",
                      .id = "i",
                      .volume = "volumes/1",
                      .final = "/a",
                      .temporary = "/.octavo-i.tmp",
                      .format = format,
                      .folder = true,
                      .made = {}};
    nlohmann::json record = paths.ToJson("begin");
    ASSERT_OK_AND_ASSIGN(const CommitPaths written, CommitPaths::FromJson(record));
    EXPECT_TRUE(written.folder);
    record.erase("folder");
    ASSERT_OK_AND_ASSIGN(const CommitPaths earlier, CommitPaths::FromJson(record));
    EXPECT_EQ(earlier.folder, format == Format::kOmeZarr05) << FormatName(format);
  }
}

TEST_F(StorageTest, ResolvedOptionsResolveToThemselves) {
  VolumeMeta meta;
  MakeVolume(&meta, 30, 20, 40, DType::kU16);
  for (const Format format : kFormats) {
    for (const bool compress : {true, false}) {
      ASSERT_OK_AND_ASSIGN(const WriterOptions once,
                           ResolveOptions({.format = format, .compress = compress}, meta));
      ASSERT_OK_AND_ASSIGN(const WriterOptions twice, ResolveOptions(once, meta));
      EXPECT_EQ(std::memcmp(once.chunk, twice.chunk, sizeof once.chunk), 0);
      EXPECT_EQ(
          std::tie(once.codec, once.level, once.compress, once.nifti_version, once.tiff_plane),
          std::tie(twice.codec, twice.level, twice.compress, twice.nifti_version,
                   twice.tiff_plane));
    }
  }
}

TEST_F(StorageTest, ConvertsWhatWasCommittedAndBack) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 37, 30, 50, DType::kU16);
  auto store = Open();
  WriterOptions options;
  std::fill_n(options.chunk, 3, 8);
  std::fill_n(options.shard, 3, 16);
  options.codec = Codec::kBloscZstd;
  options.pyramid_levels = 3;
  ASSERT_OK_AND_ASSIGN(const CommitOutcome committed, Commit(*store, "v", meta, data, options));
  const auto progress = [](double, int64_t) { return true; };
  for (const Format format : {Format::kNpy, Format::kBin}) {
    ASSERT_OK_AND_ASSIGN(const CommitOutcome outcome,
                         Convert(committed.path, root() + "/w", {.format = format}, progress));
    EXPECT_EQ(outcome.checksum, committed.checksum);
    ASSERT_OK_AND_ASSIGN(auto input, OpenVolumeInput(outcome.path, {}));
    ASSERT_OK_AND_ASSIGN(const auto stored, InputVolume::Make(std::move(input), {}));
    EXPECT_EQ(MetaText(stored->meta()), MetaText(meta));
    EXPECT_THAT(stored->Verify(), IsOk());
    std::vector<uint8_t> back(data.size());
    ASSERT_THAT(stored->Read(5, 32, back.data() + 5 * 3000), IsOk());  // in any order
    ASSERT_THAT(stored->Read(0, 5, back.data()), IsOk());
    EXPECT_EQ(back, data);
  }
  const auto before = Files();
  EXPECT_THAT(Convert(committed.path, root() + "/x", {.format = Format::kNrrd},
                      [](double, int64_t) { return false; }),
              IsError(absl::StatusCode::kCancelled, ""));
  EXPECT_THAT(Convert(committed.path, root() + "/w", {.format = Format::kNpy}, progress),
              IsError(absl::StatusCode::kAlreadyExists, "w.npy"));
  // A failure at the rename undoes the renames made before.
  ArmFailpoint("after_rename:errno=5");
  EXPECT_THAT(Convert(committed.path, root() + "/x", {.format = Format::kNrrd}, progress),
              IsError(absl::StatusCode::kInternal, ""));
  EXPECT_EQ(Files(), before);
}

TEST_F(StorageTest, ManyCommitsAtOnceInEveryFormat) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 40, 30, 50, DType::kU16);
  auto store = Open();
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(3 * std::size(kFormats));
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      WriterOptions options{.format = kFormats[i % std::size(kFormats)]};
      if (options.format == Format::kOmeZarr05 || options.format == Format::kHdf5)
        std::fill_n(options.chunk, 3, 16);
      const std::string id = absl::StrCat("c", i);
      auto begun = store->Begin(id, id, meta, options);
      results[i] = begun.status();
      if (!begun.ok()) return;
      const int64_t slab = (*begun)->SlabBscans();
      for (int64_t y = 0; y < 40 && results[i].ok(); y += slab)
        results[i] = (*begun)->WriteSlab(y, std::min(slab, 40 - y), data.data() + y * 3000);
      if (results[i].ok()) results[i] = (*begun)->Publish().status();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_THAT(result, IsOk());
  // Equal volumes give equal files.
  for (size_t f = 0; f < std::size(kFormats); ++f) {
    if (kFormats[f] == Format::kOmeZarr05) continue;
    const auto first = ReadFile(absl::StrCat(root(), "/c", f, Extension(kFormats[f])));
    EXPECT_GT(first.size(), 1000u);
    EXPECT_EQ(ReadFile(absl::StrCat(root(), "/c", f + std::size(kFormats), Extension(kFormats[f]))),
              first)
        << FormatName(kFormats[f]);
  }
}

}  // namespace
}  // namespace octavo::storage
