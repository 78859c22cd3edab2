// TIFF: folders of files and files of pages; what is refused; files that change while they are
// read.

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <sys/resource.h>
#include <thread>

#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/formats/tiff_builder.h"
#include "tests/server/storage/projections/projection_input_fixture.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

/// How a page is written.
struct Page {
  int64_t width = kColumns, height = kRows;
  int bits = 16, format = 1;         // SampleFormat: 1 unsigned, 2 signed, 3 float; 12 bits of u16
  int compression = 1;               // 1, 8, 32773
  int64_t strip_rows = 0, tile = 0;  // 0 = one strip; a square tile, in place of strips
  bool apart = false;                // strips in reverse, not one after the other
};

/// Rows of `columns` u16 as TIFF has those of 12 bits: most significant first, each row from a
/// byte.
std::string Packed12(const std::string& numbers, int64_t columns) {
  std::string out;
  const auto at = [&](size_t i) {
    uint16_t value = 0;
    std::memcpy(&value, numbers.data() + 2 * i, 2);
    return static_cast<unsigned>(value);
  };
  const auto wide = static_cast<size_t>(columns);
  for (size_t row = 0; row < numbers.size() / 2; row += wide) {
    for (size_t c = 0; c < wide; c += 2) {
      const unsigned first = at(row + c), second = c + 1 < wide ? at(row + c + 1) : 0;
      out += static_cast<char>(first >> 4);
      out += static_cast<char>((first & 15) << 4 | second >> 8);
      if (c + 1 < wide) out += static_cast<char>(second & 255);
    }
  }
  return out;
}

class ProjectionTiffTest : public ProjectionInputTest {
 protected:
  /// Appends a page of `pixels`, in host order.
  static void Add(TiffBuilder& file, const Page& page, const std::string& pixels,
                  bool big_endian = false) {
    const auto u = [](int64_t n) { return static_cast<uint64_t>(n); };
    const int64_t size = page.bits == 12 ? 2 : page.bits / 8;
    const int64_t wide = page.tile > 0 ? page.tile : page.width, high = page.tile > 0 ? page.tile
                                                                        : page.strip_rows > 0
                                                                            ? page.strip_rows
                                                                            : page.height;
    std::vector<std::string> blocks;
    for (int64_t top = 0; top < page.height; top += high) {
      for (int64_t left = 0; left < page.width; left += wide) {
        std::string block;
        const int64_t rows = page.tile > 0 ? high : std::min(high, page.height - top);
        for (int64_t r = top; r < top + rows; ++r) {
          for (int64_t c = left; c < left + wide; ++c) {
            std::string pixel(u(size), '\0');
            if (r < page.height && c < page.width)
              pixel = pixels.substr(u((r * page.width + c) * size), u(size));
            if (big_endian && page.bits != 12) std::reverse(pixel.begin(), pixel.end());
            block += pixel;
          }
        }
        if (page.bits == 12) block = Packed12(block, wide);
        blocks.push_back(page.compression == 8       ? Deflate(block)
                         : page.compression == 32773 ? PackBits(block)
                                                     : block);
      }
    }
    std::vector<uint64_t> offsets(blocks.size()), sizes;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const size_t at = page.apart ? blocks.size() - 1 - i : i;
      offsets[at] = file.Data(blocks[at]);
    }
    for (const std::string& block : blocks) sizes.push_back(block.size());
    TiffBuilder::Tags tags = {{256, {4, {u(page.width)}, ""}},
                              {257, {4, {u(page.height)}, ""}},
                              {258, {3, {u(page.bits)}, ""}},
                              {259, {3, {u(page.compression)}, ""}},
                              {262, {3, {1}, ""}},
                              {277, {3, {1}, ""}},
                              {339, {3, {u(page.format)}, ""}}};
    if (page.tile > 0) {
      tags[322] = tags[323] = {3, {u(page.tile)}, ""};
      tags[324] = {4, offsets, ""};
      tags[325] = {4, sizes, ""};
    } else {
      tags[273] = {4, offsets, ""};
      tags[278] = {4, {u(high)}, ""};
      tags[279] = {4, sizes, ""};
    }
    file.Page(tags);
  }

  template <class T>
  static std::string File(const std::vector<T>& frames, const Page& page, bool big = false,
                          bool big_endian = false) {
    TiffBuilder file(big, big_endian);
    const std::string all = Bytes(frames);
    const size_t bytes = static_cast<size_t>(page.width * page.height) * sizeof(T);
    for (size_t at = 0; at < all.size(); at += bytes)
      Add(file, page, all.substr(at, bytes), big_endian);
    return file.bytes();
  }

  /// One file for each frame, with these names.
  template <class T>
  void Folder(const std::string& name, const std::vector<std::string>& files,
              const std::vector<T>& frames, const Page& page = {}) {
    fs::create_directories(folder_ / name);
    const auto each = static_cast<int64_t>(page.width * page.height);
    for (size_t i = 0; i < files.size(); ++i) {
      const auto first = frames.begin() + static_cast<int64_t>(i) * each;
      folder_.Write(absl::StrCat(name, "/", files[i]),
                    File(std::vector<T>(first, first + each), page));
    }
  }

  std::string Scan() {
    Folder("scan", {"p1.tif", "p2.TIF", "p9.tiff", "p10.tif", "p100.tif"},
           Frames<uint16_t>(kAngles, 0));
    folder_.Write("white.tif", File(Frames<uint16_t>(kFlats, 1), {}));
    Folder("dark", {"d_2.tif", "d_11.tif"}, Frames<uint16_t>(kDarks, 2));
    Npy("a.npy", "<f8", {kAngles}, Bytes(Degrees(kAngles)));
    return folder_ / "scan";
  }
  ProjectionOptions Options() const {
    return {.flats = folder_ / "white.tif",
            .darks = folder_ / "dark",
            .angles = folder_ / "a.npy",
            .roots = {folder_.path()}};
  }
  absl::Status ReadOf(ProjectionInput& input) {
    const ProjectionInfo& i = input.info();
    std::vector<float> out(static_cast<size_t>(i.projections * i.rows * i.columns));
    return input.Read({.frames = i.projections, .rows = i.rows, .columns = i.columns}, out.data());
  }
};

TEST_F(ProjectionTiffTest, AFolderIsReadInTheOrderOfItsNumbers) {
  const std::string path = Scan();
  folder_.Write("scan/notes.txt", "exposure 1 s");
  folder_.Write("scan/.p5.tif", "hidden");
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(path, Options()));
  const ProjectionInfo& info = input->info();
  EXPECT_EQ(info.format, "tiff");
  EXPECT_EQ(info.stored_type, "u16");
  EXPECT_EQ(info.dtype, DType::kU16);
  EXPECT_THAT((std::vector{info.projections, info.rows, info.columns, info.flats, info.darks}),
              ElementsAre(kAngles, kRows, kColumns, kFlats, kDarks));
  EXPECT_DOUBLE_EQ(info.angles_rad[4], 144 * kDegree);
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kFlat), Frames<uint16_t>(kFlats, 1));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kDark), Frames<uint16_t>(kDarks, 2));
  ExpectAPart(*input);
  // The format may be named; and metadata of Zarr make it a folder of Zarr unless it is.
  folder_.Write("scan/zarr.json", "{}");
  ProjectionOptions options = Options();
  EXPECT_FALSE(OpenProjections(path, options).ok());
  EXPECT_EQ(ProjectionFormatOf(path, options).value(), "zarr");
  options.format = "tiff";
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(path, options));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
}

TEST_F(ProjectionTiffTest, FormatsAreRecognised) {
  const std::string path = Scan();
  for (const char* name : {"a.tif", "a.TIFF", "a.btf", "a.npy", "a.h5", "tif"})
    folder_.Write(name, "");
  const auto format = [&](const std::string& name) {
    return ProjectionFormatOf(folder_ / name, {.roots = {folder_.path()}}).value();
  };
  EXPECT_EQ(format("scan"), "tiff");
  EXPECT_EQ(format("a.tif"), "tiff");
  EXPECT_EQ(format("a.TIFF"), "tiff");
  EXPECT_EQ(format("a.btf"), "tiff");
  EXPECT_EQ(format("a.npy"), "npy");
  EXPECT_EQ(format("a.h5"), "");
  EXPECT_EQ(format("tif"), "");
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(format("empty"), "zarr");
  EXPECT_TRUE(NamesFurtherFiles("tiff") && NamesFurtherFiles("npy"));
  EXPECT_FALSE(NamesFurtherFiles("zarr") || NamesFurtherFiles(""));
  EXPECT_THAT(ProjectionFormatOf(folder_ / "none", {}),
              IsError(absl::StatusCode::kNotFound, "none"));
}

/// Every form of page against the same numbers in a .npy file.
TEST_F(ProjectionTiffTest, PagesOfEveryFormAreRead) {
  std::mt19937 random(FreshSeed());
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto check = [&]<class T>(T, int format, const char* descr, int bits = 8 * sizeof(T)) {
    for (int i = 0; i < 12; ++i) {
      const int64_t frames = 1 + upto(5);
      Page page{.width = 2 + upto(40),
                .height = 1 + upto(30),
                .bits = bits,
                .format = format,
                .compression = std::array{1, 1, 8, 32773}[static_cast<size_t>(upto(4))],
                .apart = upto(2) == 0};
      page.strip_rows = 1 + upto(page.height);
      if (upto(4) == 0) page.tile = 16;
      std::vector<T> values(static_cast<size_t>(frames * page.width * page.height));
      for (T& v : values) v = static_cast<T>(random() % (bits == 12 ? 4096 : 60000));
      const bool big = upto(2) == 0, big_endian = upto(2) == 0;
      SCOPED_TRACE(absl::StrCat(descr, " ", page.width, " x ", page.height, " compression ",
                                page.compression, " strips ", page.strip_rows, " tile ", page.tile,
                                big ? " big" : "", big_endian ? " MM" : ""));
      folder_.Write("p.tif", File(values, page, big, big_endian));
      Npy("p.npy", descr, {frames, page.height, page.width}, Bytes(values));
      const ProjectionOptions options{.angle_values = Degrees(frames)};
      ASSERT_OK_AND_ASSIGN(const auto tiff, OpenProjections(folder_ / "p.tif", options));
      ASSERT_OK_AND_ASSIGN(const auto npy, OpenProjections(folder_ / "p.npy", options));
      EXPECT_EQ(tiff->info().dtype, npy->info().dtype);
      for (int k = 0; k < 10; ++k) {
        ProjectionBox box{.first_frame = upto(frames),
                          .first_row = upto(page.height),
                          .first_column = upto(page.width)};
        box.frames = 1 + upto(frames - box.first_frame);
        box.rows = 1 + upto(page.height - box.first_row);
        box.columns = 1 + upto(page.width - box.first_column);
        ASSERT_EQ(ReadAsDoubles(*tiff, box), ReadAsDoubles(*npy, box));
      }
    }
  };
  check(uint8_t{}, 1, "|u1");
  check(uint16_t{}, 1, "<u2");
  check(uint16_t{}, 1, "<u2", 12);
  check(int16_t{}, 2, "<i2");
  check(float{}, 3, "<f4");
  check(uint32_t{}, 1, "<u4");
  check(double{}, 3, "<f8");
}

TEST_F(ProjectionTiffTest, MistakesAreNamed) {
  const std::string path = Scan();
  const ProjectionOptions options = Options();
  const auto refused = [&](const ProjectionOptions& with, const char* text) {
    EXPECT_THAT(OpenProjections(path, with), IsError(kInvalid, text));
  };
  ProjectionOptions changed = options;
  changed.angles.clear();
  refused(changed, "angles are not given; allowed a file of angles, or their values");
  changed = options, changed.projections = "/data";
  refused(changed, "projections is '/data'; allowed nothing");
  Npy("few.npy", "<f8", {3}, Bytes(Degrees(3)));
  changed = options, changed.angles = folder_ / "few.npy";
  refused(changed, "few.npy has 3 values; allowed 5");
  changed = options, changed.flats = folder_ / "a.npy";
  refused(changed, "a.npy: the file is no TIFF file; allowed TIFF and BigTIFF");
  changed = options, changed.flats = folder_ / "nothing.tif";
  EXPECT_THAT(OpenProjections(path, changed), IsError(absl::StatusCode::kNotFound, "nothing.tif"));
  folder_.Write("short.tif", File(Frames<uint16_t>(1, 1, 3), {.height = 3}));
  changed = options, changed.flats = folder_ / "short.tif";
  refused(changed, "short.tif has frames of 3 rows and 6 columns; allowed 4 and 6");
  // Pages that differ, and what is no page of numbers.
  folder_.Write("scan/p3.tif", File(Frames<uint16_t>(1, 0, 5), {.height = 5}));
  refused(options, "p3.tif: page 1, its extent is 6 x 5; allowed 6 x 4, as of");
  EXPECT_EQ(InfoOf(OpenProjections(path, options).status()).reason, Reason::kUnsupportedFile);
  folder_.Write("scan/p3.tif", File(Frames<uint8_t>(1, 0), {.bits = 8}));
  refused(options, "p3.tif: page 1, its type is u8; allowed u16");
  folder_.Write("scan/p3.tif", File(Frames<uint16_t>(2, 0), {}));
  refused(options, "p3.tif is a file of 2 pages; allowed files of one page");
  folder_.Write("scan/p3.tif", "no TIFF at all");
  EXPECT_THAT(OpenProjections(path, options), IsError(kDataLoss, "p3.tif"));
  fs::remove(folder_ / "scan/p3.tif");
  std::vector<double> complex(kRows * kColumns);
  folder_.Write("c.tif", File(complex, {.bits = 64, .format = 6}));
  EXPECT_THAT(OpenProjections(folder_ / "c.tif", {.angle_values = {0}}),
              IsError(kInvalid, "c.tif holds c64; allowed real numbers"));
  // A folder as a file, and the other way round.
  fs::create_directories(folder_ / "no");
  EXPECT_THAT(OpenProjections(folder_ / "no", {.format = "tiff", .angle_values = {0}}),
              IsError(kInvalid, "without files *.tif or *.tiff"));
  EXPECT_THAT(OpenProjections(folder_ / "white.tif", {.format = "zarr", .angle_values = {0}}),
              IsError(kInvalid, "allowed zarr for folders, tiff for both, the others for files"));
  EXPECT_THAT(OpenProjections(folder_ / "white.tif", {.format = "jpeg", .angle_values = {0}}),
              IsError(kInvalid, "data_exchange, nxtomo, npy, tiff, zarr"));
}

TEST_F(ProjectionTiffTest, NothingOutsideOfTheRootsIsRead) {
  const TempFolder outside;
  outside.Write("white.tif", File(Frames<uint16_t>(kFlats, 1), {}));
  const std::string path = Scan();
  ProjectionOptions options = Options();
  const auto denied = [&](const std::string& flats) {
    options.flats = flats;
    const auto input = OpenProjections(path, options);
    EXPECT_THAT(input, IsError(absl::StatusCode::kPermissionDenied, "outside of the configured"));
    EXPECT_EQ(InfoOf(input.status()).reason, Reason::kOutsideRoots);
  };
  denied(outside.path() + "/white.tif");
  denied(absl::StrCat(folder_.path(), "/../", fs::path(outside.path()).filename().string(),
                      "/white.tif"));
  denied(outside.path() + "/none.tif");  // whether it exists is no client's business
  fs::create_symlink(outside.path() + "/white.tif", folder_ / "link.tif");
  denied(folder_ / "link.tif");
  fs::create_directory_symlink(outside.path(), folder_ / "away");
  denied(folder_ / "away");
  // A link in a folder, wherever it leads: a scan without it would lack a projection.
  options = Options();
  for (const std::string& to :
       {outside.path() + "/white.tif", folder_ / "scan/p1.tif", std::string("/nowhere")}) {
    fs::create_symlink(to, folder_ / "scan/p50.tif");
    EXPECT_THAT(OpenProjections(path, options),
                IsError(kInvalid, "scan: p50.tif is a link; allowed regular files"));
    fs::remove(folder_ / "scan/p50.tif");
  }
  fs::create_directories(folder_ / "scan/p50.tif");
  EXPECT_THAT(OpenProjections(path, options), IsError(kInvalid, "p50.tif is no regular file"));
  fs::remove(folder_ / "scan/p50.tif");
  // A link to a folder below a root is followed, as for other formats.
  fs::create_directory_symlink(path, folder_ / "same");
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(folder_ / "same", options));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
}

TEST_F(ProjectionTiffTest, FilesThatChangeAreDataLoss) {
  const std::string path = Scan();
  const std::string file = folder_ / "scan/p9.tiff", kept = folder_ / "kept";
  fs::copy_file(file, kept);
  struct Case {
    std::function<void()> change;
    const char* text;
  };
  const TempFolder outside;
  outside.Write("p.tif", "elsewhere");
  const Case cases[] = {
      {[&] { fs::resize_file(file, fs::file_size(file) - 10); }, "when the folder was opened"},
      {[&] { fs::resize_file(file, fs::file_size(file) + 10); }, "when the folder was opened"},
      {[&] { fs::remove(file); }, "No such file"},
      {[&] { fs::remove(file), fs::create_symlink(outside.path() + "/p.tif", file); }, "p9.tiff"},
      {[&] { fs::remove(file), fs::create_directory(file); }, "p9.tiff"}};
  for (const Case& one : cases) {
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, Options()));
    one.change();
    const absl::Status read = ReadOf(*input);
    EXPECT_THAT(read, IsError(kDataLoss, one.text));
    EXPECT_THAT(read, IsError(kDataLoss, "p9.tiff"));
    EXPECT_EQ(InfoOf(read).reason, Reason::kDamagedFile);
    // The others are there still.
    std::vector<uint16_t> out(kRows * kColumns);
    EXPECT_THAT(input->Read({.frames = 1, .rows = kRows, .columns = kColumns}, out.data()), IsOk());
    fs::remove_all(file);
    fs::copy_file(kept, file);
  }
  // A file of pages that is cut off while it is open.
  folder_.Write("pages.tif", File(Frames<uint16_t>(kAngles, 0), {}));
  ASSERT_OK_AND_ASSIGN(const auto input,
                       OpenProjections(folder_ / "pages.tif", {.angle_values = Degrees(kAngles)}));
  fs::resize_file(folder_ / "pages.tif", 40);
  const absl::Status read = ReadOf(*input);
  EXPECT_THAT(read, IsError(kDataLoss, "pages.tif"));
  EXPECT_EQ(InfoOf(read).reason, Reason::kDamagedFile);
}

// More files than the process may open, by as many threads as a job has.
TEST_F(ProjectionTiffTest, ManyFilesNeedFewDescriptors) {
  constexpr int64_t kFiles = 300;
  std::vector<std::string> names;
  for (int64_t i = 0; i < kFiles; ++i) names.push_back(absl::StrCat("p", i, ".tif"));
  std::vector<uint16_t> frames;
  for (int64_t i = 0; i < kFiles * kRows * kColumns; ++i)
    frames.push_back(static_cast<uint16_t>(i));
  Folder("many", names, frames);
  rlimit before{}, few{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 120;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto input = OpenProjections(folder_ / "many", {.angle_values = Degrees(kFiles)});
  if (input.ok()) {
    std::vector<std::jthread> threads;
    for (int64_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t i = 0; i < 5; ++i) {
          const int64_t row = (t + i) % kRows;
          const auto read = Read<uint16_t>(
              **input, {.frames = kFiles, .first_row = row, .rows = 1, .columns = kColumns});
          for (int64_t k = 0; k < kFiles * kColumns; ++k) {
            ASSERT_EQ(read[static_cast<size_t>(k)],
                      frames[static_cast<size_t>(k / kColumns * kRows * kColumns + row * kColumns +
                                                 k % kColumns)]);
          }
        }
      });
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(input, IsOk());
}

TEST_F(ProjectionTiffTest, SmallerCopiesAreLeftOutAndTold) {
  TiffBuilder file;
  const auto frames = Frames<uint16_t>(2, 0);
  Add(file, {}, Bytes(std::vector<uint16_t>(frames.begin(), frames.begin() + 24)));
  file.Page({{254, {4, {1}, ""}},
             {256, {3, {1}, ""}},
             {257, {3, {1}, ""}},
             {258, {3, {16}, ""}},
             {273, {4, {8}, ""}},
             {279, {4, {2}, ""}}});
  Add(file, {}, Bytes(std::vector<uint16_t>(frames.begin() + 24, frames.end())));
  folder_.Write("copies.tif", file.bytes());
  ASSERT_OK_AND_ASSIGN(const auto input,
                       OpenProjections(folder_ / "copies.tif", {.angle_values = Degrees(2)}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), frames);
  EXPECT_THAT(input->info().notes,
              ElementsAre(HasSubstr("copies.tif: 1 pages are smaller copies")));
}

TEST_F(ProjectionTiffTest, SurvivesMutations) {
  std::mt19937 random(FreshSeed());
  const std::string good[] = {
      File(Frames<uint16_t>(3, 0), {}),
      File(Frames<uint16_t>(3, 0), {.compression = 8, .strip_rows = 2}),
      File(Frames<float>(3, 0), {.bits = 32, .format = 3, .tile = 16}, true)};
  int opened = 0, failed = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good[i % 3];
    for (size_t k = 1 + random() % 4; k-- > 0;)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    folder_.Write("m.tif", bytes);
    const auto input = OpenProjections(folder_ / "m.tif", {.angle_values = Degrees(3)});
    failed += input.ok() ? 0 : 1;
    if (!input.ok() || (*input)->info().rows * (*input)->info().columns > 1 << 20) continue;
    ++opened;
    (void)ReadOf(**input);
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(failed, 50);
}

}  // namespace
}  // namespace octavo::storage
