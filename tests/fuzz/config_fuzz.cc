// Any text as the configuration file; and, after a first byte '=', as KEY=VALUE, the form of flags.
// What is accepted must be the same when each key is set from the text that the log shows for it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "server/config.h"
#include "tests/fuzz/fuzz_input.h"

namespace octavo {
namespace {

using fuzz::Require;

void Check(const Config& config) {
  Config again;
  bool exact = true;
  for (const ConfigChange& change : ChangesOf(Config(), config)) {
    const absl::Status set = ApplySetting(&again, change.key, change.to);
    // Of a list in the file, an element may hold what separates those of a flag.
    const bool plain = !absl::StrContains(change.to, ",");
    exact = exact && plain;
    if (plain) Require(set.ok());
  }
  if (exact) Require(ChangesOf(config, again).empty());
  (void)QuotaRulesOf(config);
  (void)RootRightsOf(config);
}

void Run(absl::string_view text) {
  Config config;
  if (!text.empty() && text[0] == '=') {
    fuzz::Input input(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    (void)input.Byte();
    const std::string key(input.Until('='));
    const absl::Status set = ApplySetting(&config, key, std::string(input.Rest()));
    Require(set.ok() || absl::IsInvalidArgument(set));
    if (set.ok()) Check(config);
    return;
  }
  const absl::Status read = ApplyText(&config, std::string(text), "fuzzed.toml");
  if (read.ok()) return Check(config);
  Require(absl::IsInvalidArgument(read) && absl::StrContains(read.message(), "fuzzed.toml"));
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
