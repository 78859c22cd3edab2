#include "server/security/token.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"

namespace octavo::security {
namespace {

TEST(Token, HasAnIdAndASecretThatNoOtherTokenHas) {
  std::set<std::string> texts;
  for (int i = 0; i < 1000; ++i) {
    const std::string token = MakeToken();
    EXPECT_EQ(token.size(), 7u + 8 + 1 + 64);  // octavo_, id, _, 256 bits
    ASSERT_TRUE(IdOfToken(token).has_value()) << token;
    texts.insert(token);
  }
  EXPECT_EQ(texts.size(), 1000u);
}

TEST(Token, TheIdIsThatOfTheText) {
  const std::string secret(64, 'a');
  EXPECT_EQ(IdOfToken("octavo_0123abcd_" + secret), "0123abcd");
}

TEST(Token, TextsOfAnotherFormHaveNoId) {
  const std::string good = "octavo_0123abcd_" + std::string(64, 'a');
  std::string middle = good, nul = good;
  middle[15] = '-';
  nul[20] = '\0';
  for (const std::string& text :
       {std::string(), std::string("octavo_"), good.substr(1), good.substr(0, good.size() - 1),
        good + "a", " " + good, good + "\n", absl::AsciiStrToUpper(good), middle, nul,
        "OCTAVO" + good.substr(6), std::string(good.size(), '_'), std::string(1 << 20, 'a')}) {
    EXPECT_FALSE(IdOfToken(text).has_value()) << text.substr(0, 100);
  }
}

TEST(Token, TheHashIsThatOfTheWholeText) {
  EXPECT_EQ(HashOfToken("").size(), 32u);
  EXPECT_NE(HashOfToken("octavo_a_b"), HashOfToken("octavo_a_c"));
}

TEST(Token, NamesAreShortAndPlain) {
  EXPECT_TRUE(IsTokenName("anna.b_c@lab-2"));
  EXPECT_TRUE(IsTokenName(std::string(64, 'x')));
  for (const std::string& text :
       {std::string(), std::string(65, 'x'), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("ä"), std::string("loopback"), std::string("remote")})
    EXPECT_FALSE(IsTokenName(text)) << text;
}

TEST(Token, TimesGoToTextAndBack) {
  EXPECT_EQ(TimeText(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(TimeOf("2027-01-31T12:30:45Z"), TimeOf("2027-01-31").value() + 45045);
  for (const int64_t seconds : {int64_t{1}, int64_t{951782400}, int64_t{4102444800}})
    EXPECT_EQ(TimeOf(TimeText(seconds)), seconds);
}

TEST(Token, WhatIsNoTimeHasNone) {
  for (const char* text : {"", "2027", "2027-02-30", "2027-13-01", "2027-01-31T12:00:00",
                           "2027-01-31 12:00:00Z", "2027-01-31T25:00:00Z", "1969-12-31",
                           "27-01-31T12:00:00Z", "2027-01-31T12:00:00Zx", "tomorrow"})
    EXPECT_FALSE(TimeOf(text).has_value()) << text;
}

}  // namespace
}  // namespace octavo::security
