#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "server/rpc/list/field_value.h"

namespace octavo::rpc {

/// A field of a listed message, or of a message in it: "state", "commit.path", "labels.eye". What
/// follows the name of a map is the key, dots included.
class FieldPath {
 public:
  /// `text`: names with dots between them. The error says which fields there are; it does not name
  /// the request's field.
  static absl::StatusOr<FieldPath> Parse(const google::protobuf::Descriptor& row,
                                         absl::string_view text);

  const std::string& text() const { return text_; }
  const std::string& first_name() const { return fields_.front()->name(); }
  /// The field that holds the value: the last one, or the value of a map's entries.
  const google::protobuf::FieldDescriptor& field() const { return *field_; }
  FieldKind kind() const { return KindOf(*field_); }
  /// A map whose key is not named.
  bool is_map() const { return field_->is_map(); }
  /// It may have several values: some field of the path is repeated. Not a map's.
  bool is_repeated() const { return repeated_; }

  /// Calls `test` with each value of the row until it returns true; whether it did. A field that is
  /// not set (a message, an optional one, a key that the map lacks) has no value.
  bool Any(const google::protobuf::Message& row,
           const std::function<bool(const FieldValue&)>& test) const;
  /// Whether the field is set: a message, an element, a key, or any value but the default.
  bool IsSet(const google::protobuf::Message& row) const;
  /// For a map: whether it has the key.
  bool HasKey(const google::protobuf::Message& row, absl::string_view key) const;

 private:
  using Leaf = std::function<bool(const google::protobuf::Message&, int)>;
  /// Calls `leaf` with each message that may hold the last field, and the index of its element (-1:
  /// not repeated), until it returns true.
  bool Walk(const google::protobuf::Message& message, size_t depth, const Leaf& leaf) const;

  std::string text_;
  std::vector<const google::protobuf::FieldDescriptor*> fields_;  // from the row on
  const google::protobuf::FieldDescriptor* field_ = nullptr;
  std::string key_;  // of the map that is the last of fields_
  bool keyed_ = false, repeated_ = false;
};

}  // namespace octavo::rpc
