// Sinograms that Octavo committed, read again as projections: the order of the axes is that of
// their metadata.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "server/storage/formats/meta_json.h"
#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRowsOf = 3, kAnglesOf = 4, kColumnsOf = 5;

float ValueAt(int64_t angle, int64_t row, int64_t column) {
  return static_cast<float>(100 * angle + 10 * row + column);
}

class CommittedFramesTest : public ProjectionInputTest {
 protected:
  static VolumeMeta Meta(const std::string& axes, const std::string& value = "line_integral") {
    VolumeMeta meta;
    meta.volume_name = "volumes/1";
    meta.software = "octavo 0.1.0";
    meta.dtype = DType::kF32;
    meta.value_kind = value;
    for (size_t d = 0; d < 3; ++d) {
      meta.axes[d] = axes.substr(d, 1);
      meta.shape[d] = axes[d] == 'z' ? kRowsOf : axes[d] == 'y' ? kAnglesOf : kColumnsOf;
      meta.spacing_um[d] = axes[d] == 'x' ? 2.5 : 1;
      meta.spacing_assumed[d] = axes[d] == 'y';
    }
    return meta;
  }
  // The array in this order of the axes, with its metadata beside it.
  std::string Commit(const std::string& axes, const nlohmann::json& meta) {
    std::vector<int64_t> shape;
    for (const char axis : axes)
      shape.push_back(axis == 'z' ? kRowsOf : axis == 'y' ? kAnglesOf : kColumnsOf);
    std::vector<float> values;
    const auto place = [&](char axis, const std::array<int64_t, 3>& at) {
      int64_t found = 0;
      for (size_t d = 0; d < 3; ++d) {
        if (axes[d] == axis) found = at[d];
      }
      return found;
    };
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; ++i) {
      const std::array<int64_t, 3> at = {i / shape[2] / shape[1], i / shape[2] % shape[1],
                                         i % shape[2]};
      values.push_back(ValueAt(place('y', at), place('z', at), place('x', at)));
    }
    const std::string name = axes + ".npy";
    Npy(name, "<f4", shape, Bytes(values));
    folder_.Write(name + ".json", meta.dump());
    return folder_ / name;
  }
  static std::vector<double> Angles() { return {0, 0.5, 1, 1.5}; }
};

TEST_F(CommittedFramesTest, EveryOrderOfTheAxes) {
  for (const std::string axes : {"zyx", "zxy", "yzx", "yxz", "xzy", "xyz"}) {
    SCOPED_TRACE(axes);
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(Commit(axes, MetaJson(Meta(axes))),
                                                           {.angle_values = Angles()}));
    const ProjectionInfo& info = input->info();
    ASSERT_THAT((std::vector{info.projections, info.rows, info.columns}),
                ElementsAre(kAnglesOf, kRowsOf, kColumnsOf));
    EXPECT_EQ(info.quantity, "line_integral");
    EXPECT_EQ(info.pixel_size_um, 2.5);
    EXPECT_THAT(info.notes, Contains(HasSubstr("by its metadata: z are rows, y angles")));
    std::vector<float> all(kAnglesOf * kRowsOf * kColumnsOf);
    ASSERT_EQ(
        input->Read({.frames = kAnglesOf, .rows = kRowsOf, .columns = kColumnsOf}, all.data()),
        absl::OkStatus());
    for (int64_t i = 0; i < std::ssize(all); ++i)
      ASSERT_EQ(all[static_cast<size_t>(i)],
                ValueAt(i / kColumnsOf / kRowsOf, i / kColumnsOf % kRowsOf, i % kColumnsOf));
    float part[2 * 1 * 3];
    ASSERT_EQ(input->Read({.first_frame = 1,
                           .frames = 2,
                           .first_row = 2,
                           .rows = 1,
                           .first_column = 1,
                           .columns = 3},
                          part),
              absl::OkStatus());
    EXPECT_THAT(part, ElementsAre(ValueAt(1, 2, 1), ValueAt(1, 2, 2), ValueAt(1, 2, 3),
                                  ValueAt(2, 2, 1), ValueAt(2, 2, 2), ValueAt(2, 2, 3)));
  }
}

// The usual order of the axes is taken then, and said.
TEST_F(CommittedFramesTest, WithoutMetadataTheAxesAreTheUsualOnes) {
  const std::string path = Commit("zyx", {{"software", "octopus 3"}});
  const std::vector<double> angles(kRowsOf, 0.5);
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(path, {.angle_values = angles}));
  EXPECT_EQ(input->info().projections, kRowsOf);
  EXPECT_THAT(input->info().notes,
              Contains("zyx.npy.json is another program's, and does not say what the axes of "
                       "zyx.npy are; taken as [angle, row, column]"));
  std::filesystem::remove(path + ".json");
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(path, {.angle_values = angles}));
  EXPECT_THAT(input->info().notes, Contains("There is no zyx.npy.json, which would say what the "
                                            "axes of zyx.npy are; taken as [angle, row, column]"));
  EXPECT_THAT(input->info().doubts, ::testing::IsEmpty());
  // With the angles that the sinograms have the count shows the mistake.
  EXPECT_THAT(OpenProjections(path, {.angle_values = Angles()}).status(),
              IsError(kInvalid, "angle"));
  // Where it does not, the job warns.
  Npy("square.npy", "<f4", {4, 4, 5}, Bytes(std::vector<float>(80)));
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(folder_ / "square.npy", {.angle_values = Angles()}));
  EXPECT_THAT(input->info().doubts, ElementsAre(HasSubstr("It has as many angles as rows")));
}

TEST_F(CommittedFramesTest, MetadataOfAnotherFileAreRefused) {
  nlohmann::json meta = MetaJson(Meta("zyx"));
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(Commit("zyx", meta)));
  for (const std::string value : {"line_integral", "db"}) {
    meta = MetaJson(Meta("zyx", value));
    meta["file"] = {{"bytes", bytes}};
    EXPECT_THAT(OpenProjections(Commit("zyx", meta),
                                {.angle_values = std::vector<double>(value == "db" ? 3 : 4)}),
                IsOk());
    meta["file"] = {{"bytes", bytes + 4}};
    EXPECT_THAT(OpenProjections(Commit("zyx", meta), {.angle_values = Angles()}),
                IsError(kInvalid, absl::StrCat("zyx.npy.json is of a file of ", bytes + 4,
                                               " bytes; allowed ", bytes, ", as zyx.npy has")));
  }
  // An array that lost an axis, and kept its bytes.
  Npy("flat.npy", "<f4", {kRowsOf * kAnglesOf, kColumnsOf}, Bytes(std::vector<float>(60)));
  folder_.Write("flat.npy.json", MetaJson(Meta("zyx")).dump());
  EXPECT_THAT(OpenProjections(folder_ / "flat.npy", {.angle_values = std::vector<double>(12)}),
              IsError(kInvalid, "flat.npy.json has the shape [3, 4, 5]; allowed [12, 1, 5]"));
}

TEST_F(CommittedFramesTest, WhatIsWrongIsNamed) {
  const auto open = [&](const nlohmann::json& meta) {
    return OpenProjections(Commit("zyx", meta), {.angle_values = Angles()});
  };
  auto meta = MetaJson(Meta("zyx"));
  meta.erase("axes");
  EXPECT_THAT(open(meta), IsError(absl::StatusCode::kDataLoss, "axes"));
  meta["axes"] = {"z", "y", "y"};
  EXPECT_THAT(open(meta),
              IsError(absl::StatusCode::kDataLoss, "allowed are x, y and z, each once"));
  EXPECT_THAT(open(MetaJson(Meta("yzx"))),
              IsError(kInvalid, "has the shape [4, 3, 5]; allowed [3, 4, 5]"));
  VolumeMeta window = Meta("zyx");
  window.has_levels = true;
  window.level_hi = 2;
  EXPECT_THAT(open(MetaJson(window)),
              IsError(kInvalid, "with the window 0 to 2; allowed the values"));
  EXPECT_THAT(OpenProjections(Commit("zyx", MetaJson(Meta("zyx"))), {}),
              IsError(kInvalid, "angles are not given"));
}

TEST_F(CommittedFramesTest, OtherMetadataChangeNothing) {
  // [angle, row, column] of 3 projections.
  const ProjectionOptions options{.angle_values = {0, 1, 2}};
  ASSERT_OK_AND_ASSIGN(auto input,
                       OpenProjections(Commit("zyx", {{"axes", {"z", "y", "x"}}}), options));
  EXPECT_EQ(input->info().quantity, "");
  EXPECT_EQ(input->info().rows, kAnglesOf);
  ASSERT_OK_AND_ASSIGN(input,
                       OpenProjections(Commit("zyx", MetaJson(Meta("zyx", "real"))), options));
  EXPECT_EQ(input->info().rows, kAnglesOf);
  folder_.Write("zyx.npy.json", "no JSON");
  EXPECT_THAT(
      OpenProjections(folder_ / "zyx.npy", options),
      IsError(absl::StatusCode::kInvalidArgument, "zyx.npy.json cannot be read as metadata"))
      << "it could say that the axes have another order";
}

}  // namespace
}  // namespace octavo::storage
