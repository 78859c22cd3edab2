#include "gpu/base/log.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;

/// What the log writes for one event with the field "title".
std::string Line(bool json, const nlohmann::json& title) {
  SetUpLog(LogLevel::kInfo, json);
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "event", {{"title", title}});
  std::string line = ::testing::internal::GetCapturedStderr();
  SetUpLog(LogLevel::kWarning, false);
  return line;
}

TEST(LogTest, PlainTextsHaveNoQuotes) {
  for (const char* plain : {"a", "scans/7", "Änna", "網膜", "😀", "a\xC2\xA0z"})
    EXPECT_THAT(Line(false, plain), HasSubstr(std::string(" title=") + plain + "\n"));
  for (const char* quoted : {"", "a b", "a=b"})
    EXPECT_THAT(Line(false, quoted), HasSubstr(std::string(" title=\"") + quoted + "\"\n"));
  EXPECT_THAT(Line(false, 7), HasSubstr(" title=7\n"));
}

// What ends lines, moves the cursor or changes the direction of a text must not forge another line.
TEST(LogTest, NoTextControlsATerminal) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb", R"(a\nb)"},
      {"a\x1b[31mb", R"(a\u001b[31mb)"},
      {"a\x7f", R"(a\u007f)"},
      {"a\xC2\x80", R"(a\u0080)"},
      {"a\xC2\x85z", R"(a\u0085z)"},
      {"\xC2\x9B"
       "31m",
       R"(\u009b31m)"},
      {"a\u200eb", R"(a\u200eb)"},
      {"a\u200fb", R"(a\u200fb)"},
      {"a\u2028b\u2029", R"(a\u2028b\u2029)"},
      {"a\u202ab\u202e", R"(a\u202ab\u202e)"},
      {"\u2066\u2069", R"(\u2066\u2069)"},
      {"Änna \u202e", R"(Änna \u202e)"},
      {"a\xff", "a\uFFFD"},
      {"a\xC0\xAF", "a\uFFFD\uFFFD"},
  };
  for (const auto& [text, shown] : cases) {
    EXPECT_THAT(Line(false, text), HasSubstr(std::string(" title=\"") + shown + "\"\n")) << shown;
    const std::string line = Line(true, text);
    EXPECT_THAT(line, HasSubstr(std::string("\"title\":\"") + shown + "\"")) << shown;
    const auto read = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(read.is_object()) << line;
  }
  EXPECT_THAT(Line(false, nlohmann::json{{"a\u202e", "b\u2028"}}),
              HasSubstr(R"( title={"a\u202e":"b\u2028"})"));
}

}  // namespace
}  // namespace octavo
