// Data Exchange and NXtomo: files that the reader accepts, and files that it refuses.

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <zlib.h>

#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/projection_input_fixture.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ProjectionInputTest, DataExchangeIsReadAsItSays) {
  const std::string path = DataExchange([](Hdf5Builder& file) {
    file.Attribute("/exchange/theta", "units", "deg");
    file.Data("/measurement/instrument/detector/actual_pixel_size_x", {1},
              std::vector<float>{1.25e-6f});
    file.Attribute("/measurement/instrument/detector/actual_pixel_size_x", "units", "m");
  });
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  const ProjectionInfo& info = input->info();
  EXPECT_EQ(info.format, "data_exchange");
  EXPECT_EQ(info.dtype, DType::kU16);
  EXPECT_THAT((std::vector{info.projections, info.rows, info.columns, info.flats, info.darks}),
              ElementsAre(kAngles, kRows, kColumns, kFlats, kDarks));
  for (int64_t i = 0; i < kAngles; ++i)
    EXPECT_DOUBLE_EQ(info.angles_rad[static_cast<size_t>(i)],
                     36.0 * kDegree * static_cast<double>(i));
  EXPECT_NEAR(info.pixel_size_um, 1.25, 1e-6);
  EXPECT_THAT(info.flat_positions, IsEmpty());
  EXPECT_THAT(info.notes, IsEmpty());
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kFlat), Frames<uint16_t>(kFlats, 1));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kDark), Frames<uint16_t>(kDarks, 2));
  ExpectAPart(*input);
  std::vector<uint16_t> out(1000);
  EXPECT_THAT(input->Read({.frames = 6, .rows = 1, .columns = 1}, out.data()),
              IsError(absl::StatusCode::kInvalidArgument, "projection frames 0 to 5; there are 5"));
  EXPECT_THAT(input->Read({.frames = 1, .first_row = 4, .rows = 1, .columns = 1}, out.data()),
              IsError(absl::StatusCode::kInvalidArgument, "rows"));
  EXPECT_THAT(input->Read({.frames = 1, .rows = 1, .columns = 0}, out.data()),
              IsError(absl::StatusCode::kInvalidArgument, "columns"));
}

TEST_F(ProjectionInputTest, OptionsComeBeforeTheFile) {
  const std::string path = DataExchange([](Hdf5Builder& file) {
    file.Attribute("/exchange/theta", "units", "furlong");
    file.Data("/other/frames", {2, kRows, kColumns}, Frames<float>(2, 0));
  });
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(path, {.angle_unit = AngleUnit::kRadians}));
  EXPECT_DOUBLE_EQ(input->info().angles_rad[1], 36);
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(path, {.projections = "/other/frames",
                                                     .darks = "-",
                                                     .angle_values = {0, 90},
                                                     .flat_positions = {0, 1, 2}}));
  EXPECT_EQ(input->info().dtype, DType::kF32);  // the flats are u16
  EXPECT_EQ(input->info().darks, 0);
  EXPECT_DOUBLE_EQ(input->info().angles_rad[1], 90 * kDegree);
  EXPECT_THAT(input->info().flat_positions, ElementsAre(0, 1, 2));
  EXPECT_EQ(ReadAll<float>(*input, FrameKind::kProjection), Frames<float>(2, 0));
  EXPECT_EQ(ReadAll<float>(*input, FrameKind::kFlat), Frames<float>(kFlats, 1));
  EXPECT_THAT(OpenProjections(path, {.angle_values = {0, 90}}),
              IsError(absl::StatusCode::kInvalidArgument, "angles_rad has 2 values; allowed 5"));
  EXPECT_THAT(
      OpenProjections(path, {.angle_unit = AngleUnit::kDegrees, .flat_positions = {0, 1, 6}}),
      IsError(absl::StatusCode::kInvalidArgument, "flat_positions is 6 at 2; allowed 0 to 5"));
  EXPECT_THAT(OpenProjections(path, {.format = "jpeg"}),
              IsError(absl::StatusCode::kInvalidArgument, "format is 'jpeg'"));
}

TEST_F(ProjectionInputTest, TheUnitThatTheAnglesAreTakenInIsNoted) {
  const std::string plain = DataExchange({}), named = folder_ / "named.h5";
  const auto note_of = [&](AngleUnit unit) {
    const auto input = OpenProjections(plain, {.angle_unit = unit});
    return input.ok() && input.value()->info().notes.size() == 1 ? input.value()->info().notes[0]
                                                                 : std::string();
  };
  EXPECT_EQ(note_of(AngleUnit::kDeclared), "/exchange/theta declares no unit; taken as degrees");
  EXPECT_EQ(note_of(AngleUnit::kRadians),
            "/exchange/theta declares no unit; taken as radians, as the request says");
  EXPECT_EQ(note_of(AngleUnit::kDegrees),
            "/exchange/theta declares no unit; taken as degrees, as the request says");
  const std::string said =
      DataExchange([](Hdf5Builder& file) { file.Attribute("/exchange/theta", "units", "deg"); });
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(said, {.angle_unit = AngleUnit::kRadians}));
  EXPECT_THAT(
      input->info().notes,
      ElementsAre(
          "/exchange/theta declares the unit 'deg'; taken as radians, as the request says"));
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(said, {.angle_values = {0, 1, 2, 3, 4},
                                                     .angle_unit = AngleUnit::kRadians}));
  EXPECT_THAT(input->info().notes, IsEmpty()) << "those of the file are not used";
}

// Counts of 12 bits: numbers of 16 of which some are not used, or as few bits as they have (n-bit).
TEST_F(ProjectionInputTest, IntegersOfFewBitsAreRead) {
  constexpr int64_t kFrames = 7, kHigh = 9, kWide = 13;
  std::mt19937 random(octavo::testing::FreshSeed());
  for (const bool sign : {false, true}) {
    std::vector<int16_t> values(static_cast<size_t>(kFrames * kHigh * kWide));
    for (int16_t& v : values) v = static_cast<int16_t>(random() % 4096 - (sign ? 2048 : 0));
    values.front() = sign ? -2048 : 4095;
    for (const hid_t stored :
         {sign ? H5T_STD_I16LE : H5T_STD_U16LE, sign ? H5T_STD_I16BE : H5T_STD_U16BE}) {
      for (const size_t offset : {0, 4}) {
        const hid_t type = H5Tcopy(stored);
        ASSERT_GE(H5Tset_precision(type, 12), 0);
        ASSERT_GE(H5Tset_offset(type, offset), 0);
        const std::vector<Hdf5Builder::Layout> layouts = {
            {.type = type},
            {.chunk = {2, 4, kWide}, .type = type},
            {.chunk = {2, 4, 5}, .type = type, .nbit = true},
            {.chunk = {1, kHigh, kWide}, .deflate = 2, .type = type, .nbit = true}};
        for (size_t i = 0; i < layouts.size(); ++i) {
          SCOPED_TRACE(
              absl::StrCat(sign ? "i16" : "u16", " of 12 bits, from bit ", offset, ", layout ", i));
          const std::string path = folder_ / "bits.h5";
          {
            Hdf5Builder file(path);
            file.Data("/exchange/data", {kFrames, kHigh, kWide}, values, layouts[i]);
            file.Data("/exchange/theta", {kFrames}, Degrees(kFrames));
          }
          if (sign && layouts[i].nbit) {
            EXPECT_THAT(OpenProjections(path, {}),
                        IsError(kInvalid, "holds signed numbers that the n-bit filter packs"));
            continue;
          }
          ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
          EXPECT_EQ(input->info().dtype, sign ? DType::kI16 : DType::kU16);
          EXPECT_EQ(ReadAll<int16_t>(*input, FrameKind::kProjection), values);
          EXPECT_THAT(Read<int16_t>(*input, {.first_frame = 3,
                                             .frames = 1,
                                             .first_row = 8,
                                             .rows = 1,
                                             .first_column = 11,
                                             .columns = 2}),
                      ElementsAre(values[(3 * kHigh + 8) * kWide + 11],
                                  values[(3 * kHigh + 8) * kWide + 12]));
        }
        H5Tclose(type);
      }
    }
  }
}

TEST_F(ProjectionInputTest, EveryRealTypeIsRead) {
  const std::vector<std::pair<hid_t, DType>> types = {
      {H5T_STD_U8BE, DType::kU8},   {H5T_STD_I8LE, DType::kF32},   {H5T_STD_U16BE, DType::kU16},
      {H5T_STD_I16LE, DType::kI16}, {H5T_STD_U32LE, DType::kF32},  {H5T_STD_I32BE, DType::kF32},
      {H5T_STD_I64LE, DType::kF32}, {H5T_IEEE_F32BE, DType::kF32}, {H5T_IEEE_F64LE, DType::kF32}};
  for (const auto& [type, dtype] : types) {
    const std::string path = folder_ / "types.h5";
    {
      Hdf5Builder file(path);
      file.Data("/exchange/data", {kAngles, kRows, kColumns}, Frames<uint8_t>(kAngles, 0),
                {.type = type});
      file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    }
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    EXPECT_EQ(input->info().dtype, dtype) << input->info().stored_type;
    const auto expected = Frames<uint8_t>(kAngles, 0);
    for (size_t i = 0; i < expected.size(); ++i) {
      const ProjectionBox one{.first_frame = static_cast<int64_t>(i) / 24,
                              .frames = 1,
                              .first_row = static_cast<int64_t>(i) / 6 % 4,
                              .rows = 1,
                              .first_column = static_cast<int64_t>(i) % 6,
                              .columns = 1};
      const double value = dtype == DType::kU8    ? Read<uint8_t>(*input, one)[0]
                           : dtype == DType::kU16 ? Read<uint16_t>(*input, one)[0]
                           : dtype == DType::kI16 ? Read<int16_t>(*input, one)[0]
                                                  : Read<float>(*input, one)[0];
      const bool clipped =
          type == H5T_STD_I8LE && expected[i] > 127;  // the library converts the file's type
      ASSERT_EQ(value, clipped ? 127 : expected[i]) << input->info().stored_type;
    }
  }
}

// What is read past the library is what the library would read: every layout of the data, of every
// type, in boxes that cross chunks, by several threads.
TEST_F(ProjectionInputTest, EveryLayoutIsReadAlike) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  const auto upto = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  const hid_t types[] = {H5T_STD_U8LE,  H5T_STD_U16LE, H5T_STD_U16BE,
                         H5T_STD_I16BE, H5T_STD_I32LE, H5T_IEEE_F32BE};
  const int64_t frames = 7, rows = 9, columns = 11;
  std::vector<uint8_t> values(static_cast<size_t>(frames * rows * columns));
  for (uint8_t& v : values) v = static_cast<uint8_t>(upto(100));
  for (int round = 0; round < 60; ++round) {
    Hdf5Builder::Layout layout{.type = types[upto(6)]};
    if (upto(4) != 0) {
      layout.chunk = {static_cast<hsize_t>(1 + upto(frames)), static_cast<hsize_t>(1 + upto(rows)),
                      static_cast<hsize_t>(1 + upto(columns))};
      layout.deflate = static_cast<unsigned>(upto(3));
      layout.shuffle = upto(2) != 0;
      layout.checksum = upto(5) == 0;
      layout.plain_edges = upto(4) == 0;
    }
    const std::string path = folder_ / "layout.h5";
    {
      Hdf5Builder file(path, upto(4) == 0 ? 512 : 0);
      file.Data(
          "/exchange/data",
          {static_cast<hsize_t>(frames), static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)},
          values, layout);
      file.Data("/exchange/theta", {static_cast<hsize_t>(frames)}, Degrees(frames));
    }
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    std::vector<ProjectionBox> boxes(20);
    for (ProjectionBox& box : boxes) {
      box.first_frame = upto(frames), box.frames = 1 + upto(frames - box.first_frame);
      box.first_row = upto(rows), box.rows = 1 + upto(rows - box.first_row);
      box.first_column = upto(columns), box.columns = 1 + upto(columns - box.first_column);
    }
    std::vector<std::jthread> readers;
    for (size_t thread = 0; thread < 3; ++thread) {
      readers.emplace_back([&, thread] {
        for (size_t b = thread; b < boxes.size(); b += 3) {
          const ProjectionBox& box = boxes[b];
          const std::vector<double> got = ReadAsDoubles(*input, box);
          size_t i = 0;
          for (int64_t f = 0; f < box.frames; ++f) {
            for (int64_t r = 0; r < box.rows; ++r) {
              for (int64_t c = 0; c < box.columns; ++c) {
                const int64_t at = ((box.first_frame + f) * rows + box.first_row + r) * columns +
                                   box.first_column + c;
                ASSERT_EQ(got[i++], values[static_cast<size_t>(at)])
                    << round << " " << input->info().stored_type << " " << f << " " << r;
              }
            }
          }
        }
      });
    }
  }
}

TEST_F(ProjectionInputTest, NxTomoIsSortedByItsKeys) {
  const std::string path = NxTomo([](Hdf5Builder& file) {
    const std::string detector = "/entry1/tomo_entry/instrument/detector/";
    file.Data(detector + "x_pixel_size", {}, std::vector<double>{6.5});
    file.Attribute(detector + "x_pixel_size", "units", "um");
    file.Data(detector + "x_rotation_axis_pixel_position", {}, std::vector<double>{2.25});
    file.Attribute("/entry1/tomo_entry/sample/rotation_angle", "units", "degree");
  });
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  const ProjectionInfo& info = input->info();
  EXPECT_EQ(info.format, "nxtomo");
  EXPECT_THAT((std::vector{info.projections, info.flats, info.darks}), ElementsAre(5, 3, 2));
  EXPECT_THAT(info.flat_positions, ElementsAre(0, 2, 5));
  EXPECT_THAT(info.dark_positions, ElementsAre(5, 5));
  EXPECT_DOUBLE_EQ(info.pixel_size_um, 6.5);
  EXPECT_EQ(info.axis_column, 2.25);
  EXPECT_THAT(info.notes, ElementsAre("1 frames are marked as invalid; left out"));
  EXPECT_EQ(input->row_granularity(), 2);
  const int at[] = {1, 2, 5, 6, 7};
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(info.angles_rad[i], at[i] * 36 * kDegree);
  const auto all = Frames<uint16_t>(11, 0);
  const auto got = ReadAll<uint16_t>(*input, FrameKind::kProjection);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], all[static_cast<size_t>(at[i / 24]) * 24 + i % 24]) << i;
  const ProjectionBox last_flat{.kind = FrameKind::kFlat,
                                .first_frame = 2,
                                .frames = 1,
                                .first_row = 3,
                                .rows = 1,
                                .first_column = 5,
                                .columns = 1};
  EXPECT_THAT(Read<uint16_t>(*input, last_flat), ElementsAre(11 * 24 - 1));
}

TEST_F(ProjectionInputTest, NxTomoMayCallItsGroupsAsItLikes) {
  const std::string path = folder_ / "renamed.nxs";
  {
    Hdf5Builder file(path);
    file.Data("/scan_7/beamline/camera/data", {3, kRows, kColumns}, Frames<uint8_t>(3, 0));
    file.Data("/scan_7/beamline/camera/image_key", {3}, std::vector<int32_t>{0, 0, 0});
    file.Data("/scan_7/beamline/camera/image_key_control", {3}, std::vector<int32_t>{0, 0, -1});
    file.Data("/scan_7/tooth/rotation_angle", {3}, std::vector<float>{0, 1, 2});
    file.Attribute("/scan_7/tooth/rotation_angle", "units", "rad");
    for (const auto& [group, name] :
         {std::pair("/scan_7", "NXentry"), std::pair("/scan_7/beamline", "NXinstrument"),
          std::pair("/scan_7/beamline/camera", "NXdetector"),
          std::pair("/scan_7/tooth", "NXsample")}) {
      file.Attribute(group, "NX_class", name);
    }
    file.Data("/scan_8/instrument/detector/data", {2, kRows, kColumns}, Frames<uint8_t>(2, 1));
    file.Data("/scan_8/instrument/detector/image_key", {2}, std::vector<int32_t>{0, 0});
    file.SoftLink("/scan_8/sample/rotation_angle", "/elsewhere/angle");
    file.Data("/elsewhere/angle", {2}, std::vector<float>{0, 90});
  }
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(path, {}));
  EXPECT_THAT(input->info().angles_rad, ElementsAre(0, 1));
  EXPECT_THAT(input->info().notes,
              ElementsAre(HasSubstr("of 2 NXtomo entries the first is read, /scan_7"),
                          HasSubstr("1 frames are for alignment")));
  ASSERT_OK_AND_ASSIGN(input,
                       OpenProjections(path, {.format = "nxtomo", .projections = "/scan_8"}));
  EXPECT_EQ(ReadAll<uint8_t>(*input, FrameKind::kProjection), Frames<uint8_t>(2, 1));
  EXPECT_THAT(OpenProjections(path, {.format = "nxtomo", .projections = "/scan_9"}),
              IsError(absl::StatusCode::kInvalidArgument, "/scan_9 is no NXtomo entry"));
}

struct Broken {
  const char* name;
  bool nxtomo;
  std::function<void(Hdf5Builder&)> change;
  absl::StatusCode code;
  const char* text;  // part of the message
};
std::ostream& operator<<(std::ostream& out, const Broken& b) { return out << b.name; }

class BrokenFileTest : public ProjectionInputTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenFileTest, IsRefusedNamingTheDataset) {
  const Broken& broken = GetParam();
  const std::string path = broken.nxtomo ? NxTomo(broken.change) : DataExchange(broken.change);
  const auto input = OpenProjections(path, {});
  EXPECT_THAT(input, IsError(broken.code, broken.text));
  const ErrorInfo info = InfoOf(input.status());
  EXPECT_THAT(info.reason, ::testing::AnyOf(Reason::kBadProjections, Reason::kDamagedFile,
                                            Reason::kUnknownCompression));
  std::map<std::string, std::string> numbers(info.numbers.begin(), info.numbers.end());
  EXPECT_THAT(std::string(broken.text), HasSubstr(numbers["dataset"]));
  EXPECT_FALSE(numbers["dataset"].empty());
}

constexpr char kDetector[] = "/entry1/tomo_entry/instrument/detector/";

/// Replaces a dataset by another one of the same name.
template <class T>
std::function<void(Hdf5Builder&)> Instead(std::string name, std::vector<hsize_t> shape,
                                          std::vector<T> values) {
  return [=](Hdf5Builder& file) {
    file.Unlink(name);
    file.Data(name, shape, values);
  };
}

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenFileTest,
    ::testing::Values(
        Broken{"data_missing", false, [](auto& f) { f.Unlink("/exchange/data"); }, kInvalid, "/exchange/data is missing"},
        Broken{"theta_missing", false, [](auto& f) { f.Unlink("/exchange/theta"); }, kInvalid, "/exchange/theta is missing"},
        Broken{"data_is_group", false, [](auto& f) { f.Unlink("/exchange/data"), f.Group("/exchange/data"); }, kInvalid, "/exchange/data is a group"},
        Broken{"data_rank", false, Instead<uint16_t>("/exchange/data", {20, 6}, Frames<uint16_t>(5, 0)), kInvalid, "/exchange/data has 2 dimensions; allowed 3"},
        Broken{"flat_rank", false, Instead<uint16_t>("/exchange/data_white", {72}, Frames<uint16_t>(3, 0)), kInvalid, "/exchange/data_white has 1 dimensions"},
        Broken{"no_frames", false, Instead<uint16_t>("/exchange/data", {0, 4, 6}, {}), kInvalid, "/exchange/data has the shape [0, 4, 6]"},
        Broken{"one_column", false, Instead<uint16_t>("/exchange/data", {5, 24, 1}, Frames<uint16_t>(5, 0)), kInvalid, "/exchange/data"},
        Broken{"theta_count", false, Instead<double>("/exchange/theta", {6}, Degrees(6)), kInvalid, "/exchange/theta has 6 values; allowed 5"},
        Broken{"theta_rank", false, Instead<double>("/exchange/theta", {5, 1}, Degrees(5)), kInvalid, "/exchange/theta has 2 dimensions"},
        Broken{"theta_nan", false, Instead<double>("/exchange/theta", {5}, {0, 1, NAN, 3, 4}), kInvalid, "/exchange/theta is nan at 2"},
        Broken{"theta_inf", false, Instead<double>("/exchange/theta", {5}, {0, 1, 2, 3, INFINITY}), kInvalid, "/exchange/theta is inf at 4"},
        Broken{"theta_unit", false, [](auto& f) { f.Attribute("/exchange/theta", "units", "mm"); }, kInvalid, "/exchange/theta@units is 'mm'"},
        Broken{"theta_text", false, [](auto& f) { f.Unlink("/exchange/theta"), f.Text("/exchange/theta", "0 to 180"); }, kInvalid, "/exchange/theta holds text"},
        Broken{"data_axes", false, [](auto& f) { f.Attribute("/exchange/data", "axes", "y:theta:x"); }, kInvalid, "/exchange/data@axes is 'y:theta:x'"},
        Broken{"flat_size", false, Instead<uint16_t>("/exchange/data_white", {3, 6, 4}, Frames<uint16_t>(3, 0)), kInvalid, "/exchange/data_white has frames of 6 rows and 4 columns; allowed 4 and 6"},
        Broken{"dark_size", false, Instead<uint16_t>("/exchange/data_dark", {4, 3, 4}, Frames<uint16_t>(2, 0)), kInvalid, "/exchange/data_dark has frames of 3 rows"},
        Broken{"data_compound", false,
               [](auto& f) {
                 f.Unlink("/exchange/data");
                 const hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
                 H5Tinsert(pair, "r", 0, H5T_IEEE_F32LE);
                 H5Tinsert(pair, "i", 4, H5T_IEEE_F32LE);
                 f.template Data<float>("/exchange/data", {5, 4, 6}, {}, {.type = pair});
               },
               kInvalid, "/exchange/data holds compound"},
        Broken{"never_written", false, Instead<uint16_t>("/exchange/data", {5, 4, 6}, {}), kInvalid, "/exchange/data was never written"},
        Broken{"other_file", false, [](auto& f) { f.Unlink("/exchange/data"), f.ExternalLink("/exchange/data", "scan.h5", "/exchange/data_white"); }, kInvalid, "/exchange/data leads to 'scan.h5:/exchange/data_white', which is another file"},
        Broken{"group_in_other_file", false, [](auto& f) { f.Unlink("/exchange"), f.ExternalLink("/exchange", "scan.h5", "/"); }, kInvalid, "/exchange leads to 'scan.h5:/', which is another file"},
        Broken{"other_file_by_soft_link", false,
               [](auto& f) { f.Unlink("/exchange/data"), f.ExternalLink("/away", "scan.h5", "/exchange"), f.SoftLink("/exchange/data", "/away/data_white"); }, kInvalid,
               "/away leads to 'scan.h5:/exchange', which is another file"},
        Broken{"virtual_data", false, [](auto& f) { f.Unlink("/exchange/data"), f.VirtualData("/exchange/data", {5, 4, 6}, {{.file = "other.h5", .dataset = "/data", .shape = {5, 4, 6}, .at = {0, 0, 0}}}); }, kInvalid, "/exchange/data leads to 'other.h5:/data', which is another file"},
        Broken{"nothing_known", false, [](auto& f) { f.Unlink("/exchange"); }, kInvalid, "/ has neither a group /exchange nor an NXtomo entry"},
        Broken{"key_missing", true, [](auto& f) { f.Unlink(std::string(kDetector) + "image_key"); }, kInvalid, "/entry1/tomo_entry/instrument/detector/image_key is missing"},
        Broken{"key_count", true, Instead<int32_t>(std::string(kDetector) + "image_key", {10}, std::vector<int32_t>(10, 0)), kInvalid,
               "/entry1/tomo_entry/instrument/detector/image_key has 10 values; allowed 11"},
        Broken{"key_unknown", true, Instead<int32_t>(std::string(kDetector) + "image_key", {11}, {0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0}), kInvalid,
               "/entry1/tomo_entry/instrument/detector/image_key is 4 at 2"},
        Broken{"no_projection", true, Instead<int32_t>(std::string(kDetector) + "image_key", {11}, std::vector<int32_t>(11, 1)), kInvalid,
               "/entry1/tomo_entry/instrument/detector/image_key marks no frame as a projection"},
        Broken{"control_count", true, [](auto& f) { f.Data(std::string(kDetector) + "image_key_control", {2}, std::vector<int32_t>{0, 0}); }, kInvalid,
               "/entry1/tomo_entry/instrument/detector/image_key_control has 2 values"},
        Broken{"angle_count", true, Instead<double>("/entry1/tomo_entry/sample/rotation_angle", {5}, Degrees(5)), kInvalid,
               "/entry1/tomo_entry/sample/rotation_angle has 5 values; allowed 11"},
        Broken{"angle_missing", true, [](auto& f) { f.Unlink("/entry1/tomo_entry/sample/rotation_angle"); }, kInvalid, "/entry1/tomo_entry/sample/rotation_angle is missing"},
        Broken{"frames_missing", true, [](auto& f) { f.Unlink(std::string(kDetector) + "data"); }, kInvalid, "/entry1/tomo_entry/instrument/detector/data is missing"},
        Broken{"frames_rank", true, Instead<uint16_t>(std::string(kDetector) + "data", {11, 24}, Frames<uint16_t>(11, 0)), kInvalid,
               "/entry1/tomo_entry/instrument/detector/data has 2 dimensions"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ProjectionInputTest, PartlyWrittenDataIsRefused) {
  const std::string path = folder_ / "part.h5";
  {
    Hdf5Builder file(path);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
  }
  const hid_t opened = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hsize_t shape[3] = {5, 4, 6}, chunk[3] = {1, 4, 6}, start[3] = {0, 0, 0};
  const hid_t space = H5Screate_simple(3, shape, nullptr), creation = H5Pcreate(H5P_DATASET_CREATE),
              memory = H5Screate_simple(3, chunk, nullptr);
  H5Pset_chunk(creation, 3, chunk);
  const hid_t data = H5Dcreate2(opened, "/exchange/data", H5T_STD_U16LE, space, H5P_DEFAULT,
                                creation, H5P_DEFAULT);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, chunk, nullptr);
  const auto one = Frames<uint16_t>(1, 0);
  EXPECT_GE(H5Dwrite(data, H5T_STD_U16LE, memory, space, H5P_DEFAULT, one.data()), 0);
  for (const hid_t id : {memory, space}) H5Sclose(id);
  H5Dclose(data);
  H5Pclose(creation);
  H5Fclose(opened);
  EXPECT_THAT(OpenProjections(path, {}),
              IsError(kInvalid, "/exchange/data was written in part only"));
}

TEST_F(ProjectionInputTest, DamageIsDataLoss) {
  // A truncated file.
  std::string path = DataExchange();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 300);
  EXPECT_THAT(OpenProjections(path, {}),
              IsError(absl::StatusCode::kDataLoss, "the file cannot be opened"));
  EXPECT_EQ(InfoOf(OpenProjections(path, {}).status()).reason, Reason::kDamagedFile);
  // A chunk whose compressed bytes are wrong: only reading it finds the error.
  std::pair<int64_t, int64_t> chunk;
  path = DataExchange([&](Hdf5Builder& file) { chunk = file.FirstChunk("/exchange/data"); },
                      {.chunk = {1, kRows, kColumns}, .deflate = 6});
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(chunk.first + chunk.second / 2);
    file.write("\xA5\x5A\xA5\x5A", 4);
  }
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<uint16_t> out(kAngles * kRows * kColumns);
  const ProjectionBox all{.frames = kAngles, .rows = kRows, .columns = kColumns};
  EXPECT_THAT(input->Read(all, out.data()),
              IsError(absl::StatusCode::kDataLoss, "/exchange/data cannot be read at frame 0"));
  ProjectionBox rest = all;
  rest.first_frame = 1, --rest.frames;
  EXPECT_THAT(input->Read(rest, out.data()), IsOk());
  // A file that is not HDF5, an empty file, and an empty folder.
  folder_.Write("text.h5", "no HDF5");
  EXPECT_THAT(OpenProjections(folder_ / "text.h5", {}), IsError(kInvalid, "is no HDF5 file"));
  EXPECT_THAT(OpenProjections(folder_ / "none.h5", {}),
              IsError(absl::StatusCode::kNotFound, "none.h5"));
  EXPECT_THAT(OpenProjections(folder_.path(), {}),
              IsError(kInvalid, "the folder has neither an array of projections"));
  EXPECT_THAT(OpenProjections("/dev/null", {}), IsError(kInvalid, "the path is no regular file"));
}

// Sets the length of a chunk in the index of a dataset of rank 3: nodes of a B-tree of version 1.
void SetChunkBytes(const std::string& path, uint64_t frame, uint32_t length) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  bool found = false;
  for (size_t at = bytes.find("TREE"); at != std::string::npos; at = bytes.find("TREE", at + 4)) {
    uint16_t entries;
    std::memcpy(&entries, bytes.data() + at + 6, sizeof entries);
    if (bytes[at + 4] != 1 || entries != kAngles) continue;  // another kind of tree
    for (size_t i = 0; i < entries; ++i) {
      const size_t key = at + 24 + i * 48;  // length, mask, four offsets; then the address
      uint64_t first;
      std::memcpy(&first, bytes.data() + key + 8, sizeof first);
      if (first != frame) continue;
      file.seekp(static_cast<std::streamoff>(key));
      file.write(reinterpret_cast<const char*>(&length), sizeof length);
      found = true;
    }
  }
  EXPECT_TRUE(found);
}

// The library reads as many bytes of a chunk without a filter as the index says, whatever the room.
TEST_F(ProjectionInputTest, AChunkWithoutAFilterHasItsLength) {
  for (const uint32_t length : {0u, 40u, 49u, 1u << 20, 0xFFFFFFFFu}) {
    const std::string path = DataExchange({}, {.chunk = {1, kRows, kColumns}});
    EXPECT_THAT(OpenProjections(path, {}), IsOk());
    SetChunkBytes(path, 3, length);
    EXPECT_THAT(OpenProjections(path, {}), IsError(absl::StatusCode::kDataLoss, "has a chunk of"))
        << length;
  }
}

// A few bytes that would become megabytes are damage for every reader, however much of
// the chunk is wanted.
TEST_F(ProjectionInputTest, AChunkInflatesToItsLengthOnly) {
  std::vector<Bytef> bomb(compressBound(32 << 20));
  uLongf length = bomb.size();
  {
    const std::vector<Bytef> zeros(32 << 20);
    ASSERT_EQ(compress2(bomb.data(), &length, zeros.data(), zeros.size(), 9), Z_OK);
  }
  const std::string path = DataExchange({}, {.chunk = {kAngles, kRows, kColumns}, .deflate = 1});
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
              data = H5Dopen2(file, "/exchange/data", H5P_DEFAULT);
  const hsize_t at[3] = {};
  EXPECT_GE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, at, length, bomb.data()), 0);
  H5Dclose(data);
  H5Fclose(file);
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<uint16_t> out(kAngles * kRows * kColumns);
  for (const int64_t frames : {int64_t{1}, int64_t{kAngles}}) {
    const ProjectionBox box{.frames = frames, .rows = kRows, .columns = kColumns};
    EXPECT_THAT(input->Read(box, out.data()), IsError(absl::StatusCode::kDataLoss, "zlib"))
        << frames;
  }
}

// The library reads beyond chunks that are shorter than their filters need, and beyond its memory
// where the filters make too little of them. Neither the first nor the last chunk, which are looked
// at before.
TEST_F(ProjectionInputTest, AChunkThatIsTooShortForItsFiltersIsDamaged) {
  const hid_t twelve = H5Tcopy(H5T_STD_U16LE), half = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_precision(twelve, 12);
  // Numbers of an unusual format, which the library converts: IEEE floats of 16 bits.
  H5Tset_fields(half, 15, 10, 5, 0, 10);
  H5Tset_precision(half, 16);
  H5Tset_ebias(half, 15);
  H5Tset_size(half, 2);
  const std::vector<hsize_t> chunk = {1, kRows, kColumns};
  struct Way {
    const char* name;
    Hdf5Builder::Layout layout;
    hsize_t before = 0;
    bool packed = false;  // shorter than the numbers
  };
  for (const Way& way :
       {Way{"checksum", {.chunk = chunk, .checksum = true}},
        Way{"shuffled, checksum", {.chunk = chunk, .shuffle = true, .checksum = true}},
        Way{"deflated, checksum", {.chunk = chunk, .deflate = 1, .checksum = true}, 0, true},
        Way{"n-bit", {.chunk = chunk, .type = twelve, .nbit = true}, 0, true},
        Way{"n-bit, deflated",
            {.chunk = chunk, .deflate = 1, .type = twelve, .nbit = true},
            0,
            true},
        Way{"scale-offset", {.chunk = chunk, .scale_offset = true}, 0, true},
        Way{"behind other bytes", {.chunk = chunk}, 512},
        Way{"behind other bytes, checksum", {.chunk = chunk, .checksum = true}, 512},
        Way{"half precision", {.chunk = chunk, .type = half}}}) {
    SCOPED_TRACE(way.name);
    const std::string path = folder_ / "short.h5";
    const hsize_t most = 2 * kRows * kColumns + 4;
    const std::vector<uint16_t> values(kAngles * kRows * kColumns, 1000);
    std::vector<char> stored(2 * most);
    for (hsize_t length = 0; length <= most + 1; length = length < 30 ? length + 1 : length + 7) {
      {
        Hdf5Builder file(path, way.before);
        file.Data("/exchange/data", {kAngles, kRows, kColumns}, values, way.layout);
        file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
      }
      const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                  data = H5Dopen2(file, "/exchange/data", H5P_DEFAULT);
      const hsize_t at[3] = {3, 0, 0};
      hsize_t size = 0;
      uint32_t skipped = 0;
      ASSERT_GE(H5Dget_chunk_storage_size(data, at, &size), 0);
      ASSERT_LE(size, stored.size());
      ASSERT_GE(H5Dread_chunk(data, H5P_DEFAULT, at, &skipped, stored.data()), 0);
      const bool as_it_was = length == size;
      const bool filtered = way.layout.checksum || way.layout.nbit || way.packed;
      if (length > 0 && !as_it_was && filtered)
        ASSERT_GE(H5Dwrite_chunk(data, H5P_DEFAULT, skipped, at, length, stored.data()), 0);
      H5Dclose(data);
      H5Fclose(file);
      if (length > 0 && !filtered) SetChunkBytes(path, 3, static_cast<uint32_t>(length));
      const auto input = OpenProjections(path, {});
      if (!input.ok()) {
        EXPECT_THAT(input, IsError(absl::StatusCode::kDataLoss, "has a chunk of"));
        continue;
      }
      std::vector<float> row(kColumns);
      for (const int64_t frame : {0, 2, 3, 4}) {
        const ProjectionBox box{.first_frame = frame, .frames = 1, .rows = 1, .columns = kColumns};
        const absl::Status read = (*input)->Read(box, row.data());
        if (frame != 3 || as_it_was || length == 0) {
          EXPECT_THAT(read, IsOk()) << length;
          EXPECT_EQ(
              way.layout.type == half ? row[0] : *reinterpret_cast<const uint16_t*>(row.data()),
              1000)
              << length << " at " << frame;
        } else if (read.ok()) {
          EXPECT_TRUE(filtered && (length > size || (way.packed && length >= size - 5)))
              << length << " of " << size;
        } else {
          EXPECT_THAT(read, IsError(absl::StatusCode::kDataLoss, "cannot be read at frame 3"));
        }
      }
    }
  }
  H5Tclose(twelve);
  H5Tclose(half);
}

TEST_F(ProjectionInputTest, UnknownCompressionIsNamed) {
  const std::string path = folder_ / "filter.h5";
  H5Z_class2_t secret{H5Z_CLASS_T_VERS,
                      300,
                      1,
                      1,
                      "secret",
                      nullptr,
                      nullptr,
                      [](unsigned, size_t, const unsigned*, size_t bytes, size_t*,
                         void**) -> size_t { return bytes; }};
  ASSERT_GE(H5Zregister(&secret), 0);
  {
    Hdf5Builder file(path);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
  }
  const hid_t opened = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hsize_t shape[3] = {5, 4, 6};
  const hid_t space = H5Screate_simple(3, shape, nullptr), creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 3, shape);
  H5Pset_filter(creation, 300, H5Z_FLAG_MANDATORY, 0, nullptr);
  const hid_t data = H5Dcreate2(opened, "/exchange/data", H5T_STD_U16LE, space, H5P_DEFAULT,
                                creation, H5P_DEFAULT);
  const auto frames = Frames<uint16_t>(kAngles, 0);
  ASSERT_GE(H5Dwrite(data, H5T_STD_U16LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, frames.data()), 0);
  H5Dclose(data);
  H5Sclose(space);
  H5Pclose(creation);
  H5Fclose(opened);
  ASSERT_GE(H5Zunregister(300), 0);
  const auto input = OpenProjections(path, {});
  EXPECT_THAT(input, IsError(absl::StatusCode::kUnimplemented,
                             "/exchange/data is compressed with filter 300 (secret)"));
  EXPECT_EQ(InfoOf(input.status()).reason, Reason::kUnknownCompression);
}

}  // namespace
}  // namespace octavo::storage
