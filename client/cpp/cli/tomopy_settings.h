#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo::cli {

/// What the settings of tomopy-cli (its flags, and the keys of tomopy.conf) are for octavo recon.
/// Names, defaults and meanings: tomopy_cli/config.py, recon.py and prep.py.
struct TomopySettings {
  struct Flag {
    std::string name;  // without dashes; "file": the file of the scan
    std::vector<std::string> values;
    bool otherwise = false;  // counts only if the flag before it does not
  };
  /// A setting without counterpart that would change the result.
  struct Refusal {
    std::string text;                  // its name, its value, and what is allowed
    std::vector<std::string> instead;  // flags that settle it, if one of them is given
  };

  std::vector<Flag> flags;
  std::vector<std::string> notes;    // what a setting became, in words
  std::vector<std::string> ignored;  // names of those that change no result here
  std::vector<Refusal> refusals;
};

/// Whether tomopy-cli has a setting of this name, that is, one of its commands for reconstruction.
bool IsTomopyName(const std::string& name);
/// The names of all of them.
std::vector<std::string> TomopyNames();

/// `given`: the settings by name, as text. A setting that is not given counts as tomopy-cli's
/// default where another one depends on it.
TomopySettings FromTomopy(const std::map<std::string, std::string>& given);

}  // namespace octavo::cli
