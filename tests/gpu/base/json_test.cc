#include "gpu/base/json.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using nlohmann::json;
using testing::IsError;
using testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JsonTest, DepthIsBoundedWhateverIsNestedInWhatever) {
  const struct {
    const char* name;
    std::string open, close;
  } kinds[] = {{"arrays", "[", "]"},
               {"objects", R"({"a":)", "}"},
               {"objects with something before", R"({"b":1,"a":)", "}"},
               {"arrays with something before", "[0,{},[],", "]"}};
  for (const auto& kind : kinds) {
    for (const size_t limit : {1, 3, 64, 1000}) {
      const JsonLimits limits{.depth = limit};
      // The text before an inner array is one more level.
      const size_t extra = kind.open.find("[]") != std::string::npos ? 1 : 0;
      if (limit <= extra) continue;
      const size_t fits = limit - extra;
      SCOPED_TRACE(absl::StrCat(kind.name, " ", limit));
      EXPECT_THAT(ParseJson(Repeat(kind.open, fits) + "1" + Repeat(kind.close, fits), limits),
                  IsOk());
      EXPECT_THAT(
          ParseJson(Repeat(kind.open, limit + 1) + "1" + Repeat(kind.close, limit + 1), limits),
          IsError(kInvalid, absl::StrCat("more than ", limit, " deep")));
    }
    // Neither closed nor unclosed nesting exhausts the stack.
    for (const size_t depth : {66'000, 1'000'000}) {
      EXPECT_THAT(ParseJson(Repeat(kind.open, depth)), IsError(kInvalid, "deep")) << kind.name;
      EXPECT_THAT(ParseJson(Repeat(kind.open, depth) + "1" + Repeat(kind.close, depth)),
                  IsError(kInvalid, "deep"))
          << kind.name;
    }
  }
  // Brackets in strings and names do not count as depth.
  EXPECT_THAT(ParseJson(absl::StrCat(R"({")", Repeat("[{", 5000), R"(":")", Repeat(R"(\"[{)", 5000),
                                     R"("})")),
              IsOk());
}

TEST(JsonTest, BytesAndValuesAreBounded) {
  EXPECT_THAT(ParseJson("[1,2,3]", {.bytes = 7}), IsOk());
  EXPECT_THAT(ParseJson("[1,2,3]", {.bytes = 6}),
              IsError(kInvalid, "has 7 bytes; allowed at most 6"));
  EXPECT_THAT(ParseJson("[1,[],{},\"\",null,true]", {.values = 7}), IsOk());
  EXPECT_THAT(ParseJson("[1,[],{},\"\",null,true]", {.values = 6}),
              IsError(kInvalid, "more than 6 values"));
  EXPECT_THAT(ParseJson(R"({"a":{"b":1}})", {.values = 2}),
              IsError(kInvalid, "more than 2 values"));
  EXPECT_THAT(ParseJson(absl::StrCat("[0", Repeat(",0", 1 << 20), "]")),
              IsError(kInvalid, "values"));
}

TEST(JsonTest, CborIsBoundedLikeText) {
  const std::string whole("\xa1\x61\x61\x82\x01\x61\xff",
                          7);  // {"a": [1, a string that is not UTF-8]}
  ASSERT_OK_AND_ASSIGN(const json value, ParseCbor(whole, {.depth = 2, .values = 4}));
  EXPECT_EQ(value["a"][0], 1);
  EXPECT_EQ(value["a"][1], "\xff");
  EXPECT_THAT(ParseCbor(whole, {.depth = 1}), IsError(kInvalid, "deep"));
  EXPECT_THAT(ParseCbor(whole, {.values = 3}), IsError(kInvalid, "more than 3 values"));
  EXPECT_THAT(ParseCbor(whole, {.bytes = 6}), IsError(kInvalid, "has 7 bytes; allowed at most 6"));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(ParseCbor(whole.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(ParseCbor(whole + "x").ok());
  for (const char* open :
       {"\x81", "\x9f", "\xa1\x61\x61", "\xbf\x61\x61", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    for (const size_t depth : {size_t{65}, size_t{66'000}, size_t{1'000'000}})
      EXPECT_FALSE(ParseCbor(Repeat(open, depth)).ok()) << depth;
  }
}

TEST(JsonTest, WhatIsNoJsonIsRefusedAndSaysWhere) {
  for (const char* text :
       {"",           " ",    "{",        "[1,]",        "{\"a\"}", "{\"a\":1,}", "nul",
        "1 2",        "[1]]", "\"\xff\"", "\"\\ud800\"", "1e999",   "-1e999",     "NaN",
        "[Infinity]", "01",   "'a'",      "{a:1}",       "\"\t\"",  "[1] x"}) {
    EXPECT_THAT(ParseJson(text), IsError(kInvalid, "is no JSON: byte ")) << text;
  }
  EXPECT_THAT(ParseJson("[1, 2, x]"), IsError(kInvalid, "byte 8"));
  EXPECT_THAT(ParseJson(std::string("[1]\0", 4)), IsError(kInvalid, "is no JSON"));
}

TEST(JsonTest, AMemberMayBeNamedOnce) {
  EXPECT_THAT(ParseJson(R"({"a":1,"b":[{"a":2},{"a":3}]})"), IsOk());
  EXPECT_THAT(ParseJson(R"({"a":1,"b":2,"a":1})"), IsError(kInvalid, "names the member 'a' twice"));
  EXPECT_THAT(ParseJson(R"([{"x":{"k":{},"k":0}}])"),
              IsError(kInvalid, "names the member 'k' twice"));
}

TEST(JsonTest, NumbersAreExact) {
  ASSERT_OK_AND_ASSIGN(
      const json out,
      ParseJson(
          "[18446744073709551615, -9223372036854775808, 18446744073709551616, 1.5, 1.0, 0.1]"));
  EXPECT_TRUE(out[0].is_number_unsigned());
  EXPECT_EQ(out[0].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(out[1].get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(out[2].is_number_float());
  EXPECT_TRUE(out[3].is_number_float());
  EXPECT_TRUE(out[4].is_number_float()) << "1.0 is no integer";
  EXPECT_EQ(out[5].get<double>(), 0.1);
}

// Every written value reads back the same.
TEST(JsonTest, RandomValuesComeBack) {
  std::mt19937 random(testing::FreshSeed());
  const auto upto = [&](unsigned most) {
    return std::uniform_int_distribution<unsigned>(0, most)(random);
  };
  const std::string pieces[] = {"a", "\"", "\\", "\n", "é", "\x01", "😀", "/", "[", "}"};
  const auto text = [&] {
    std::string out;
    for (unsigned i = upto(12); i > 0; --i) out += pieces[upto(9)];
    return out;
  };
  const std::function<json(int)> make = [&](int depth) -> json {
    switch (upto(depth > 0 ? 7 : 5)) {
      case 0: return nullptr;
      case 1: return upto(1) == 1;
      case 2: return static_cast<int64_t>(static_cast<uint64_t>(random()) << 32 | random());
      case 3: return std::ldexp(static_cast<double>(random()), static_cast<int>(upto(200)) - 100);
      case 4: return text();
      case 5: return static_cast<uint64_t>(random()) << 32 | random();
      case 6: {
        json out = json::array();
        for (unsigned i = upto(5); i > 0; --i) out.push_back(make(depth - 1));
        return out;
      }
      default: {
        json out = json::object();
        for (unsigned i = upto(5); i > 0; --i) out[text()] = make(depth - 1);
        return out;
      }
    }
  };
  for (int i = 0; i < 500; ++i) {
    const json value = make(static_cast<int>(upto(8)));
    const std::string written = value.dump(upto(1) == 1 ? 1 : -1, ' ', upto(1) == 1);
    const auto back = ParseJson(written);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << written;
    ASSERT_EQ(*back, value) << written;
  }
}

// Any byte sequence gives a value or an error, and the library agrees.
TEST(JsonTest, DamagedTextIsRefusedAsTheLibraryRefusesIt) {
  std::mt19937 random(testing::FreshSeed());
  const std::string whole =
      R"({"zarr_format": 3, "shape": [1, 20, 300], "a": {"b": [null, true, -1.5e3, "xy\u00e9"]}, "c": []})";
  const std::string marks = "[]{},:\"\\0e-. x\n\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (unsigned n = 1 + random() % 4; n > 0; --n)
      text[random() % text.size()] = marks[random() % marks.size()];
    if (random() % 3 == 0) text.resize(random() % text.size());
    const auto ours = ParseJson(text);
    const json theirs = json::parse(text, nullptr, false);
    if (ours.ok()) {
      ASSERT_EQ(*ours, theirs) << text;
    } else if (!theirs.is_discarded()) {
      ASSERT_THAT(ours, IsError(kInvalid, "twice")) << text;
    }
  }
}

}  // namespace
}  // namespace octavo
