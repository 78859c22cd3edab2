#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace octavo::cli {

struct FileSetting;  // a key of a file, with its values
struct TomopySettings;

/// Settings of a command in a file: --config reads them, --write-config writes them. Keys are the
/// names of the command's long flags, without dashes, in TOML; `file` names its files. Flags on the
/// command line win. A file whose name ends in .conf is one of tomopy-cli; its names may be used in
/// TOML, too.
class SettingsFile {
 public:
  /// The flag of the command line, with its value, beside which a setting (a long name without
  /// dashes, its value as text) has no effect; empty: it may have one. `by_hand`: the long names of
  /// the flags on the command line.
  using Replaced = std::function<std::string(const std::string& setting, const std::string& value,
                                             const std::set<std::string>& by_hand)>;

  /// Adds --config, --accept-differences and --write-config. First of all flags of the command: the
  /// flags that the file sets are checked after it, like those of the command line. Settings that
  /// `replaced` names are left out.
  void AddTo(CLI::App* app, Replaced replaced);

  /// Whether the file set this flag (a long name, without dashes).
  bool Set(const std::string& flag) const { return set_.contains(flag); }
  /// --write-config: where to; empty if it is not given.
  const std::string& written() const { return written_; }
  /// Writes the flags as they are now, each with its help. Throws CLI::ValidationError if the file
  /// exists or cannot be written.
  void Write() const;

 private:
  void Read(const std::string& path);
  /// Whether the flag is set then.
  bool Apply(const std::string& path, const FileSetting& setting);
  void Translate(const std::string& path, const std::vector<FileSetting>& settings);
  /// Throws for settings without counterpart that no flag settles, unless --accept-differences is
  /// given and they are no mistakes.
  void CheckRefusals(const std::string& path, const TomopySettings& meant);

  CLI::App* app_ = nullptr;
  Replaced replaced_;
  std::string written_;
  bool accept_differences_ = false;
  std::set<std::string> by_hand_, set_;  // flags of the command line, flags of the file
  std::map<std::string, std::vector<std::string>> left_out_;  // settings by the flag given instead
  // A setting that a flag excludes, and those that need it.
  struct Excluded {
    std::string where, because;
    std::vector<std::string> with_it;
  };
  std::map<std::string, Excluded> excluded_;
  // Of each setting that is left out: where those that need it are told.
  std::map<std::string, std::vector<std::string>*> leaders_;
};

}  // namespace octavo::cli
