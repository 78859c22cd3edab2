#include "server/base/toml_text.h"

#include <iterator>
#include <random>
#include <string>

#include "server/config.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Repeat(const std::string& part, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += part;
  return out;
}

absl::Status Apply(const std::string& text, Config* config) {
  return ApplyText(config, text, "/x.toml");
}
absl::Status Apply(const std::string& text) {
  Config config;
  return Apply(text, &config);
}

// The parser recurses with the depth of tables, and "[[[" ends the process.
TEST(ConfigTextTest, WhatTheParserWouldDieOfIsRefused) {
  for (const char* text :
       {"[[[a]]]", "[[[", "\n \t[[[[a", "\xEF\xBB\xBF[[[a]]]", "[[ [a", "[[a]]\nb=1",
        "[device]\nx=[[1]]", "x = \"a\" \n[[[", "x = '''a''''\n[[[", "x = \"\"\"a\"\"\"\"\"\n[[[a",
        "#[\n[[[", "x = \"\\\"\"\n[[["}) {
    EXPECT_THAT(Apply(text), IsError(kInvalid, "'[' within '['")) << text;
  }
  // Texts that trigger assertions of the parser.
  for (const char* text : {"[", "[=", "[ \t#", "[.a]", "x=1\n[,]", "[\n]", "[]", "[{a]",
                           "x = ['y']\n[]", "x = }", "x = ]", "x = ,"})
    EXPECT_THAT(Apply(text), IsError(kInvalid, "/x.toml")) << text;
  EXPECT_THAT(Apply("\n\n[[[a]]]"), IsError(kInvalid, "/x.toml, line 3: "));
  for (const size_t depth : {9, 1000, 66'000, 300'000}) {
    for (const std::string part : {"a", "'a'", "\"a\" "}) {
      const std::string key = part + Repeat("." + part, depth - 1);
      if (key.size() > 1'000'000) continue;
      EXPECT_THAT(Apply(key + " = 1"), IsError(kInvalid, "a key of more than 8 parts"))
          << depth << part;
      EXPECT_THAT(Apply("[" + key + "]\n"), IsError(kInvalid, "a key of more than 8 parts"))
          << depth << part;
      EXPECT_THAT(Apply("x = { y = '''z'''', " + key + " = 1 }\n"),
                  IsError(kInvalid, "a key of more than 8 parts"))
          << depth << part;
    }
    EXPECT_THAT(Apply("x = " + Repeat("{ a = ", depth)),
                IsError(kInvalid, depth < 100'000 ? "deep" : "bytes"))
        << depth;
  }
  EXPECT_THAT(Apply("#" + std::string(1 << 20, 'x')), IsError(kInvalid, "more than 1048576 bytes"));
}

TEST(ConfigTextTest, StringsAndCommentsHoldWhatTheyLike) {
  Config config;
  EXPECT_THAT(Apply("# [[[a]]] a.a.a.a.a.a.a.a.a.a\n[storage]\nroots = ['/[[[a', "
                    "\"/a.b.c.d.e.f.g.h.i.j\\\"[[[\", '/1.2', '/3.4', '/5.6',\n '/7.8', "
                    "'/9.0'] # [\n",
                    &config),
              IsOk());
  EXPECT_EQ(config.storage_roots.size(), 7u);
}

// Any sequence of tokens gives a configuration or an error: an assertion in the parser would end
// this test.
TEST(ConfigTextTest, RandomTokensGiveAnErrorOrAConfiguration) {
  const std::string tokens[] = {"[",
                                "]",
                                "[[",
                                "]]",
                                "{",
                                "}",
                                "=",
                                ",",
                                ".",
                                "\n",
                                " ",
                                "#",
                                "a",
                                "storage",
                                "roots",
                                "'",
                                "\"",
                                "\"\"\"",
                                "'''",
                                "\\",
                                "\\u12",
                                "1",
                                "-",
                                "+",
                                "_",
                                "0x",
                                "1e",
                                "inf",
                                "nan",
                                "true",
                                ":",
                                "1979-05-27",
                                "T07:32:00",
                                "\r",
                                "\xEF\xBB\xBF",
                                "\xff",
                                "\xc3\xa9",
                                "\xe2\x80\xa8",
                                "\x01",
                                "a=1\n",
                                "[a]\n"};
  std::mt19937 random(testing::FreshSeed());
  int reached = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto n = random() % 24; n > 0; --n) text += tokens[random() % std::size(tokens)];
    reached += CheckConfigText(text).ok();
    const absl::Status status = Apply(text);
    if (!status.ok()) ASSERT_EQ(status.code(), kInvalid) << text;
  }
  EXPECT_GT(reached, 2000) << "the parser was hardly tried";
}

}  // namespace
}  // namespace octavo
