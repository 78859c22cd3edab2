#include "server/volume_import/import_source.h"

#include <cerrno>
#include <fcntl.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/confined_path.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/volume_import/file_deposits.h"

namespace octavo::volume_import {
namespace {

constexpr char kPath[] = "volume_import.path", kDeposit[] = "volume_import.deposit";

absl::Status Probe(const UniqueFd& file, const std::string& path,
                   const storage::VolumeInputOptions& options) {
  return storage::ProbeHdf5Volume(file, path, {.dataset = options.dataset, .roots = options.roots});
}

absl::StatusOr<ImportSource> OpenPath(const model::ImportSpec& spec,
                                      const job::JobEnvironment& environment,
                                      const storage::VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const storage::ConfinedPath path,
                          storage::ConfinePath(spec.path, environment.file_roots, kPath));
  auto opened = storage::OpenBeneath(path.path, environment.file_roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok()) return ImportSource::At(kPath, opened.status());
  auto stamp = SourceStamp::Of(std::move(opened->fd));
  if (!stamp.ok()) return ImportSource::At(kPath, stamp.status());
  auto input = storage::OpenVolumeInput(path.path, options);
  if (!input.ok()) return ImportSource::At(kPath, input.status());
  return ImportSource{
      .field = kPath, .name = spec.path, .stamp = *std::move(stamp), .input = *std::move(input)};
}

absl::StatusOr<ImportSource> OpenDeposited(const model::ImportSpec& spec,
                                           const job::JobEnvironment& environment,
                                           const storage::VolumeInputOptions& options) {
  if (environment.deposits == nullptr)
    return InvalidField(kDeposit, "is given, but this engine takes no files from clients");
  OCTAVO_ASSIGN_OR_RETURN(DepositedFile file, environment.deposits->Find(spec.deposit, kDeposit));
  UniqueFd watched(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched)
    return ImportSource::At(kDeposit, storage::ErrnoStatus(errno, "opening", file.name));
  auto stamp = SourceStamp::Of(std::move(watched));
  if (!stamp.ok()) return ImportSource::At(kDeposit, stamp.status());
  auto input = storage::OpenVolumeInput(std::move(file.fd), file.name, options);
  if (!input.ok()) return ImportSource::At(kDeposit, input.status());
  return ImportSource{.field = kDeposit,
                      .name = std::move(file.name),
                      .stamp = *std::move(stamp),
                      .input = *std::move(input)};
}

}  // namespace

absl::StatusOr<ImportSource> ImportSource::Open(const model::ImportSpec& spec,
                                                const job::JobEnvironment& environment) {
  storage::VolumeInputOptions options = spec.input;
  options.field_prefix = kFieldPrefix;
  options.roots = environment.file_roots;
  options.probe_hdf5 = Probe;
  if (spec.path.empty() == spec.deposit.empty())
    return InvalidField(kPath, spec.path.empty()
                                   ? "is empty; allowed are files and folders below a replay root, "
                                     "or a deposit instead"
                                   : "is given beside a deposit; allowed is one of them");
  return spec.deposit.empty() ? OpenPath(spec, environment, options)
                              : OpenDeposited(spec, environment, options);
}

absl::Status ImportSource::CheckUnchanged() const {
  const std::string changed = stamp.Changed();
  if (changed.empty()) return absl::OkStatus();
  return WithInfo(absl::AbortedError(absl::StrCat(
                      field, ": ", name, changed == "." ? "" : absl::StrCat(" (", changed, ")"),
                      " has changed since it was opened, so it is no volume of one moment; import "
                      "it again when nobody writes it")),
                  {.reason = Reason::kReplaced,
                   .field = field,
                   .numbers = {{"changed", changed}, {"retryable", "true"}}});
}

absl::Status ImportSource::At(const std::string& field, const absl::Status& status) {
  ErrorInfo info = InfoOf(status);
  if (!info.field.empty()) return status;
  info.field = field;
  return WithInfo(absl::Status(status.code(), absl::StrCat(field, ": ", status.message())), info);
}

}  // namespace octavo::volume_import
