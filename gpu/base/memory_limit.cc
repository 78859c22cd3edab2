// /proc/self/cgroup lists the control groups of a process, one line per hierarchy: "0::/path" for
// v2, "4:memory:/path" for v1. /proc/self/mountinfo lists where a hierarchy is mounted, and which
// of its folders is the root of the mount (a container may see only a part). The limits of all
// folders, from that of the process up to the root of the mount, apply at the same time.

#include "gpu/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// The value of `key` in lines "key value", with or without a colon; 0 if no line has the key.
int64_t ValueOf(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string name, rest; in >> name && std::getline(in, rest);) {
    if (name != key) continue;
    std::istringstream value(rest);
    int64_t number = 0;
    value >> number;
    return number;
  }
  return 0;
}

// nullopt: no such file. kNone: "max", or a number larger than any memory.
std::optional<int64_t> NumberIn(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  if (!(in >> text)) return std::nullopt;
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 0 ? number : kNone;
}

struct Group {
  std::string folder;   // of the process
  std::string top;      // where the hierarchy is mounted
  bool second = false;  // v2
};

// The names that differ between the versions.
struct Files {
  std::vector<const char*> limits;
  const char* used;
  const char* cache;  // of memory.stat: page cache that the kernel can drop at once
};
const Files& FilesOf(bool second) {
  static const Files& v1 =
      *new Files{{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};
  static const Files& v2 =
      *new Files{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
  return second ? v2 : v1;
}

// mountinfo writes a blank in a path as \040.
std::string Unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool octal = text[i] == '\\' && i + 3 < text.size() &&
                       text.find_first_not_of("01234567", i + 1) >= i + 4;
    out += octal ? static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                     (text[i + 3] - '0'))
                 : text[i];
    if (octal) i += 3;
  }
  return out;
}

std::vector<Group> GroupsOf(const std::string& root) {
  std::vector<Group> groups;
  std::ifstream own(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(own, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() < 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool second = parts[0] == "0" && parts[1].empty();
    if (!second && std::find(controllers.begin(), controllers.end(), "memory") == controllers.end())
      continue;
    std::ifstream mounts(absl::StrCat(root, "/proc/self/mountinfo"));
    for (std::string mount; std::getline(mounts, mount);) {
      const std::vector<std::string> halves = absl::StrSplit(mount, absl::MaxSplits(" - ", 1));
      if (halves.size() < 2) continue;
      const std::vector<std::string> left = absl::StrSplit(halves[0], ' '),
                                     right = absl::StrSplit(halves[1], ' ');
      if (left.size() < 5 || right.size() < 3 || right[0] != (second ? "cgroup2" : "cgroup"))
        continue;
      const std::vector<std::string> options = absl::StrSplit(right[2], ',');
      if (!second && std::find(options.begin(), options.end(), "memory") == options.end()) continue;
      // The folder below the root of the mount. If the group lies outside of that root (another
      // namespace), the mount itself is the nearest folder that is visible.
      absl::string_view below = parts[2];
      const std::string from = Unescaped(left[3]), top = absl::StrCat(root, Unescaped(left[4]));
      if (from != "/" &&
          (!absl::ConsumePrefix(&below, from) || !(below.empty() || below.front() == '/')))
        below = "";
      if (absl::StrContains(below, "..")) below = "";
      groups.push_back({.folder = std::string(absl::StripSuffix(absl::StrCat(top, below), "/")),
                        .top = top,
                        .second = second});
      break;
    }
  }
  return groups;
}

}  // namespace

MemoryLimit ReadMemoryLimit(const std::string& root) {
  MemoryLimit limit;
  const std::string meminfo = absl::StrCat(root, "/proc/meminfo");
  limit.machine_bytes = ValueOf(meminfo, "MemTotal:") * 1024;
  limit.total_bytes = limit.machine_bytes;
  limit.available_bytes = ValueOf(meminfo, "MemAvailable:") * 1024;
  const auto bound = [&](int64_t bytes, int64_t used, const std::string& file) {
    if (bytes < limit.total_bytes) {
      limit.total_bytes = bytes;
      limit.limited_by = file.substr(root.size());
    }
    limit.available_bytes = std::clamp<int64_t>(bytes - used, 0, limit.available_bytes);
  };
  for (const Group& group : GroupsOf(root)) {
    const Files& files = FilesOf(group.second);
    for (std::string folder = group.folder; folder.size() >= group.top.size();
         folder.resize(folder.rfind('/'))) {
      const std::string stat = absl::StrCat(folder, "/memory.stat");
      const int64_t used =
          std::max<int64_t>(0, NumberIn(absl::StrCat(folder, "/", files.used)).value_or(0) -
                                   ValueOf(stat, files.cache));
      for (const char* name : files.limits) {
        const std::string file = absl::StrCat(folder, "/", name);
        if (const auto bytes = NumberIn(file); bytes.has_value() && *bytes < limit.machine_bytes)
          bound(*bytes, used, file);
      }
      // v1 also reports limits of folders that are not visible from here.
      if (const int64_t bytes = ValueOf(stat, "hierarchical_memory_limit");
          !group.second && bytes > 0 && bytes < limit.machine_bytes) {
        bound(bytes, used, stat);
      }
    }
  }
  return limit;
}

}  // namespace octavo::inline gpu
