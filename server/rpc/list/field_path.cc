#include "server/rpc/list/field_path.h"

#include <type_traits>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// What the requester may have meant by a name that `message` does not have: a word of another
/// language, or a field of one of the message's parts.
std::string Hint(const Descriptor& message, absl::string_view name) {
  const std::string word = absl::AsciiStrToUpper(name);
  if (word == "AND" || word == "OR" || word == "NOT")
    return absl::StrCat(" (tests are joined by ", word, " in capitals)");
  if (absl::StartsWith(name, "-") && message.FindFieldByName(std::string(name.substr(1))))
    return absl::StrCat(" (descending order is \"", name.substr(1), " desc\")");
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& part = *message.field(i);
    if (part.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !part.is_map() &&
        part.message_type()->FindFieldByName(std::string(name)) != nullptr)
      return absl::StrCat(" (did you mean ", part.name(), ".", name, "?)");
  }
  return "";
}

absl::Status NoField(const Descriptor& message, absl::string_view name) {
  std::vector<absl::string_view> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return absl::InvalidArgumentError(absl::StrCat("there is no field '", Shortened(name), "' of ",
                                                 message.name(), Hint(message, name), "; allowed ",
                                                 absl::StrJoin(names, ", ")));
}

bool IsDefault(const FieldValue& value) {
  return std::visit([](const auto& v) { return v == std::decay_t<decltype(v)>{}; }, value);
}

}  // namespace

absl::StatusOr<FieldPath> FieldPath::Parse(const Descriptor& row, absl::string_view text) {
  FieldPath path;
  path.text_ = std::string(text);
  const Descriptor* message = &row;
  absl::string_view rest = text;
  for (;;) {
    const size_t dot = rest.find('.');
    const absl::string_view name = rest.substr(0, dot);
    const FieldDescriptor* field = message->FindFieldByName(std::string(name));
    if (field == nullptr) return NoField(*message, name);
    path.fields_.push_back(path.field_ = field);
    if (field->is_repeated() && !field->is_map()) path.repeated_ = true;
    if (dot == absl::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
    if (field->is_map()) {
      const Descriptor& entry = *field->message_type();
      path.field_ = entry.FindFieldByNumber(2);
      if (rest.empty() ||
          entry.FindFieldByNumber(1)->cpp_type() != FieldDescriptor::CPPTYPE_STRING ||
          KindOf(*path.field_) == FieldKind::kOther)
        return absl::InvalidArgumentError(
            absl::StrCat("'", Shortened(text), "' names no value of the map '", name, "'; allowed ",
                         name, ".<key> of maps from texts to values"));
      path.key_ = std::string(rest);
      path.keyed_ = true;
      return path;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        KindOf(*field) != FieldKind::kOther)
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' has no fields in it, so '",
                                                     Shortened(text), "' names none; allowed ",
                                                     name));
    message = field->message_type();
  }
}

bool FieldPath::Walk(const Message& message, size_t depth, const Leaf& leaf) const {
  const FieldDescriptor* field = fields_[depth];
  const auto& reflection = *message.GetReflection();
  if (depth + 1 < fields_.size()) {
    if (!field->is_repeated())
      return reflection.HasField(message, field) &&
             Walk(reflection.GetMessage(message, field), depth + 1, leaf);
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      if (Walk(reflection.GetRepeatedMessage(message, field, i), depth + 1, leaf)) return true;
    }
    return false;
  }
  if (!field->is_repeated())
    return (!field->has_presence() || reflection.HasField(message, field)) && leaf(message, -1);
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    if (!keyed_) {
      if (leaf(message, i)) return true;
      continue;
    }
    const Message& entry = reflection.GetRepeatedMessage(message, field, i);
    const auto* key = entry.GetDescriptor()->FindFieldByNumber(1);
    if (entry.GetReflection()->GetString(entry, key) == key_) return leaf(entry, -1);
  }
  return false;
}

bool FieldPath::Any(const Message& row, const std::function<bool(const FieldValue&)>& test) const {
  return Walk(row, 0, [&](const Message& message, int index) {
    return test(ValueOf(message, *field_, index));
  });
}

bool FieldPath::IsSet(const Message& row) const {
  return Walk(row, 0, [&](const Message& message, int index) {
    if (index >= 0 || keyed_ || field_->has_presence()) return true;
    if (kind() == FieldKind::kOther)  // bytes
      return !message.GetReflection()->GetString(message, field_).empty();
    return !IsDefault(ValueOf(message, *field_, index));
  });
}

bool FieldPath::HasKey(const Message& row, absl::string_view key) const {
  return Walk(row, 0, [&](const Message& message, int index) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, field_, index);
    return entry.GetReflection()->GetString(entry, entry.GetDescriptor()->FindFieldByNumber(1)) ==
           key;
  });
}

}  // namespace octavo::rpc
