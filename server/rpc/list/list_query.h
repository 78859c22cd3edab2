#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "server/rpc/list/filter.h"
#include "server/rpc/list/order.h"

namespace octavo::rpc {

/// What all requests of a list have in common, read and checked: page_size, page_token, filter and
/// order_by.
class ListQuery {
 public:
  static constexpr int kMostRows = 1000, kUsualRows = 100;
  static constexpr int64_t kBeforeAll = std::numeric_limits<int64_t>::min();

  /// `row`: the message that is listed. `key`: its field that no two rows have in common.
  /// `usual_order`: as order_by; empty: by the rows' ranks. InvalidArgument (page_size, page_token,
  /// filter, order_by).
  static absl::StatusOr<ListQuery> Parse(const google::protobuf::Message& request,
                                         const google::protobuf::Descriptor& row,
                                         absl::string_view key = "name",
                                         absl::string_view usual_order = "");

  const Filter& filter() const { return filter_; }
  size_t page_size() const { return page_size_; }
  /// Nothing: by rank.
  const std::optional<Order>& order() const { return order_; }
  /// By rank: the rank after which the page begins; kBeforeAll: the first page.
  int64_t after_rank() const { return after_rank_; }
  /// By an order: the key after which the page begins; nothing: the first page.
  const std::optional<std::string>& after_key() const { return after_key_; }
  /// The token of the page after a row.
  std::string TokenAfter(const std::string& key) const;

 private:
  Filter filter_;
  std::optional<Order> order_;
  size_t page_size_ = kUsualRows;
  int64_t after_rank_ = kBeforeAll;
  std::optional<std::string> after_key_;
  std::string asked_;  // as page_token.h
};

}  // namespace octavo::rpc
