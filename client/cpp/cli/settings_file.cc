#include "client/cpp/cli/settings_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/tomopy_settings.h"
#include "gpu/base/spelling.h"
#include "server/base/toml.h"
#include "server/base/toml_text.h"

namespace octavo::cli {

struct FileSetting {
  enum Kind { kText, kNumber, kSwitch };
  std::string key;
  Kind kind = kText;
  bool list = false;
  std::vector<std::string> values;  // as texts
  std::string where;                // ", line 3"
  std::string stands_for;           // the setting of tomopy-cli that it was; empty: none
};

namespace {

enum FlagKind { kTextFlag, kWholeFlag, kNumberFlag, kSwitchFlag };  // what TOML writes for a flag

FlagKind KindOf(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return kSwitchFlag;
  const std::string type = option.get_type_name();
  return absl::StartsWith(type, "UINT") || absl::StartsWith(type, "INT") ? kWholeFlag
         : absl::StartsWith(type, "FLOAT")                               ? kNumberFlag
                                                                         : kTextFlag;
}

bool IsList(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

std::string AllowedOf(const CLI::Option& option) {
  static constexpr const char* kOne[] = {"text in quotes", "a whole number", "a number",
                                         "true, false"};
  static constexpr const char* kMany[] = {"texts in quotes", "whole numbers", "numbers", ""};
  if (!IsList(option)) return kOne[KindOf(option)];
  return absl::StrCat("a list of ", kMany[KindOf(option)], ", [...]");
}

/// The long name of a flag, or the name of the argument; empty for flags that no file sets.
std::string KeyOf(const CLI::Option& option) {
  if (!option.get_configurable()) return "";
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  return option.get_positional() ? option.get_name(true) : "";
}

/// How many flags the flag of a setting needs, one after the other; 0 for what is no flag.
int NeedsOf(const CLI::App& app, const std::string& key) {
  const CLI::Option* const option = key.empty() ? nullptr : app.get_option_no_throw("--" + key);
  if (option == nullptr) return 0;
  int most = 0;
  for (const CLI::Option* needed : option->get_needs())
    most = std::max(most, 1 + NeedsOf(app, KeyOf(*needed)));
  return most;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& text) {
  // Each line by itself, for it may hold anything.
  std::vector<std::string> lines = absl::StrSplit(absl::StrCat(path, text), '\n');
  for (std::string& line : lines) line = Printable(line);
  throw CLI::ValidationError("--config", absl::StrJoin(lines, "\n"));
}

constexpr char kAcceptDifferences[] = "--accept-differences";
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kLongestKey = 100;
constexpr char kTomopyHint[] = "; a file of tomopy-cli needs a name that ends in .conf";

std::string TextOf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) Refuse(path, " is a folder; allowed is a file");
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    Refuse(path, " is a device or a pipe; allowed is a file");
  std::ifstream file(path);
  std::string text(kMostBytes + 1, '\0');
  if (!file) Refuse(path, absl::StrCat(" cannot be read: ", std::strerror(errno)));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) Refuse(path, absl::StrCat(" cannot be read: ", std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes)
    Refuse(path, absl::StrCat(" is larger than ", kMostBytes >> 20, " MiB; allowed are settings"));
  return text;
}

/// For a key that a file of tomopy-cli does not have: the keys that are meant.
std::string MeantForTomopy(const std::string& key, bool is_flag) {
  std::vector<std::string> end_so;
  for (const std::string& name : TomopyNames()) {
    if (absl::EndsWith(name, "-" + key)) end_so.push_back(name);
  }
  const std::string meant = key.size() > kLongestKey ? ""
                            : end_so.empty()
                                ? DidYouMean(key, TomopyNames())
                                : "; did you mean " + absl::StrJoin(end_so, ", ") + "?";
  if (!is_flag) return meant;
  return absl::StrCat(meant, " (--", key,
                      " is a flag: give it beside --config, or in a file in TOML)");
}

/// A value of TOML as text, and its kind; false for what no flag takes.
bool AddValue(const toml::node& node, FileSetting* to) {
  if (const auto* text = node.as_string()) {
    to->values.push_back(text->get());
    to->kind = FileSetting::kText;
  } else if (const auto* whole = node.as_integer()) {
    to->values.push_back(absl::StrCat(whole->get()));
    to->kind = FileSetting::kNumber;
  } else if (const auto* number = node.as_floating_point()) {
    std::ostringstream exact;
    exact.precision(17);
    exact << number->get();
    to->values.push_back(exact.str());
    to->kind = FileSetting::kNumber;
  } else if (const auto* on = node.as_boolean()) {
    to->values.push_back(on->get() ? "true" : "false");
    to->kind = FileSetting::kSwitch;
  } else {
    return false;
  }
  return true;
}

std::vector<FileSetting> ReadToml(const std::string& path, const std::string& text) {
  const std::string hint = absl::StrCat(
      "; allowed is TOML, key = value, as octavo recon --write-config writes it", kTomopyHint);
  if (const absl::Status fit = CheckConfigText(text); !fit.ok())
    Refuse(path, absl::StrCat(": ", fit.message(), hint));
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& e) {
    Refuse(path, absl::StrCat(", line ", e.source().begin.line,
                              ", is no TOML: ", std::string(e.description()), hint));
  } catch (const std::logic_error&) {
    Refuse(path, absl::StrCat(" is no TOML", hint));
  }
  std::vector<FileSetting> settings;
  for (const auto& [key, node] : table) {
    FileSetting one;
    one.key = std::string(key.str());
    one.where = absl::StrCat(", line ", node.source().begin.line);
    const auto refuse = [&](const char* what) {
      Refuse(path, absl::StrCat(one.where, ": '", one.key, "' ", what,
                                "; allowed are texts, numbers, true, false and lists of them",
                                node.is_table() ? kTomopyHint : ""));
    };
    if (const auto* list = node.as_array()) {
      one.list = true;
      for (const toml::node& element : *list) {
        const auto before = one.kind;
        if (!AddValue(element, &one)) refuse("is a list of something else");
        if (one.values.size() > 1 && one.kind != before) refuse("is a list of several kinds");
      }
    } else if (!AddValue(node, &one)) {
      refuse(node.is_table() ? "is a table" : "is a date or a time");
    }
    settings.push_back(std::move(one));
  }
  return settings;
}

/// The lines `key = value` of a file of Python's configparser, as tomopy-cli writes and reads them.
/// The sections of its commands `correct` and `convert` are left out, which is told.
std::vector<FileSetting> ReadTomopy(const std::string& path, const std::string& text) {
  std::vector<FileSetting> settings;
  std::istringstream lines(text);
  std::string section;
  std::map<std::pair<std::string, std::string>, int> places;  // of keys, by command: lines
  bool other_command = false;
  std::vector<std::string> left_out;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = line;
      other_command = line == "[correct]" || line == "[convert]";
      continue;
    }
    const size_t equals = line.find_first_of("=:");
    if (equals == std::string::npos || equals == 0) {
      Refuse(path, absl::StrCat(", line ", number, ", is '", line,
                                "'; allowed is key = value, as tomopy-cli writes it"));
    }
    FileSetting one;
    one.key = line.substr(0, equals);
    absl::StripAsciiWhitespace(&one.key);
    one.values.push_back(line.substr(equals + 1));
    absl::StripAsciiWhitespace(&one.values.front());
    one.where = absl::StrCat(", line ", number);
    if (const auto [before, is_new] =
            places.try_emplace({other_command ? section : "", one.key}, number);
        !is_new)
      Refuse(path, absl::StrCat(one.where, ": '", one.key, "' stands in line ", before->second,
                                ", too; allowed is once"));
    // tomopy-cli takes these for settings that are not given.
    if (one.values.front().empty() || one.values.front() == "None") continue;
    if (other_command) {
      left_out.push_back(absl::StrCat(section, " ", one.key));
    } else {
      settings.push_back(std::move(one));
    }
  }
  if (!left_out.empty()) {
    std::cerr << "octavo: " << path << ": no effect here, of other commands of tomopy-cli: "
              << Printable(absl::StrJoin(left_out, ", ")) << "\n";
  }
  return settings;
}

}  // namespace

void SettingsFile::AddTo(CLI::App* app, Replaced replaced) {
  app_ = app;
  replaced_ = std::move(replaced);
  app->add_option_function<std::string>(
         "--config", [this](const std::string& path) { Read(path); },
         "settings in TOML: names of these flags without dashes, such as algorithm = \"sirt\", "
         "rings = [\"sorting\"]; flags given beside it win. A name that ends in .conf: a file of "
         "tomopy-cli")
      ->configurable(false);
  app->add_flag(
         kAcceptDifferences, accept_differences_,
         "go on although a setting of tomopy-cli has no counterpart, so that the result will "
         "differ from tomopy-cli's")
      ->needs("--config")
      ->configurable(false);
  app->add_option("--write-config", written_,
                  "only write these settings to a new file in TOML, with comments, for --config")
      ->configurable(false);
}

void SettingsFile::Read(const std::string& path) {
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() > 0 && !KeyOf(*option).empty()) by_hand_.insert(KeyOf(*option));
  }
  const std::string text = TextOf(path);
  const bool conf = absl::EndsWith(path, ".conf");
  std::vector<std::string> keys;
  for (const CLI::Option* option : app_->get_options()) {
    if (!KeyOf(*option).empty()) keys.push_back(KeyOf(*option));
  }
  const std::set<std::string> own(keys.begin(), keys.end());
  for (const std::string& name : TomopyNames()) keys.push_back(name);
  std::vector<FileSetting> of_tomopy,
      settings = conf ? ReadTomopy(path, text) : ReadToml(path, text);
  // What others need first: with it they are left out.
  std::stable_sort(settings.begin(), settings.end(), [&](const auto& one, const auto& other) {
    return NeedsOf(*app_, one.key) < NeedsOf(*app_, other.key);
  });
  for (FileSetting& setting : settings) {
    if (!conf && own.contains(setting.key)) {
      (void)Apply(path, setting);
    } else if (IsTomopyName(setting.key)) {
      of_tomopy.push_back(std::move(setting));
    } else if (conf) {
      Refuse(path, absl::StrCat(setting.where, ": tomopy-cli has no setting '", setting.key, "'",
                                MeantForTomopy(setting.key, own.contains(setting.key))));
    } else {
      Refuse(path,
             absl::StrCat(setting.where, ": there is no setting '", setting.key, "'",
                          setting.key.size() > kLongestKey ? "" : DidYouMean(setting.key, keys),
                          " (octavo recon --help lists the flags)"));
    }
  }
  if (!of_tomopy.empty()) Translate(path, of_tomopy);
  for (const auto& [setting, why] : excluded_) {
    std::cerr << "octavo: " << path << why.where << ": " << setting << " is left out, because "
              << why.because;
    if (!why.with_it.empty())
      std::cerr << "; with it: " << Printable(absl::StrJoin(why.with_it, ", "));
    std::cerr << "\n";
  }
  for (const auto& [flag, left] : left_out_) {
    std::cerr << "octavo: " << path << ": left out, because " << flag
              << " is given: " << Printable(absl::StrJoin(left, ", ")) << "\n";
  }
}

void SettingsFile::Translate(const std::string& path, const std::vector<FileSetting>& settings) {
  std::map<std::string, std::string> given;
  for (const FileSetting& setting : settings) {
    if (setting.values.size() != 1)
      Refuse(path, absl::StrCat(setting.where, ": '", setting.key,
                                "' of tomopy-cli is a list; "
                                "allowed is one value"));
    given[setting.key] = setting.kind == FileSetting::kSwitch
                             ? (setting.values[0] == "true" ? "True" : "False")
                             : setting.values[0];
  }
  const TomopySettings meant = FromTomopy(given);
  const auto say = [&](const std::string& what, const std::vector<std::string>& texts) {
    if (texts.empty()) return;
    std::cerr << "octavo: " << path << ": " << what << ": " << Printable(absl::StrJoin(texts, ", "))
              << "\n";
  };
  CheckRefusals(path, meant);
  for (const std::string& text : meant.otherwise) say("done otherwise", {text});
  say("no effect here", meant.no_effect);
  bool applied = false;
  for (const TomopySettings::Flag& flag : meant.flags) {
    if (flag.otherwise && applied) continue;
    // What the file says by Octavo's own name wins.
    const bool by_hand = by_hand_.contains(flag.name);
    applied = by_hand || set_.contains(flag.name);
    if (applied) {
      left_out_[by_hand ? "--" + flag.name : flag.name + " of the file"].push_back(flag.setting);
      continue;
    }
    const CLI::Option* option =
        app_->get_option_no_throw(flag.name == "file" ? flag.name : "--" + flag.name);
    const FlagKind kind = KindOf(*option);
    applied = Apply(path, {.key = flag.name,
                           .kind = kind == kTextFlag     ? FileSetting::kText
                                   : kind == kSwitchFlag ? FileSetting::kSwitch
                                                         : FileSetting::kNumber,
                           .list = flag.values.size() > 1,
                           .values = flag.values,
                           .where = "",
                           .stands_for = flag.setting});
    if (!applied) continue;
    const std::string values = absl::StrJoin(flag.values, ", ");
    std::cerr << "octavo: " << path << ": " << Printable(flag.setting) << " is " << flag.name
              << " = " << Printable(flag.values.size() == 1 ? values : "[" + values + "]")
              << (flag.why.empty() ? "" : ": " + flag.why) << "\n";
  }
}

void SettingsFile::CheckRefusals(const std::string& path, const TomopySettings& meant) {
  const bool accepted = app_->count(kAcceptDifferences) > 0;  // its value is set after --config
  std::vector<std::string> mistakes, differences;
  for (const TomopySettings::Refusal& refusal : meant.refusals) {
    const auto settled = std::find_if(
        refusal.instead.begin(), refusal.instead.end(),
        [&](const std::string& flag) { return by_hand_.contains(flag) || set_.contains(flag); });
    if (settled != refusal.instead.end()) {
      left_out_["--" + *settled].push_back(refusal.setting);
    } else {
      (refusal.differs ? differences : mistakes).push_back(refusal.text);
    }
  }
  if (accepted) {
    for (const std::string& text : differences) {
      std::cerr << "octavo: " << path
                << ": not supported, the result will differ: " << Printable(text) << "\n";
    }
    differences.clear();
  }
  if (differences.empty() && mistakes.empty()) return;
  std::vector<std::string> texts = mistakes;
  for (const std::string& text : differences)
    texts.push_back("not supported, the result would differ: " + text);
  if (mistakes.empty()) {
    texts.push_back(absl::StrCat(kAcceptDifferences, " goes on without ",
                                 differences.size() == 1 ? "it" : "these"));
  }
  Refuse(path, absl::StrCat(": ", absl::StrJoin(texts, "\n  ")));
}

bool SettingsFile::Apply(const std::string& path, const FileSetting& setting) {
  if (by_hand_.contains(setting.key)) return true;
  CLI::Option* option =
      app_->get_option_no_throw(setting.key == "file" ? setting.key : "--" + setting.key);
  const std::string where = absl::StrCat(setting.where, ": ", setting.key);
  const FlagKind kind = KindOf(*option);
  const bool fits = kind == kSwitchFlag ? setting.kind == FileSetting::kSwitch
                    : kind == kTextFlag ? setting.kind != FileSetting::kSwitch
                                        : setting.kind == FileSetting::kNumber;
  if (!fits || (setting.list && !IsList(*option)) || setting.values.empty()) {
    const char quote = setting.kind == FileSetting::kText ? '"' : '\'';
    Refuse(path, absl::StrCat(where, " is ", setting.list ? "the list [" : std::string(1, quote),
                              absl::StrJoin(setting.values, ", "),
                              setting.list ? "]" : std::string(1, quote), "; allowed ",
                              AllowedOf(*option)));
  }
  if (kind == kSwitchFlag && setting.values[0] == "false") return true;
  for (const CLI::Option* other : option->get_excludes()) {
    const std::string key = KeyOf(*other);
    if (!by_hand_.contains(key) && !(!setting.stands_for.empty() && set_.contains(key))) continue;
    excluded_[setting.key] = {.where = setting.where,
                              .because = by_hand_.contains(key)
                                             ? absl::StrCat("--", key, " is given")
                                             : absl::StrCat("the file gives ", key),
                              .with_it = {}};
    leaders_[setting.key] = &excluded_[setting.key].with_it;
    return false;
  }
  const std::string given = absl::StrJoin(setting.values, ", "),
                    in_file = setting.stands_for.empty() ? absl::StrCat(setting.key, " = ", given)
                                                         : setting.stands_for;
  for (const CLI::Option* needed : option->get_needs()) {
    const auto leader = leaders_.find(KeyOf(*needed));
    if (leader == leaders_.end()) continue;
    leader->second->push_back(in_file);
    leaders_[setting.key] = leader->second;
    return false;
  }
  if (const std::string flag = replaced_(setting.key, given, by_hand_); !flag.empty()) {
    left_out_[flag].push_back(in_file);
    leaders_[setting.key] = &left_out_[flag];
    return false;
  }
  for (const std::string& value : setting.values) option->add_result(value);
  try {
    option->run_callback();
  } catch (const CLI::ConversionError&) {
    Refuse(path, absl::StrCat(where, " is '", absl::StrJoin(setting.values, ", "), "'; allowed ",
                              AllowedOf(*option)));
  } catch (const CLI::Error& e) {
    Refuse(path, absl::StrCat(setting.where, ": ", e.what()));
  }
  set_.insert(setting.key);
  return true;
}

namespace {

/// A given value as TOML writes it.
std::string TomlOf(FlagKind kind, const std::string& given) {
  double number = 0;
  if (kind == kWholeFlag || kind == kNumberFlag) {
    int64_t whole = 0;
    if (absl::SimpleAtoi(given, &whole)) return absl::StrCat(whole);
    if (absl::SimpleAtod(given, &number)) {
      std::ostringstream text;
      text << toml::value<double>(number);
      return text.str();
    }
  }
  std::ostringstream text;
  text << toml::value<std::string>(given);
  return text.str();
}

std::string ExampleOf(const CLI::Option& option) {
  static constexpr const char* kExamples[] = {"\"...\"", "<whole number>", "<number>", "true"};
  const std::string one = kExamples[KindOf(option)];
  return IsList(option) ? absl::StrCat("[", one, ", ...]") : one;
}

}  // namespace

void SettingsFile::Write() const {
  std::error_code error;
  if (std::filesystem::exists(written_, error)) {
    throw CLI::ValidationError("--write-config",
                               absl::StrCat("is '", written_,
                                            "', which exists; allowed is a new file: the comments "
                                            "of this one would be lost"));
  }
  std::ostringstream text;
  text << "# Settings of octavo " << app_->get_name() << " --config. Lines that begin with # are "
       << "not set; flags on the command line win.\n";
  for (const CLI::Option* option : app_->get_options()) {
    const std::string key = KeyOf(*option);
    if (key.empty()) continue;
    text << "\n# " << option->get_description() << "\n";
    if (option->count() == 0) {
      text << "# " << key << " = " << ExampleOf(*option) << "\n";
      continue;
    }
    const FlagKind kind = KindOf(*option);
    if (kind == kSwitchFlag) {
      text << key << " = true\n";
      continue;
    }
    std::vector<std::string> values;
    for (const std::string& value : option->reduced_results())
      values.push_back(TomlOf(kind, value));
    text << key << " = "
         << (IsList(*option) ? absl::StrCat("[", absl::StrJoin(values, ", "), "]") : values.front())
         << "\n";
  }
  std::ofstream file(written_);
  file << text.str() << std::flush;
  if (!file) {
    throw CLI::ValidationError(
        "--write-config",
        absl::StrCat("is '", written_, "', which cannot be written: ", std::strerror(errno)));
  }
}

}  // namespace octavo::cli
