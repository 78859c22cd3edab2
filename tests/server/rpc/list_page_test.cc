// Pages of lists: their order, and that rows which come and go between two pages shift nothing.

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "octavo/v1/scan.pb.h"
#include "octavo/v1/volume.pb.h"

#include "gpu/base/status.h"
#include "server/rpc/list/page.h"
#include "server/rpc/list/page_token.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

/// Volumes by rank, as a store has them.
using Store = std::map<int64_t, v1::Volume>;

v1::Volume Made(int64_t number, int64_t bytes) {
  v1::Volume volume;
  volume.set_name(absl::StrCat("volumes/", number));
  volume.set_bytes(bytes);
  volume.set_index(number);
  return volume;
}

RowSource<v1::Volume> RowsIn(const Store& store, int* asked = nullptr) {
  return [&store, asked](int64_t after, size_t most) {
    std::vector<RankedRow<v1::Volume>> rows;
    for (auto it = store.upper_bound(after); it != store.end() && rows.size() < most; ++it)
      rows.push_back({.rank = it->first, .row = it->second});
    if (asked != nullptr) *asked += static_cast<int>(rows.size());
    return rows;
  };
}

struct Answer {
  std::vector<std::string> names;
  std::string next;
};
absl::StatusOr<Answer> List(const RowSource<v1::Volume>& source,
                            const v1::ListVolumesRequest& request) {
  OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                          ListQuery::Parse(request, *v1::Volume::descriptor()));
  v1::ListVolumesResponse response;
  FillPage<v1::Volume>(query, source, response.mutable_volumes(),
                       response.mutable_next_page_token());
  Answer answer{.names = {}, .next = response.next_page_token()};
  for (const auto& volume : response.volumes()) answer.names.push_back(volume.name());
  return answer;
}
v1::ListVolumesRequest Request(int size, const std::string& filter = "",
                               const std::string& order = "", const std::string& token = "") {
  v1::ListVolumesRequest request;
  request.set_page_size(size);
  request.set_filter(filter);
  request.set_order_by(order);
  request.set_page_token(token);
  return request;
}

TEST(ListPage, PagesMakeTheWholeListInItsOrder) {
  Store store;
  std::mt19937 random(FreshSeed());
  for (int64_t i = 0; i < 700; ++i) store[i] = Made(i, static_cast<int64_t>(random() % 20));
  for (const char* order : {"", "bytes", "bytes desc", "bytes desc, index desc", "name"}) {
    for (const char* filter : {"", "bytes >= 5 AND bytes < 15"}) {
      std::vector<v1::Volume> wanted;
      for (const auto& [rank, volume] : store) {
        if (*filter == '\0' || (volume.bytes() >= 5 && volume.bytes() < 15))
          wanted.push_back(volume);
      }
      const std::string by = order;
      std::stable_sort(wanted.begin(), wanted.end(), [&](const auto& a, const auto& b) {
        if (by.empty()) return false;
        if (by != "name" && a.bytes() != b.bytes())
          return by == "bytes" ? a.bytes() < b.bytes() : a.bytes() > b.bytes();
        return by.ends_with("index desc") ? a.index() > b.index() : a.name() < b.name();
      });
      std::vector<std::string> names;
      for (const auto& volume : wanted) names.push_back(volume.name());
      for (const int size : {1, 7, 99, 0, 256, 699, 700, 1000}) {
        if (size == 1 && by.empty() == false) continue;  // takes long and shows no more
        std::vector<std::string> listed;
        std::string token;
        do {
          ASSERT_OK_AND_ASSIGN(const Answer page,
                               List(RowsIn(store), Request(size, filter, order, token)));
          EXPECT_LE(page.names.size(), size == 0 ? 100u : static_cast<size_t>(size));
          listed.insert(listed.end(), page.names.begin(), page.names.end());
          token = page.next;
          ASSERT_LE(listed.size(), names.size());
        } while (!token.empty());
        EXPECT_EQ(listed, names) << "order '" << order << "', filter '" << filter << "', " << size;
      }
    }
  }
}

// Rows that are there from the first page to the last one come once each, whatever else happens.
TEST(ListPage, RowsThatComeAndGoNeitherRepeatNorSkipOthers) {
  std::mt19937 random(FreshSeed());
  for (const char* order : {"", "bytes", "bytes desc", "index desc"}) {
    Store store;
    int64_t next = 0;
    for (; next < 300; ++next) store[next * 10] = Made(next, static_cast<int64_t>(random() % 9));
    std::set<std::string> stay;
    for (const auto& [rank, volume] : store) stay.insert(volume.name());
    std::vector<std::string> listed;
    std::string token;
    do {
      ASSERT_OK_AND_ASSIGN(const Answer page, List(RowsIn(store), Request(13, "", order, token)));
      listed.insert(listed.end(), page.names.begin(), page.names.end());
      token = page.next;
      for (int i = 0; i < 10; ++i) {  // also the page's last row
        auto it = store.lower_bound(static_cast<int64_t>(random() % 3000));
        if (it == store.end()) continue;
        stay.erase(it->second.name());
        store.erase(it);
      }
      if (!page.names.empty() && random() % 2 == 0) {
        const auto last = std::find_if(store.begin(), store.end(), [&](const auto& one) {
          return one.second.name() == page.names.back();
        });
        if (last != store.end()) store.erase(last);
      }
      for (int i = 0; i < 10; ++i, ++next)
        store[static_cast<int64_t>(random() % 3000) * 10 + 1 + i % 9] =
            Made(next, static_cast<int64_t>(random() % 9));
    } while (!token.empty() && listed.size() < 100'000);
    const std::set<std::string> once(listed.begin(), listed.end());
    EXPECT_EQ(once.size(), listed.size()) << "a row came twice, order '" << order << "'";
    for (const std::string& name : stay) EXPECT_TRUE(once.contains(name)) << name;
  }
}

TEST(ListPage, APageByRankLooksAtItsOwnRowsOnly) {
  Store store;
  for (int64_t i = 0; i < 10'000; ++i) store[i] = Made(i, i);
  int asked = 0;
  ASSERT_OK_AND_ASSIGN(const Answer page, List(RowsIn(store, &asked), Request(10)));
  EXPECT_EQ(page.names.size(), 10u);
  EXPECT_EQ(asked, 11);
  asked = 0;
  std::string token;
  do {
    ASSERT_OK_AND_ASSIGN(const Answer rest,
                         List(RowsIn(store, &asked), Request(1000, "bytes >= 0", "", token)));
    token = rest.next;
  } while (!token.empty());
  EXPECT_LT(asked, 15'000) << "10000 rows by pages of 1000 with a filter";
}

TEST(ListPage, ATokenIsForItsOwnListAlone) {
  Store store;
  for (int64_t i = 0; i < 30; ++i) store[i] = Made(i, i);
  const auto source = RowsIn(store);
  ASSERT_OK_AND_ASSIGN(const Answer page, List(source, Request(10, "bytes >= 0", "bytes")));
  const std::string token = page.next;
  EXPECT_THAT(List(source, Request(10, "bytes >= 0", "bytes", token)), IsOk());
  EXPECT_THAT(List(source, Request(3, "bytes >= 0", "bytes", token)), IsOk())
      << "the size may differ";
  for (v1::ListVolumesRequest other :
       {Request(10, "bytes > 0", "bytes", token), Request(10, "", "bytes", token),
        Request(10, "bytes >= 0", "bytes desc", token), Request(10, "bytes >= 0", "", token)})
    EXPECT_THAT(List(source, other), IsError(kInvalid, "page_token: comes from another list"));
  v1::ListVolumesRequest other = Request(10, "bytes >= 0", "bytes", token);
  other.set_parent("scans/a");
  EXPECT_THAT(List(source, other), IsError(kInvalid, "comes from another list"));
  v1::ListScansRequest scans;
  ASSERT_OK_AND_ASSIGN(const Answer plain, List(source, Request(10)));
  scans.set_page_token(plain.next);
  EXPECT_THAT(ListQuery::Parse(scans, *v1::Scan::descriptor()),
              IsError(kInvalid, "comes from another list"));

  // Damaged and made up.
  std::mt19937 random(FreshSeed());
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = token;
    switch (random() % 3) {
      case 0: {
        char& c = damaged[random() % damaged.size()];
        c = static_cast<char>(static_cast<unsigned char>(c) ^ (1 + random() % 127));
        break;
      }
      case 1: damaged.resize(random() % damaged.size()); break;
      default: damaged += static_cast<char>('A' + random() % 26);
    }
    if (damaged.empty()) continue;
    const auto answer = List(source, Request(10, "bytes >= 0", "bytes", damaged));
    EXPECT_THAT(answer, IsError(kInvalid, "page_token: is none that this server has given"))
        << damaged;
    EXPECT_EQ(InfoOf(answer.status()).field, "page_token");
  }
  for (const std::string& text :
       {std::string("10"), std::string("x"), std::string("-1"), std::string("===="),
        std::string(9000, 'A'), absl::WebSafeBase64Escape(std::string(60, '\1'))})
    EXPECT_THAT(List(source, Request(10, "", "", text)), IsError(kInvalid, "page_token"));
}

TEST(ListPage, SizesAndOrdersAreChecked) {
  const Store none;
  const auto error = [&](const v1::ListVolumesRequest& request) {
    return List(RowsIn(none), request).status();
  };
  EXPECT_THAT(error(Request(-1)), IsError(kInvalid, "page_size: is -1; allowed 0 (100) to 1000"));
  EXPECT_THAT(error(Request(1001)), IsError(kInvalid, "page_size"));
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"colour", "no field 'colour' of Volume; allowed name, parent"},
      {"bytes down", "has 'bytes down'; allowed fields"},
      {"bytes desc asc", "order_by: has"},
      {",", "order_by: has ''"},
      {"bytes,", "order_by: has ''"},
      {" ", "order_by: has ''"},
      {"bytes, bytes desc", "has 'bytes' twice"},
      {"shape", "'shape' has no order"},
      {"labels", "'labels' has no order"},
      {"levels", "'levels' has no order"},
      {"missing.first", "'missing.first' has no order"},
      {"name, parent, index, state, reason, title, bytes, tier, device", "more than 8 fields"},
  };
  for (const auto& [text, what] : bad) {
    EXPECT_THAT(error(Request(0, "", text)), IsError(kInvalid, what)) << text;
    EXPECT_THAT(error(Request(0, "", text)), IsError(kInvalid, "order_by"));
  }
  EXPECT_THAT(error(Request(0, "", "labels.eye desc, hold_time ,levels.lo asc")), IsOk());
  EXPECT_THAT(error(Request(0, "", std::string(200, ','))), IsError(kInvalid, "order_by"));
}

TEST(ListPage, KeysAreInTheOrderOfTheValues) {
  const auto keys = [](const char* order, const std::vector<v1::Volume>& rows) {
    const auto parsed = Order::Parse(*v1::Volume::descriptor(), order, "name");
    EXPECT_THAT(parsed, IsOk());
    std::vector<std::string> made;
    for (const auto& row : rows) made.push_back(parsed->KeyOf(row));
    return made;
  };
  const auto made = [](const std::vector<std::function<void(v1::Volume&)>>& each) {
    std::vector<v1::Volume> rows(each.size());
    for (size_t i = 0; i < each.size(); ++i) {
      rows[i].set_name(absl::StrCat("volumes/", 9 - i));  // against the order
      each[i](rows[i]);
    }
    return rows;
  };
  const auto real = [](float value) {
    return [value](v1::Volume& v) { v.mutable_levels()->set_lo(value); };
  };
  const auto text = [](std::string value) {
    return [value](v1::Volume& v) { v.set_title(value); };
  };
  const auto whole = [](int64_t value) { return [value](v1::Volume& v) { v.set_index(value); }; };
  const auto moment = [](int64_t seconds, int nanos) {
    return [=](v1::Volume& v) {
      v.mutable_hold_time()->set_seconds(seconds);
      v.mutable_hold_time()->set_nanos(nanos);
    };
  };
  const auto nothing = [](v1::Volume&) {};
  using Limits = std::numeric_limits<int64_t>;
  using Floats = std::numeric_limits<float>;
  for (const auto& [order, rows] :
       {std::pair{"levels.lo",
                  made({nothing, real(Floats::quiet_NaN()), real(-Floats::infinity()), real(-2),
                        real(-1e-30F), real(0), real(1e-30F), real(3), real(Floats::infinity())})},
        std::pair{"index", made({whole(Limits::min()), whole(-256), whole(-1), whole(0), whole(1),
                                 whole(255), whole(256), whole(Limits::max())})},
        std::pair{"hold_time", made({nothing, moment(-1, 0), moment(0, 0), moment(0, 1),
                                     moment(1, 0), moment(256, 5), moment(256, 600)})},
        std::pair{"title", made({text(""), text(std::string("\0", 1)), text("a"),
                                 text(std::string("a\0", 2)), text(std::string("a\0b", 3)),
                                 text("aa"), text("b"), text("\xc3\xa9")})}}) {
    const std::vector<std::string> up = keys(order, rows);
    EXPECT_TRUE(std::is_sorted(up.begin(), up.end())) << order;
    EXPECT_EQ(std::adjacent_find(up.begin(), up.end()), up.end()) << order;
    std::vector<std::string> down = keys((std::string(order) + " desc").c_str(), rows);
    std::reverse(down.begin(), down.end());
    EXPECT_TRUE(std::is_sorted(down.begin(), down.end())) << order << " desc";
  }
  // Ties are broken by name, in both directions.
  v1::Volume a, b;
  a.set_name("volumes/a");
  b.set_name("volumes/b");
  for (const char* order : {"bytes", "bytes desc"}) {
    const auto both = keys(order, {a, b});
    EXPECT_LT(both[0], both[1]) << order;
  }
}

TEST(ListPage, APageOfLargeRowsIsShort) {
  Store store;
  for (int64_t i = 0; i < 20; ++i) {
    store[i] = Made(i, i);
    store[i].set_reason(std::string(1 << 20, 'x'));
  }
  store[5].set_reason(std::string(5 << 20, 'x'));  // alone larger than a page
  for (const char* order : {"", "bytes"}) {
    std::vector<std::string> listed;
    std::string token;
    do {
      ASSERT_OK_AND_ASSIGN(const Answer page, List(RowsIn(store), Request(1000, "", order, token)));
      EXPECT_FALSE(page.names.empty());
      EXPECT_LE(page.names.size(), 3u);
      listed.insert(listed.end(), page.names.begin(), page.names.end());
      token = page.next;
    } while (!token.empty());
    EXPECT_EQ(listed.size(), 20u);
  }
}

TEST(ListPage, RanksOfTheNewestFirst) {
  EXPECT_EQ(NumberBefore(ListQuery::kBeforeAll), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(NumberBefore(RankOfNewest(7)), 7u);
  EXPECT_LT(RankOfNewest(8), RankOfNewest(7));
}

}  // namespace
}  // namespace octavo::rpc
