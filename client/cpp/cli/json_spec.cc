#include "client/cpp/cli/json_spec.h"

#include <fstream>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace octavo::cli {

void ReadJsonSpec(const std::string& given, google::protobuf::Message* spec) {
  const bool itself = absl::StartsWith(absl::StripLeadingAsciiWhitespace(given), "{");
  std::stringstream text(given);
  if (!itself) {
    std::ifstream file(given);
    text.str("");
    text << file.rdbuf();
    if (!file)
      throw CLI::ValidationError(
          "--json-spec", absl::StrCat("cannot read ", given,
                                      "; allowed are a file, or JSON itself, which begins with {"));
  }
  const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), spec);
  if (parsed.ok()) return;
  throw CLI::ValidationError("--json-spec",
                             absl::StrCat(itself ? "" : given + " ", "is no ",
                                          spec->GetDescriptor()->name(), ": ", parsed.ToString()));
}

}  // namespace octavo::cli
