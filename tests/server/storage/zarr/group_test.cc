// Groups, and OME-Zarr images in them.

#include "server/storage/zarr/group.h"

#include <filesystem>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/ome.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::ElementsAre;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kUnknown = absl::StatusCode::kUnimplemented;

constexpr char kArray[] = R"({"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},
    "chunk_key_encoding":{"name":"default"},"fill_value":7,"codecs":["bytes"]})";

class ZarrGroupTest : public ::testing::Test {
 protected:
  absl::StatusOr<ZarrGroup> Open(const std::string& name) {
    auto folder = ZarrFolder::Open(folder_ / name, {folder_.path()});
    if (!folder.ok()) return folder.status();
    return ZarrGroup::Open(*std::move(folder));
  }
  void Put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / file).parent_path());
    folder_.Write(file, text);
  }
  std::vector<std::string> Children(const std::string& name) {
    const auto group = Open(name);
    EXPECT_THAT(group, IsOk());
    const auto children = group->Children();
    EXPECT_THAT(children, IsOk());
    std::vector<std::string> out;
    if (children.ok()) {
      for (const auto& child : *children)
        out.push_back(
            absl::StrCat(child.name, child.kind == ZarrNodeKind::kArray ? " array" : " group"));
    }
    return out;
  }

  const TempFolder folder_;
};

TEST_F(ZarrGroupTest, GroupsOfBothVersions) {
  Put("g/zarr.json", R"({"zarr_format":3,"node_type":"group","attributes":{"a":1},
      "consolidated_metadata":null,"other":{"must_understand":false}})");
  Put("g/b/zarr.json", kArray);
  Put("g/a/zarr.json", R"({"zarr_format":3,"node_type":"group"})");
  Put("g/c/.zarray", "{}");
  Put("g/d/file", "x");
  Put("g/file", "x");
  ASSERT_OK_AND_ASSIGN(const ZarrGroup group, Open("g"));
  EXPECT_EQ(group.attributes, json({{"a", 1}}));
  EXPECT_EQ(group.version, ZarrVersion::kV3);
  EXPECT_THAT(Children("g"), ElementsAre("a group", "b array", "c array"));
  Put("two/.zgroup", R"({"zarr_format":2})");
  Put("two/.zattrs", R"({"b":2})");
  Put("two/0/.zarray", "{}");
  Put("two/1/.zgroup", "{}");
  ASSERT_OK_AND_ASSIGN(const ZarrGroup two, Open("two"));
  EXPECT_EQ(two.attributes, json({{"b", 2}}));
  EXPECT_EQ(two.version, ZarrVersion::kV2);
  EXPECT_THAT(Children("two"), ElementsAre("0 array", "1 group"));
}

// Consolidated metadata name nodes; whether they are there, and what they are, only their own say.
TEST_F(ZarrGroupTest, ConsolidatedMetadataAreNotTrusted) {
  Put("g/zarr.json",
      R"({"zarr_format":3,"node_type":"group","consolidated_metadata":{"kind":"inline",
      "must_understand":false,"metadata":{"gone":{"node_type":"array"},"b":{"node_type":"group"},
      "../out":{},"b/c":{}}}})");
  Put("g/b/zarr.json", kArray);
  Put("out/zarr.json", kArray);
  EXPECT_THAT(Children("g"), ElementsAre("b array"));
  Put("two/.zgroup", R"({"zarr_format":2})");
  Put("two/.zmetadata", R"({"zarr_consolidated_format":1,"metadata":{"0/.zarray":{},".zattrs":{},
      "gone/.zarray":{}}})");
  Put("two/0/.zarray", "{}");
  EXPECT_THAT(Children("two"), ElementsAre("0 array"));
  if (::geteuid() == 0) return;  // may list every folder
  std::filesystem::permissions(folder_ / "two", std::filesystem::perms::owner_exec);
  EXPECT_THAT(Children("two"), ElementsAre("0 array"));
  std::filesystem::permissions(folder_ / "two", std::filesystem::perms::owner_all);
}

TEST_F(ZarrGroupTest, OtherFoldersAreNoGroups) {
  Put("a/zarr.json", kArray);
  EXPECT_THAT(Open("a"), IsError(kDataLoss, "a/zarr.json: node_type is \"array\""));
  Put("b/zarr.json", R"({"zarr_format":3,"node_type":"group","storage":{}})");
  EXPECT_THAT(Open("b"), IsError(kUnknown, "storage"));
  Put("c/zarr.json", R"({"zarr_format":3,"node_type":"group","attributes":[]})");
  EXPECT_THAT(Open("c"), IsError(kDataLoss, "attributes is []"));
  Put("d/.zgroup", R"({"zarr_format":3})");
  EXPECT_THAT(Open("d"), IsError(kDataLoss, "d/.zgroup: zarr_format is 3"));
  Put("e/x", "");
  EXPECT_THAT(Open("e"), IsError(absl::StatusCode::kNotFound, "neither zarr.json nor .zgroup"));
  Put("f/zarr.json", R"({"node_type":"table"})");
  ASSERT_OK_AND_ASSIGN(const ZarrFolder folder, ZarrFolder::Open(folder_ / "f", {}));
  EXPECT_THAT(ZarrNodeKindOf(folder), IsError(kDataLoss, "node_type is \"table\""));
  std::filesystem::create_directory_symlink("/", folder_ / "link");
  EXPECT_THAT(Open("link"), IsError(absl::StatusCode::kPermissionDenied, "outside"));
}

json Image04() {
  return json::parse(R"({"multiscales":[{"version":"0.4","name":"n","axes":[
      {"name":"c","type":"channel"},{"name":"z","type":"space","unit":"micrometer"},
      {"name":"y","type":"space","unit":"millimeter"}],
      "datasets":[{"path":"0","coordinateTransformations":[{"type":"scale","scale":[1,2,3]}]},
      {"path":"s/1","coordinateTransformations":[{"type":"scale","scale":[1,4,6]},
      {"type":"translation","translation":[0,1,1.5]}]}],
      "coordinateTransformations":[{"type":"scale","scale":[1,10,10]},
      {"type":"translation","translation":[0,0,5]}]}]})");
}

TEST(OmeImageTest, TransformationsAreCombined) {
  const json image = Image04();
  json wrapped;
  wrapped["ome"] = image;
  wrapped["ome"]["version"] = "0.5";
  wrapped["ome"]["multiscales"][0].erase("version");
  for (const json& attributes : {image, wrapped}) {
    ASSERT_OK_AND_ASSIGN(const OmeImage parsed, OmeImage::Parse(attributes));
    EXPECT_EQ(parsed.version, attributes == image ? "0.4" : "0.5");
    EXPECT_EQ(parsed.name, "n");
    ASSERT_EQ(parsed.axes.size(), 3u);
    EXPECT_EQ(parsed.axes[0].type, "channel");
    EXPECT_EQ(parsed.axes[0].unit, "");
    EXPECT_EQ(parsed.axes[2].unit, "millimeter");
    ASSERT_EQ(parsed.levels.size(), 2u);
    EXPECT_THAT(parsed.levels[0].scale, ElementsAre(1, 20, 30));
    EXPECT_THAT(parsed.levels[0].translation, ElementsAre(0, 0, 5));
    EXPECT_EQ(parsed.levels[1].path, "s/1");
    EXPECT_THAT(parsed.levels[1].scale, ElementsAre(1, 40, 60));
    EXPECT_THAT(parsed.levels[1].translation, ElementsAre(0, 10, 20));
  }
  EXPECT_EQ(OmeUnitMicrometres("millimeter"), 1000);
  EXPECT_EQ(OmeUnitMicrometres("angstrom"), 1e-4);
  EXPECT_EQ(OmeUnitMicrometres("second"), std::nullopt);
}

TEST(OmeImageTest, RefusalsNameTheMember) {
  const auto image = [](json& a) -> json& { return a["multiscales"][0]; };
  const auto transformations = [&](json& a) -> json& {
    return image(a)["datasets"][0]["coordinateTransformations"];
  };
  struct Bad {
    std::function<void(json&)> change;
    absl::StatusCode code;
    const char* words;
  };
  const std::vector<Bad> cases = {
      {[](json& a) { a.erase("multiscales"); }, absl::StatusCode::kNotFound,
       "attributes.multiscales is missing"},
      {[](json& a) { a["multiscales"] = json::array(); }, kDataLoss,
       "attributes.multiscales is []"},
      {[&](json& a) { image(a)["version"] = "0.6"; }, kUnknown,
       "attributes.multiscales[0].version is \"0.6\""},
      {[&](json& a) { image(a)["axes"].erase(0); }, kDataLoss,
       "attributes.multiscales[0].datasets[0].coordinateTransformations[0].scale is [1,2,3]"},
      {[&](json& a) {
         image(a)["axes"] = {"z", "y"};
       },
       kDataLoss, "attributes.multiscales[0].axes[0] is \"z\""},
      {[&](json& a) { image(a)["axes"][1]["name"] = "c"; }, kDataLoss,
       "attributes.multiscales[0].axes[1].name is \"c\""},
      {[&](json& a) { image(a)["datasets"] = json::array(); }, kDataLoss,
       "attributes.multiscales[0].datasets is []"},
      {[&](json& a) { image(a)["datasets"][1]["path"] = "../1"; }, kDataLoss,
       "attributes.multiscales[0].datasets[1].path is \"../1\""},
      {[&](json& a) { image(a)["datasets"][1]["path"] = "/etc"; }, kDataLoss, "path is \"/etc\""},
      {[&](json& a) { image(a)["datasets"][1]["path"] = ""; }, kDataLoss, "path is \"\""},
      {[&](json& a) { transformations(a)[0]["type"] = "affine"; }, kUnknown,
       "coordinateTransformations[0].type is \"affine\""},
      {[&](json& a) { transformations(a)[0]["path"] = "x"; }, kUnknown,
       "coordinateTransformations[0].path is \"x\""},
      {[&](json& a) { transformations(a)[0]["scale"][1] = 0; }, kDataLoss,
       "coordinateTransformations[0].scale is [1,0,3]"},
      {[&](json& a) { transformations(a)[0]["scale"][1] = "2"; }, kDataLoss, "numbers above 0"},
      {[&](json& a) { transformations(a) = json::array(); }, kDataLoss, "with a scale"},
      {[&](json& a) { transformations(a).push_back(transformations(a)[0]); }, kDataLoss,
       "one scale and at most one translation"},
      {[&](json& a) { image(a)["datasets"][0].erase("coordinateTransformations"); }, kDataLoss,
       "datasets[0].coordinateTransformations is missing"},
  };
  for (const Bad& bad : cases) {
    json attributes = Image04();
    bad.change(attributes);
    EXPECT_THAT(OmeImage::Parse(attributes), IsError(bad.code, bad.words)) << attributes;
  }
  EXPECT_THAT(OmeImage::Parse(Image04(), 1), IsError(kDataLoss, "attributes.multiscales is ["));
}

}  // namespace
}  // namespace octavo::storage
