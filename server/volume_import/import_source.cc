#include "server/volume_import/import_source.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/direct/data_file.h"
#include "server/storage/io/confined_path.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/volume_import/file_deposits.h"

namespace octavo::volume_import {
namespace {

constexpr char kPath[] = "volume_import.path", kDeposit[] = "volume_import.deposit";

absl::Status Probe(const UniqueFd& file, const std::string& path,
                   const storage::VolumeInputOptions& options) {
  const absl::Status probed =
      storage::ProbeHdf5Volume(file, path, {.dataset = options.dataset, .roots = options.roots});
  ErrorInfo info = InfoOf(probed);
  if (info.field != "dataset") return probed;
  info.field = absl::StrCat(kFieldPrefix, info.field);
  return WithInfo(absl::Status(probed.code(), absl::StrCat(kFieldPrefix, probed.message())), info);
}

absl::Status NeitherFileNorFolder(const std::string& name) {
  return WithInfo(absl::InvalidArgumentError(
                      absl::StrCat(name, " is neither a file nor a folder; allowed are these")),
                  {.reason = Reason::kUnsupportedFile, .field = "", .numbers = {}});
}

absl::Status CheckKind(const UniqueFd& opened, const std::string& name) {
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return storage::ErrnoStatus(errno, "examining", name);
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return absl::OkStatus();
  return NeitherFileNorFolder(name);
}

absl::StatusOr<std::unique_ptr<storage::VolumeInput>> OpenPath(
    const model::ImportSpec& spec, const job::JobEnvironment& environment,
    const storage::VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const storage::ConfinedPath path,
                          storage::ConfinePath(spec.path, environment.file_roots, kPath));
  auto input = storage::OpenVolumeInput(path.path, options);
  for (const auto& [name, value] : InfoOf(input.status()).numbers) {
    if (name == "errno" && value == absl::StrCat(ENXIO)) return NeitherFileNorFolder(spec.path);
  }
  return input;
}

absl::StatusOr<std::unique_ptr<storage::VolumeInput>> OpenDeposited(
    const model::ImportSpec& spec, const job::JobEnvironment& environment,
    const storage::VolumeInputOptions& options, std::string* name) {
  if (environment.deposits == nullptr)
    return InvalidField(kDeposit, "is given, but this engine takes no files from clients");
  OCTAVO_ASSIGN_OR_RETURN(DepositedFile file, environment.deposits->Find(spec.deposit, kDeposit));
  *name = file.name;
  return storage::OpenVolumeInput(std::move(file.fd), file.name, options);
}

}  // namespace

absl::StatusOr<ImportSource> ImportSource::Open(const model::ImportSpec& spec,
                                                const job::JobEnvironment& environment) {
  if (spec.path.empty() == spec.deposit.empty())
    return InvalidField(kPath, spec.path.empty()
                                   ? "is empty; allowed are files and folders below a replay root, "
                                     "or a deposit instead"
                                   : "is given beside a deposit; allowed is one of them");
  ImportSource source;
  source.field = spec.deposit.empty() ? kPath : kDeposit;
  source.name = spec.path;
  storage::VolumeInputOptions options = spec.input;
  options.field_prefix = kFieldPrefix;
  options.roots = environment.file_roots;
  options.probe_hdf5 = Probe;
  options.on_opened = [&source](const UniqueFd& opened, const std::string& name) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckKind(opened, name));
    if (source.stamps.empty()) source.path = storage::PathOfOpen(opened.get());
    UniqueFd watched(::fcntl(opened.get(), F_DUPFD_CLOEXEC, 0));
    if (!watched) return storage::ErrnoStatus(errno, "opening", name);
    OCTAVO_ASSIGN_OR_RETURN(SourceStamp stamp, SourceStamp::Of(std::move(watched)));
    source.stamps.emplace_back(name, std::move(stamp));
    return absl::OkStatus();
  };
  auto input = spec.deposit.empty() ? OpenPath(spec, environment, options)
                                    : OpenDeposited(spec, environment, options, &source.name);
  if (!input.ok()) return source.At(input.status());
  source.input = *std::move(input);
  return source;
}

absl::Status ImportSource::CheckUnchanged() const {
  for (const auto& [file, stamp] : stamps) {
    std::string changed = stamp.Changed();
    if (changed.empty()) continue;
    if (changed == ".") changed = file;
    return WithInfo(
        absl::AbortedError(absl::StrCat(
            field, ": ", name, changed == name ? "" : absl::StrCat(" (", changed, ")"),
            " has changed since it was opened, so it is no volume of one moment; import it again "
            "when nobody writes it")),
        {.reason = Reason::kReplaced,
         .field = field,
         .numbers = {{"changed", changed}, {"retryable", "true"}}});
  }
  return absl::OkStatus();
}

absl::Status ImportSource::At(const absl::Status& status) const {
  ErrorInfo info = InfoOf(status);
  if (!info.field.empty()) return status;
  info.field = field;
  return WithInfo(absl::Status(status.code(), absl::StrCat(field, ": ", status.message())), info);
}

}  // namespace octavo::volume_import
