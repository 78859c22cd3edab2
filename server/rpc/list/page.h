#pragma once

// A page of a list. Every List call makes its page here, from the rows of its store:
//
//   by rank   The store gives the rows in the list's own order, after a rank, some at a time: only
//             the rows of the page are converted, or those that the filter has to look at.
//   by order  With order_by, every row is converted and looked at, some at a time; those that the
//             page needs are kept.
//
// Either way a page is found by the key of the last row before it, not by a count of rows: what is
// inserted or removed meanwhile shifts nothing. Only a row whose own order_by field changes between
// two pages may come twice or not at all.
//
// The store's lock is held while it copies some of its rows, never while they are converted.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/repeated_ptr_field.h"

#include "server/rpc/list/list_query.h"

namespace octavo::rpc {

/// A row and its place in the list's own order. No two rows of a list have the same rank.
template <class Row>
struct RankedRow {
  int64_t rank = 0;
  Row row;
};

/// Returns up to `most` rows whose rank is greater than `after`, in the order of their ranks; fewer
/// only if there are no more.
template <class Row>
using RowSource = std::function<std::vector<RankedRow<Row>>(int64_t after, size_t most)>;

/// Ranks of a list that begins with the newest: the newer, the smaller.
inline int64_t RankOfNewest(uint64_t number) { return -static_cast<int64_t>(number); }
/// The rows after this rank have smaller numbers than this one.
inline uint64_t NumberBefore(int64_t after) {
  return after >= 0 || after == ListQuery::kBeforeAll ? std::numeric_limits<uint64_t>::max()
                                                      : static_cast<uint64_t>(-after);
}

/// The rows of a store that gives all of them at once. `all`: in the order of `rank(status)`;
/// `encode(status, &row)` converts one.
template <class Row, class Status, class Rank, class Encode>
RowSource<Row> RowsOf(std::vector<Status> all, Rank rank, Encode encode) {
  return [all = std::move(all), rank, encode](int64_t after, size_t most) {
    std::vector<RankedRow<Row>> rows;
    auto next = std::upper_bound(all.begin(), all.end(), after,
                                 [&](int64_t r, const Status& status) { return r < rank(status); });
    for (; next != all.end() && rows.size() < most; ++next) {
      rows.emplace_back().rank = rank(*next);
      encode(*next, &rows.back().row);
    }
    return rows;
  };
}

/// The rows of a store that gives them by their numbers, some at a time: `list(after, most)`, fewer
/// only if there are no more. Those that `sees(status)` denies are left out.
template <class Row, class List, class Number, class Sees, class Encode>
RowSource<Row> RowsSeen(List list, Number number, Sees sees, Encode encode) {
  return [list, number, sees, encode](int64_t after, size_t most) {
    std::vector<RankedRow<Row>> rows;
    auto last = static_cast<uint64_t>(std::max<int64_t>(after, 0));
    for (bool more = true; more && rows.size() < most;) {
      const size_t wanted = most - rows.size();
      const auto some = list(last, wanted);
      more = some.size() == wanted;
      for (const auto& status : some) {
        last = number(status);
        if (!sees(status)) continue;
        rows.emplace_back().rank = static_cast<int64_t>(last);
        encode(status, &rows.back().row);
      }
    }
    return rows;
  };
}

/// A page ends before its rows take more bytes: clients read messages of 4 MiB unless they are told
/// otherwise.
constexpr size_t kMostPageBytes = 3 << 20;

/// Fills in the page that `query` asks for.
template <class Row>
class Page {
 public:
  Page(const ListQuery& query, google::protobuf::RepeatedPtrField<Row>* rows,
       std::string* next_token)
      : query_(query), rows_(rows), next_token_(next_token) {}

  void Fill(const RowSource<Row>& source) {
    query_.order().has_value() ? FillByOrder(source) : FillByRank(source);
  }

 private:
  static constexpr size_t kRowsAtOnce = 256;

  /// Adds a row, or says that there are more rows than the page takes.
  bool Add(const std::string& key, Row&& row) {
    const size_t bytes = row.ByteSizeLong();
    if (static_cast<size_t>(rows_->size()) == query_.page_size() ||
        (!rows_->empty() && bytes_ + bytes > kMostPageBytes)) {
      *next_token_ = query_.TokenAfter(last_);
      return false;
    }
    bytes_ += bytes;
    last_ = key;
    *rows_->Add() = std::move(row);
    return true;
  }

  void FillByRank(const RowSource<Row>& source) {
    // One more than the page takes tells whether there are more.
    const size_t most =
        query_.filter().empty() ? std::min(kRowsAtOnce, query_.page_size() + 1) : kRowsAtOnce;
    for (int64_t after = query_.after_rank();;) {
      std::vector<RankedRow<Row>> some = source(after, most);
      for (RankedRow<Row>& ranked : some) {
        after = ranked.rank;
        if (query_.filter().Matches(ranked.row) &&
            !Add(KeyOfRank(ranked.rank), std::move(ranked.row)))
          return;
      }
      if (some.size() < most) return;
    }
  }

  void FillByOrder(const RowSource<Row>& source) {
    std::map<std::string, Row> best;  // the page, and one row more
    for (int64_t after = ListQuery::kBeforeAll;;) {
      std::vector<RankedRow<Row>> some = source(after, kRowsAtOnce);
      for (RankedRow<Row>& ranked : some) {
        after = ranked.rank;
        if (!query_.filter().Matches(ranked.row)) continue;
        std::string key = query_.order()->KeyOf(ranked.row);
        if (query_.after_key().has_value() && key <= *query_.after_key()) continue;
        if (best.size() > query_.page_size()) {
          if (key >= best.rbegin()->first) continue;
          best.erase(std::prev(best.end()));
        }
        best.emplace(std::move(key), std::move(ranked.row));
      }
      if (some.size() < kRowsAtOnce) break;
    }
    for (auto& [key, row] : best) {
      if (!Add(key, std::move(row))) return;
    }
  }

  const ListQuery& query_;
  google::protobuf::RepeatedPtrField<Row>* const rows_;
  std::string* const next_token_;
  std::string last_;  // the key of the last row
  size_t bytes_ = 0;
};

template <class Row>
void FillPage(const ListQuery& query, const RowSource<Row>& source,
              google::protobuf::RepeatedPtrField<Row>* rows, std::string* next_token) {
  Page<Row>(query, rows, next_token).Fill(source);
}

}  // namespace octavo::rpc
