#include "server/rpc/list/order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;

constexpr uint64_t kSign = uint64_t{1} << 63;

/// Appends the number in big endian: the bytes then have the order of the numbers.
void Append(uint64_t number, std::string* key) {
  for (int shift = 56; shift >= 0; shift -= 8) *key += static_cast<char>(number >> shift);
}
void AppendSigned(int64_t number, std::string* key) {
  Append(static_cast<uint64_t>(number) ^ kSign, key);
}

/// Appends a value so that its bytes are never the beginning of another value's bytes.
struct Appender {
  std::string* key;
  void operator()(const std::string& text) const {
    for (const char c : absl::string_view(text).substr(0, Order::kMostTextBytes)) {
      *key += c;
      if (c == '\0') *key += '\1';  // the end is two zeros
    }
    key->append(2, '\0');
  }
  void operator()(bool value) const { *key += value ? '\1' : '\0'; }
  void operator()(int64_t value) const { AppendSigned(value, key); }
  void operator()(uint64_t value) const { Append(value, key); }
  void operator()(double value) const {
    if (std::isnan(value)) return Append(0, key);
    const auto bits = std::bit_cast<uint64_t>(value == 0 ? 0.0 : value);
    Append((bits & kSign) != 0 ? ~bits : bits | kSign, key);
  }
  void operator()(const Instant& value) const {
    AppendSigned(value.seconds, key);
    AppendSigned(value.nanos, key);
  }
};

}  // namespace

std::string KeyOfRank(int64_t rank) {
  std::string key;
  AppendSigned(rank, &key);
  return key;
}

absl::StatusOr<Order::Field> Order::ParseField(const Descriptor& row, absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  if (words.empty() || words.size() > 2 ||
      (words.size() == 2 && !absl::EqualsIgnoreCase(words[1], "desc") &&
       !absl::EqualsIgnoreCase(words[1], "asc")))
    return InvalidField("order_by",
                        absl::StrCat("has '", Shortened(absl::StripAsciiWhitespace(text)),
                                     "'; allowed the names of fields, each with asc or desc behind "
                                     "it or without, such as \"create_time desc, name\""));
  auto path = FieldPath::Parse(row, words[0]);
  if (!path.ok()) return InvalidField("order_by", path.status().message());
  if (path->is_repeated() || path->is_map() || path->kind() == FieldKind::kOther)
    return InvalidField("order_by", absl::StrCat("'", words[0],
                                                 "' has no order; allowed a field that holds "
                                                 "one number, text, time or value of an enum"));
  return Field{.path = *std::move(path),
               .descending = words.size() == 2 && absl::EqualsIgnoreCase(words[1], "desc")};
}

absl::StatusOr<Order> Order::Parse(const Descriptor& row, absl::string_view text,
                                   absl::string_view key) {
  Order order;
  std::set<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    OCTAVO_ASSIGN_OR_RETURN(Field field, ParseField(row, part));
    if (!seen.insert(field.path.text()).second)
      return InvalidField("order_by",
                          absl::StrCat("names '", field.path.text(), "' twice; allowed once"));
    if (seen.size() > kMostFields)
      return InvalidField("order_by", absl::StrCat("names more than ", kMostFields,
                                                   " fields; allowed ", kMostFields));
    order.fields_.push_back(std::move(field));
  }
  if (!seen.contains(std::string(key))) {
    OCTAVO_ASSIGN_OR_RETURN(Field tie, ParseField(row, key));
    order.fields_.push_back(std::move(tie));
  }
  return order;
}

std::string Order::KeyOf(const Message& row) const {
  std::string key;
  for (const Field& field : fields_) {
    const size_t begin = key.size();
    const bool set = field.path.Any(row, [&](const FieldValue& value) {
      key += '\1';
      std::visit(Appender{&key}, value);
      return true;
    });
    if (!set) key += '\0';
    if (field.descending)
      std::transform(key.begin() + static_cast<std::ptrdiff_t>(begin), key.end(),
                     key.begin() + static_cast<std::ptrdiff_t>(begin),
                     [](char c) { return static_cast<char>(~c); });
  }
  return key;
}

}  // namespace octavo::rpc
