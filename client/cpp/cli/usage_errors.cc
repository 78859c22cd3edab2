#include "client/cpp/cli/usage_errors.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "gpu/base/spelling.h"

namespace octavo::cli {
namespace {

/// The command that was reached, with its parents: octavo, scan, submit.
std::vector<const CLI::App*> Reached(const CLI::App& app) {
  std::vector<const CLI::App*> path = {&app};
  while (!path.back()->get_subcommands().empty())
    path.push_back(path.back()->get_subcommands().front());
  return path;
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->get_name().empty())
      names.push_back(command->get_name());  // groups of options have none
  }
  return names;
}

std::vector<std::string> FlagsOf(const std::vector<const CLI::App*>& path) {
  std::vector<std::string> names;
  const auto add = [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  };
  for (const CLI::App* app : path) {
    add(*app);
    for (const CLI::App* group : app->get_subcommands(nullptr)) {
      if (group->get_name().empty()) add(*group);
    }
  }
  return names;
}

/// The first word that no command takes.
std::string Stranger(const CLI::App& app) {
  for (const std::string& word : app.remaining(true)) {
    if (word != "--") return word;
  }
  return "";
}

/// Leave out the dashes, which all flags share.
std::string NearestFlag(const std::string& name, const std::vector<std::string>& flags) {
  std::vector<std::string> words;
  for (const std::string& flag : flags) words.emplace_back(absl::StripPrefix(flag, "--"));
  const std::string nearest = NearestWord(absl::StripPrefix(name, "--"), words);
  return nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?");
}

std::string ExplainStranger(const std::vector<const CLI::App*>& path, const std::string& word) {
  if (absl::StartsWith(word, "-")) {
    const std::string name = absl::StrCat(
        "--", absl::StripPrefix(absl::StripPrefix(word.substr(0, word.find('=')), "-"), "-"));
    const std::vector<std::string> flags = FlagsOf(path);
    const bool one_dash = name != word.substr(0, word.find('=')) &&
                          std::find(flags.begin(), flags.end(), name) != flags.end();
    return absl::StrCat(
        "there is no flag ", word,
        one_dash ? absl::StrCat("; did you mean ", name, "?") : NearestFlag(name, flags));
  }
  const std::vector<std::string> commands = CommandsOf(*path.back());
  if (commands.empty()) return absl::StrCat("'", word, "' is one word too many");
  return absl::StrCat("'", word, "' is no command", DidYouMean(word, commands),
                      "\n  allowed: ", absl::StrJoin(commands, ", "));
}

/// "Could not convert: --ascans = x", the wording of CLI11.
std::string ExplainConversion(const std::vector<const CLI::App*>& path, absl::string_view what) {
  if (!absl::ConsumePrefix(&what, "Could not convert: ")) return std::string(what);
  const size_t equals = what.find(" = ");
  const std::string name(what.substr(0, equals)),
      value(equals == absl::string_view::npos ? "" : what.substr(equals + 3));
  std::string type;
  for (const CLI::App* app : path) {
    if (const CLI::Option* option = app->get_option_no_throw(name); option != nullptr)
      type = option->get_type_name();
  }
  const char* allowed = absl::StartsWith(type, "UINT")  ? "whole numbers from 0 on"
                        : absl::StartsWith(type, "INT") ? "whole numbers"
                        : type.empty()                  ? "true and false"
                                                        : "numbers";
  const bool too_large = type.starts_with("UINT") && !value.empty() &&
                         value.find_first_not_of("0123456789") == std::string::npos;
  return absl::StrCat(name, ": is '", value, "'; allowed are ", allowed,
                      too_large ? "; this one is too large" : "");
}

}  // namespace

std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> path = Reached(app);
  std::string command;
  for (const CLI::App* each : path)
    absl::StrAppend(&command, command.empty() ? "" : " ",
                    each->get_name().empty() ? "octavo" : each->get_name());
  const std::vector<std::string> commands = CommandsOf(*path.back());
  std::string text;
  if (const std::string stranger = Stranger(app); !stranger.empty()) {
    text = ExplainStranger(path, stranger);
  } else if (error.get_name() == "RequiredError" && !commands.empty()) {
    text = absl::StrCat("a command is missing; allowed: ", absl::StrJoin(commands, ", "));
  } else if (error.get_name() == "ConversionError") {
    text = ExplainConversion(path, error.what());
  } else {
    text = error.what();
  }
  return absl::StrCat(command, ": ", text, "\n  ", command, " --help tells what it takes\n");
}

}  // namespace octavo::cli
