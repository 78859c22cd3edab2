#include "server/rpc/list/filter.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/list/filter_parser.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Message;

bool Like(const FilterTest& test, const std::string& text) {
  const std::string& wanted = std::get<std::string>(test.value);
  if (test.any_before && test.any_after) return absl::StrContains(text, wanted);
  if (test.any_before) return absl::EndsWith(text, wanted);
  if (test.any_after) return absl::StartsWith(text, wanted);
  return text == wanted;
}

/// Whether the operator, which is not kNotEqual, is true of the value. NaN compares with nothing.
bool Holds(const FilterTest& test, const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return Like(test, *text);
  switch (test.op) {
    case FilterOperator::kLess: return value < test.value;
    case FilterOperator::kLessOrEqual: return value <= test.value;
    case FilterOperator::kGreater: return value > test.value;
    case FilterOperator::kGreaterOrEqual: return value >= test.value;
    default: return value == test.value;
  }
}

bool NodeMatches(const FilterNode& node, const Message& row) {
  const auto matches = [&](const FilterNode& part) { return NodeMatches(part, row); };
  switch (node.kind) {
    case FilterNode::Kind::kTest: return node.test->Matches(row);
    case FilterNode::Kind::kAll: return std::all_of(node.parts.begin(), node.parts.end(), matches);
    case FilterNode::Kind::kAny: return std::any_of(node.parts.begin(), node.parts.end(), matches);
    case FilterNode::Kind::kNot: return !matches(node.parts.front());
  }
  return false;
}

void CollectFields(const FilterNode& node, std::set<std::string>* fields) {
  if (node.test != nullptr) fields->insert(node.test->path.first_name());
  for (const FilterNode& part : node.parts) CollectFields(part, fields);
}

std::string WantedBy(const FilterNode& node, absl::string_view field) {
  if (node.kind == FilterNode::Kind::kTest) {
    const FilterTest& test = *node.test;
    const auto* text = std::get_if<std::string>(&test.value);
    const bool exact = text != nullptr && test.op == FilterOperator::kEqual && !test.any_before &&
                       !test.any_after && test.path.text() == field;
    return exact ? *text : "";
  }
  if (node.kind != FilterNode::Kind::kAll) return "";
  for (const FilterNode& part : node.parts) {
    if (std::string wanted = WantedBy(part, field); !wanted.empty()) return wanted;
  }
  return "";
}

}  // namespace

bool FilterTest::Matches(const Message& row) const {
  if (set) return path.IsSet(row);
  if (path.is_map()) return path.HasKey(row, key);
  const bool held = path.Any(row, [&](const FieldValue& v) { return Holds(*this, v); });
  return op == FilterOperator::kNotEqual ? !held : held;
}

absl::StatusOr<Filter> Filter::Parse(const google::protobuf::Descriptor& row,
                                     absl::string_view text) {
  if (text.size() > kMostBytes)
    return InvalidField("filter",
                        absl::StrCat("has ", text.size(), " bytes; allowed ", kMostBytes));
  if (Utf8(text) != text)
    return InvalidField("filter", "has bytes that are not UTF-8; allowed a text in UTF-8");
  Filter filter;
  OCTAVO_ASSIGN_OR_RETURN(filter.root_, ParseFilter(row, text));
  if (filter.root_.has_value()) CollectFields(*filter.root_, &filter.fields_);
  return filter;
}

bool Filter::Matches(const Message& row) const {
  return !root_.has_value() || NodeMatches(*root_, row);
}

std::string Filter::Wanted(absl::string_view field) const {
  return root_.has_value() ? WantedBy(*root_, field) : "";
}

}  // namespace octavo::rpc
