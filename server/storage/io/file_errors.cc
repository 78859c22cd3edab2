#include "server/storage/io/file_errors.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

absl::Status WithPlace(absl::Status status, Reason reason, absl::string_view place,
                       const absl::AlphaNum& value, absl::string_view allowed) {
  return WithInfo(std::move(status), {.reason = reason,
                                      .field = "",
                                      .numbers = {{"place", std::string(place)},
                                                  {"value", std::string(value.Piece())},
                                                  {"allowed", std::string(allowed)}}});
}

std::string Sentence(absl::string_view file, absl::string_view place, const absl::AlphaNum& value,
                     absl::string_view allowed) {
  return absl::StrCat(file, ": ", place, " is ", value, "; allowed ", allowed);
}

}  // namespace

absl::Status UnsupportedFile(absl::string_view file, absl::string_view place,
                             const absl::AlphaNum& value, absl::string_view allowed) {
  return WithPlace(absl::InvalidArgumentError(Sentence(file, place, value, allowed)),
                   Reason::kUnsupportedFile, place, value, allowed);
}

absl::Status DamagedFile(absl::string_view file, absl::string_view place, absl::string_view what) {
  return WithInfo(
      absl::DataLossError(absl::StrCat(file, ": ", place, " ", what)),
      {.reason = Reason::kDamagedFile, .field = "", .numbers = {{"place", std::string(place)}}});
}

absl::Status UnknownFileCompression(absl::string_view file, absl::string_view place,
                                    const absl::AlphaNum& value, absl::string_view allowed) {
  return WithPlace(absl::UnimplementedError(Sentence(file, place, value, allowed)),
                   Reason::kUnknownCompression, place, value, allowed);
}

}  // namespace octavo::storage
