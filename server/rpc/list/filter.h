#pragma once

// Filters of lists and watches: a subset of AIP-160 (google.aip.dev/160), over the fields of the
// listed message.
//
//   filter      = sequence {"AND" sequence}
//   sequence    = factor {factor}            side by side is AND, and binds closer than it
//   factor      = term {"OR" term}           OR binds closer than AND, as AIP-160 has it
//   term        = ["NOT" | "-"] (test | "(" filter ")")
//   test        = path operator value
//   operator    = "=" | "!=" | "<" | "<=" | ">" | ">=" | ":"
//   path        = names with dots between them; after the name of a map its key: labels.eye
//   value       = a word, or a text in double or single quotes (\" \' \\ \* \n \t)
//
// A path leads to one value, and = != < <= > >= compare it. Texts, enums and bools know = and !=
// only. An enum's value may be named with or without the enum's name. In a text that = or !=
// compares, * at the beginning or the end stands for any characters. Times are RFC 3339, spans
// seconds ("1.5s"). A field that is not set (a time, a message, a key) is equal to nothing, and no
// comparison but != is true of it.
//
// ":" asks whether a repeated field has the value (shape:64; replicas.device:0 looks into each
// element), whether a map has the key (labels:eye), and with * whether a field is set at all
// (expire_time:*).
//
// A filter is a client's text: its length, its depth and the number of its tests are bounded, and
// so is the work of one row.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "server/rpc/list/field_path.h"
#include "server/rpc/list/field_value.h"

namespace octavo::rpc {

enum class FilterOperator : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kHas
};

/// One test of a field.
struct FilterTest {
  FieldPath path;
  FilterOperator op = FilterOperator::kEqual;
  bool set = false;  // ":*": whether it is set at all
  std::string key;   // of a map, for ":"
  FieldValue value;
  bool any_before = false, any_after = false;  // texts: a * at the beginning, at the end

  bool Matches(const google::protobuf::Message& row) const;
};

/// A test, or others put together.
struct FilterNode {
  enum class Kind : uint8_t { kTest, kAll, kAny, kNot };
  Kind kind = Kind::kTest;
  std::vector<FilterNode> parts;  // of kNot: one
  std::shared_ptr<const FilterTest> test;
};

class Filter {
 public:
  static constexpr size_t kMostBytes = 4096;
  static constexpr int kMostDepth = 32, kMostTests = 64;

  /// Matches every row.
  Filter() = default;
  /// InvalidArgument (filter): what is wrong, where, and what is allowed.
  static absl::StatusOr<Filter> Parse(const google::protobuf::Descriptor& row,
                                      absl::string_view text);

  bool Matches(const google::protobuf::Message& row) const;
  bool empty() const { return !root_.has_value(); }
  /// Whether some test is about the field (or a part of it).
  bool SpeaksOf(absl::string_view field) const { return fields_.count(std::string(field)) > 0; }
  /// The text that the field has in every row that matches, if the filter says so ("a = x AND …"):
  /// a list need not look at other rows. Empty: not known.
  std::string Wanted(absl::string_view field) const;

 private:
  std::optional<FilterNode> root_;  // nothing: all rows match
  std::set<std::string> fields_;    // of the row, that the tests are about
};

}  // namespace octavo::rpc
