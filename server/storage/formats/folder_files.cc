#include "server/storage/formats/folder_files.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

/// The digits that begin at `at`, without leading zeros; moves behind them.
absl::string_view DigitsAt(const std::string& text, size_t* at) {
  while (*at + 1 < text.size() && text[*at] == '0' && IsDigit(text[*at + 1])) ++*at;
  const size_t begin = *at;
  while (*at < text.size() && IsDigit(text[*at])) ++*at;
  return absl::string_view(text).substr(begin, *at - begin);
}

/// The one number in which two names differ: its digits in each, and what is around it. Nothing if
/// they differ in more.
struct Numbered {
  std::string before, after;
  int64_t first = 0, second = 0;
  size_t digits = 0;  // of the second, leading zeros included
};

std::optional<Numbered> DifferingNumber(const std::string& a, const std::string& b) {
  size_t begin = 0;
  while (begin < a.size() && begin < b.size() && a[begin] == b[begin]) ++begin;
  while (begin > 0 && IsDigit(a[begin - 1])) --begin;
  size_t i = begin, k = begin;
  while (i < a.size() && IsDigit(a[i])) ++i;
  while (k < b.size() && IsDigit(b[k])) ++k;
  Numbered out{.before = b.substr(0, begin), .after = b.substr(k), .digits = k - begin};
  if (a.substr(i) != out.after || !absl::SimpleAtoi(a.substr(begin, i - begin), &out.first) ||
      !absl::SimpleAtoi(b.substr(begin, k - begin), &out.second) || out.second <= out.first)
    return std::nullopt;
  return out;
}

constexpr char kAllTaken[] = " All are taken, in the order of their names.";

/// A name with its numbers left out: names of one series have one.
std::string KindOf(const std::string& name) {
  std::string kind;
  for (const char c : name) {
    if (!IsDigit(c)) {
      kind += c;
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

/// Names that differ in more than numbers from those that most are like.
std::string DoubtKinds(const std::vector<std::string>& names) {
  std::map<std::string, size_t> kinds;
  for (const std::string& name : names) ++kinds[KindOf(name)];
  if (kinds.size() < 2) return "";
  // Of the most names; of several the one that comes first.
  const std::string* usual = nullptr;
  for (const std::string& name : names) {
    if (usual == nullptr || kinds[KindOf(name)] > kinds[KindOf(*usual)]) usual = &name;
  }
  const size_t alike = kinds[KindOf(*usual)];
  if (alike < 2) return "";  // names without an order of their own
  const auto odd = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return KindOf(name) != KindOf(*usual);
  });
  return absl::StrCat("The names are not of one series: ", alike, " are as ", *usual, ", and ",
                      names.size() - alike, " are not, the first of them ", *odd, ".", kAllTaken);
}

/// Numbers with zeros in front, in more than one width. `steps`: from each name to the next one.
std::string DoubtWidths(const std::vector<std::string>& names, const std::vector<Numbered>& steps) {
  size_t width = 0;  // of those that have zeros in front
  for (size_t i = 0; i < names.size() && !steps.empty(); ++i) {
    const std::string& name = names[i];
    const size_t begin = steps[i == 0 ? 0 : i - 1].before.size();
    size_t end = begin;
    while (end < name.size() && IsDigit(name[end])) ++end;
    const size_t digits = end - begin;
    const bool padded = digits > 1 && name[begin] == '0';
    if (width > 0 && (digits < width || (padded && digits > width))) {
      return absl::StrCat("The numbers in the names have ", width, " digits up to ", names[i - 1],
                          ", and ", digits, " in ", name, ": are they of one series?", kAllTaken);
    }
    if (padded) width = digits;
  }
  return "";
}

}  // namespace

std::string DoubtNumbers(const std::vector<std::string>& names) {
  if (std::string kinds = DoubtKinds(names); !kinds.empty()) return kinds;
  std::vector<Numbered> steps;
  size_t odd = 0, jumps = 0;  // steps that are none of one number: the first, and how many
  for (size_t i = 1; i < names.size(); ++i) {
    auto step = DifferingNumber(names[i - 1], names[i]);
    if (step.has_value()) {
      steps.push_back(*std::move(step));
    } else if (jumps++ == 0) {
      odd = i;
    }
  }
  if (jumps > 0 && jumps < steps.size()) {
    return absl::StrCat("More than one number changes in the names from ", names[odd - 1], " to ",
                        names[odd], ": are they several series in one folder?", kAllTaken);
  }
  if (jumps > 0) return "";
  if (std::string widths = DoubtWidths(names, steps); !widths.empty()) return widths;
  int64_t least = 0, wider = 0;
  for (const Numbered& step : steps)
    least = least == 0 ? step.second - step.first : std::min(least, step.second - step.first);
  const Numbered* gap = nullptr;
  for (const Numbered& step : steps) {
    if (step.second - step.first == least) continue;
    if (gap == nullptr) gap = &step;
    ++wider;
  }
  if (least > 1 && gap == nullptr)
    return absl::StrCat("The numbers in the names go up in steps of ", least, ", from ", names[0],
                        " to ", names.back(), ": files may be missing between them.");
  if (gap == nullptr) return "";
  std::string digits = absl::StrCat(gap->first + least);
  if (digits.size() < gap->digits) digits.insert(0, gap->digits - digits.size(), '0');
  return absl::StrCat("A file seems to be missing: ", gap->before, digits, gap->after,
                      wider > 1 ? absl::StrCat(" is the first of ", wider, " gaps") : "",
                      "; what follows it comes one place too early for each that is missing.");
}

bool NaturallyBefore(const std::string& a, const std::string& b) {
  size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[k])) {
      const absl::string_view left = DigitsAt(a, &i), right = DigitsAt(b, &k);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a[i] != b[k]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
      ++i, ++k;
    }
  }
  if (i < a.size() || k < b.size()) return k < b.size();
  return a < b;
}

absl::StatusOr<std::shared_ptr<ByteSource>> FolderFile::Open() const {
  UniqueFd fd = OpenWithin(*folder_, name_, O_RDONLY | O_NONBLOCK);
  if (!fd) return ErrnoStatus(errno, "opening", absl::StrCat(folder_name_, "/", name_));
  OCTAVO_ASSIGN_OR_RETURN(auto bytes,
                          FileBytes(std::move(fd), absl::StrCat(folder_name_, "/", name_)));
  if (bytes->size() != bytes_)
    return DamagedFile(
        folder_name_, name_,
        absl::StrCat("has ", bytes->size(), " bytes; when the folder was opened it had ", bytes_));
  return bytes;
}

absl::StatusOr<std::vector<std::shared_ptr<FolderFile>>> FolderFiles(const UniqueFd& folder,
                                                                     const std::string& name,
                                                                     size_t most) {
  auto kept = std::make_shared<UniqueFd>(::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  UniqueFd listed(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!*kept || !listed) return ErrnoStatus(errno, "opening", name);
  DIR* const stream = ::fdopendir(listed.get());
  if (stream == nullptr) return ErrnoStatus(errno, "listing", name);
  (void)listed.release();  // the stream owns it
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, ::closedir);
  std::vector<std::shared_ptr<FolderFile>> files;
  errno = 0;
  while (const dirent* const entry = ::readdir(stream)) {
    struct stat info {};
    if (entry->d_name[0] == '.') continue;
    if (::fstatat(folder.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (files.size() == most)
      return UnsupportedFile(name, "the folder", absl::StrCat("one of more than ", most, " files"),
                             absl::StrCat("up to ", most));
    files.push_back(std::make_shared<FolderFile>(kept, name, entry->d_name, info.st_size));
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, "listing", name);
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return NaturallyBefore(a->name(), b->name()); });
  return files;
}

}  // namespace octavo::storage
