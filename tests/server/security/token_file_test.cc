#include "server/security/token_file.h"

#include <cstdio>
#include <random>
#include <string>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;

const std::string kHead = "{\"octavo_tokens\":1}\n";

std::string Line(const std::string& from = "", const std::string& to = "") {
  std::string line = absl::StrCat(
      R"({"id":"0a1b2c3d","sha256":")", std::string(64, 'e'),
      R"(","name":"anna","role":"operator","project":"retina","created":"2026-11-27T10:00:00Z","expires":"2027-11-27T00:00:00Z"})",
      "\n");
  if (from.empty()) return line;
  const std::string changed = absl::StrReplaceAll(line, {{from, to}});
  EXPECT_NE(changed, line) << from;
  return changed;
}

TEST(TokenFile, WhatIsWrittenIsReadAgain) {
  const std::vector<TokenRecord> tokens = {{.id = "00000001",
                                            .sha256 = std::string(32, '\xff'),
                                            .name = "anna",
                                            .role = Role::kViewer,
                                            .project = "",
                                            .created = 1,
                                            .expires = 0},
                                           {.id = "00000002",
                                            .sha256 = std::string(32, '\0'),
                                            .name = "b@c",
                                            .role = Role::kAdmin,
                                            .project = "retina",
                                            .created = 1764000000,
                                            .expires = 1800000000}};
  EXPECT_EQ(ParseTokens(FormatTokens(tokens)).value(), tokens);
  EXPECT_TRUE(ParseTokens(FormatTokens({})).value().empty());
}

TEST(TokenFile, ReadsTheFormOfTheHeader) {
  const auto tokens = ParseTokens(kHead + Line());
  ASSERT_THAT(tokens, IsOk());
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_EQ((*tokens)[0].name, "anna");
  EXPECT_EQ((*tokens)[0].role, Role::kOperator);
  EXPECT_EQ((*tokens)[0].sha256, std::string(32, '\xee'));
}

TEST(TokenFile, SaysWhichLineIsDamagedAndHow) {
  const std::string two = kHead + Line("0a1b2c3d", "00000000");
  const struct {
    std::string text, says;
  } cases[] = {
      {"", "is empty"},
      {kHead + Line().substr(0, 50), "ends in the middle of a line"},
      {Line(), "line 1: is not {\"octavo_tokens\":1}"},
      {"[listen]\n", "line 1: is not"},
      {kHead + "\n", "line 2: is no flat object"},
      {two + "{}\n", "line 3: 'id' is not 8 hex digits"},
      {two + "[]\n", "line 3: is no flat object"},
      {two + "null\n", "line 3: is no flat object"},
      {two + "{\"id\":\n", "line 3: is no flat object"},
      {two + Line("\"anna\"", "7"), "'name' is no text"},
      {two + Line("\"anna\"", "{\"x\":\"y\"}"), "line 3: is no flat object"},
      {two + Line("\"anna\"", "[\"y\"]"), "line 3: is no flat object"},
      {two + Line("anna", "an na"), "'name' is no name; allowed 1 to 64"},
      {two + Line("anna", ""), "'name' is no name"},
      {two + Line("anna", "an\\u0000na"), "'name' is no name"},
      {two + Line("anna", "\xff\xfe"), "line 3: is no flat object"},
      {two + Line("0a1b2c3d", "0A1B2C3D"), "'id' is not 8 hex digits"},
      {two + Line("0a1b2c3d", "../../ab"), "'id' is not 8 hex digits"},
      {two + Line("eeee", "eee"), "'sha256' is not 64 hex digits"},
      {two + Line("operator", "root"), "'role' is 'root'; allowed viewer, operator, admin"},
      {two + Line("operator", "none"), "'role' is 'none'; allowed viewer, operator, admin"},
      {two + Line("retina", "../x"), "'project' is no name"},
      {two + Line("2026-11-27T10:00:00Z", "today"), "'created' is no time"},
      {two + Line("2027-11-27T00:00:00Z", ""), "'expires' is no time"},
      {two + Line("2027-11-27T00:00:00Z", "1970-01-01T00:00:00Z"), "'expires' is no time"},
      {two + Line("\"project\"", "\"projekt\""), "'projekt' is no member of a token"},
      {two + Line("\"project\":\"retina\"", "\"role\":\"admin\""), "names a member twice"},
      {two + two.substr(kHead.size()), "has the id 00000000 of another token"},
  };
  for (const auto& one : cases) {
    const auto tokens = ParseTokens(one.text);
    ASSERT_FALSE(tokens.ok()) << one.text;
    EXPECT_THAT(std::string(tokens.status().message()), HasSubstr(one.says)) << one.text;
  }
}

TEST(TokenFile, TakesNoMoreTokensThanAllowed) {
  std::string text = kHead;
  for (size_t i = 0; i <= kMostTokens; ++i) {
    char id[24];
    std::snprintf(id, sizeof id, "%08zx", i);
    text += Line("0a1b2c3d", id);
  }
  EXPECT_THAT(std::string(ParseTokens(text).status().message()),
              HasSubstr("more than 10000 tokens"));
}

TEST(TokenFile, NoChangedByteMakesAnotherToken) {
  // Whatever a byte is changed to, the file is refused, or it says what it says: the same number of
  // tokens with ids, roles and names of the allowed form.
  const std::string sound = kHead + Line();
  std::minstd_rand random(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = sound;
    text[random() % text.size()] = static_cast<char>(random());
    const auto tokens = ParseTokens(text);
    if (!tokens.ok()) {
      ++refused;
      continue;
    }
    ASSERT_EQ(tokens->size(), 1u);
    EXPECT_NE((*tokens)[0].role, Role::kNone);
    EXPECT_EQ((*tokens)[0].sha256.size(), 32u);
    EXPECT_TRUE(IsTokenName((*tokens)[0].name));
  }
  EXPECT_GT(refused, 5'000);
}

TEST(TokenFile, AChangeThatFailsChangesNothing) {
  const TempFolder folder;
  const std::string path = folder / "tokens";
  EXPECT_THAT(ChangeTokens(path, true,
                           [](std::vector<TokenRecord>* tokens) {
                             tokens->push_back({.id = "00000001",
                                                .sha256 = std::string(32, 'x'),
                                                .name = "a",
                                                .role = Role::kViewer,
                                                .project = "",
                                                .created = 1});
                             return absl::OkStatus();
                           }),
              IsOk());
  EXPECT_FALSE(ChangeTokens(path, false, [](std::vector<TokenRecord>* tokens) {
                 tokens->clear();
                 return absl::NotFoundError("none");
               }).ok());
  EXPECT_EQ(ListTokens(path).value().size(), 1u);
  // A damaged file is not replaced by a sound one with fewer tokens.
  folder.Write("tokens", kHead + "{}\n");
  EXPECT_FALSE(
      ChangeTokens(path, true, [](std::vector<TokenRecord>*) { return absl::OkStatus(); }).ok());
  EXPECT_THAT(std::string(ListTokens(path).status().message()), HasSubstr("tokens: line 2"));
}

}  // namespace
}  // namespace octavo::security
