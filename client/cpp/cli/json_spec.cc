#include "client/cpp/cli/json_spec.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

#include "client/cpp/cli/words.h"
#include "gpu/base/spelling.h"

namespace octavo::cli {
namespace {

namespace pb = google::protobuf;

const pb::FieldDescriptor* FieldNamed(const pb::Descriptor& of, const std::string& name) {
  const pb::FieldDescriptor* field = of.FindFieldByName(name);
  return field != nullptr ? field : of.FindFieldByCamelcaseName(name);
}

std::string StrangerIn(const pb::Struct& fields, const pb::Descriptor& of, const std::string& path);

// The same for the value of a field.
std::string StrangerIn(const pb::Value& value, const pb::FieldDescriptor& field,
                       const std::string& path) {
  if (value.has_list_value()) {
    for (int i = 0; i < value.list_value().values_size(); ++i) {
      std::string found =
          StrangerIn(value.list_value().values(i), field, absl::StrCat(path, "[", i, "]"));
      if (!found.empty()) return found;
    }
    return "";
  }
  if (field.enum_type() != nullptr && value.kind_case() == pb::Value::kStringValue &&
      field.enum_type()->FindValueByName(value.string_value()) == nullptr) {
    std::vector<std::string> names;
    for (int i = 1; i < field.enum_type()->value_count(); ++i)
      names.push_back(field.enum_type()->value(i)->name());
    return absl::StrCat(path, " is '", value.string_value(), "'; allowed ",
                        absl::StrJoin(names, ", "), DidYouMean(value.string_value(), names));
  }
  if (field.message_type() == nullptr || field.is_map() || !value.has_struct_value()) return "";
  return StrangerIn(value.struct_value(), *field.message_type(), path + ".");
}

// The first field or word of an enum that the contract does not have, and those that it has; empty
// if there is none.
std::string StrangerIn(const pb::Struct& fields, const pb::Descriptor& of,
                       const std::string& path) {
  for (const auto& [name, value] : fields.fields()) {
    const pb::FieldDescriptor* const field = FieldNamed(of, name);
    if (field == nullptr) {
      std::vector<std::string> names;
      for (int i = 0; i < of.field_count(); ++i) names.push_back(of.field(i)->name());
      return absl::StrCat("there is no ", path, name, "; allowed ", absl::StrJoin(names, ", "),
                          DidYouMean(name, names));
    }
    if (std::string found = StrangerIn(value, *field, path + name); !found.empty()) return found;
  }
  return "";
}

}  // namespace

void ReadJsonSpec(const std::string& given, pb::Message* spec, const std::string& flag) {
  const bool itself = absl::StartsWith(absl::StripLeadingAsciiWhitespace(given), "{");
  std::stringstream text(given);
  if (!itself) {
    std::ifstream file(given);
    text.str("");
    text << file.rdbuf();
    if (!file)
      throw CLI::ValidationError(
          flag, absl::StrCat("cannot read ", given,
                             "; allowed are a file, or JSON itself, which begins with {"));
  }
  const auto parsed = pb::util::JsonStringToMessage(text.str(), spec);
  if (parsed.ok()) return;
  pb::Struct fields;
  std::string why;
  if (pb::util::JsonStringToMessage(text.str(), &fields).ok())
    why = StrangerIn(fields, *spec->GetDescriptor(), "");
  throw CLI::ValidationError(
      flag, absl::StrCat(itself ? "" : given + " ", "is no ", spec->GetDescriptor()->name(), ": ",
                         why.empty() ? parsed.ToString() : why));
}

}  // namespace octavo::cli
