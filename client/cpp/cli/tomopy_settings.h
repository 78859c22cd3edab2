#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo::cli {

/// What the settings of tomopy-cli (its flags, and the keys of tomopy.conf) are for octavo recon.
/// Names, defaults and meanings: tomopy_cli/config.py, recon.py and prep.py.
///
/// Every given setting is in exactly one of these groups: it becomes a flag, it is done otherwise,
/// it has no effect here, or it has no counterpart.
struct TomopySettings {
  struct Flag {
    std::string name;  // without dashes; "file": the file of the scan
    std::vector<std::string> values;
    std::string setting;     // "gridrec-filter = parzen", which it stands for
    std::string why;         // in words; may be empty
    bool otherwise = false;  // counts only if the flag before it does not
  };
  /// A setting without counterpart.
  struct Refusal {
    std::string setting;               // "sinogram-max-value = 3"
    std::string text;                  // name, value, and what is allowed
    std::vector<std::string> instead;  // flags that settle it, if one of them is given
    // tomopy-cli takes this value, and its result would differ; else it is a mistake, or says where
    // results go
    bool differs = false;
  };

  std::vector<Flag> flags;
  std::vector<std::string> otherwise;  // "name = value: what is done here"
  std::vector<std::string> no_effect;  // "name = value": not used by tomopy-cli beside the others,
                                       // or without effect on its result
  std::vector<Refusal> refusals;
};

/// Whether tomopy-cli has a setting of this name, that is, one of its commands for reconstruction.
bool IsTomopyName(const std::string& name);
/// The names of all of them.
std::vector<std::string> TomopyNames();

/// `given`: the settings by name, as text. A setting that is not given counts as tomopy-cli's
/// default where another one depends on it. A default never differs (Refusal::differs).
TomopySettings FromTomopy(const std::map<std::string, std::string>& given);

}  // namespace octavo::cli
