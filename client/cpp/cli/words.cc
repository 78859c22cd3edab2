#include "client/cpp/cli/words.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"

#include "gpu/base/spelling.h"

namespace octavo::cli {
namespace {

std::string WordOf(const google::protobuf::EnumValueDescriptor& value) {
  return InOneWord(*value.type(), value.number());
}

}  // namespace

CLI::Validator OneOf(const std::vector<std::string>& words) {
  return {[words](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            return absl::StrCat("is '", text, "'; allowed ", absl::StrJoin(words, ", "),
                                DidYouMean(text, words));
          },
          ""};
}

CLI::Validator OneOf(const std::vector<std::string>& words,
                     const std::map<std::string, std::string>& also, bool guess) {
  return {[words, also, guess](std::string& text) {
            if (const auto other = also.find(text); other != also.end()) text = other->second;
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            return absl::StrCat("is '", text, "'; allowed ", absl::StrJoin(words, ", "),
                                guess ? DidYouMean(text, words) : "");
          },
          ""};
}

CLI::Validator AboveZero() {
  return {[](const std::string& text) {
            double value = 0;
            if (!absl::SimpleAtod(text, &value) || value > 0) return std::string();
            return absl::StrCat("is '", text, "'; allowed are numbers above 0");
          },
          ""};
}

CLI::Validator Natural() {
  return {[](std::string& text) {
            const size_t digits = std::min(text.find_first_not_of(" +"), text.size());
            const bool negative = digits < text.size() && text[digits] == '-';
            errno = 0;
            (void)std::strtoull(text.c_str(), nullptr, 0);
            if (!negative && errno != ERANGE) return std::string();
            return absl::StrCat("is '", text, "'; allowed are whole numbers from 0 on",
                                negative ? "" : "; this one is too large");
          },
          ""};
}

CLI::Validator WholeFrom(int64_t least, int64_t most) {
  return {[least, most](std::string& text) {
            int64_t number = 0;
            if (!absl::SimpleAtoi(text, &number)) return std::string();
            if (number >= least && (most == 0 || number <= most)) return std::string();
            return absl::StrCat("is '", text, "'; allowed are whole numbers from ", least,
                                most == 0 ? " on" : absl::StrCat(" to ", most));
          },
          ""};
}

CLI::Validator SecondsAboveZero() {
  return {[](std::string& text) {
            double seconds = 0;
            if (!absl::SimpleAtod(text, &seconds)) return std::string();  // CLI11 says so
            if (seconds > 0 && seconds <= 1e6) return std::string();
            return absl::StrCat("is ", text, "; allowed are seconds above 0, at most 1e6");
          },
          ""};
}

CLI::Validator DeviceName() {
  return {[](std::string& text) {
            uint32_t number = 0;
            if (absl::SimpleAtoi(text, &number)) text = absl::StrCat("devices/", number);
            if (absl::EqualsIgnoreCase(text, "host")) text = "devices/host";
            return std::string();
          },
          ""};
}

void CheckNaturals(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (absl::StartsWith(option->get_type_name(), "UINT")) option->check(Natural());
  }
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; }))
    CheckNaturals(command);
}

std::string Listed(const std::vector<std::string>& words) { return absl::StrJoin(words, " | "); }

std::string ShortName(const google::protobuf::EnumDescriptor& values, int number) {
  const auto* value = values.FindValueByNumber(number);
  if (value == nullptr) return std::to_string(number);
  // The value 0 of every enum is PREFIX_UNSPECIFIED.
  const absl::string_view prefix =
      absl::StripSuffix(values.FindValueByNumber(0)->name(), "UNSPECIFIED");
  return std::string(absl::StripPrefix(value->name(), prefix));
}

std::string InWords(const google::protobuf::EnumDescriptor& values, int number) {
  return absl::StrReplaceAll(InOneWord(values, number), {{"-", " "}});
}

std::string InOneWord(const google::protobuf::EnumDescriptor& values, int number) {
  if (number == 0) return "";
  return absl::StrReplaceAll(absl::AsciiStrToLower(ShortName(values, number)), {{"_", "-"}});
}

std::vector<std::string> WordsOf(const google::protobuf::EnumDescriptor& values) {
  std::vector<std::string> words;
  for (int i = 0; i < values.value_count(); ++i) {
    if (values.value(i)->number() != 0) words.push_back(WordOf(*values.value(i)));
  }
  return words;
}

int NumberOf(const google::protobuf::EnumDescriptor& values, const std::string& word) {
  for (int i = 0; i < values.value_count(); ++i) {
    if (values.value(i)->number() != 0 && WordOf(*values.value(i)) == word)
      return values.value(i)->number();
  }
  return 0;
}

void RefuseStrangers(const CLI::App& app, const std::vector<FlagOf>& flags, const std::string& kind,
                     const std::string& chosen) {
  for (const FlagOf& one : flags) {
    if (app.count(one.flag) == 0 ||
        std::find(one.kinds.begin(), one.kinds.end(), kind) != one.kinds.end())
      continue;
    throw CLI::ValidationError(
        one.flag, absl::StrCat("is for ", absl::StrJoin(one.kinds, ", "), "; ", chosen));
  }
}

}  // namespace octavo::cli
