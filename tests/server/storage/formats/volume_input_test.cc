#include "server/storage/formats/volume_input.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>
#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"

#include "server/storage/commit/convert.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/folder_files.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/byte_source.h"
#include "tests/server/storage/formats/tiff_builder.h"
#include "tests/server/storage/storage_test_base.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using testing::StorageTest;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string Npy(const std::string& descr, bool fortran, const std::vector<int64_t>& shape,
                const std::string& data, int version = 1) {
  std::string dict = absl::StrCat(
      "{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False", ", 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  dict.resize((dict.size() + 64) / 64 * 64, ' ');  // with room for the end of the line
  dict.back() = '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  const auto length = static_cast<uint32_t>(dict.size());
  out.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return out + dict + data;
}

absl::StatusOr<std::string> ReadBox(VolumeInput& input, const base::ArrayBox& box) {
  std::string out(
      static_cast<size_t>(std::accumulate(box.count.begin(), box.count.end(),
                                          input.info().type.bytes, std::multiplies<>())),
      '\0');
  absl::Status status = input.Read(box, absl::MakeSpan(out.data(), out.size()));
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<std::string> ReadAll(VolumeInput& input) {
  return ReadBox(input, {.start = std::vector<int64_t>(input.info().axes.size(), 0),
                         .count = input.info().shape()});
}

/// Elements of an array in C order, at the places of a box.
std::string Cut(const std::string& all, const std::vector<int64_t>& shape, int64_t size,
                const base::ArrayBox& box) {
  std::string out;
  std::vector<int64_t> at = box.start;
  for (;;) {
    int64_t element = 0;
    for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + at[d];
    out += all.substr(static_cast<size_t>(element * size), static_cast<size_t>(size));
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == box.start[d - 1] + box.count[d - 1]) {
      at[d - 1] = box.start[d - 1];
      --d;
    }
    if (d == 0) return out;
  }
}

TEST(VolumeInput, NpyOfEveryTypeOrderAndShapeInEveryBox) {
  const TempFolder folder;
  std::mt19937 random(FreshSeed());
  const auto any = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const std::pair<const char*, int64_t> types[] = {
      {"u1", 1}, {"i1", 1}, {"u2", 2}, {"i2", 2}, {"u4", 4}, {"i4", 4},  {"u8", 8},
      {"i8", 8}, {"f2", 2}, {"f4", 4}, {"f8", 8}, {"c8", 8}, {"c16", 16}};
  for (int round = 0; round < 200; ++round) {
    const auto& [code, size] = types[any(0, 12)];
    const bool fortran = any(0, 1) == 1, big = any(0, 1) == 1 && size > 1;
    std::vector<int64_t> shape(static_cast<size_t>(any(1, 5)));
    for (int64_t& extent : shape) extent = any(1, 12);
    if (any(0, 9) == 0) shape[0] = any(500, 3000);
    std::string data(
        static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), size, std::multiplies<>())),
        '\0');
    for (char& c : data) c = static_cast<char>(random());
    // `data` is in C order and host byte order; the file may have it otherwise.
    std::string stored;
    const int64_t number = code[0] == 'c' ? size / 2 : size;
    std::vector<int64_t> at(shape.size(), 0);
    for (size_t i = 0; i < data.size() / static_cast<size_t>(size); ++i) {
      int64_t element = 0;
      for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + at[d];
      std::string one = data.substr(static_cast<size_t>(element * size), static_cast<size_t>(size));
      if (big) {
        for (int64_t b = 0; b < size; b += number)
          std::reverse(one.begin() + b, one.begin() + b + number);
      }
      stored += one;
      for (size_t k = 0; k < shape.size(); ++k) {
        const size_t d = fortran ? k : shape.size() - 1 - k;
        if (++at[d] < shape[d]) break;
        at[d] = 0;
      }
    }
    const std::string descr = absl::StrCat(size == 1 ? "|" : big ? ">" : "<", code);
    folder.Write("a.npy", Npy(descr, fortran, shape, stored, static_cast<int>(any(1, 3))));
    SCOPED_TRACE(absl::StrCat(descr, fortran ? " F " : " C ", absl::StrJoin(shape, "x")));
    ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.npy", {}));
    EXPECT_EQ(input->info().shape(), shape);
    ASSERT_OK_AND_ASSIGN(const std::string all, ReadAll(*input));
    ASSERT_EQ(all, data);
    for (int k = 0; k < 4; ++k) {
      base::ArrayBox box;
      for (const int64_t extent : shape) {
        box.start.push_back(any(0, extent - 1));
        box.count.push_back(any(1, extent - box.start.back()));
      }
      ASSERT_OK_AND_ASSIGN(const std::string part, ReadBox(*input, box));
      ASSERT_EQ(part, Cut(data, shape, size, box));
    }
  }
}

TEST(VolumeInput, NpyHeadersThatAreRefused) {
  const TempFolder folder;
  const auto open = [&](const std::string& bytes) {
    folder.Write("a.npy", bytes);
    return OpenVolumeInput(folder / "a.npy", {}).status();
  };
  EXPECT_THAT(open(Npy("|O", false, {2}, "12345678")),
              IsError(kInvalid, "a.npy: descr is '|O'; allowed integers"));
  EXPECT_THAT(open(Npy("<U4", false, {2}, "12345678")), IsError(kInvalid, "descr is '<U4'"));
  EXPECT_THAT(open(Npy("<f16", false, {2}, "12345678")), IsError(kInvalid, "descr is '<f16'"));
  EXPECT_THAT(open(Npy("<u2", false, {3, 2}, std::string(11, 'a'))),
              IsError(kDataLoss, "ends 1 bytes too early: the shape (3, 2) of u16 takes 12 bytes"));
  EXPECT_THAT(open(Npy("|u1", false, {0, 2}, "")),
              IsError(kInvalid, "shape[0] is 0; allowed from 1"));
  EXPECT_THAT(open(Npy("|u1", false, {1 << 20, 1 << 20, 2}, "")),
              IsError(kInvalid, "shape[2] is 2"));
  EXPECT_THAT(open(Npy("|u1", false, {}, "a")), IsError(kInvalid, "shape is of 0 axes"));
  EXPECT_THAT(open(Npy("|u1", false, {2}, "ab", 4)), IsError(kInvalid, "is 4; allowed 1, 2, 3"));
  std::string structured = Npy("<f4", false, {1}, "abcd");
  structured.replace(structured.find("'<f4'"), 5, "[('a'");
  EXPECT_THAT(open(structured), IsError(kInvalid, "descr is a structured type"));
  const std::string whole = Npy("<u2", false, {3, 2}, std::string(12, 'a'));
  EXPECT_THAT(open(whole + "xyz"), IsOk());
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(open(whole.substr(0, length)).ok()) << length;
}

TEST(VolumeInput, RawNeedsAllOfItsDescription) {
  const TempFolder folder;
  folder.Write("a.dat", "headABCDEFGHIJKL");
  VolumeInputOptions options{.field_prefix = "import."};
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "a.dat: the file is of no kind that its first bytes tell"));
  options.format = InputFormat::kRaw;
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "import.raw: is missing: a.dat has no header"));
  options.raw =
      RawLayout{.shape = {2, 3}, .type = {ElementType::Kind::kUnsigned, 2}, .offset_bytes = 4};
  ASSERT_OK_AND_ASSIGN(const auto c, OpenVolumeInput(folder / "a.dat", options));
  ASSERT_OK_AND_ASSIGN(const std::string in_c, ReadAll(*c));
  EXPECT_EQ(in_c, "ABCDEFGHIJKL");
  options.raw->fortran = options.raw->big_endian = true;
  ASSERT_OK_AND_ASSIGN(const auto f, OpenVolumeInput(folder / "a.dat", options));
  ASSERT_OK_AND_ASSIGN(const std::string in_f, ReadAll(*f));
  EXPECT_EQ(in_f, "BAFEJIDCHGLK");
  options.raw->shape = {2, 4};
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "import.raw.shape: asks for 4 bytes that are missing"));
  options.raw->shape = {2, 2};
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "import.raw.shape: leaves 4 bytes over"));
  options.raw->allow_trailing = true;
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options), IsOk());
  options.raw->shape = {2, 0};
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "import.raw.shape[1]: is 0"));
  options.raw->shape = {1 << 20, 1 << 20, 1 << 20};
  EXPECT_THAT(OpenVolumeInput(folder / "a.dat", options).status(),
              IsError(kInvalid, "import.raw.shape[2]: is 1048576; allowed 1 to 1"));
}

TEST(VolumeInput, BoxesAndMemoryThatDoNotFitAreRefused) {
  const TempFolder folder;
  folder.Write("a.npy", Npy("|u1", false, {2, 3}, "abcdef"));
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.npy", {}));
  std::string out(6, '\0');
  const auto read = [&](std::vector<int64_t> start, std::vector<int64_t> count, size_t bytes) {
    return input->Read({.start = std::move(start), .count = std::move(count)},
                       absl::MakeSpan(out.data(), bytes));
  };
  EXPECT_THAT(read({0, 0}, {2, 3}, 6), IsOk());
  EXPECT_THAT(read({0, 0}, {2, 3}, 5), IsError(kInvalid, "memory of 5 bytes for a box of 6"));
  EXPECT_THAT(read({0}, {2}, 2), IsError(kInvalid, "for 2 axes"));
  EXPECT_THAT(read({1, 0}, {2, 3}, 6), IsError(kInvalid, "begins at 1 along axis 0 and has 2"));
  EXPECT_THAT(read({0, -1}, {1, 1}, 1), IsError(kInvalid, "begins at -1 along axis 1"));
  EXPECT_THAT(read({0, 0}, {0, 1}, 0), IsError(kInvalid, "has 0"));
  EXPECT_THAT(read({0, INT64_MAX}, {1, 1}, 1), IsError(kInvalid, "along axis 1"));
}

TEST(VolumeInput, FilesByDescriptorStayWhatTheyAre) {
  const TempFolder folder;
  folder.Write("a.npy", Npy("|u1", false, {2, 3}, "abcdef"));
  UniqueFd fd(::open((folder / "a.npy").c_str(), O_RDONLY));
  std::filesystem::remove(folder / "a.npy");
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(std::move(fd), "theirs", {}));
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
  EXPECT_EQ(read, "abcdef");
  EXPECT_THAT(OpenVolumeInput(folder / "a.npy", {}).status(),
              IsError(absl::StatusCode::kNotFound, "a.npy"));
}

TEST(FolderFiles, NumbersCountInNames) {
  std::vector<std::string> names = {"a10", "a9", "a2b", "a2", "b1", "a02", "a010", "a", "", "a1z9"};
  std::sort(names.begin(), names.end(), NaturallyBefore);
  EXPECT_EQ(names, (std::vector<std::string>{"", "a", "a1z9", "a02", "a2", "a2b", "a9", "a010",
                                             "a10", "b1"}));
  for (const std::string& a : names) {
    for (const std::string& b : names) EXPECT_FALSE(NaturallyBefore(a, b) && NaturallyBefore(b, a));
  }
}

TEST(VolumeInput, FolderOfTiffFilesInNaturalOrder) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "stack");
  const auto page = [&](const std::string& name, char value, int width = 4) {
    testing::TiffBuilder builder;
    const uint64_t at = builder.Data(std::string(12, value));
    const auto w = static_cast<uint64_t>(width);
    builder.Page({{256, {3, {w}, ""}},
                  {257, {3, {12 / w}, ""}},
                  {258, {3, {8}, ""}},
                  {273, {4, {at}, ""}},
                  {279, {4, {12}, ""}}});
    folder.Write("stack/" + name, builder.bytes());
  };
  page("s10.tif", 'c'), page("s9.tif", 'b'), page("s1.TIFF", 'a');
  folder.Write("stack/notes.txt", "");
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "stack", {}));
  EXPECT_EQ(input->info().shape(), (std::vector<int64_t>{3, 3, 4}));
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
  EXPECT_EQ(read, std::string(12, 'a') + std::string(12, 'b') + std::string(12, 'c'));
  page("s11.tif", 'd', 3);
  EXPECT_THAT(OpenVolumeInput(folder / "stack", {}).status(),
              IsError(kInvalid, "stack/s11.tif: page 1, its extent is 3 x 4; allowed 4 x 3"));
  std::filesystem::remove(folder / "stack/s11.tif");
  std::filesystem::create_symlink("/etc/hostname", folder / "stack/s12.tif");
  ASSERT_OK_AND_ASSIGN(const auto again, OpenVolumeInput(folder / "stack", {}));
  EXPECT_EQ(again->info().axes[0].extent, 3) << "links are not followed";
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(OpenVolumeInput(folder / "empty", {}).status(),
              IsError(kInvalid, "empty: the folder is without files *.tif"));
}

TEST(VolumeInput, LinumpyFolder) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "raw");
  const std::string info =
      "nx: 3\nny: 4\nn_extra: 2\ntop_z: 10\nbottom_z: 12\nwidth: 6.0\nheight: 2.0\n";
  folder.Write("raw/info.txt", info);
  // Fortran order (z, x, frames): a frame of 5 A-scans of 2 (or, with bottom_z, 3) samples.
  std::vector<float> values(3 * 5 * 4);
  std::iota(values.begin(), values.end(), 0.5f);
  const auto write = [&](const char* name, size_t first, size_t count) {
    folder.Write(name,
                 std::string(reinterpret_cast<const char*>(values.data() + first), 4 * count));
  };
  write("raw/image_2.bin", 0, 15), write("raw/image_10.bin", 15, 45);
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "raw", {}));
  EXPECT_EQ(input->info().shape(), (std::vector<int64_t>{4, 5, 3}));
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
  EXPECT_EQ(std::memcmp(read.data(), values.data(), read.size()), 0);
  EXPECT_EQ(input->info().axes[1].name, "x");
  EXPECT_EQ(input->info().axes[1].spacing_as_stored, "2");
  EXPECT_FALSE(input->info().axes[1].spacing_um.has_value()) << "the file gives no unit";
  write("raw/image_10.bin", 15, 44);
  EXPECT_THAT(OpenVolumeInput(folder / "raw", {}).status(),
              IsError(kDataLoss, "image_*.bin have 236 bytes together"));
  folder.Write("raw/info.txt", "nx: 3\n");
  EXPECT_THAT(OpenVolumeInput(folder / "raw", {}).status(), IsError(kDataLoss, "ny is missing"));
}

TEST(ByteSource, InflatesAnywhereAndChecksTheEnd) {
  const TempFolder folder;
  std::mt19937 random(FreshSeed());
  std::string data(3'000'000, '\0');
  for (char& c : data) c = static_cast<char>(random() % 7);
  const auto gzip = [](const std::string& text) {
    z_stream stream{};
    deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const auto bytes_of = [&](const std::string& packed, Trailing trailing) {
    folder.Write("a.gz", "head" + packed);
    auto file = FileBytes(UniqueFd(::open((folder / "a.gz").c_str(), O_RDONLY)), "a.gz");
    return InflatedBytes(*std::move(file), InflateWrap::kGzip, 4, -1, std::ssize(data), trailing);
  };
  // Two members make one stream.
  const std::string packed = gzip(data.substr(0, 1'234'567)) + gzip(data.substr(1'234'567));
  const auto source = bytes_of(packed, Trailing::kRefuse);
  for (int i = 0; i < 30; ++i) {
    const size_t at = random() % data.size(), count = random() % (data.size() - at);
    std::string part(count, '\0');
    ASSERT_THAT(source->ReadAt(static_cast<int64_t>(at), part.data(), count), IsOk());
    ASSERT_EQ(part, data.substr(at, count));
  }
  std::string whole(data.size(), '\0');
  const auto all = [&](const std::string& from, Trailing trailing = Trailing::kRefuse) {
    return bytes_of(from, trailing)->ReadAt(0, whole.data(), whole.size());
  };
  EXPECT_THAT(all(packed), IsOk());
  std::string wrong = packed;
  wrong[wrong.size() - 6] = static_cast<char>(wrong[wrong.size() - 6] + 1);  // the CRC
  EXPECT_THAT(all(wrong), IsError(kDataLoss, "a.gz: the gzip stream is damaged"));
  EXPECT_THAT(all(packed.substr(0, packed.size() - 1)), IsError(kDataLoss, "ends too early"));
  EXPECT_THAT(all(packed + gzip("more")), IsError(kDataLoss, "goes on"));
  EXPECT_THAT(all(packed + gzip("more"), Trailing::kIgnore), IsOk());
  EXPECT_THAT(source->ReadAt(1, whole.data(), whole.size()), IsError(kDataLoss, "ends too early"));
}

class OwnCommits : public StorageTest {};

TEST_F(OwnCommits, ComeBackWithTheirMetadataFromEveryFormat) {
  std::mt19937 random(FreshSeed());
  auto store = Open();
  int number = 0;
  const char* orders[] = {"yxz", "zyx", "zxy", "yzx", "xyz", "xzy"};
  for (const Format format : kFormats) {
    for (const DType dtype : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kF16,
                              DType::kF32, DType::kF64, DType::kC64}) {
      VolumeMeta meta;
      const auto data =
          MakeVolume(&meta, 3 + random() % 20, 3 + random() % 20, 3 + random() % 20, dtype);
      const std::string order = orders[random() % 6];
      for (int d = 0; d < 3; ++d) meta.axes[d] = order[static_cast<size_t>(d)];
      meta.spacing_assumed[random() % 3] = random() % 2 == 0;
      meta.has_levels = dtype == DType::kU8;
      meta.level_lo = 20, meta.level_hi = 80;
      WriterOptions options{.format = format, .compress = random() % 2 == 0};
      if (format == Format::kOmeTiff && order[0] != 'x') {
        options.tiff_plane = static_cast<TiffPlane>(random() % 3);
        options.tiff_stack = random() % 2 == 0;
      }
      if (!ResolveOptions(options, meta).ok()) continue;  // no f16 there
      const std::string name = absl::StrCat("v", number++);
      SCOPED_TRACE(absl::StrCat(FormatName(format), " ", Info(dtype).name, " ", order, " ",
                                options.compress, options.tiff_stack, " ", meta.shape[0], "x",
                                meta.shape[1], "x", meta.shape[2]));
      ASSERT_OK_AND_ASSIGN(const CommitOutcome committed,
                           Commit(*store, name, meta, data, options));
      ASSERT_OK_AND_ASSIGN(auto input, OpenVolumeInput(committed.path, {.roots = {root()}}));
      EXPECT_THAT(input->Verify(), IsOk());
      ASSERT_OK_AND_ASSIGN(const auto volume, InputVolume::Make(std::move(input), {}));
      EXPECT_EQ(MetaText(volume->meta()), MetaText(meta));
      std::vector<uint8_t> back(data.size());
      const auto plane = static_cast<int64_t>(data.size()) / meta.shape[0];
      for (int64_t y = 0; y < meta.shape[0];) {
        const int64_t count = std::min<int64_t>(1 + random() % 4, meta.shape[0] - y);
        ASSERT_THAT(volume->Read(y, count, back.data() + y * plane), IsOk());
        y += count;
      }
      EXPECT_EQ(back, data);
      // And on to a format that holds all types, whose digest is compared.
      ASSERT_OK_AND_ASSIGN(const CommitOutcome again,
                           Convert(committed.path, root() + "/" + name + "_again",
                                   {.format = Format::kBin}, [](double, int64_t) { return true; }));
      EXPECT_EQ(again.checksum, committed.checksum);
    }
  }
  EXPECT_GT(number, 50);
}

TEST_F(OwnCommits, DamagedSingleFilesAreFound) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 5, 6, 7, DType::kU16);
  auto store = Open();
  for (const Format format : {Format::kNpy, Format::kBin, Format::kNrrd}) {
    ASSERT_OK_AND_ASSIGN(const CommitOutcome committed,
                         Commit(*store, FormatName(format), meta, data, {.format = format}));
    {
      std::fstream file(committed.path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-3, std::ios::end);
      file.put('\x7F');
    }
    ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(committed.path, {}));
    EXPECT_THAT(input->Verify(), IsError(kDataLoss, "has the CRC"));
  }
}

// -- From an array to a volume

std::unique_ptr<VolumeInput> OfNpy(const TempFolder& folder, const std::string& descr,
                                   const std::vector<int64_t>& shape, const std::string& data) {
  folder.Write("a.npy", Npy(descr, false, shape, data));
  auto input = OpenVolumeInput(folder / "a.npy", {});
  return input.ok() ? *std::move(input) : nullptr;
}

TEST(InputVolume, WhatTheFileDoesNotSayHasToBeGiven) {
  const TempFolder folder;
  const auto make = [&](const InputVolumeOptions& options) {
    return InputVolume::Make(OfNpy(folder, "|u1", {2, 2, 3, 4}, std::string(48, 'a')), options)
        .status();
  };
  InputVolumeOptions options{.field_prefix = "import."};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.axes: is missing: the file does not name"));
  options.axes = {"z", "y", "x"};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.axes: is a list of 3 names; allowed 4"));
  options.axes = {"z", "y", "y", "x"};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.axes: is 'y' twice"));
  options.axes = {"c", "z", "y", "x"};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.select.c: is missing"));
  options.select = {{"c", 2}};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.select.c: is 2; allowed 0 to 1"));
  options.select = {{"c", 1}, {"t", 0}};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.select: is for the axis 't'"));
  options.select = {{"c", 1}};
  EXPECT_THAT(make(options),
              IsError(kInvalid, "import.spacing_um.z: is missing: the file says nothing about it"));
  options.spacing_um = {{"x", 1}, {"y", 2}, {"z", 0}};
  EXPECT_THAT(make(options), IsError(kInvalid, "import.spacing_um.z: is 0; allowed 1e-06"));
  options.spacing_um = {{"x", 1}, {"y", 2}};
  options.allow_unknown_spacing = true;
  EXPECT_THAT(make(options), IsOk());
  options.order = "yyz";
  EXPECT_THAT(make(options), IsError(kInvalid, "import.order: is 'yyz'"));
  options.order = "";
  options.start = {0, 3};
  EXPECT_THAT(make(options), IsError(kInvalid, "start"));
  options.start = {0, 3, 0};
  EXPECT_THAT(make(options), IsError(absl::StatusCode::kOutOfRange, "import.start: [1] is 3"));
}

int64_t ElementsIn(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

TEST(InputVolume, SelectsReordersCropsAndConverts) {
  const TempFolder folder;
  std::mt19937 random(FreshSeed());
  const auto any = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 100; ++round) {
    std::string names = "xyzc", order = "xyz";
    std::shuffle(names.begin(), names.end(), random);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int64_t> shape;
    for (int d = 0; d < 4; ++d) shape.push_back(any(1, 9));
    const int64_t elements = ElementsIn(shape);
    std::vector<int32_t> values(static_cast<size_t>(elements));
    for (int32_t& value : values) value = static_cast<int32_t>(random());
    InputVolumeOptions options{.allow_unknown_spacing = true, .order = order};
    for (const char name : names) options.axes.emplace_back(1, name);
    const auto c = static_cast<size_t>(names.find('c'));
    options.select = {{"c", any(0, shape[c] - 1)}};
    for (const char name : order) {
      const int64_t extent = shape[names.find(name)];
      options.start.push_back(any(0, extent - 1));
      options.count.push_back(any(1, extent - options.start.back()));
    }
    ASSERT_OK_AND_ASSIGN(
        const auto volume,
        InputVolume::Make(
            OfNpy(folder, "<i4", shape,
                  std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size())),
            options));
    const VolumeMeta& meta = volume->meta();
    ASSERT_EQ(meta.dtype, DType::kF64) << "the type that holds 32-bit integers exactly";
    std::vector<double> read(static_cast<size_t>(meta.shape[0] * meta.shape[1] * meta.shape[2]));
    ASSERT_THAT(volume->Read(0, meta.shape[0], read.data()), IsOk());
    size_t i = 0;
    for (int64_t a = 0; a < meta.shape[0]; ++a) {
      for (int64_t b = 0; b < meta.shape[1]; ++b) {
        for (int64_t k = 0; k < meta.shape[2]; ++k, ++i) {
          const int64_t of_volume[3] = {a, b, k};
          int64_t element = 0;
          for (size_t d = 0; d < 4; ++d) {
            const size_t at = order.find(names[d]);
            const int64_t place =
                names[d] == 'c' ? options.select["c"] : options.start[at] + of_volume[at];
            element = element * shape[d] + place;
          }
          ASSERT_EQ(read[i], values[static_cast<size_t>(element)]);
        }
      }
    }
  }
}

TEST(InputVolume, TypesThatLoseSomethingAreAskedFor) {
  const TempFolder folder;
  const InputVolumeOptions plain{.axes = {"z", "y", "x"}, .allow_unknown_spacing = true};
  EXPECT_THAT(InputVolume::Make(OfNpy(folder, "<u8", {1, 1, 2}, std::string(16, '\1')), plain),
              IsError(kInvalid, "dtype: is missing: no type of volumes holds u64 exactly"));
  InputVolumeOptions asked = plain;
  asked.dtype = DType::kU8;
  const float values[] = {-3, 1.5, 2.5, 300, NAN, 7.4999f};
  ASSERT_OK_AND_ASSIGN(
      const auto volume,
      InputVolume::Make(OfNpy(folder, "<f4", {1, 1, 6},
                              std::string(reinterpret_cast<const char*>(values), sizeof values)),
                        asked));
  uint8_t read[6];
  ASSERT_THAT(volume->Read(0, 1, read), IsOk());
  EXPECT_THAT(read, ::testing::ElementsAre(0, 2, 2, 255, 0, 7));
  asked.dtype = DType::kF32;
  EXPECT_THAT(InputVolume::Make(OfNpy(folder, "<c8", {1, 1, 2}, std::string(16, '\1')), asked),
              IsError(kInvalid, "dtype: is f32; allowed c64: the file holds c64"));
}

TEST(InputVolume, WhatIsClippedIsCounted) {
  const TempFolder folder;
  const float values[] = {-3, 1.5, 2.5, 300, NAN, 255.4F, -0.4F, INFINITY};
  InputVolumeOptions options{.axes = {"Z", "y", "X"}, .allow_unknown_spacing = true};
  const auto read = [&](DType dtype, const std::string& descr, const void* data, size_t bytes,
                        int64_t count) {
    options.dtype = dtype;
    const auto volume = InputVolume::Make(
        OfNpy(folder, descr, {count, 1, 1}, std::string(static_cast<const char*>(data), bytes)),
        options);
    EXPECT_THAT(volume, IsOk());
    std::vector<char> out(static_cast<size_t>(count * SizeOf(dtype)));
    EXPECT_THAT((*volume)->Read(0, count, out.data()), IsOk());
    return (*volume)->clipped();
  };
  ClippedElements clipped = read(DType::kU8, "<f4", values, sizeof values, 8);
  EXPECT_EQ(clipped.below, 1);
  EXPECT_EQ(clipped.above, 2) << "300 and infinity; 255.4 is 255";
  EXPECT_EQ(clipped.nan, 1);
  const double wide[] = {1e39, -1e39, 65519, 65520, -70000, 3};
  clipped = read(DType::kF32, "<f8", wide, sizeof wide, 6);
  EXPECT_EQ(clipped.below, 1);
  EXPECT_EQ(clipped.above, 1);
  clipped = read(DType::kF16, "<f8", wide, sizeof wide, 6);
  EXPECT_EQ(clipped.below, 2);
  EXPECT_EQ(clipped.above, 2);
  const int32_t integers[] = {-129, -128, 127, 128, 1 << 30};
  clipped = read(DType::kI8, "<i4", integers, sizeof integers, 5);
  EXPECT_EQ(clipped.below, 1);
  EXPECT_EQ(clipped.above, 2);
  EXPECT_EQ(clipped.nan, 0);
}

// An array that is no volume keeps 64 bits exactly, and goes to every type.
TEST(InputVolume, ArraysOfEveryType) {
  const TempFolder folder;
  const int64_t values[] = {INT64_MIN, INT64_MAX, (int64_t{1} << 53) + 1, -1, 0, 77};
  const std::string bytes(reinterpret_cast<const char*>(values), sizeof values);
  InputVolumeOptions options{.axes = {"z", "y", "x"}};
  options.array.emplace();
  {
    ASSERT_OK_AND_ASSIGN(const auto array,
                         InputVolume::Make(OfNpy(folder, "<i8", {6, 1, 1}, bytes), options));
    EXPECT_EQ(array->type().Name(), "i64");
    EXPECT_EQ(SizeOf(array->meta().dtype), 8);
    int64_t read[6];
    ASSERT_THAT(array->Read(0, 6, read), IsOk());
    EXPECT_THAT(read, ::testing::ElementsAreArray(values));
  }
  options.array->type = ElementTypeNamed("u32");
  ASSERT_OK_AND_ASSIGN(const auto array,
                       InputVolume::Make(OfNpy(folder, "<i8", {6, 1, 1}, bytes), options));
  EXPECT_EQ(SizeOf(array->meta().dtype), 4);
  uint32_t read[6];
  ASSERT_THAT(array->Read(0, 6, read), IsOk());
  EXPECT_THAT(read, ::testing::ElementsAre(0, UINT32_MAX, UINT32_MAX, 0, 0, 77));
  EXPECT_EQ(array->clipped().below, 2);
  EXPECT_EQ(array->clipped().above, 2);
  options.array->type = ElementTypeNamed("c128");
  EXPECT_THAT(InputVolume::Make(OfNpy(folder, "<i8", {6, 1, 1}, bytes), options),
              IsError(kInvalid, "dtype: is c128; allowed u8"));
  options.array->type.reset();
  EXPECT_THAT(InputVolume::Make(OfNpy(folder, "<c16", {1, 1, 1}, std::string(16, '\0')), options),
              IsError(kInvalid, "the file holds c128, which is not imported"));
}

TEST(InputVolume, ValuesThatTheirTypeContradicts) {
  const TempFolder folder;
  const auto make = [&](const std::string& descr, const std::string& kind) {
    const InputVolumeOptions options{
        .axes = {"z", "y", "x"}, .allow_unknown_spacing = true, .value_kind = kind};
    return InputVolume::Make(OfNpy(folder, descr, {1, 1, 2}, std::string(16, '\1')), options)
        .status();
  };
  EXPECT_THAT(make("<f8", "complex"), IsError(kInvalid, "value: is 'complex'; allowed db"));
  EXPECT_THAT(make("<c8", "db"), IsError(kInvalid, "value: is 'db'; allowed complex"));
  EXPECT_THAT(make("<c8", "complex"), IsOk());
  EXPECT_THAT(make("<f8", "db"), IsOk());
  EXPECT_THAT(make("<f8", "attenuation"), IsOk());
  EXPECT_THAT(make("<f8", "raw_spectra_u12p"),
              IsError(kInvalid, "quantity: is 'raw_spectra_u12p'"));
}

TEST(InputVolume, AStopEndsAReadBetweenItsParts) {
  const TempFolder folder;
  const InputVolumeOptions options{.axes = {"z", "y", "x"}, .allow_unknown_spacing = true};
  ASSERT_OK_AND_ASSIGN(
      const auto volume,
      InputVolume::Make(OfNpy(folder, "|u1", {2, 2, 2}, std::string(8, 'a')), options));
  std::stop_source stop;
  volume->SetStop(stop.get_token());
  char read[8];
  EXPECT_THAT(volume->Read(0, 2, read), IsOk());
  stop.request_stop();
  EXPECT_EQ(volume->Read(0, 2, read).code(), absl::StatusCode::kCancelled);
}

TEST(FolderFiles, NumbersThatAreMissing) {
  EXPECT_EQ(DoubtNumbers({}), "");
  EXPECT_EQ(DoubtNumbers({"a.tif"}), "");
  EXPECT_EQ(DoubtNumbers({"p1.tif", "p2.tif", "p3.tif"}), "");
  EXPECT_EQ(DoubtNumbers({"p9.tif", "p10.tif", "p11.tif"}), "");
  EXPECT_EQ(DoubtNumbers({"a.tif", "b.tif", "d.tif"}), "") << "no numbers";
  EXPECT_EQ(DoubtNumbers({"a1_1.tif", "a2_5.tif"}), "") << "two numbers differ";
  using ::testing::HasSubstr;
  EXPECT_THAT(DoubtNumbers({"img_001.tif", "img_003.tif"}), HasSubstr("in steps of 2"));
  EXPECT_THAT(DoubtNumbers({"img_001.tif", "img_002.tif", "img_004.tif"}),
              HasSubstr("img_003.tif"));
  EXPECT_THAT(DoubtNumbers({"z0000.tif", "z0010.tif", "z0030.tif", "z0060.tif"}),
              HasSubstr("z0020.tif is the first of 2 gaps"));
}

TEST(FolderFiles, NamesOfSeveralSeries) {
  using ::testing::HasSubstr;
  EXPECT_THAT(DoubtNumbers({"dark_1.tif", "p_1.tif", "p_2.tif", "p_3.tif"}),
              HasSubstr("3 are as p_1.tif, and 1 are not, the first of them dark_1.tif"));
  EXPECT_THAT(DoubtNumbers({"a_1.tif", "a_2.tif", "b_1.tif", "b_2.tif"}),
              HasSubstr("2 are as a_1.tif, and 2 are not, the first of them b_1.tif"));
  EXPECT_THAT(DoubtNumbers({"p_1.tif", "p_2.TIF", "p_3.tif"}),
              HasSubstr("the first of them p_2.TIF"));
  EXPECT_THAT(DoubtNumbers({"scan1_01.tif", "scan1_02.tif", "scan2_01.tif", "scan2_02.tif"}),
              HasSubstr("from scan1_02.tif to scan2_01.tif"));
  EXPECT_THAT(DoubtNumbers({"p_0008.tif", "p_0009.tif", "p_010.tif", "p_011.tif"}),
              HasSubstr("4 digits up to p_0009.tif, and 3 in p_010.tif"));
  EXPECT_THAT(DoubtNumbers({"p_01.tif", "p_002.tif", "p_003.tif"}),
              HasSubstr("2 digits up to p_01.tif, and 3 in p_002.tif"));
  const std::vector<std::string> sound[] = {
      {"p08.tif", "p09.tif", "p10.tif"},
      {"p098.tif", "p099.tif", "p100.tif"},
      {"p98.tif", "p99.tif", "p100.tif"},
      {"p0.tif", "p1.tif"},
      {"p_001_0.5deg.tif", "p_002_1.0deg.tif", "p_003_1.5deg.tif"}};
  for (const auto& names : sound) EXPECT_EQ(DoubtNumbers(names), "") << names.front();
}

}  // namespace
}  // namespace octavo::storage
