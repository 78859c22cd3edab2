#include "server/drain_record.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/log.h"
#include "gpu/base/size_text.h"
#include "server/storage/io/files.h"

namespace octavo::drain {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr char kKilled[] = "the daemon was killed before it had written it to disk";

std::string PathIn(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/held_at_stop.jsonl");
}

std::string TextOf(const nlohmann::json& line, const char* member) {
  const auto it = line.find(member);
  return it != line.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

DrainRecord::DrainRecord(const std::string& state_dir)
    : path_(PathIn(state_dir)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                 0600)) {
  if (!fd_)
    Log(LogLevel::kWarning, "no record of the held volumes at this end",
        {{"file", path_}, {"error", std::strerror(errno)}});
}

void DrainRecord::Write(const std::string& line) {
  if (!fd_) return;
  const absl::Status written = storage::WriteAll(fd_.get(), path_, line.data(), line.size());
  if (written.ok()) return;
  Log(LogLevel::kWarning, "no further record of the held volumes at this end",
      {{"file", path_}, {"error", std::string(written.message())}});
  fd_ = UniqueFd();
}

void DrainRecord::AtRisk(const model::VolumeStatus& volume) {
  at_risk_.insert(volume.name);
  const nlohmann::json line = {{"at_risk", volume.name},
                               {"title", volume.title},
                               {"scan", volume.scan},
                               {"owner", volume.owner.name},
                               {"bytes", volume.bytes}};
  Write(line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

void DrainRecord::Safe(const std::string& volume) {
  at_risk_.erase(volume);
  Write(nlohmann::json({{"safe", volume}}).dump() + "\n");
}

void DrainRecord::Lost(const std::string& volume, const std::string& reason) {
  lost_ = true;
  const nlohmann::json line = {{"lost", volume}, {"reason", reason}};
  Write(line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

void DrainRecord::Close() {
  // Not synced: the end does not wait for a disk that hangs, which may be why volumes are lost.
  if (!lost_ && at_risk_.empty()) ::unlink(path_.c_str());
  fd_ = UniqueFd();
}

std::vector<DrainRecord::LostVolume> DrainRecord::ReadLost(const std::string& state_dir,
                                                           const std::set<std::string>& present) {
  const std::string path = PathIn(state_dir);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return {};
  const auto text = storage::ReadWholeFile(fd.get(), path, kMostBytes);
  if (!text.ok()) {
    LostVolume unknown;
    unknown.line = absl::StrCat(path, ": cannot be read (", text.status().message(),
                                "): what the last end lost is not known");
    return {std::move(unknown)};
  }
  std::map<std::string, LostVolume> lost;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto json = ParseJson(line, {.bytes = 1 << 20, .depth = 4, .values = 64});
    if (!json.ok() || !json->is_object()) continue;  // torn by the end
    if (const std::string name = TextOf(*json, "at_risk"); !name.empty()) {
      const auto bytes = json->find("bytes");
      const bool sized = bytes != json->end() && bytes->is_number_integer();
      LostVolume& volume = lost[name];
      volume.name = name;
      volume.owner = TextOf(*json, "owner");
      if (sized) volume.bytes = bytes->get<int64_t>();
      volume.reason = kKilled;
      volume.killed = true;
      volume.line = absl::StrCat(
          TextOf(*json, "title").empty() ? "" : absl::StrCat("'", TextOf(*json, "title"), "', "),
          sized ? SizeText(volume.bytes) : "?", ", of ", TextOf(*json, "scan"));
    } else if (const std::string safe = TextOf(*json, "safe"); !safe.empty()) {
      lost.erase(safe);
    } else if (const auto it = lost.find(TextOf(*json, "lost")); it != lost.end()) {
      it->second.reason = TextOf(*json, "reason");
      it->second.killed = false;
    }
  }
  std::vector<LostVolume> told;
  for (auto& [name, volume] : lost) {
    if (present.contains(name)) continue;
    volume.line = absl::StrCat(name, " (", volume.line,
                               "): lost at the last end of the daemon: ", volume.reason,
                               volume.owner.empty() ? "" : "; owner: ", volume.owner);
    told.push_back(std::move(volume));
  }
  return told;
}

void DrainRecord::Forget(const std::string& state_dir) { ::unlink(PathIn(state_dir).c_str()); }

}  // namespace octavo::drain
