// Filters of lists: what they mean, and what they refuse. A filter is a client's text, so hostile
// ones are among them.

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/volume.pb.h"

#include "gpu/base/status.h"
#include "server/rpc/list/filter.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

v1::Volume Example() {
  v1::Volume volume;
  volume.set_name("volumes/a-1");
  volume.set_parent("scans/s");
  volume.set_index(7);
  volume.set_state(v1::VOLUME_STATE_HELD);
  volume.set_title("mouse 3, left");
  volume.set_bytes(4'000'000'000);
  volume.set_complete(true);
  for (const int64_t extent : {4, 64, 512}) volume.add_shape(extent);
  volume.add_spread_devices("devices/0");
  volume.add_spread_devices("devices/1");
  volume.mutable_hold_time()->set_seconds(1'795'428'000);  // 2026-11-23T10:00:00Z
  volume.mutable_levels()->set_lo(-0.5);
  (*volume.mutable_labels())["eye"] = "OD";
  (*volume.mutable_labels())["site.name"] = "a \"b\" c";
  (*volume.mutable_labels())["star"] = "5*";
  auto* range = volume.add_missing();
  range->set_first(10);
  range->set_count(3);
  return volume;
}

bool Matches(const std::string& text) {
  const auto filter = Filter::Parse(*v1::Volume::descriptor(), text);
  EXPECT_THAT(filter, IsOk()) << text;
  return filter.ok() && filter->Matches(Example());
}
absl::Status ErrorOf(const std::string& text) {
  return Filter::Parse(*v1::Volume::descriptor(), text).status();
}

TEST(ListFilter, ComparesFieldsOfEveryKind) {
  for (const char* text : {"",
                           "  \t",
                           "state = HELD",
                           "state=VOLUME_STATE_HELD",
                           "state != FAILED",
                           "index = 7",
                           "index < 8",
                           "index <= 7",
                           "index > -1",
                           "index >= 7e0",
                           "bytes > 3e9",
                           "bytes=4000000000",
                           "complete = true",
                           "complete != false",
                           "raw = false",
                           "title = \"mouse 3, left\"",
                           "title = 'mouse 3, left'",
                           "title = \"mouse*\"",
                           "title = *left",
                           "title = *3*",
                           "title = *",
                           "title != rat*",
                           "hold_time = \"2026-11-23T10:00:00Z\"",
                           "hold_time > 2026-11-23T09:59:59.999Z",
                           "hold_time <= \"2026-11-23T11:00:00+01:00\"",
                           "levels.lo < 0",
                           "levels.lo = -0.5",
                           "levels.hi = 0",
                           "labels.eye = OD",
                           "labels.eye = \"O*\"",
                           "labels.site.name = \"a \\\"b\\\" c\"",
                           "labels.\"site.name\" != x",
                           "labels.star = \"5\\*\"",
                           "reason = \"\""}) {
    EXPECT_TRUE(Matches(text)) << text;
  }
  for (const char* text : {"state = FAILED", "index != 7", "index > 7", "bytes < 0",
                           "complete = false", "title = mouse", "title = *right", "title = \"\"",
                           "title = \"\\*\"", "hold_time < \"2026-11-23T10:00:00Z\"",
                           "labels.eye = OS", "labels.star = \"*\\*5\"", "levels.lo > -0.5"}) {
    EXPECT_FALSE(Matches(text)) << text;
  }
}

TEST(ListFilter, AFieldThatIsNotSetIsEqualToNothing) {
  for (const char* text :
       {"expire_time != 2026-01-01T00:00:00Z", "labels.nose != OD", "commit.path != x",
        "NOT expire_time:*", "NOT labels.nose:*", "-labels:nose", "NOT reason:*"}) {
    EXPECT_TRUE(Matches(text)) << text;
  }
  for (const char* text :
       {"expire_time > 1970-01-01T00:00:00Z", "expire_time = 1970-01-01T00:00:00Z",
        "labels.nose = \"\"", "labels.nose = *", "commit.path = \"\"", "expire_time:*"}) {
    EXPECT_FALSE(Matches(text)) << text;
  }
}

TEST(ListFilter, HasLooksIntoWhatIsRepeated) {
  for (const char* text : {"shape:64", "spread_devices:\"devices/1\"", "spread_devices:devices/*",
                           "labels:eye", "labels:site.name", "labels.eye:*", "hold_time:*",
                           "levels:*", "shape:*", "title:*", "missing.first:10", "missing:*"}) {
    EXPECT_TRUE(Matches(text)) << text;
  }
  for (const char* text : {"shape:65", "spread_devices:devices/2", "labels:nose",
                           "missing.first:11", "commit:*", "operations:*"}) {
    EXPECT_FALSE(Matches(text)) << text;
  }
}

TEST(ListFilter, OrBindsCloserThanAnd) {
  // Of three tests whose truth is chosen: a AND b OR c is a AND (b OR c).
  for (int bits = 0; bits < 8; ++bits) {
    const bool a = bits & 1, b = bits & 2, c = bits & 4;
    const auto test = [](bool truth) { return truth ? "index = 7" : "index = 8"; };
    const std::string x = test(a), y = test(b), z = test(c);
    EXPECT_EQ(Matches(x + " AND " + y + " OR " + z), a && (b || c)) << bits;
    EXPECT_EQ(Matches(x + " OR " + y + " AND " + z), (a || b) && c) << bits;
    EXPECT_EQ(Matches("(" + x + " AND " + y + ") OR " + z), (a && b) || c) << bits;
    EXPECT_EQ(Matches("NOT " + x + " AND -" + y), !a && !b) << bits;
    EXPECT_EQ(Matches("NOT (" + x + " AND " + y + ")"), !(a && b)) << bits;
    EXPECT_EQ(Matches(x + " " + y + " OR " + z), a && (b || c)) << bits;
    EXPECT_EQ(Matches(x + " " + y + " AND " + z), a && b && c) << bits;
  }
}

TEST(ListFilter, RandomFiltersMeanWhatAPlainModelSays) {
  std::mt19937 random(FreshSeed());
  for (int round = 0; round < 300; ++round) {
    // A random tree, written with all its parentheses, and its truth.
    const std::function<std::pair<std::string, bool>(int)> grow =
        [&](int depth) -> std::pair<std::string, bool> {
      const auto kind = depth == 0 ? 0u : random() % 4;
      if (kind == 0) {
        const auto wanted = static_cast<int64_t>(random() % 15);
        switch (random() % 4) {
          case 0: return {absl::StrCat("index < ", wanted), 7 < wanted};
          case 1: return {absl::StrCat("index>=", wanted), 7 >= wanted};
          case 2: return {absl::StrCat("index != ", wanted), 7 != wanted};
          default: return {absl::StrCat("index = ", wanted), 7 == wanted};
        }
      }
      const auto [left, l] = grow(depth - 1);
      if (kind == 1) return {"NOT (" + left + ")", !l};
      const auto [right, r] = grow(depth - 1);
      return kind == 2 ? std::pair("(" + left + ") AND (" + right + ")", l && r)
                       : std::pair("(" + left + ") OR (" + right + ")", l || r);
    };
    const auto [text, truth] = grow(4);
    EXPECT_EQ(Matches(text), truth) << text;
  }
}

TEST(ListFilter, AnErrorNamesTheFieldTheValueAndWhatIsAllowed) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> bad = {
      {"colour = red",
       {"character 1", "no field 'colour' of Volume", "allowed name, parent, index"}},
      {"commit.size = 1", {"no field 'size' of CommitResult", "path, format, bytes"}},
      {"state = RUNNING", {"character 9", "'state'", "'RUNNING'", "ACQUIRING, HELD, COMMITTING"}},
      {"index = seven", {"'index'", "'seven'", "a whole number from -2^63 to 2^63 - 1"}},
      {"index = 1.5", {"'1.5'", "a whole number"}},
      {"index = 9223372036854775808", {"'9223372036854775808'", "a whole number"}},
      {"index = NaN", {"'NaN'", "a whole number"}},
      {"stripe_bscans = -1", {"'-1'", "from 0 to 4294967295"}},
      {"stripe_bscans = 4294967296", {"from 0 to 4294967295"}},
      {"shared_leases < 2147483648", {"from -2147483648 to 2147483647"}},
      {"levels.lo = nan", {"'nan'", "a finite number"}},
      {"levels.lo > 1e999", {"'1e999'", "a finite number"}},
      {"levels.lo < -inf", {"'-inf'", "a finite number"}},
      {"complete = 1", {"'1'", "true, false"}},
      {"complete > false", {"'complete'", "= != :*"}},
      {"state < HELD", {"'state'", "= != :*"}},
      {"title > a", {"'title'", "= != :*"}},
      {"title = a*b", {"* in the middle", "at the beginning or the end"}},
      {"hold_time > yesterday", {"'yesterday'", "RFC 3339"}},
      {"hold_time > \"2026-02-30T00:00:00Z\"", {"RFC 3339"}},
      {"stat = HELD", {"no field 'stat' of Volume; did you mean state?"}},
      {"hold_time.seconds = 1", {"'hold_time' holds a value and no fields"}},
      {"shape = 64", {"'shape'", ":<value> :*"}},
      {"missing.first = 10", {"'missing.first'", ":<value> :*"}},
      {"missing:10", {"'missing'"}},
      {"labels = OD", {"'labels'", ":<key> :*"}},
      {"labels. = OD", {"labels.<key>"}},
      {"levels = 1", {"'levels'", ":*"}},
      {"index:7", {"'index'", "= != < <= > >= :*"}},
      {"state", {"character 6", "'state' has no operator behind it", "= != :*"}},
      {"index", {"'index' has no operator behind it", "= != < <= > >= :*"}},
      {"state == HELD", {"'==' is no operator", "= != :*"}},
      {"state = HELD && index = 1", {"'&' is no operator between tests", "AND, OR, NOT"}},
      {"state = HELD and index = 1", {"no field 'and'", "did you mean AND in capitals"}},
      {"adc_bits = 1", {"no field 'adc_bits'"}},
      {"state HELD", {"'state' has no operator behind it"}},
      {"state =", {"'state' has no value"}},
      {"state = (HELD)", {"'state' has no value"}},
      {"= HELD", {"must begin with the name of a field"}},
      {"state = HELD AND", {"a test is missing"}},
      {"state = HELD OR", {"a test is missing"}},
      {"NOT", {"a test is missing"}},
      {"AND state = HELD", {"no field 'AND'"}},
      {"(state = HELD", {"character 1", "unmatched '('"}},
      {"state = HELD)", {"character 13", "unmatched ')'"}},
      {"()", {"must begin with the name of a field"}},
      {"title = \"mouse", {"character 9", "unmatched quote"}},
      {"title = \"mouse\\", {"unmatched quote"}},
      {"title = \"\\q\"", {"unknown escape"}},
      {"\"title\" = mouse", {"must begin with the name of a field"}},
      {"title = 'a", {"unmatched quote"}},
      {"title == a", {"'==' is no operator"}},
  };
  for (const auto& [text, words] : bad) {
    const absl::Status error = ErrorOf(text);
    for (const char* word : words) EXPECT_THAT(error, IsError(kInvalid, word)) << text;
    EXPECT_THAT(error, IsError(kInvalid, "filter: "));
    EXPECT_EQ(InfoOf(error).field, "filter");
  }
}

TEST(ListFilter, HostileTextsAreRefusedInShortTime) {
  EXPECT_THAT(ErrorOf(std::string(10'000, '(')),
              IsError(kInvalid, "has 10000 bytes; allowed 4096"));
  EXPECT_THAT(ErrorOf(std::string(4096, '(')), IsError(kInvalid, "more than 32 deep"));
  EXPECT_THAT(ErrorOf(std::string(4096, ')')),
              IsError(kInvalid, "must begin with the name of a field"));
  EXPECT_THAT(ErrorOf(std::string(4096, '-')), IsError(kInvalid, "filter"));
  EXPECT_THAT(ErrorOf(std::string(4096, 'a')), IsError(kInvalid, "no field"));
  for (const char* field : {"state", "name", "hold_time"})
    EXPECT_LT(ErrorOf(absl::StrCat(field, ".\"", std::string(3900, 1), "\" = 1")).message().size(),
              400u);
  EXPECT_THAT(ErrorOf("title = " + std::string(4000, '*')), IsError(kInvalid, "* in the middle"));
  for (const char* bytes : {"\xed\xa0\x80", "\xff", "\xc0\xaf", "\xf5\x80\x80\x80", "\x80"})
    EXPECT_THAT(ErrorOf(absl::StrCat("title = \"", bytes, "\"")), IsError(kInvalid, "not UTF-8"));
  EXPECT_THAT(ErrorOf(std::string("title = \"a\0b\" AND \0", 19)), IsError(kInvalid, "filter"));

  const std::string deep = std::string(32, '(') + "index = 7" + std::string(32, ')');
  EXPECT_TRUE(Matches(deep));
  EXPECT_THAT(ErrorOf("(" + deep + ")"), IsError(kInvalid, "allowed 32"));
  std::vector<std::string> tests(64, "index = 7");
  EXPECT_TRUE(Matches(absl::StrJoin(tests, " AND ")));
  tests.emplace_back("index = 7");
  EXPECT_THAT(ErrorOf(absl::StrJoin(tests, " OR ")), IsError(kInvalid, "more than 64 tests"));
}

TEST(ListFilter, RandomBytesNeverDoMoreThanFail) {
  std::mt19937 random(FreshSeed());
  const std::string letters = "()\"'\\*=!<>:-. ANDORTstateindxlabHELD7\t\x80\xed\xff";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += letters[random() % letters.size()];
    const auto filter = Filter::Parse(*v1::Volume::descriptor(), text);
    if (filter.ok()) {
      (void)filter->Matches(Example());
    } else {
      EXPECT_THAT(filter.status(), IsError(kInvalid, "filter")) << text;
    }
  }
}

TEST(ListFilter, NanOfARowComparesWithNothing) {
  v1::Volume volume;
  volume.mutable_levels()->set_lo(std::numeric_limits<float>::quiet_NaN());
  for (const auto& [text, matches] :
       {std::pair{"levels.lo < 1", false}, std::pair{"levels.lo >= 1", false},
        std::pair{"levels.lo = 1", false}, std::pair{"levels.lo != 1", true}}) {
    EXPECT_EQ(Filter::Parse(*v1::Volume::descriptor(), text)->Matches(volume), matches) << text;
  }
}

TEST(ListFilter, SaysWhatEveryMatchHasInCommon) {
  const auto wanted = [](const char* text) {
    return Filter::Parse(*v1::Volume::descriptor(), text)->Wanted("parent");
  };
  EXPECT_EQ(wanted("parent = scans/a"), "scans/a");
  EXPECT_EQ(wanted("index > 3 AND (parent = \"scans/a\" AND state = HELD)"), "scans/a");
  for (const char* text : {"", "parent = scans/*", "parent != scans/a", "NOT parent = scans/a",
                           "parent = scans/a OR index = 1", "title = scans/a"}) {
    EXPECT_EQ(wanted(text), "") << text;
  }
  const auto filter = Filter::Parse(*v1::Volume::descriptor(), "NOT (commit.bytes > 1 OR index=2)");
  EXPECT_TRUE(filter->SpeaksOf("commit"));
  EXPECT_TRUE(filter->SpeaksOf("index"));
  EXPECT_FALSE(filter->SpeaksOf("state"));
}

TEST(ListFilter, DurationsAndUnsignedNumbers) {
  v1::CommitResult result;
  result.mutable_elapsed()->set_seconds(1);
  result.mutable_elapsed()->set_nanos(500'000'000);
  const auto matches = [&](const char* text) {
    const auto filter = Filter::Parse(*v1::CommitResult::descriptor(), text);
    EXPECT_THAT(filter, IsOk()) << text;
    return filter.ok() && filter->Matches(result);
  };
  EXPECT_TRUE(matches("elapsed = 1.5s"));
  EXPECT_TRUE(matches("elapsed > \"1.499999999s\""));
  EXPECT_FALSE(matches("elapsed < 1.5s"));
  EXPECT_TRUE(matches("elapsed > -3s"));
  for (const char* text : {"elapsed > 1.5", "elapsed > 1m", "elapsed = s", "elapsed > 1e99s"})
    EXPECT_THAT(Filter::Parse(*v1::CommitResult::descriptor(), text),
                IsError(kInvalid, "seconds such as \"1.5s\""))
        << text;
  v1::LeaseGrant lease;
  lease.set_fence(18'446'744'073'709'551'615u);
  EXPECT_TRUE(
      Filter::Parse(*v1::LeaseGrant::descriptor(), "fence = 18446744073709551615")->Matches(lease));
  EXPECT_THAT(Filter::Parse(*v1::LeaseGrant::descriptor(), "fence < -1"),
              IsError(kInvalid, "from 0 to 2^64 - 1"));
}

}  // namespace
}  // namespace octavo::rpc
