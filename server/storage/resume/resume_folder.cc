#include "server/storage/resume/resume_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_members.h"

namespace octavo::storage {
namespace {

constexpr char kMagic[4] = {'O', 'R', 'S', '1'};
constexpr size_t kHeadBytes = 12;  // magic, CRC, length of the header
constexpr int64_t kVersion = 1;
constexpr char kSuffix[] = ".resume", kTemporarySuffix[] = ".tmp", kDamagedSuffix[] = ".damaged";
constexpr JsonLimits kHeaderLimits{.bytes = 32 << 10, .depth = 2, .values = 64};

bool IsId(absl::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
  });
}

absl::StatusOr<std::string> Encode(const ResumeRecord& record) {
  if (!IsId(record.id))
    return InvalidField(
        "id", absl::StrCat("is '", record.id, "'; allowed 1 to 128 letters, digits and '-'"));
  if (record.request.size() > ResumeFolder::kMostRequestBytes)
    return InvalidField("request", absl::StrCat("has ", record.request.size(), " bytes; allowed ",
                                                ResumeFolder::kMostRequestBytes));
  const std::string header = nlohmann::json({{"version", kVersion},
                                             {"id", record.id},
                                             {"scan", record.scan},
                                             {"owner", record.owner},
                                             {"project", record.project},
                                             {"role", record.role},
                                             {"early_deaths", record.early_deaths},
                                             {"early", record.early},
                                             {"begun_unix_ns", record.begun_unix_ns}})
                                 .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (header.size() > kHeaderLimits.bytes)
    return InvalidField("owner", absl::StrCat("makes a header of ", header.size(),
                                              " bytes; allowed ", kHeaderLimits.bytes));
  const auto length = static_cast<uint32_t>(header.size());
  std::string bytes(kHeadBytes, '\0');
  std::memcpy(bytes.data(), kMagic, 4);
  std::memcpy(bytes.data() + 8, &length, 4);
  absl::StrAppend(&bytes, header, record.request);
  const uint32_t crc = Crc32c(bytes.data() + 8, bytes.size() - 8);
  std::memcpy(bytes.data() + 4, &crc, 4);
  return bytes;
}

absl::StatusOr<ResumeRecord> Decode(const std::string& bytes) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, 4) != 0)
    return absl::DataLossError("it is no record of a scan");
  uint32_t crc = 0, length = 0;
  std::memcpy(&crc, bytes.data() + 4, 4);
  std::memcpy(&length, bytes.data() + 8, 4);
  if (Crc32c(bytes.data() + 8, bytes.size() - 8) != crc)
    return absl::DataLossError("it has another CRC than it says");
  if (length > bytes.size() - kHeadBytes)
    return absl::DataLossError("its header is longer than the file");
  const auto header = ParseJson(absl::string_view(bytes).substr(kHeadBytes, length), kHeaderLimits);
  if (!header.ok())
    return absl::DataLossError(absl::StrCat("its header ", header.status().message()));
  int64_t version = 0;
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "version", &version));
  if (version != kVersion)
    return absl::DataLossError(
        absl::StrCat("it is of version ", version, "; this server reads ", kVersion));
  ResumeRecord record;
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "id", &record.id));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "scan", &record.scan));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "owner", &record.owner));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "project", &record.project));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "role", &record.role));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "early", &record.early));
  OCTAVO_RETURN_IF_ERROR(ReadMember(*header, "begun_unix_ns", &record.begun_unix_ns));
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json* const deaths, Member(*header, "", "early_deaths"));
  OCTAVO_RETURN_IF_ERROR(ReadInteger(*deaths, "early_deaths", 0, 1000, &record.early_deaths));
  absl::string_view scan = record.scan;
  if (!absl::ConsumePrefix(&scan, "scans/") || !IsId(scan))
    return absl::DataLossError("its scan is none");
  record.request = bytes.substr(kHeadBytes + length);
  return record;
}

}  // namespace

std::string ResumeFolder::FileOf(absl::string_view id) const {
  return absl::StrCat(path_, "/", id, kSuffix);
}

std::string ResumeFolder::TemporaryOf(absl::string_view id) const {
  return absl::StrCat(path_, "/.", id, kTemporarySuffix);
}

absl::Status ResumeFolder::Put(const ResumeRecord& record) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string bytes, Encode(record));
  const std::string temporary = TemporaryOf(record.id), path = FileOf(record.id);
  if (const int error = Failpoint("resume_create"))
    return ErrnoStatus(error, "creating", temporary);
  (void)::unlink(temporary.c_str());  // a call that failed to remove it
  UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return ErrnoStatus(errno, "creating", temporary);
  absl::Cleanup unfinished = [&] { (void)::unlink(temporary.c_str()); };
  OCTAVO_RETURN_IF_ERROR(WriteAll(fd.get(), temporary, bytes.data(), bytes.size()));
  if (const int error = Failpoint("resume_written"))
    return ErrnoStatus(error, "writing", temporary);
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "syncing", temporary);
  if (const int error = Failpoint("resume_synced")) return ErrnoStatus(error, "syncing", temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return ErrnoStatus(errno, "renaming to", path);
  std::move(unfinished).Cancel();
  if (const int error = Failpoint("resume_renamed")) return ErrnoStatus(error, "syncing", path_);
  return SyncDirectory(path_);
}

absl::StatusOr<ResumeRecord> ResumeFolder::Get(const std::string& id) const {
  const std::string path = FileOf(id);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "looking at", path);
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return absl::DataLossError("it belongs to others, or can be written by them");
  OCTAVO_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(fd.get(), path, kMostFileBytes));
  OCTAVO_ASSIGN_OR_RETURN(ResumeRecord record, Decode(bytes));
  // A copy under another name would begin the scan twice.
  if (record.id != id)
    return absl::DataLossError(absl::StrCat("it is a copy of the record ", record.id));
  return record;
}

absl::Status ResumeFolder::Remove(const std::string& id) {
  const std::string path = FileOf(id);
  if (const int error = Failpoint("resume_remove")) return ErrnoStatus(error, "removing", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "removing", path);
  return SyncDirectory(path_);  // or a loss of power brings it back
}

std::string ResumeFolder::PutAside(const std::string& id, absl::string_view why) {
  const std::string path = FileOf(id);
  std::string aside = absl::StrCat(path_, "/", id, kDamagedSuffix);
  for (int i = 1; PathExists(aside); ++i)
    aside = absl::StrCat(path_, "/", id, kDamagedSuffix, ".", i);
  const bool moved = RenameNoReplace(path, aside).ok() && SyncDirectory(path_).ok();
  return absl::StrCat(path, ": a scan that was to be resumed is not (", why, "); ",
                      moved ? absl::StrCat("renamed to ", aside) : "stays as it is");
}

absl::StatusOr<std::unique_ptr<ResumeFolder>> ResumeFolder::Open(const std::string& path,
                                                                 std::vector<std::string>* found,
                                                                 std::vector<std::string>* report) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, "creating directory", path);
  const UniqueFd opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0) return ErrnoStatus(errno, "opening", path);
  // A record says whose its scan is: who could write one could begin scans in any name.
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path,
        info.st_uid != ::geteuid() ? " belongs to user " : " can be written by others than user ",
        info.st_uid, "; allowed is a folder of user ", ::geteuid(),
        " that nobody else may write into (look at what is in it, then chmod 700)"));
  }
  if ((info.st_mode & 077) != 0 && ::fchmod(opened.get(), 0700) != 0)
    return ErrnoStatus(errno, "making private", path);
  std::unique_ptr<ResumeFolder> folder(new ResumeFolder(path));
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return ErrnoStatus(error.value(), "reading directory", path);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    absl::string_view id = name;
    if (absl::ConsumePrefix(&id, ".") && absl::ConsumeSuffix(&id, kTemporarySuffix) && IsId(id)) {
      const std::string unfinished = absl::StrCat(path, "/", name);
      if (::unlink(unfinished.c_str()) != 0)
        report->push_back(absl::StrCat(unfinished, ": was not finished; could not be removed"));
      continue;
    }
    id = name;
    if (!absl::ConsumeSuffix(&id, kSuffix) || !IsId(id)) continue;
    const std::string known(id);
    const auto record = folder->Get(known);
    if (record.ok()) {
      found->push_back(known);
      continue;
    }
    // Only what can be read is judged: a lack of descriptors or rights says nothing of a file.
    const bool judged = absl::IsDataLoss(record.status()) ||
                        !std::filesystem::is_regular_file(
                            std::filesystem::symlink_status(absl::StrCat(path, "/", name), error));
    report->push_back(
        judged ? folder->PutAside(known, record.status().message())
               : absl::StrCat("a scan that was to be resumed is not: ", record.status().message(),
                              "; the next start tries again"));
  }
  return folder;
}

}  // namespace octavo::storage
