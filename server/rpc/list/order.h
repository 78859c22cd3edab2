#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "server/rpc/list/field_path.h"

namespace octavo::rpc {

/// The order of a list: "create_time desc, name" (AIP-132). A row's key is a string; the rows are
/// in the order of their keys' bytes, so that a page token only keeps a key. Texts are compared by
/// their first 256 bytes, fields that are not set come before all others, NaN before all numbers.
class Order {
 public:
  static constexpr size_t kMostFields = 8, kMostTextBytes = 256;

  /// `key`: the field that no two rows have in common; it breaks ties. InvalidArgument (order_by).
  static absl::StatusOr<Order> Parse(const google::protobuf::Descriptor& row,
                                     absl::string_view text, absl::string_view key);

  std::string KeyOf(const google::protobuf::Message& row) const;

 private:
  struct Field {
    FieldPath path;
    bool descending = false;
  };
  static absl::StatusOr<Field> ParseField(const google::protobuf::Descriptor& row,
                                          absl::string_view text);

  std::vector<Field> fields_;
};

/// The same form of key for a number.
std::string KeyOfRank(int64_t rank);

}  // namespace octavo::rpc
