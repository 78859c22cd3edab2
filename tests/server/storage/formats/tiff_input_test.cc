#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/storage/formats/volume_input.h"
#include "server/storage/tiff/ome_xml.h"
#include "tests/server/storage/formats/tiff_builder.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using testing::TiffBuilder;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

/// All of an input.
absl::StatusOr<std::string> ReadAll(VolumeInput& input) {
  base::ArrayBox box{.start = std::vector<int64_t>(input.info().axes.size(), 0),
                     .count = input.info().shape()};
  int64_t elements = 1;
  for (const int64_t count : box.count) elements *= count;
  std::string out(static_cast<size_t>(elements * input.info().type.bytes), '\0');
  absl::Status status = input.Read(box, absl::MakeSpan(out.data(), out.size()));
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  auto input = OpenVolumeInput(path, {});
  if (!input.ok()) return input.status();
  return ReadAll(**input);
}

/// The tags of a grey page with its data in one strip.
TiffBuilder::Tags Plain(int width, int height, int bits, uint64_t offset, uint64_t bytes) {
  const auto u = [](int value) { return static_cast<uint64_t>(value); };
  return {{256, {3, {u(width)}, ""}}, {257, {3, {u(height)}, ""}}, {258, {3, {u(bits)}, ""}},
          {259, {3, {1}, ""}},        {262, {3, {1}, ""}},         {273, {4, {offset}, ""}},
          {277, {3, {1}, ""}},        {278, {3, {u(height)}, ""}}, {279, {4, {bytes}, ""}}};
}

struct Form {
  int bits, format;  // SampleFormat
};

/// A random page of a random form: what it holds, and how it is written.
class RandomTiff {
 public:
  explicit RandomTiff(uint32_t seed) : random_(seed) {}

  int Any(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }

  /// Makes a file of some pages; `expected` gets the elements in host order.
  std::string Make(std::string* expected, std::string* kind) {
    static constexpr Form kForms[] = {{1, 1},  {4, 1},  {8, 1},  {8, 2},  {12, 1}, {16, 1},
                                      {16, 2}, {16, 3}, {32, 1}, {32, 2}, {32, 3}, {64, 1},
                                      {64, 2}, {64, 3}, {64, 6}, {128, 6}};
    static constexpr int kCompressions[] = {1, 5, 8, 32946, 32773, 50000};
    const Form form = kForms[Any(0, 15)];
    const int compression = kCompressions[Any(0, 5)];
    const bool big = Any(0, 1) == 1, big_endian = Any(0, 1) == 1, tiled = Any(0, 1) == 1;
    const int width = Any(1, 70), height = Any(1, 50), pages = Any(1, 3);
    int predictor = 1;
    const bool differences = compression != 1 && compression != 32773;
    if (differences && form.bits % 8 == 0 && form.format != 6 && Any(0, 1) == 1)
      predictor = form.format == 3 && Any(0, 1) == 1 ? 3 : 2;
    const int fill_order = Any(0, 4) == 0 ? 2 : 1;
    const int block_width = tiled ? 16 * Any(1, 3) : width,
              block_height = tiled ? 16 * Any(1, 3) : Any(1, height);
    *kind =
        absl::StrCat(width, "x", height, "x", pages, " bits ", form.bits, " format ", form.format,
                     " compression ", compression, " predictor ", predictor, big ? " big" : "",
                     big_endian ? " MM" : " II", tiled ? " tiles " : " strips ", block_width, "x",
                     block_height, " fill ", fill_order);
    TiffBuilder builder(big, big_endian);
    expected->clear();
    for (int page = 0; page < pages; ++page) {
      const int whole = form.bits < 8 ? 1 : form.bits == 12 ? 2 : form.bits / 8;
      std::string pixels(static_cast<size_t>(width * height * whole), '\0');
      for (char& c : pixels) c = static_cast<char>(Any(0, 3) == 0 ? Any(0, 255) : 7);
      if (form.bits < 8) {
        for (char& c : pixels) c = static_cast<char>(c & ((1 << form.bits) - 1));
      }
      if (form.bits == 12) {
        for (size_t i = 1; i < pixels.size(); i += 2) pixels[i] = static_cast<char>(pixels[i] & 15);
      }
      *expected += pixels;
      TiffBuilder::Tags tags = Plain(width, height, form.bits, 0, 0);
      std::vector<uint64_t> offsets, sizes;
      for (int top = 0; top < height; top += block_height) {
        for (int left = 0; left < width; left += block_width) {
          const int rows = tiled ? block_height : std::min(block_height, height - top);
          std::string block;
          for (int row = top; row < top + rows; ++row)
            block += Row(pixels, width, height, row, left, block_width, form.bits, whole,
                         form.format == 6 ? whole / 2 : whole, big_endian, predictor);
          std::string packed = compression == 1       ? block
                               : compression == 5     ? testing::Lzw(block)
                               : compression == 32773 ? testing::PackBits(block)
                               : compression == 50000 ? testing::Zstd(block)
                                                      : testing::Deflate(block);
          if (fill_order == 2) {
            for (char& c : packed) {
              int reversed = 0;
              for (int b = 0; b < 8; ++b) reversed |= (c >> b & 1) << (7 - b);
              c = static_cast<char>(reversed);
            }
          }
          offsets.push_back(builder.Data(packed));
          sizes.push_back(packed.size());
        }
      }
      const int wide = big ? 16 : 4;
      tags[259].values = {static_cast<uint64_t>(compression)};
      tags[266] = {3, {static_cast<uint64_t>(fill_order)}, ""};
      tags[317] = {3, {static_cast<uint64_t>(predictor)}, ""};
      tags[339] = {3, {static_cast<uint64_t>(form.format)}, ""};
      if (tiled) {
        tags.erase(273), tags.erase(278), tags.erase(279);
        tags[322] = {3, {static_cast<uint64_t>(block_width)}, ""};
        tags[323] = {4, {static_cast<uint64_t>(block_height)}, ""};
        tags[324] = {wide, offsets, ""};
        tags[325] = {4, sizes, ""};
      } else {
        tags[273] = {wide, offsets, ""};
        tags[278] = {3, {static_cast<uint64_t>(block_height)}, ""};
        tags[279] = {wide, sizes, ""};
      }
      builder.Page(tags);
    }
    return builder.bytes();
  }

 private:
  /// A row of a block as the file has it, before compression.
  static std::string Row(const std::string& pixels, int width, int height, int row, int left,
                         int columns, int bits, int whole, int number, bool big_endian,
                         int predictor) {
    std::string plain;
    for (int column = left; column < left + columns; ++column) {
      const bool inside = row < height && column < width;
      plain += inside ? pixels.substr(static_cast<size_t>((row * width + column) * whole),
                                      static_cast<size_t>(whole))
                      : std::string(static_cast<size_t>(whole), '\0');
    }
    if (bits < 8 || bits == 12) {
      std::string packed(static_cast<size_t>((columns * bits + 7) / 8), '\0');
      for (int i = 0; i < columns; ++i) {
        int value = static_cast<uint8_t>(plain[static_cast<size_t>(i * whole)]);
        if (bits == 12) value |= static_cast<uint8_t>(plain[static_cast<size_t>(2 * i + 1)]) << 8;
        for (int b = 0; b < bits; ++b) {
          if ((value >> (bits - 1 - b) & 1) == 0) continue;
          const int at = i * bits + b;
          packed[static_cast<size_t>(at / 8)] =
              static_cast<char>(packed[static_cast<size_t>(at / 8)] | 128 >> at % 8);
        }
      }
      return packed;
    }
    if (predictor == 3) {
      std::string planes;
      for (int b = whole - 1; b >= 0; --b) {
        for (int i = 0; i < columns; ++i) planes += plain[static_cast<size_t>(i * whole + b)];
      }
      for (size_t i = planes.size(); i-- > 1;)
        planes[i] = static_cast<char>(planes[i] - planes[i - 1]);
      return planes;
    }
    if (predictor == 2) {
      for (int i = columns; i-- > 1;) {
        uint64_t here = 0, before = 0;
        std::memcpy(&here, plain.data() + i * whole, static_cast<size_t>(whole));
        std::memcpy(&before, plain.data() + (i - 1) * whole, static_cast<size_t>(whole));
        here -= before;
        std::memcpy(plain.data() + i * whole, &here, static_cast<size_t>(whole));
      }
    }
    if (big_endian) {
      for (size_t at = 0; at < plain.size(); at += static_cast<size_t>(number))
        std::reverse(plain.begin() + static_cast<std::ptrdiff_t>(at),
                     plain.begin() + static_cast<std::ptrdiff_t>(at) + number);
    }
    return plain;
  }

  std::mt19937 random_;
};

TEST(TiffInput, EveryFormOfPagesAndEveryBox) {
  const TempFolder folder;
  RandomTiff random(FreshSeed());
  for (int i = 0; i < 300; ++i) {
    std::string expected, kind;
    folder.Write("a.tif", random.Make(&expected, &kind));
    SCOPED_TRACE(kind);
    ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.tif", {}));
    ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
    ASSERT_EQ(read, expected);
    const std::vector<int64_t> shape = input->info().shape();
    const auto size = static_cast<size_t>(input->info().type.bytes);
    for (int k = 0; k < 5; ++k) {
      base::ArrayBox box;
      for (const int64_t extent : shape) {
        box.start.push_back(random.Any(0, static_cast<int>(extent) - 1));
        box.count.push_back(random.Any(1, static_cast<int>(extent - box.start.back())));
      }
      std::string wanted;
      for (int64_t z = 0; z < box.count[0]; ++z) {
        for (int64_t y = 0; y < box.count[1]; ++y)
          wanted += expected.substr(
              static_cast<size_t>(((box.start[0] + z) * shape[1] + box.start[1] + y) * shape[2] +
                                  box.start[2]) *
                  size,
              static_cast<size_t>(box.count[2]) * size);
      }
      std::string part(wanted.size(), '\0');
      ASSERT_THAT(input->Read(box, absl::MakeSpan(part.data(), part.size())), IsOk());
      ASSERT_EQ(part, wanted);
    }
  }
}

TEST(TiffInput, JpegWithTablesInTheDirectoryAndWithout) {
  const TempFolder folder;
  std::string pixels;
  for (int i = 0; i < 64 * 48; ++i) pixels += static_cast<char>(i % 64 + i / 64);
  const std::string whole = testing::Jpeg(pixels, 64, 48);
  // The tables (DQT, DHT) come before the frame: they can be in the directory instead.
  std::string tables = "\xFF\xD8", rest = "\xFF\xD8";
  for (size_t at = 2; at < whole.size();) {
    const auto marker = static_cast<uint8_t>(whole[at + 1]);
    const size_t length = 2 + static_cast<size_t>(static_cast<uint8_t>(whole[at + 2])) * 256 +
                          static_cast<uint8_t>(whole[at + 3]);
    if (marker == 0xDA) {
      rest += whole.substr(at);
      break;
    }
    (marker == 0xDB || marker == 0xC4 ? tables : rest) += whole.substr(at, length);
    at += length;
  }
  tables += "\xFF\xD9";
  for (const bool apart : {false, true}) {
    TiffBuilder builder;
    const std::string& data = apart ? rest : whole;
    const uint64_t at = builder.Data(data);
    auto tags = Plain(64, 48, 8, at, data.size());
    tags[259].values = {7};
    if (apart) tags[347] = {7, {}, tables};
    builder.Page(tags);
    folder.Write("a.tif", builder.bytes());
    ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(folder / "a.tif"));
    ASSERT_EQ(read.size(), pixels.size());
    for (size_t i = 0; i < read.size(); ++i)
      ASSERT_NEAR(static_cast<uint8_t>(read[i]), static_cast<uint8_t>(pixels[i]), 2) << apart;
  }
  // A JPEG of another size than the page.
  TiffBuilder builder;
  auto tags = Plain(65, 48, 8, builder.Data(whole), whole.size());
  tags[259].values = {7};
  builder.Page(tags);
  folder.Write("a.tif", builder.bytes());
  EXPECT_THAT(ReadAll(folder / "a.tif"),
              IsError(kDataLoss, "page 1, strip 1 is a JPEG of 64 x 48"));
}

/// A file with one page of 4 x 3 bytes, whose tags `change` changes.
std::string Changed(const std::function<void(TiffBuilder&, TiffBuilder::Tags&)>& change) {
  TiffBuilder builder;
  auto tags = Plain(4, 3, 8, builder.Data("abcdefghijkl"), 12);
  change(builder, tags);
  builder.Page(tags);
  return builder.bytes();
}

TEST(TiffInput, RefusesWhatItDoesNotReadAndNamesIt) {
  const TempFolder folder;
  using Change = std::function<void(TiffBuilder&, TiffBuilder::Tags&)>;
  const auto set = [](int tag, std::vector<uint64_t> values, int type = 3) -> Change {
    return [=](TiffBuilder&, TiffBuilder::Tags& tags) { tags[tag] = {type, values, ""}; };
  };
  const auto remove = [](int tag) -> Change {
    return [=](TiffBuilder&, TiffBuilder::Tags& tags) { tags.erase(tag); };
  };
  const std::tuple<Change, absl::StatusCode, const char*> cases[] = {
      {set(277, {3}), kInvalid, "page 1, SamplesPerPixel is 3; allowed 1"},
      {set(258, {8, 8, 16}), kInvalid, "page 1, BitsPerSample is 8 and 16"},
      {set(258, {24}), kInvalid, "BitsPerSample is 24 with SampleFormat 1"},
      {set(339, {5}), kInvalid, "BitsPerSample is 8 with SampleFormat 5"},
      {set(262, {6}), kInvalid, "PhotometricInterpretation is 6"},
      {set(259, {34712}), absl::StatusCode::kUnimplemented,
       "page 1, Compression is 34712; allowed 1"},
      {set(317, {2}), kInvalid, "page 1, Predictor is 2 with Compression 1"},
      {set(256, {0}), kInvalid, "page 1, ImageWidth is 0; allowed 1 to"},
      {remove(256), kDataLoss, "page 1, ImageWidth is missing"},
      {remove(257), kDataLoss, "page 1, ImageLength is missing"},
      {remove(273), kDataLoss, "page 1, StripOffsets is missing"},
      {set(256, {3, 1}, 5), kInvalid, "page 1, ImageWidth is of type 5"},
      {set(278, {1}), kDataLoss, "page 1, StripOffsets has 1 values; the page has 3 strips"},
      {set(273, {1000}, 4), kDataLoss, "page 1, strip 1 has 12 bytes at 1000; the file has"},
      {set(279, {0}, 4), kDataLoss, "strip 1 is empty (StripByteCounts is 0)"},
      {set(279, {5}, 4), kDataLoss, "page 1, strip 1 has 5 bytes; the page asks for 12"},
      {set(279, {4000000000}, 4), kDataLoss, "strip 1 has 4000000000 bytes"},
      // A page of 4 GiB that 12 bytes are said to make: no memory is taken for it.
      {[](TiffBuilder&, TiffBuilder::Tags& tags) {
         tags[256] = {4, {65536}, ""}, tags[257] = {4, {65536}, ""}, tags[278] = {4, {65536}, ""};
         tags[259].values = {8};
       },
       kInvalid, "RowsPerStrip is 65536 of rows of 65536 bytes; allowed blocks that decode to"},
      {[](TiffBuilder&, TiffBuilder::Tags& tags) {
         tags[256] = {4, {16384}, ""}, tags[257] = {4, {16384}, ""}, tags[278] = {4, {16384}, ""};
         tags[259].values = {5};
       },
       kDataLoss, "with Compression 5 they cannot hold 268435456"},
  };
  for (const auto& [change, code, text] : cases) {
    folder.Write("a.tif", Changed(change));
    EXPECT_THAT(ReadAll(folder / "a.tif"), IsError(code, text));
  }
  folder.Write("a.tif", Changed([](TiffBuilder&, TiffBuilder::Tags&) {}));
  ASSERT_OK_AND_ASSIGN(const std::string fine, ReadAll(folder / "a.tif"));
  EXPECT_EQ(fine, "abcdefghijkl");
  folder.Write("a.tif", Changed(remove(279)));
  ASSERT_OK_AND_ASSIGN(const std::string without_sizes, ReadAll(folder / "a.tif"));
  EXPECT_EQ(without_sizes, "abcdefghijkl") << "plain data need no sizes";
}

TEST(TiffInput, ChainsThatGoRoundOverlapOrLeaveTheFile) {
  const TempFolder folder;
  for (const bool big : {false, true}) {
    TiffBuilder round(big);
    const auto tags = Plain(4, 3, 8, round.Data("abcdefghijkl"), 12);
    const uint64_t first = round.Page(tags);
    round.Page(tags);
    TiffBuilder overlapping = round, outside = round;
    round.Link(first);
    folder.Write("a.tif", round.bytes());
    EXPECT_THAT(ReadAll(folder / "a.tif"), IsError(kDataLoss, "page 3 has its directory at"));
    outside.Link(1 << 20);
    folder.Write("a.tif", outside.bytes());
    EXPECT_THAT(ReadAll(folder / "a.tif"),
                IsError(kDataLoss, "page 3 has its directory at 1048576"));
    overlapping.Link(first + 2);
    folder.Write("a.tif", overlapping.bytes());
    EXPECT_THAT(ReadAll(folder / "a.tif"), IsError(kDataLoss, ""));
  }
}

TEST(TiffInput, PagesHaveToBeAlikeAndSmallerCopiesAreLeftOut) {
  const TempFolder folder;
  TiffBuilder builder;
  const uint64_t at = builder.Data("abcdefghijkl");
  builder.Page(Plain(4, 3, 8, at, 12));
  auto small = Plain(2, 1, 8, at, 2);
  small[254] = {4, {1}, ""};
  small[277].values = {3};  // in colour, which does not matter
  small[258].values = {8, 8, 8};
  builder.Page(small);
  builder.Page(Plain(4, 3, 8, at, 12));
  folder.Write("a.tif", builder.bytes());
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.tif", {}));
  EXPECT_EQ(input->info().shape(), (std::vector<int64_t>{2, 3, 4}));
  ASSERT_EQ(input->info().notes.size(), 1u);
  EXPECT_THAT(input->info().notes[0], ::testing::HasSubstr("1 pages are smaller copies"));
  builder.Page(Plain(3, 4, 8, at, 12));
  folder.Write("a.tif", builder.bytes());
  EXPECT_THAT(ReadAll(folder / "a.tif"),
              IsError(kInvalid, "page 4, its extent is 3 x 4; allowed 4 x 3, as of a.tif, page 1"));
}

TEST(TiffInput, ImageJWithOneDirectoryForAllImages) {
  const TempFolder folder;
  TiffBuilder builder;
  std::string data;
  for (int i = 0; i < 2 * 3 * 2 * 12; ++i) data += static_cast<char>(i);
  auto tags = Plain(4, 3, 8, builder.Data(data), 12);
  const std::string text =
      "ImageJ=1.53t\nimages=12\nchannels=2\nslices=3\nframes=2\nhyperstack=true\nunit=\\u00B5m\n"
      "spacing=2.5\n";
  tags[270] = {2, {}, text + '\0'};
  tags[282] = {5, {1, 4}, ""};
  tags[283] = {5, {1, 8}, ""};
  tags[296] = {3, {1}, ""};
  builder.Page(tags);
  folder.Write("a.tif", builder.bytes());
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.tif", {}));
  EXPECT_EQ(input->info().shape(), (std::vector<int64_t>{2, 3, 2, 3, 4}));
  std::string names;
  for (const InputAxis& axis : input->info().axes) names += axis.name;
  EXPECT_EQ(names, "tzcyx");
  EXPECT_EQ(input->info().axes[1].spacing_um, 2.5);
  EXPECT_EQ(input->info().axes[3].spacing_um, 8);
  EXPECT_EQ(input->info().axes[4].spacing_um, 4);
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
  EXPECT_EQ(read, data);
  std::string short_file = builder.bytes();
  const size_t at = short_file.find("images=12");
  short_file.replace(at, 9, "images=99");
  folder.Write("a.tif", short_file);
  EXPECT_THAT(ReadAll(folder / "a.tif"), IsError(kDataLoss, "ImageJ's images are 99"));
}

TEST(TiffInput, ImageJPagesHaveToBeAlikeToo) {
  const TempFolder folder;
  TiffBuilder builder;
  const uint64_t at = builder.Data("abcdefghijkl");
  auto tags = Plain(4, 3, 8, at, 12);
  tags[270] = {2, {}, std::string("ImageJ=1.53t\nimages=2\nslices=2\n") + '\0'};
  builder.Page(tags);
  builder.Page(Plain(8, 3, 4, at, 12));
  folder.Write("a.tif", builder.bytes());
  EXPECT_THAT(ReadAll(folder / "a.tif"), IsError(kInvalid, "page 2, its extent is 8 x 3"));
}

std::string Ome(const std::string& pixels, const std::string& inside) {
  return absl::StrCat(
      "<?xml version=\"1.0\"?><OME xmlns=\"http://www.openmicroscopy.org/Schemas/"
      "OME/2016-06\"><Image ID=\"Image:0\" Name=\"a&amp;b\"><Pixels ID=\"P:0\" ",
      pixels, ">", inside, "</Pixels></Image></OME>");
}

TEST(TiffInput, OmeSaysWhichPageIsWhichPlane) {
  const TempFolder folder;
  TiffBuilder builder;
  const std::string xml =
      Ome("DimensionOrder=\"XYCZT\" Type=\"uint8\" SizeX=\"4\" SizeY=\"3\" SizeZ=\"2\" SizeC=\"2\" "
          "SizeT=\"1\" PhysicalSizeX=\"0.25\" PhysicalSizeY=\"250\" PhysicalSizeYUnit=\"nm\" "
          "PhysicalSizeZ=\"0.002\" PhysicalSizeZUnit=\"mm\"",
          "<Channel ID=\"C:0\" Name=\"OCT\"/><Channel ID=\"C:1\"/>"
          "<TiffData IFD=\"3\" FirstZ=\"0\" FirstC=\"0\"/>"
          "<TiffData IFD=\"2\" FirstZ=\"0\" FirstC=\"1\"/>"
          "<TiffData IFD=\"0\" FirstZ=\"1\" FirstC=\"0\" PlaneCount=\"2\"/>");
  std::vector<std::string> planes;
  for (int i = 0; i < 4; ++i) {
    planes.emplace_back(12, static_cast<char>('a' + i));
    auto tags = Plain(4, 3, 8, builder.Data(planes.back()), 12);
    if (i == 0) tags[270] = {2, {}, xml + '\0'};
    builder.Page(tags);
  }
  folder.Write("a.ome.tif", builder.bytes());
  ASSERT_OK_AND_ASSIGN(const auto input, OpenVolumeInput(folder / "a.ome.tif", {}));
  std::string names;
  for (const InputAxis& axis : input->info().axes) names += axis.name;
  EXPECT_EQ(names, "zcyx");
  EXPECT_DOUBLE_EQ(*input->info().axes[0].spacing_um, 2);
  EXPECT_DOUBLE_EQ(*input->info().axes[2].spacing_um, 0.25);
  EXPECT_DOUBLE_EQ(*input->info().axes[3].spacing_um, 0.25);
  EXPECT_EQ(input->info().labels.at("name"), "a&b");
  EXPECT_EQ(input->info().labels.at("channel 0"), "OCT");
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(*input));
  EXPECT_EQ(read, planes[3] + planes[2] + planes[0] + planes[1]);
}

TEST(TiffInput, OmeOverSeveralFilesIsReadByPathAlone) {
  const TempFolder folder;
  const auto make = [&](const std::string& name, char value, const std::string& xml) {
    TiffBuilder builder;
    auto tags = Plain(4, 3, 8, builder.Data(std::string(12, value)), 12);
    tags[270] = {2, {}, xml + '\0'};
    builder.Page(tags);
    folder.Write(name, builder.bytes());
  };
  const std::string xml =
      Ome("DimensionOrder=\"XYZCT\" SizeX=\"4\" SizeY=\"3\" SizeZ=\"2\" SizeC=\"1\" SizeT=\"1\"",
          "<TiffData IFD=\"0\" FirstZ=\"0\" PlaneCount=\"1\"><UUID FileName=\"a.ome.tif\">urn:1"
          "</UUID></TiffData><TiffData IFD=\"0\" FirstZ=\"1\" PlaneCount=\"1\"><UUID "
          "FileName=\"b.ome.tif\">urn:2</UUID></TiffData>");
  make("a.ome.tif", 'a', xml);
  EXPECT_THAT(ReadAll(folder / "a.ome.tif"), IsError(absl::StatusCode::kNotFound, "b.ome.tif"));
  make("b.ome.tif", 'b', xml);
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadAll(folder / "a.ome.tif"));
  EXPECT_EQ(read, std::string(12, 'a') + std::string(12, 'b'));
  const std::string other = folder / "other";
  std::filesystem::create_directory(other);
  EXPECT_THAT(OpenVolumeInput(folder / "a.ome.tif", {.roots = {other}}).status(),
              IsError(absl::StatusCode::kPermissionDenied, ""));
  UniqueFd fd(::open((folder / "a.ome.tif").c_str(), O_RDONLY));
  EXPECT_THAT(OpenVolumeInput(std::move(fd), "a.ome.tif", {}).status(),
              IsError(kInvalid, "is another file, 'b.ome.tif'; allowed such files by their path"));
}

TEST(OmeXml, RefusesWhatIsNoPlainXml) {
  EXPECT_FALSE(ParseOmeXml("<OME><Image>").ok());
  EXPECT_FALSE(ParseOmeXml("").ok());
  EXPECT_THAT(ParseOmeXml("<!DOCTYPE a [<!ENTITY b \"c\">]><OME>&b;</OME>"),
              IsError(kInvalid, "DOCTYPE"));
  EXPECT_THAT(ParseOmeXml(Ome("SizeX=\"-1\"", "")), IsError(kInvalid, "Pixels.SizeX '-1'"));
  EXPECT_THAT(ParseOmeXml(Ome("DimensionOrder=\"ZXYCT\"", "")),
              IsError(kInvalid, "DimensionOrder 'ZXYCT'"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_FALSE(ParseOmeXml("<OME>" + deep).ok());
}

}  // namespace
}  // namespace octavo::storage
