#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/model/resolved_scan.h"
#include "server/scan/resolve_scan.h"
#include "server/source/source.h"
#include "server/storage/formats/npy_header.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::octavo::testing::TempFolder;

constexpr int64_t kSamples = 16;

// Records 0 ... n-1 of kSamples u16, each sample its own number.
std::string Records(int64_t n) {
  std::vector<uint16_t> values(static_cast<size_t>(n * kSamples));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7 + 3);
  return {reinterpret_cast<const char*>(values.data()), values.size() * 2};
}

std::string Npy(int version, const std::string& descr, const std::string& order,
                const std::string& shape, const std::string& data) {
  std::string dict =
      absl::StrCat("{'descr': ", descr, ", 'fortran_order': ", order, ", 'shape': ", shape, ", }");
  const size_t start = version == 1 ? 10 : 12;
  dict.resize((start + dict.size() + 1 + 63) / 64 * 64 - start, ' ');
  dict.back() = '\n';
  std::string head = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    head += static_cast<char>(dict.size() >> (8 * i) & 255);
  return head + dict + data;
}

class ReplayTest : public ::testing::Test {
 protected:
  ScanSpec Spec(const std::string& path, uint32_t loops = 1, double rate_hz = 0) {
    ScanSpec spec;
    spec.source = ReplaySource{.path = path, .rate_hz = rate_hz, .loops = loops};
    if (!path.ends_with(".npy")) spec.acquisition.samples_per_record = kSamples;
    spec.pattern = {.ascans_per_bscan = 10, .bscans_per_volume = 2, .volumes = 1};
    return spec;
  }
  absl::StatusOr<SourceTraits> Inspect(const std::string& path) {
    return InspectSource(Spec(path), roots_);
  }
  absl::StatusOr<std::unique_ptr<Source>> Open(const ScanSpec& spec) {
    OCTAVO_ASSIGN_OR_RETURN(const ResolvedScan scan, ResolveScan(spec, roots_));
    return OpenSource(scan.spec, roots_, &clock_);
  }
  // All records of the source, delivered in blocks of `block` records.
  std::string All(Source& source, int64_t block) {
    std::string all, slot(static_cast<size_t>(block * kSamples * 2), '\0');
    for (int64_t next = 0;;) {
      const auto got = source.Next(slot.data(), block, stop_.get_token());
      EXPECT_THAT(got, IsOk());
      if (!got.ok() || got->records == 0) return all;
      EXPECT_EQ(got->first_record, next);
      EXPECT_LE(got->records, block);
      next += got->records;
      all.append(slot.data(), static_cast<size_t>(got->records * kSamples * 2));
    }
  }
  void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& part,
                     const std::string& field = "replay.path") {
    SCOPED_TRACE(path);
    const auto traits = Inspect(path);
    EXPECT_THAT(traits, IsError(code, part));
    EXPECT_EQ(InfoOf(traits.status()).field, field);
  }

  TempFolder folder_;
  std::vector<std::string> roots_ = {folder_.path()};
  SystemClock clock_;
  std::stop_source stop_;
};

TEST_F(ReplayTest, RawBytesComeBackAsTheyAre) {
  folder_.Write("a.raw", Records(23));
  for (const int64_t block : {1, 5, 23, 100}) {
    ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.raw")));
    EXPECT_TRUE(source->CanWait());
    EXPECT_EQ(All(*source, block), Records(23));
  }
  ASSERT_OK_AND_ASSIGN(const SourceTraits traits, Inspect("a.raw"));
  EXPECT_EQ(traits.total_records, 23);
  EXPECT_EQ(traits.samples_per_record, kSamples);
  EXPECT_EQ(traits.raw_type, DType::kU16);
  EXPECT_TRUE(traits.wavelength_nm.empty());
}

TEST_F(ReplayTest, LoopsRunOnAcrossTheEndOfTheFile) {
  folder_.Write("a.raw", Records(7));
  for (const int64_t block : {3, 7, 10, 64}) {
    ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.raw", 3)));
    EXPECT_EQ(All(*source, block), Records(7) + Records(7) + Records(7));
  }
  // With loops = 0 the replay never ends.
  ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.raw", 0)));
  std::string slot(1000 * kSamples * 2, '\0');
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND_ASSIGN(const SourceBlock block,
                         source->Next(slot.data(), 1000, stop_.get_token()));
    EXPECT_EQ(block.records, 1000);
  }
  EXPECT_EQ(slot.substr(0, static_cast<size_t>(kSamples * 2)),
            Records(7).substr(static_cast<size_t>(49000 % 7 * kSamples * 2),
                              static_cast<size_t>(kSamples * 2)));
  ASSERT_OK_AND_ASSIGN(const SourceTraits traits, InspectSource(Spec("a.raw", 0), roots_));
  EXPECT_EQ(traits.total_records, 0);
  ASSERT_OK_AND_ASSIGN(const SourceTraits many, InspectSource(Spec("a.raw", 0xFFFFFFFFu), roots_));
  EXPECT_EQ(many.total_records, 7 * int64_t{0xFFFFFFFF});
}

TEST_F(ReplayTest, NpyOfEveryVersion) {
  const std::string data = Records(6);
  for (const int version : {1, 2, 3}) {
    folder_.Write("a.npy", Npy(version, "'<u2'", "False", "(2, 3, 16)", data));
    ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.npy")));
    EXPECT_EQ(All(*source, 4), data) << "version " << version;
    ASSERT_OK_AND_ASSIGN(const SourceTraits traits, Inspect("a.npy"));
    EXPECT_EQ(traits.samples_per_record, 16);
    EXPECT_EQ(traits.total_records, 6);
  }
}

TEST_F(ReplayTest, NpyTypesAreTakenFromTheFile) {
  const std::pair<const char*, DType> types[] = {{"'|u1'", DType::kU8},
                                                 {"'<u2'", DType::kU16},
                                                 {"'<i2'", DType::kI16},
                                                 {"'<f4'", DType::kF32}};
  for (const auto& [descr, dtype] : types) {
    folder_.Write("t.npy", Npy(1, descr, "False", "(4, 16)",
                               std::string(static_cast<size_t>(64 * SizeOf(dtype)), 'x')));
    ASSERT_OK_AND_ASSIGN(const SourceTraits traits, Inspect("t.npy"));
    EXPECT_EQ(traits.raw_type, dtype);
  }
}

TEST_F(ReplayTest, ChannelsAndPackedSamplesOfNpyFiles) {
  const auto inspect = [&](int64_t channels, math::Packing packing, int64_t samples) {
    ScanSpec spec = Spec("c.npy");
    spec.acquisition.channels = channels;
    spec.acquisition.packing = packing;
    spec.acquisition.raw_type_given = packing != math::Packing::kNone;
    spec.acquisition.samples_per_record = samples;
    return InspectSource(spec, roots_);
  };
  folder_.Write("c.npy", Npy(1, "'<u2'", "False", "(5, 16, 2)", std::string(320, 'x')));
  ASSERT_OK_AND_ASSIGN(SourceTraits traits, inspect(2, math::Packing::kNone, 0));
  EXPECT_EQ(traits.samples_per_record, 16);
  EXPECT_EQ(traits.total_records, 5);
  folder_.Write("c.npy", Npy(1, "'<u2'", "False", "(5, 32)", std::string(320, 'x')));
  ASSERT_OK_AND_ASSIGN(traits, inspect(2, math::Packing::kNone, 0));
  EXPECT_EQ(traits.samples_per_record, 16);
  EXPECT_THAT(inspect(3, math::Packing::kNone, 0),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.channels"));
  EXPECT_THAT(inspect(1, math::Packing::kLowFirst12, 0),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.raw_type"));
  // 19 samples of 12 bits are 29 bytes.
  folder_.Write("c.npy", Npy(1, "'|u1'", "False", "(5, 29)", std::string(145, 'x')));
  ASSERT_OK_AND_ASSIGN(traits, inspect(1, math::Packing::kLowFirst12, 0));
  EXPECT_EQ(traits.samples_per_record, 19);
  EXPECT_EQ(traits.raw_type, DType::kU16);
  EXPECT_EQ(traits.packing, math::Packing::kLowFirst12);
  EXPECT_EQ(traits.total_records, 5);
  EXPECT_THAT(inspect(1, math::Packing::kLowFirst12, 18),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.samples_per_record"));
}

TEST_F(ReplayTest, NpyFilesThatCannotBeReplayedAreRefused) {
  const std::string data = Records(6);
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    folder_.Write("bad.npy", bytes);
    ExpectRefused("bad.npy", absl::StatusCode::kInvalidArgument, part);
  };
  refused(Npy(1, "'<u2'", "True", "(6, 16)", data), "in Fortran order; allowed is C order");
  refused(Npy(1, "'>u2'", "False", "(6, 16)", data),
          "bad.npy' is no .npy file that can be replayed: its type '>u2'");
  refused(Npy(1, "'<f8'", "False", "(6, 16)", data), "its type");
  refused(Npy(1, "[('a', '<u2')]", "False", "(6, 16)", data), "its type");
  refused(Npy(1, "'<u2'", "False", "(7, 16)", data), "its header says");
  refused(Npy(1, "'<u2'", "False", "(5, 16)", data), "its header says");
  refused(Npy(1, "'<u2'", "False", "()", data), "it holds a single number");
  refused(Npy(1, "'<u2'", "False", "(0, 16)", ""), "its shape is damaged");
  refused(Npy(1, "'<u2'", "False", "(6, -16)", data), "its shape is damaged");
  refused(Npy(1, "'<u2'", "False", "(1099511627776, 1099511627776)", data), "its shape is damaged");
  refused(Npy(1, "'<u2'", "False", "6", data), "its shape is damaged");
  refused(Npy(4, "'<u2'", "False", "(6, 16)", data), "format version is 4; allowed 1 to 3");
  refused("", "no NumPy magic");
  refused("hello, this is text", "no NumPy magic");
  refused(Npy(1, "'<u2'", "False", "(6, 16)", data).substr(0, 40), "the file ends before");
  refused(std::string("\x93NUMPY\x02\0\xff\xff\xff\x7f", 12) + "{}", "the file ends before");
  refused(Npy(1, "'<u2'", "False", "(6, 16)", data).replace(10, 30, 30, ' '), "no 'descr'");
}

// Every truncation and every flipped byte of a header is an error or a header, never a crash
// (sanitizers watch).
TEST_F(ReplayTest, DamagedNpyHeadersDoNoHarm) {
  const std::string good = Npy(1, "'<u2'", "False", "(6, 16)", "");
  ASSERT_THAT(storage::ParseNpyHeader(good, "a.npy"), IsOk());
  int errors = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(storage::ParseNpyHeader(good.substr(0, i), "a.npy").ok());
    for (const int flip : {1, 4, 32, 128}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      errors += !storage::ParseNpyHeader(bad, "a.npy").ok();
    }
  }
  EXPECT_GT(errors, 50);
}

TEST_F(ReplayTest, WhatTheSpecSaysMustAgreeWithTheFile) {
  folder_.Write("a.npy", Npy(1, "'<u2'", "False", "(6, 16)", Records(6)));
  ScanSpec spec = Spec("a.npy");
  spec.acquisition.samples_per_record = 32;
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.samples_per_record"));
  spec = Spec("a.npy");
  spec.acquisition.raw_type = DType::kI16;
  spec.acquisition.raw_type_given = true;
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.raw_type"));
  folder_.Write("a.raw", Records(2));
  spec = Spec("a.raw");
  spec.acquisition.samples_per_record = 0;
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.samples_per_record"));
  folder_.Write("short.npy", Npy(1, "'<u2'", "False", "(12, 8)", Records(6)));
  EXPECT_THAT(ResolveScan(Spec("short.npy"), roots_),
              IsError(absl::StatusCode::kInvalidArgument, "acquisition.samples_per_record"));
}

TEST_F(ReplayTest, AHeaderOfARawFileIsSkipped) {
  for (const uint64_t header : {1u, 64u, 1000u}) {
    folder_.Write("a.raw", std::string(header, 'h') + Records(23));
    ScanSpec spec = Spec("a.raw", 2);
    auto& replay = std::get<ReplaySource>(spec.source);
    replay.header_bytes = header;
    ASSERT_OK_AND_ASSIGN(const auto source, Open(spec));
    EXPECT_EQ(All(*source, 7), Records(23) + Records(23)) << header;
    replay.header_bytes = header + 23 * kSamples * 2 + 1;
    EXPECT_THAT(InspectSource(spec, roots_),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat("replay.header_bytes: is ", replay.header_bytes)));
    replay.header_bytes = header + 23 * kSamples * 2;
    EXPECT_THAT(InspectSource(spec, roots_),
                IsError(absl::StatusCode::kInvalidArgument, "holds 0 bytes behind its header"));
    replay.header_bytes = ~uint64_t{0};
    EXPECT_THAT(InspectSource(spec, roots_),
                IsError(absl::StatusCode::kInvalidArgument, "replay.header_bytes"));
  }
  folder_.Write("a.npy", Npy(1, "'<u2'", "False", "(6, 16)", Records(6)));
  ScanSpec spec = Spec("a.npy");
  std::get<ReplaySource>(spec.source).header_bytes = 64;
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument,
                      "an .npy file says itself where its records begin"));
}

TEST_F(ReplayTest, AFileThatWasCutOffIsReadOnlyWhereThatIsAsked) {
  for (const std::string& cut : {Records(9) + "x", Records(9) + std::string(31, 'x')}) {
    folder_.Write("a.raw", cut);
    ScanSpec spec = Spec("a.raw", 1);
    EXPECT_THAT(InspectSource(spec, roots_),
                IsError(absl::StatusCode::kInvalidArgument, "replay.allow_partial"));
    std::get<ReplaySource>(spec.source).allow_partial = true;
    ASSERT_OK_AND_ASSIGN(const SourceTraits traits, InspectSource(spec, roots_));
    ASSERT_EQ(traits.warnings.size(), 1u);
    EXPECT_EQ(traits.warnings[0], absl::StrCat("The file's last record is not whole: ",
                                               cut.size() % 32, " bytes of 32 are left out."));
    ASSERT_OK_AND_ASSIGN(const auto source, Open(spec));
    EXPECT_EQ(All(*source, 4), Records(9));
  }
  folder_.Write("a.npy", Npy(1, "'<u2'", "False", "(6, 16)", Records(4) + "yz"));
  ScanSpec spec = Spec("a.npy", 1);
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument, "replay.allow_partial"));
  std::get<ReplaySource>(spec.source).allow_partial = true;
  ASSERT_OK_AND_ASSIGN(const auto source, Open(spec));
  EXPECT_EQ(All(*source, 4), Records(4));
  folder_.Write("a.npy", Npy(1, "'<u2'", "False", "(3, 16)", Records(4)));
  EXPECT_THAT(InspectSource(spec, roots_),
              IsError(absl::StatusCode::kInvalidArgument, "its header says 96"))
      << "more than it says is no cut";
}

TEST_F(ReplayTest, WhatIsLeftOverIsToldWithAHint) {
  folder_.Write("a.raw", std::string(10, 'h') + Records(5));
  ExpectRefused("a.raw", absl::StatusCode::kInvalidArgument,
                "'a.raw' holds 170 bytes: 5 records of 32 bytes (16 samples of u16) and 10 bytes "
                "more. Allowed are whole records: is the type or the "
                "number of samples another one, is there a header (replay.header_bytes = 10), or "
                "was the file cut off");
}

ScanSpec SimulatedRecords(DType type, int64_t samples, uint32_t bits) {
  ScanSpec spec;
  auto& source = spec.source.emplace<SimulatedSource>();
  source.seed = static_cast<uint64_t>(samples) + bits;
  source.adc_bits = bits;
  source.as_fast_as_possible = true;
  spec.acquisition.samples_per_record = samples;
  spec.acquisition.raw_type = type;
  spec.acquisition.raw_type_given = true;
  spec.pattern = {.ascans_per_bscan = 64, .bscans_per_volume = 4, .volumes = 1};
  return spec;
}

// Simulated records of every raw type give no warnings when read as that type.
TEST_F(ReplayTest, SimulatedRecordsAreNotDoubted) {
  int files = 0;
  for (const DType type : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    for (const int64_t samples : {256, 500, 1024, 2049}) {
      for (const uint32_t bits : {8u, 10u, 12u, 14u}) {
        if (type == DType::kU8 && bits > 8) continue;
        const ScanSpec simulated = SimulatedRecords(type, samples, bits);
        ASSERT_OK_AND_ASSIGN(const auto source, Open(simulated));
        std::string records(static_cast<size_t>(64 * samples * SizeOf(type)), '\0');
        ASSERT_OK_AND_ASSIGN(const SourceBlock block,
                             source->Next(records.data(), 64, stop_.get_token()));
        ASSERT_EQ(block.records, 64);
        folder_.Write("simulated.raw", records);
        ScanSpec spec = Spec("simulated.raw");
        spec.acquisition.samples_per_record = samples;
        spec.acquisition.raw_type = type;
        spec.acquisition.adc_bits = bits;
        ASSERT_OK_AND_ASSIGN(const SourceTraits traits, InspectSource(spec, roots_));
        EXPECT_TRUE(traits.warnings.empty()) << Info(type).name << " of " << bits << " bits, "
                                             << samples << " samples: " << traits.warnings[0];
        ++files;
      }
    }
  }
  EXPECT_EQ(files, 52);
}

TEST_F(ReplayTest, ASizeThatIsNoWholeNumberOfRecordsIsRefused) {
  folder_.Write("odd.raw", Records(3) + "x");
  ExpectRefused("odd.raw", absl::StatusCode::kInvalidArgument, "97 bytes");
  folder_.Write("empty.raw", "");
  ExpectRefused("empty.raw", absl::StatusCode::kInvalidArgument, "0 bytes");
}

TEST_F(ReplayTest, PathsAreConfinedToTheRoots) {
  namespace fs = std::filesystem;
  const TempFolder other;
  other.Write("secret.raw", Records(2));
  folder_.Write("a.raw", Records(2));
  fs::create_directory(folder_ / "sub");
  fs::create_symlink(other / "secret.raw", folder_ / "leak.raw");
  fs::create_directory_symlink(other.path(), folder_ / "leaks");
  fs::create_symlink(folder_ / "a.raw", folder_ / "sub/fine.raw");
  for (const std::string& fine : {std::string("a.raw"), std::string("sub/../a.raw"),
                                  std::string("sub/fine.raw"), folder_ / "a.raw"}) {
    EXPECT_THAT(Inspect(fine), IsOk()) << fine;
  }
  const auto outside = [&](const std::string& path) {
    ExpectRefused(path, absl::StatusCode::kInvalidArgument, "outside the replay roots");
  };
  outside(other / "secret.raw");
  outside("leak.raw");
  outside("leaks/secret.raw");
  outside("../" + fs::path(other.path()).filename().string() + "/secret.raw");
  outside(folder_.path() + "/../" + fs::path(other.path()).filename().string() + "/secret.raw");
  outside("/etc/passwd");
  outside(
      // The same answer: errors reveal nothing about files outside the roots.
      "/etc/there/is/no/such/file");
  outside(folder_.path() + "x/a.raw");  // a longer name that begins like the root's
  outside("..");
  const absl::Status told = Inspect("/etc/passwd").status();
  EXPECT_THAT(told,
              IsError(absl::StatusCode::kInvalidArgument,
                      absl::StrCat("the replay roots ", folder_.path(), " (storage.replay_roots")));
  EXPECT_EQ(InfoOf(told).reason, Reason::kOutsideRoots);
  EXPECT_THAT(Inspect("missing.raw").status(),
              IsError(absl::StatusCode::kNotFound,
                      absl::StrCat("under the replay roots ", folder_.path())));
  ExpectRefused("missing.raw", absl::StatusCode::kNotFound, "missing.raw");
  ExpectRefused("", absl::StatusCode::kInvalidArgument, "is empty");
  ExpectRefused(std::string("a.raw\0.npy", 10), absl::StatusCode::kInvalidArgument, "zero byte");
  roots_.push_back(other.path());
  EXPECT_THAT(Inspect("secret.raw"), IsOk()) << "found in the second root";
  EXPECT_THAT(Inspect(other / "secret.raw"), IsOk());
  roots_.clear();
  ExpectRefused("a.raw", absl::StatusCode::kFailedPrecondition, "no replay roots");
}

TEST_F(ReplayTest, OnlyRegularFilesAreRead) {
  std::filesystem::create_directory(folder_ / "folder");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  ExpectRefused("folder", absl::StatusCode::kInvalidArgument, "no regular file");
  ExpectRefused("pipe", absl::StatusCode::kInvalidArgument,
                "no regular file");  // does not wait for a writer
}

TEST_F(ReplayTest, AFileThatShrinksIsDataLoss) {
  folder_.Write("a.raw", Records(10));
  ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.raw")));
  ASSERT_EQ(::truncate((folder_ / "a.raw").c_str(), 4 * kSamples * 2 + 6), 0);
  std::string slot(10 * kSamples * 2, '\0');
  ASSERT_OK_AND_ASSIGN(const SourceBlock block, source->Next(slot.data(), 4, stop_.get_token()));
  EXPECT_EQ(block.records, 4);
  const auto next = source->Next(slot.data(), 4, stop_.get_token());
  EXPECT_THAT(next, IsError(absl::StatusCode::kDataLoss, "a.raw became shorter"));
}

TEST_F(ReplayTest, ARateMakesRecordsComeInTime) {
  folder_.Write("a.raw", Records(50));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(const auto source, Open(Spec("a.raw", 1, 1000)));
  EXPECT_FALSE(source->CanWait());
  std::string slot(50 * kSamples * 2, '\0');
  ASSERT_OK_AND_ASSIGN(SourceBlock block, source->Next(slot.data(), 20, stop_.get_token()));
  EXPECT_EQ(block.records, 20);
  ASSERT_OK_AND_ASSIGN(block, source->Skip(20, stop_.get_token()));
  EXPECT_EQ(block.first_record, 20);
  ASSERT_OK_AND_ASSIGN(block, source->Next(slot.data(), 20, stop_.get_token()));
  EXPECT_EQ(block.first_record, 40);
  EXPECT_EQ(block.records, 10) << "the file ends";
  EXPECT_EQ(slot.substr(0, static_cast<size_t>(10 * kSamples * 2)),
            Records(50).substr(static_cast<size_t>(40 * kSamples * 2)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  ASSERT_OK_AND_ASSIGN(block, source->Next(slot.data(), 20, stop_.get_token()));
  EXPECT_EQ(block.records, 0);
}

TEST_F(ReplayTest, StopEndsTheWait) {
  folder_.Write("a.raw", Records(50));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       Open(Spec("a.raw", 1, 1e-3)));  // due in a quarter of an hour
  std::string slot(50 * kSamples * 2, '\0');
  std::thread stopper([&] { stop_.request_stop(); });
  ASSERT_OK_AND_ASSIGN(const SourceBlock block, source->Next(slot.data(), 20, stop_.get_token()));
  EXPECT_EQ(block.records, 0);
  stopper.join();
}

}  // namespace
}  // namespace octavo::engine
