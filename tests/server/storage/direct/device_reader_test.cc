// Bytes of files in device memory: the same whatever the way, whatever fails, and however the file
// lays them out.

#include "server/storage/direct/device_reader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/formats/volume_input.h"
#include "tests/server/storage/direct/cufile_shim.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::CuFileShim;
using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;

/// One file of plain elements.
class OneFile final : public PieceSource {
 public:
  OneFile(std::shared_ptr<DataFile> file, int64_t offset, int64_t bytes)
      : file_(std::move(file)), offset_(offset), bytes_(bytes) {
    units_ = 1;
  }
  absl::Status Open(int64_t, std::vector<StoredPiece>* out) const override {
    StoredPiece piece;
    piece.file = file_;
    piece.offset = offset_;
    piece.stride = {1};
    piece.to = {0};
    piece.count = {bytes_};
    out->push_back(piece);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<DataFile> file_;
  const int64_t offset_, bytes_;
};

class DeviceReaderTest : public octavo::testing::BackendTest {
 protected:
  LendSlab Lender() {
    return [this](int64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
      if (--slabs_left_ < 0) return absl::ResourceExhaustedError("no slab");
      OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer memory, device_.AllocatePinned(bytes));
      auto kept = std::make_shared<PinnedBuffer>(std::move(memory));
      return std::shared_ptr<void>(kept, kept->data());
    };
  }
  std::shared_ptr<DataFile> Open(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY));
    EXPECT_TRUE(static_cast<bool>(fd));
    return *DataFile::Of(std::move(fd), path);
  }
  /// A file of random bytes.
  std::string MakeFile(int64_t bytes) {
    std::string text(static_cast<size_t>(bytes), '\0');
    for (char& c : text) c = static_cast<char>(random_());
    folder_.Write("data.bin", text);
    return text;
  }
  DeviceRead ReadOf(const PieceSource& source, DeviceBuffer* out, int64_t bytes, RootWay* way) {
    return {.device = &device_,
            .lend = Lender(),
            .source = &source,
            .box_axis = {-1, -1, 0},
            .out_stride = {0, 0, 1},
            .out = out->data(),
            .elements = bytes,
            .spec = {},
            .way = way,
            .cufile = cufile_.get(),
            .use_cached = false};
  }
  absl::Status Run(const DeviceRead& read) {
    OCTAVO_ASSIGN_OR_RETURN(const auto reader, DeviceReader::Create(read));
    const absl::Status run = reader->Run(stream_.ref(), [](double) { return absl::OkStatus(); });
    cufile_bytes_ = reader->cufile_bytes();
    return run;
  }
  void OpenShim() {
    cufile_ = CuFile::Open(CuFileShim::Options());
    ASSERT_TRUE(cufile_->usable()) << cufile_->refusal().text;
  }

  const octavo::testing::TempFolder folder_;
  std::mt19937 random_{FreshSeed()};
  CuFileShim shim_;
  std::unique_ptr<CuFile> cufile_;
  std::atomic<int> slabs_left_{1 << 30};
  int64_t cufile_bytes_ = 0;
};

// Every way, at offsets and sizes that fit no page.
TEST_P(DeviceReaderTest, BytesAreTheSameWhateverTheWay) {
  if (GetParam() == "host") OpenShim();
  for (const int64_t size : {1, 4095, 70'000, 5'000'001, 30'000'000}) {
    const std::string text = MakeFile(size);
    for (const int64_t offset : {int64_t{0}, int64_t{128}, size / 3}) {
      for (const ReadWay kind : {ReadWay::kBuffered, ReadWay::kDirect, ReadWay::kCufile}) {
        if (kind == ReadWay::kCufile && cufile_ == nullptr) continue;
        SCOPED_TRACE(absl::StrCat(size, " from ", offset, " ", Name(kind)));
        if (offset >= size) continue;
        RootWay way;
        way.Set(kind, kind == ReadWay::kCufile ? ReadWay::kBuffered : kind);
        const int64_t bytes = size - offset;
        const OneFile source(Open(folder_ / "data.bin"), offset, bytes);
        DeviceBuffer out = Poisoned(bytes);
        ASSERT_THAT(Run(ReadOf(source, &out, bytes, &way)), IsOk());
        ASSERT_TRUE(Download<char>(out, static_cast<size_t>(bytes)) ==
                    std::vector<char>(text.begin() + offset, text.end()));
        EXPECT_EQ(way.errors(), 0);
        if (kind == ReadWay::kCufile && bytes > 1'000'000) {
          EXPECT_GT(cufile_bytes_, bytes - 4096 * 100);
        }
      }
    }
  }
  EXPECT_EQ(shim_.Get("handles"), 0) << "every handle is given back";
  EXPECT_EQ(shim_.Get("buffers"), 0);
}

/// Of a file's whole MiB, how many are in the page cache.
int64_t CachedMiBs(const DataFile& file, int64_t bytes) {
  constexpr int64_t kMiB = 1 << 20;
  int64_t cached = 0;
  for (int64_t at = 0; at + kMiB <= bytes; at += kMiB) cached += file.IsCached(at, kMiB) ? 1 : 0;
  return cached;
}

// Where the host reads through the page cache, it asks for what it will read: not for what cuFile
// will, which would then be read from there.
TEST_P(DeviceReaderTest, WhatCuFileReadsDoesNotComeToThePageCache) {
  OpenShim();
  if (cufile_ == nullptr) return;
  constexpr int64_t kBytes = 60'000'000;
  (void)MakeFile(kBytes);
  const std::string path = folder_ / "data.bin";
  for (const ReadWay by_host : {ReadWay::kBuffered, ReadWay::kDirect}) {
    SCOPED_TRACE(Name(by_host));
    const auto file = Open(path);
    const UniqueFd fd(::open(path.c_str(), O_RDONLY));
    ASSERT_EQ(::fdatasync(fd.get()), 0);
    for (int i = 0; i < 1000 && CachedMiBs(*file, kBytes) > 0; ++i) {
      ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (CachedMiBs(*file, kBytes) > 0) GTEST_SKIP() << "this file system keeps files in memory";
    RootWay way;
    way.Set(ReadWay::kCufile, by_host);
    const OneFile source(file, 128, kBytes - 128);
    DeviceBuffer out = Poisoned(kBytes - 128);
    DeviceRead read = ReadOf(source, &out, kBytes - 128, &way);
    read.use_cached = true;
    ASSERT_THAT(Run(read), IsOk());
    EXPECT_GT(cufile_bytes_, kBytes / 10 * 9);
    EXPECT_LE(CachedMiBs(*file, kBytes), 6);
  }
}

// Fails the n-th read for every n, with errors of cuFile and of the system, and in the middle.
TEST_P(DeviceReaderTest, EveryFailedReadIsRepeatedByTheOtherWay) {
  OpenShim();
  if (cufile_ == nullptr) return;
  constexpr int64_t kBytes = 17'000'001;
  const std::string text = MakeFile(kBytes);
  const std::vector<char> wanted(text.begin(), text.end());
  const OneFile source(Open(folder_ / "data.bin"), 0, kBytes);
  for (const long with : {-5030L, -1L, -5008L}) {
    for (long n = 1;; ++n) {
      SCOPED_TRACE(absl::StrCat("read ", n, " with ", with));
      shim_.Set("reset", 0);
      shim_.Set("fail_from", n);
      shim_.Set("fail_with", with);
      RootWay way;
      way.Set(ReadWay::kCufile, n % 2 == 0 ? ReadWay::kDirect : ReadWay::kBuffered);
      DeviceBuffer out = Poisoned(kBytes);
      ASSERT_THAT(Run(ReadOf(source, &out, kBytes, &way)), IsOk());
      ASSERT_TRUE(Download<char>(out, kBytes) == wanted);
      const bool failed = shim_.Get("reads") >= n;
      EXPECT_EQ(way.errors(), failed ? 1 : 0);
      EXPECT_EQ(way.now(), ReadWay::kCufile) << "one error is forgiven";
      if (!failed) break;
      ASSERT_LT(n, 1000);
    }
  }
}

TEST_P(DeviceReaderTest, ShortReadsGoOn) {
  OpenShim();
  if (cufile_ == nullptr) return;
  const std::string text = MakeFile(9'000'000);
  const OneFile source(Open(folder_ / "data.bin"), 100, 8'999'900);
  for (const long most : {4096L, 100'000L, 1'000'001L, 65'536L}) {
    SCOPED_TRACE(most);
    shim_.Set("most_bytes", most);
    RootWay way;
    way.Set(ReadWay::kCufile, ReadWay::kBuffered);
    DeviceBuffer out = Poisoned(8'999'900);
    ASSERT_THAT(Run(ReadOf(source, &out, 8'999'900, &way)), IsOk());
    ASSERT_TRUE(Download<char>(out, 8'999'900) ==
                std::vector<char>(text.begin() + 100, text.end()));
    EXPECT_EQ(way.errors(), 0);
    EXPECT_GT(cufile_bytes_, 8'000'000);
  }
  // One that never gets on is an error.
  shim_.Set("most_bytes", 100);
  RootWay way;
  way.Set(ReadWay::kCufile, ReadWay::kBuffered);
  DeviceBuffer out = Poisoned(8'999'900);
  ASSERT_THAT(Run(ReadOf(source, &out, 8'999'900, &way)), IsOk());
  ASSERT_TRUE(Download<char>(out, 8'999'900) == std::vector<char>(text.begin() + 100, text.end()));
  EXPECT_GT(way.errors(), 0);
}

TEST_P(DeviceReaderTest, EightErrorsEndCuFile) {
  OpenShim();
  if (cufile_ == nullptr) return;
  constexpr int64_t kBytes = 60'000'000;
  const std::string text = MakeFile(kBytes);
  for (const bool registering : {false, true}) {
    const OneFile source(Open(folder_ / "data.bin"), 0, kBytes);  // not registered yet
    shim_.Set("reset", 0);
    if (registering)
      shim_.Set("register_error", 5008);
    else
      shim_.Set("fail_from", 3), shim_.Set("fail_count", 1000);
    RootWay way;
    way.Set(ReadWay::kCufile, ReadWay::kDirect);
    DeviceBuffer out = Poisoned(kBytes);
    ASSERT_THAT(Run(ReadOf(source, &out, kBytes, &way)), IsOk());
    ASSERT_TRUE(Download<char>(out, kBytes) == std::vector<char>(text.begin(), text.end()));
    EXPECT_GE(way.errors(), RootWay::kMostErrors);
    EXPECT_LT(way.errors(), RootWay::kMostErrors + 16) << "only what was under way";
    EXPECT_TRUE(way.demoted());
    EXPECT_EQ(way.now(), ReadWay::kDirect);
    way.Set(ReadWay::kCufile, ReadWay::kDirect);  // a measurement
    EXPECT_FALSE(way.demoted());
    EXPECT_EQ(way.now(), ReadWay::kCufile);
  }
}

TEST_P(DeviceReaderTest, SlowStorageIsCancelledSoon) {
  OpenShim();
  if (cufile_ == nullptr) return;
  constexpr int64_t kBytes = 60'000'000;
  (void)MakeFile(kBytes);
  const OneFile source(Open(folder_ / "data.bin"), 0, kBytes);
  shim_.Set("delay_us", 2'000'000);
  RootWay way;
  way.Set(ReadWay::kCufile, ReadWay::kBuffered);
  DeviceBuffer out = Poisoned(kBytes);
  const DeviceRead read = ReadOf(source, &out, kBytes, &way);
  ASSERT_OK_AND_ASSIGN(const auto reader, DeviceReader::Create(read));
  const auto begun = std::chrono::steady_clock::now();
  double last = -1;
  const absl::Status run = reader->Run(stream_.ref(), [&](double done) {
    EXPECT_GE(done, last);
    last = done;
    return std::chrono::steady_clock::now() - begun > std::chrono::milliseconds(100)
               ? absl::CancelledError("enough")
               : absl::OkStatus();
  });
  EXPECT_THAT(run, IsError(absl::StatusCode::kCancelled, "enough"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_LT(shim_.Get("reads"), 24);
}

// An error of the disk, or lack of memory, at every batch.
TEST_P(DeviceReaderTest, AFaultAtAnyBatchEndsTheReading) {
  constexpr int64_t kBytes = 30'000'000;
  const std::string text = MakeFile(kBytes);
  const OneFile source(Open(folder_ / "data.bin"), 0, kBytes);
  RootWay way;
  for (const char* fault : {"errno=5", "throw=bad_alloc", "throw=runtime_error"}) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(absl::StrCat(fault, " at ", n));
      ArmFailpoint(absl::StrCat("direct_read:", fault, ":", n));
      DeviceBuffer out = Poisoned(kBytes);
      const absl::Status run = Run(ReadOf(source, &out, kBytes, &way));
      const bool passed = FailpointArmed();
      ArmFailpoint("");
      if (run.ok()) {
        EXPECT_TRUE(passed || n > 1);
        EXPECT_TRUE(Download<char>(out, kBytes) == std::vector<char>(text.begin(), text.end()));
        break;
      }
      EXPECT_NE(run.code(), absl::StatusCode::kCancelled);
      ASSERT_LT(n, 100);
    }
  }
}

TEST_P(DeviceReaderTest, AFileThatBecameShorterIsDamaged) {
  (void)MakeFile(10'000'000);
  const OneFile source(Open(folder_ / "data.bin"), 0, 10'000'000);
  ASSERT_EQ(::truncate((folder_ / "data.bin").c_str(), 9'000'000), 0);
  for (const ReadWay kind : {ReadWay::kBuffered, ReadWay::kDirect}) {
    RootWay way;
    way.Set(kind, kind);
    DeviceBuffer out = Poisoned(10'000'000);
    EXPECT_THAT(Run(ReadOf(source, &out, 10'000'000, &way)),
                IsError(absl::StatusCode::kDataLoss, "data.bin"));
  }
}

TEST_P(DeviceReaderTest, FewSlabsAndThreads) {
  constexpr int64_t kBytes = 30'000'000;
  const std::string text = MakeFile(kBytes);
  const OneFile source(Open(folder_ / "data.bin"), 0, kBytes);
  RootWay way;
  for (const int slabs : {2, 3, 5}) {
    slabs_left_ = slabs;
    DeviceBuffer out = Poisoned(kBytes);
    ASSERT_THAT(Run(ReadOf(source, &out, kBytes, &way)), IsOk());
    EXPECT_TRUE(Download<char>(out, kBytes) == std::vector<char>(text.begin(), text.end()));
  }
  // Where little is lent, slabs become smaller instead of fewer.
  int64_t lent = 0, largest = 0;
  slabs_left_ = 1000;
  for (const int64_t most : {int64_t{1} << 30, int64_t{16} << 20, int64_t{4} << 20}) {
    DeviceBuffer out = Poisoned(kBytes);
    DeviceRead read = ReadOf(source, &out, kBytes, &way);
    read.most_lent = most;
    read.lend = [&, lend = read.lend](int64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
      if (lent + bytes > most) return absl::ResourceExhaustedError("no slab");
      lent += bytes;
      largest = std::max(largest, bytes);
      return lend(bytes);
    };
    lent = largest = 0;
    ASSERT_THAT(Run(read), IsOk()) << most;
    EXPECT_TRUE(Download<char>(out, kBytes) == std::vector<char>(text.begin(), text.end()));
    EXPECT_EQ(largest, most > 1 << 28 ? 8 << 20 : 2 << 20);
    EXPECT_GE(lent / largest, most == 4 << 20 ? 2 : 6);
  }
  slabs_left_ = 1;
  DeviceBuffer out = Poisoned(kBytes);
  EXPECT_THAT(DeviceReader::Create(ReadOf(source, &out, kBytes, &way)).status(),
              IsError(absl::StatusCode::kResourceExhausted, "no slab"));
}

// -- layouts

class LayoutTest : public DeviceReaderTest {
 protected:
  /// Boxes of an input by Read and by its pieces, bit for bit.
  void ExpectSame(VolumeInput& input, ReadWay kind, int boxes) {
    const VolumeInputInfo& info = input.info();
    const size_t rank = info.axes.size();
    for (int i = 0; i < boxes; ++i) {
      // Three axes, or fewer, go to the array; of the others one index.
      std::vector<int> chosen(rank);
      for (size_t d = 0; d < rank; ++d) chosen[d] = static_cast<int>(d);
      std::shuffle(chosen.begin(), chosen.end(), random_);
      chosen.resize(std::min<size_t>(rank, 3));
      base::ArrayBox box{.start = std::vector<int64_t>(rank),
                         .count = std::vector<int64_t>(rank, 1)};
      int64_t elements = 1;
      for (size_t d = 0; d < rank; ++d) {
        const auto extent = static_cast<uint64_t>(info.axes[d].extent);
        const bool whole =
            std::find(chosen.begin(), chosen.end(), static_cast<int>(d)) != chosen.end();
        if (i > 0 || !whole) box.start[d] = static_cast<int64_t>(random_() % extent);
        if (whole)
          box.count[d] = i == 0
                             ? static_cast<int64_t>(extent)
                             : 1 + static_cast<int64_t>(
                                       random_() % (extent - static_cast<uint64_t>(box.start[d])));
        elements *= box.count[d];
      }
      std::vector<char> packed(static_cast<size_t>(elements * info.type.bytes));
      ASSERT_THAT(input.Read(box, absl::MakeSpan(packed)), IsOk());
      ASSERT_OK_AND_ASSIGN(const auto source, input.Pieces(box));
      if (source == nullptr) return;
      ++read_;
      // The array has the axes in the order of `chosen`, and perhaps another type.
      int64_t counts[3] = {1, 1, 1};
      DeviceRead read{.device = &device_,
                      .lend = Lender(),
                      .source = source.get(),
                      .elements = elements,
                      .spec = {.from = ScalarOf(info.type), .to = DType::kU8},
                      .way = &way_,
                      .cufile = cufile_.get(),
                      .use_cached = false};
      way_.Set(kind, kind == ReadWay::kCufile ? ReadWay::kBuffered : kind);
      for (size_t c = 0; c < chosen.size(); ++c) {
        read.box_axis[c] = chosen[c];
        counts[c] = box.count[static_cast<size_t>(chosen[c])];
      }
      std::vector<DType> types;
      for (int t = 1; t <= 8; ++t) {
        const auto type = static_cast<DType>(t);
        if (!IsComplex(read.spec.from) || type == DType::kC64) types.push_back(type);
      }
      const auto same = std::find_if(types.begin(), types.end(),
                                     [&](DType type) { return ElementTypeOf(type) == info.type; });
      read.spec.to = same != types.end() && i % 2 == 0 ? *same : types[random_() % types.size()];
      if (i % 3 == 2) read.spec.scale = 0.5, read.spec.shift = 3;
      const int64_t size = SizeOf(read.spec.to);
      read.out_stride[2] = size;
      read.out_stride[1] = counts[2] * size;
      read.out_stride[0] = counts[1] * counts[2] * size;
      DeviceBuffer out = Poisoned(elements * size);
      read.out = out.data();
      ASSERT_THAT(Run(read), IsOk());
      // The same on the host: order, then type.
      std::vector<int64_t> stride(rank, info.type.bytes);
      for (size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * box.count[d];
      int64_t from[3] = {0, 0, 0};
      for (size_t c = 0; c < chosen.size(); ++c) from[c] = stride[static_cast<size_t>(chosen[c])];
      std::vector<char> ordered;
      for (int64_t a = 0; a < counts[0]; ++a)
        for (int64_t b = 0; b < counts[1]; ++b)
          for (int64_t c = 0; c < counts[2]; ++c) {
            const char* const at = packed.data() + a * from[0] + b * from[1] + c * from[2];
            ordered.insert(ordered.end(), at, at + info.type.bytes);
          }
      std::vector<char> wanted(static_cast<size_t>(elements * size));
      ASSERT_TRUE(ConvertElements(info.type, read.spec.to, read.spec.scale, read.spec.shift,
                                  elements, ordered.data(), wanted.data()));
      const std::vector<char> got = Download<char>(out, wanted.size());
      if (got == wanted) continue;
      // A GPU gives NaN that changed its type other bits.
      ASSERT_NE(GetParam(), "host")
          << info.kind << " " << info.type.Name() << " to " << Info(read.spec.to).name;
      ASSERT_TRUE(SameButNaN(read.spec.to, got, wanted)) << info.type.Name();
    }
  }
  static Scalar ScalarOf(const ElementType& type) {
    for (int one = 1; one <= kMostScalar; ++one) {
      if (type.Name() == NameOf(static_cast<Scalar>(one))) return static_cast<Scalar>(one);
    }
    return Scalar::kC32;
  }
  static bool SameButNaN(DType type, const std::vector<char>& a, const std::vector<char>& b) {
    std::vector<double> x(a.size() / static_cast<size_t>(SizeOf(type))), y(x.size());
    if (type == DType::kC64) return a.size() == b.size();
    (void)ConvertElements(ElementTypeOf(type), DType::kF64, 1, 0, std::ssize(x), a.data(),
                          x.data());
    (void)ConvertElements(ElementTypeOf(type), DType::kF64, 1, 0, std::ssize(y), b.data(),
                          y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (!(x[i] == y[i] || (x[i] != x[i] && y[i] != y[i]))) return false;
    }
    return true;
  }

  RootWay way_;
  int read_ = 0;
};

// Random arrays of another program: v2 and v3, orders, transpositions, shards, codecs, filters,
// missing chunks, all types.
TEST_P(LayoutTest, ZarrOfAnotherProgram) {
  if (GetParam() == "host") OpenShim();
  const char* const here = std::getenv("OCTAVO_SOURCE_DIR");
  ASSERT_NE(here, nullptr);
  const std::string command =
      absl::StrCat("/usr/bin/python3 -B '", here, "/tests/server/storage/zarr/zarr_arrays.py' '",
                   folder_.path(), "' ", FreshSeed(), " all");
  FILE* const writer = ::popen(command.c_str(), "r");
  ASSERT_NE(writer, nullptr);
  std::string text;
  for (char piece[4096]; const size_t n = std::fread(piece, 1, sizeof piece, writer);)
    text.append(piece, n);
  const int code = ::pclose(writer);
  if (WIFEXITED(code) && WEXITSTATUS(code) == 77)
    GTEST_SKIP() << "no NumPy or numcodecs for /usr/bin/python3";
  ASSERT_EQ(code, 0);
  std::istringstream lines(text);
  constexpr ReadWay kWays[] = {ReadWay::kBuffered, ReadWay::kDirect, ReadWay::kCufile};
  int arrays = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto about = nlohmann::json::parse(line);
    if (about.contains("error")) continue;
    SCOPED_TRACE(line);
    auto input =
        OpenVolumeInput(folder_ / about["name"].get<std::string>(), {.format = InputFormat::kZarr});
    if (!input.ok()) continue;  // types and shapes that volumes do not have
    ExpectSame(**input, cufile_ != nullptr ? kWays[random_() % 3] : kWays[random_() % 2], 4);
    if (HasFatalFailure()) return;
    ++arrays;
  }
  // About three of four arrays are volumes.
  EXPECT_GT(arrays, 100);
  EXPECT_EQ(read_, 4 * arrays);
}

// Numbers without a header: every type, order and byte order, at any offset; larger than a slab.
TEST_P(LayoutTest, RawNumbers) {
  if (GetParam() == "host") OpenShim();
  constexpr ReadWay kWays[] = {ReadWay::kBuffered, ReadWay::kDirect, ReadWay::kCufile};
  for (int round = 0; round < 60; ++round) {
    RawLayout raw;
    const char* const names[] = {"u8",  "i8",  "u16", "i16", "u32", "i32", "u64",
                                 "i64", "f16", "f32", "f64", "c64", "c128"};
    raw.type = *ElementTypeNamed(names[round % 13]);
    const size_t rank = 1 + random_() % 4;
    const int64_t most = round < 50 ? 24 : 180;
    int64_t elements = 1;
    for (size_t d = 0; d < rank; ++d) {
      raw.shape.push_back(1 + static_cast<int64_t>(random_()) % most);
      elements *= raw.shape.back();
    }
    raw.big_endian = random_() % 2 == 0;
    raw.fortran = random_() % 2 == 0;
    raw.offset_bytes = static_cast<int64_t>(random_() % 5000);
    const int64_t bytes = std::min<int64_t>(elements * raw.type.bytes, 200 << 20);
    if (elements * raw.type.bytes > bytes) continue;
    (void)MakeFile(bytes + raw.offset_bytes);
    ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder_ / "data.bin", {.raw = raw}));
    SCOPED_TRACE(absl::StrCat(raw.type.Name(), " rank ", rank, raw.fortran ? " F" : " C",
                              raw.big_endian ? " big" : "", " at ", raw.offset_bytes));
    ExpectSame(*input, cufile_ != nullptr ? kWays[random_() % 3] : kWays[random_() % 2], 3);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(read_, 100);
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceReaderTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, LayoutTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

// -- cuts

// Parts cover a piece exactly, none is too large, and long gaps are left out.
TEST(CutPieceTest, PartsCoverThePiece) {
  std::mt19937 random(FreshSeed());
  octavo::testing::TempFolder folder;
  folder.Write("f", "x");
  UniqueFd fd(::open((folder / "f").c_str(), O_RDONLY));
  const std::shared_ptr<DataFile> file = *DataFile::Of(std::move(fd), "f");
  for (int round = 0; round < 500; ++round) {
    StoredPiece piece;
    piece.file = file;
    const size_t rank = random() % 4;
    const int64_t element = int64_t{1} << random() % 4;
    int64_t stride = element, elements = 1;
    std::vector<size_t> order(rank);
    for (size_t d = 0; d < rank; ++d) order[d] = d;
    std::shuffle(order.begin(), order.end(), random);
    piece.stride.resize(rank);
    piece.count.resize(rank);
    piece.to.resize(rank);
    for (const size_t d : order) {
      piece.stride[d] = stride;
      piece.count[d] = 1 + static_cast<int64_t>(random() % 30);
      piece.to[d] = static_cast<int64_t>(random() % 100);
      stride *= piece.count[d] * (1 + static_cast<int64_t>(random() % 3));
      elements *= piece.count[d];
    }
    piece.offset = static_cast<int64_t>(random() % 1000);
    const int64_t most = element + static_cast<int64_t>(random() % 5000);
    std::vector<StoredPiece> parts;
    CutPiece(piece, element, most, &parts);
    int64_t covered = 0;
    for (const StoredPiece& part : parts) {
      int64_t count = 1, at = piece.offset;
      for (size_t d = 0; d < rank; ++d) {
        count *= part.count[d];
        at += (part.to[d] - piece.to[d]) * piece.stride[d];
        ASSERT_GE(part.to[d], piece.to[d]);
        ASSERT_LE(part.to[d] + part.count[d], piece.to[d] + piece.count[d]);
      }
      ASSERT_EQ(part.offset, at);
      ASSERT_LE(part.bytes, most);
      ASSERT_EQ(part.bytes, SpanBytes(part.count, part.stride, element));
      covered += count;
    }
    ASSERT_EQ(covered, elements);
  }
}

}  // namespace
}  // namespace octavo::storage
