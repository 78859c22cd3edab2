#include "server/spill_mark.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo {
namespace {

constexpr size_t kMostBytes = 1 << 16;

struct Place {
  std::string folder, id;
  double bytes_per_second = 0;
  bool operator==(const Place&) const = default;
};

// Nothing: there is no mark, or none that can be read.
Place ReadPlace(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return {};
  const auto text = storage::ReadWholeFile(fd.get(), path, kMostBytes);
  if (!text.ok()) return {};
  const auto mark = ParseJson(*text);
  if (!mark.ok() || !mark->is_object()) return {};
  const auto member = [&](const char* name) {
    const auto it = mark->find(name);
    return it != mark->end() && it->is_string() ? it->get<std::string>() : "";
  };
  const auto rate = mark->find("bytes_per_second");
  return {.folder = member("folder"),
          .id = member("id"),
          .bytes_per_second =
              rate != mark->end() && rate->is_number() ? std::max(0.0, rate->get<double>()) : 0};
}

absl::Status WritePlace(const Place& place, const std::string& path) {
  const std::string text = nlohmann::json({{"folder", place.folder},
                                           {"id", place.id},
                                           {"bytes_per_second", place.bytes_per_second}})
                               .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  const std::string fresh = absl::StrCat(path, ".new");
  ::unlink(fresh.c_str());
  OCTAVO_RETURN_IF_ERROR(storage::WriteNewFile(fresh, text.data(), text.size()));
  OCTAVO_RETURN_IF_ERROR(storage::SyncFile(fresh));
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    return storage::ErrnoStatus(errno, "renaming", fresh);
  return absl::OkStatus();
}

}  // namespace

SpillMark::SpillMark(const std::string& state_dir)
    : path_(absl::StrCat(state_dir, "/spill_folder.json")) {}

absl::StatusOr<std::string> SpillMark::Check(const std::string& spill_dir) const {
  const Place last = ReadPlace(path_);
  if (last.folder != spill_dir) return "";
  const std::string id = storage::DirectoryId(spill_dir);
  if (id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", spill_dir,
                     "' is missing, and the last octavod used it: mount it, or make "
                     "it to go on without them"));
  }
  if (last.id.empty() || id == last.id) return "";
  return absl::StrCat("spill.dir: another folder is at ", spill_dir,
                      " than the last octavod used; if its disk is not mounted, stop octavod, "
                      "mount it and start octavod again; if it is the right one, remove ",
                      path_);
}

absl::Status SpillMark::Set(const std::string& spill_dir) const {
  const Place last = ReadPlace(path_);
  Place now{.folder = spill_dir, .id = storage::DirectoryId(spill_dir)};
  if (last.folder == now.folder && last.id == now.id) now.bytes_per_second = last.bytes_per_second;
  return last == now ? absl::OkStatus() : WritePlace(now, path_);
}

double SpillMark::Rate(const std::string& spill_dir) const {
  const Place last = ReadPlace(path_);
  return last.folder == spill_dir ? last.bytes_per_second : 0;
}

absl::Status SpillMark::SetRate(const std::string& spill_dir, double bytes_per_second) const {
  return WritePlace({.folder = spill_dir,
                     .id = storage::DirectoryId(spill_dir),
                     .bytes_per_second = bytes_per_second},
                    path_);
}

}  // namespace octavo
