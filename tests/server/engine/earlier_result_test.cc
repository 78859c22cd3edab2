#include "server/engine/earlier_result.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class EarlierResultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(temp_ / "in/night2");
    std::filesystem::create_directories(temp_ / "other");
    for (const char* file : {"in/a.h5", "in/night2/a.h5", "other/b.h5"}) temp_.Write(file, "x");
    std::filesystem::create_symlink("a.h5", temp_ / "in/link.h5");
    roots_ = {temp_ / "in", temp_ / "other"};
  }
  static json Made(const json& parameters, const std::string& kind = "tomography") {
    return {{"job", {{"name", "jobs/1"}, {"kind", kind}, {"parameters", parameters}}}};
  }
  static model::TomographySpec Wanted(const std::string& path, const json& more = json::object()) {
    model::TomographySpec spec;
    spec.input = model::ProjectionFileSpec{.path = path, .options = {}};
    if (more.value("output", "") == "TOMOGRAPHY_OUTPUT_SINOGRAMS")
      spec.output = model::TomographyOutput::kSinograms;
    spec.json = more.dump();
    return spec;
  }
  std::string Differs(const json& made, const model::TomographySpec& wanted) const {
    return HowResultDiffers(made, wanted, roots_);
  }

  testing::TempFolder temp_;
  std::vector<std::string> roots_;
};

TEST_F(EarlierResultTest, OneFileHasManyNames) {
  const std::string whole = temp_ / "in/a.h5";
  for (const std::string& made : {std::string("a.h5"), std::string("./a.h5"), whole,
                                  std::string("link.h5"), std::string("night2/../a.h5")}) {
    for (const std::string& wanted : {std::string("a.h5"), whole, std::string("link.h5")})
      EXPECT_EQ(Differs(Made({{"file", {{"path", made}}}}), Wanted(wanted)), "") << made;
  }
  EXPECT_EQ(Differs(Made({{"file", {{"path", "b.h5"}}}}), Wanted(temp_ / "other/b.h5")), "");
}

TEST_F(EarlierResultTest, AnotherFile) {
  const json made = Made({{"file", {{"path", "a.h5"}}}});
  EXPECT_EQ(Differs(made, Wanted("night2/a.h5")),
            "it was made of 'a.h5', and this scan is 'night2/a.h5'");
  // The whole path ends in the name of the other one.
  EXPECT_THAT(Differs(made, Wanted(temp_ / "in/night2/a.h5")), HasSubstr("made of 'a.h5'"));
  EXPECT_THAT(Differs(Made({{"file", {{"path", "gone/a.h5"}}}}), Wanted("a.h5")),
              HasSubstr("made of 'gone/a.h5'"));
}

TEST_F(EarlierResultTest, AnotherKindOfResult) {
  const json file = {{"path", "a.h5"}},
             sinograms = {{"file", file}, {"output", "TOMOGRAPHY_OUTPUT_SINOGRAMS"}},
             slices = {{"file", file}, {"output", "TOMOGRAPHY_OUTPUT_SLICES"}},
             usual = {{"file", file}};
  EXPECT_EQ(Differs(Made(sinograms), Wanted("a.h5", sinograms)), "");
  for (const json& one : {slices, usual}) {
    EXPECT_EQ(Differs(Made(one), Wanted("a.h5", usual)), "");
    EXPECT_EQ(Differs(Made(one), Wanted("a.h5", sinograms)),
              "it holds slices, and prepared sinograms are wanted");
    EXPECT_EQ(Differs(Made(sinograms), Wanted("a.h5", one)),
              "it holds prepared sinograms, and slices are wanted");
  }
  EXPECT_EQ(Differs(Made({}, "reprocess"), Wanted("a.h5")),
            "it was made by a job of reprocess, and not by one of tomography");
  EXPECT_EQ(Differs(json::object(), Wanted("a.h5")),
            "it was made by no job, and not by one of tomography");
}

TEST_F(EarlierResultTest, AnotherHalfTurn) {
  const auto request = [](const char* half) {
    json one = {{"file", {{"path", "a.h5"}}}};
    if (*half != '\0') one["half_turn"] = half;
    return one;
  };
  EXPECT_EQ(Differs(Made(request("HALF_TURN_FIRST")), Wanted("a.h5", request("HALF_TURN_SECOND"))),
            "its half_turn is FIRST, and SECOND is wanted");
  EXPECT_EQ(Differs(Made(request("HALF_TURN_BEST")), Wanted("a.h5", request(""))),
            "its half_turn is BEST, and ALL is wanted");
  for (const char* all : {"", "HALF_TURN_ALL", "HALF_TURN_UNSPECIFIED"})
    EXPECT_EQ(Differs(Made(request(all)), Wanted("a.h5", request("HALF_TURN_ALL"))), "");
}

TEST_F(EarlierResultTest, WhatTheRecordDoesNotSay) {
  model::TomographySpec arrays = Wanted("a.h5");
  arrays.input = model::ProjectionArraysSpec{};
  EXPECT_EQ(Differs(Made({{"file", {{"path", "a.h5"}}}}), arrays), "");
  for (const json& parameters : {json({{"push", {{"rows", 3}}}}), json("text"), json(nullptr),
                                 json({{"file", 3}}), json({{"file", {{"path", 3}}}})})
    EXPECT_EQ(Differs(Made(parameters), Wanted("a.h5")), "") << parameters;
}

}  // namespace
}  // namespace octavo::engine
