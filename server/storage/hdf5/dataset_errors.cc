#include "server/storage/hdf5/dataset_errors.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

absl::Status WithDataset(absl::Status status, Reason reason, const std::string& dataset,
                         const std::string& value, const std::string& allowed) {
  return WithInfo(std::move(status),
                  {.reason = reason,
                   .field = "",
                   .numbers = {{"dataset", dataset}, {"value", value}, {"allowed", allowed}}});
}

}  // namespace

absl::Status BadProjections(const std::string& path, const std::string& dataset,
                            const std::string& value, const std::string& allowed) {
  return WithDataset(absl::InvalidArgumentError(absl::StrCat(BaseOf(path), ": ", dataset, " ",
                                                             value, "; allowed ", allowed)),
                     Reason::kBadProjections, dataset, value, allowed);
}

absl::Status DamagedProjections(const std::string& path, const std::string& dataset,
                                const std::string& what) {
  return WithDataset(absl::DataLossError(absl::StrCat(BaseOf(path), ": ", dataset, " ", what)),
                     Reason::kDamagedFile, dataset, what, "");
}

absl::Status ReplacedProjections(const std::string& path) {
  return WithInfo(absl::AbortedError(absl::StrCat(
                      BaseOf(path), " was replaced or removed while it was opened; ask again")),
                  {.reason = Reason::kReplaced, .field = "", .numbers = {{"retryable", "true"}}});
}

absl::Status UnknownCompression(const std::string& path, const std::string& dataset,
                                const std::string& what) {
  return WithDataset(
      absl::UnimplementedError(absl::StrCat(BaseOf(path), ": ", dataset, " is compressed with ",
                                            what, ", which this server does not know")),
      Reason::kUnknownCompression, dataset, what, "");
}

}  // namespace octavo::storage
