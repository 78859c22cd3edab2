#include "server/storage/hdf5/hdf5_links.h"

#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/hdf5/dataset_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

constexpr int kMostLinks = 16;       // on one path, the library's own limit: more form a circle
constexpr size_t kMostFiles = 1024;  // files that belong to one input
constexpr char kAllowed[] =
    "data in the file itself, or in HDF5 files under the configured roots (storage.replay_roots)";

bool IsGroup(const Hdf5Place& at) {
  H5O_info_t info;
  const Hdf5Id access = ConfinedAccess(H5P_LINK_ACCESS);
  const bool is = at.path == "/" || (H5Oget_info_by_name2(at.file, at.path.c_str(), &info,
                                                          H5O_INFO_BASIC, access.get()) >= 0 &&
                                     info.type == H5O_TYPE_GROUP);
  H5Eclear2(H5E_DEFAULT);
  return is;
}

}  // namespace

Hdf5Id ConfinedAccess(hid_t of_class) {
  Hdf5Id access(H5Pcreate(of_class), H5Pclose);
  H5Pset_elink_cb(
      access.get(),
      [](const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) -> herr_t {
        return -1;
      },
      nullptr);
  return access;
}

std::string Hdf5Reason() {
  int error = 0;
  return Hdf5Reason(&error);
}

Hdf5Links::Hdf5Links(const std::string& path, Hdf5Id file, const std::vector<std::string>& roots)
    : path_(path), main_(RealPath(path)) {
  for (const std::string& root : roots) {
    std::string real = RealPath(root);
    if (real.empty()) continue;
    given_roots_.push_back(
        std::filesystem::path(absl::StrCat(root, "/.")).lexically_normal().parent_path().string());
    roots_.push_back(std::move(real));
  }
  files_.emplace(main_, std::move(file));
}

std::string Hdf5Links::Label(const std::string& asked, const Hdf5Place& place) const {
  return place.file_path == main_
             ? asked
             : absl::StrCat(asked, " (", BaseOf(place.file_path), ":", place.path, ")");
}

void Hdf5Links::Overlook(const absl::Status& status) {
  if (overlooked_.ok()) overlooked_ = status;
}

absl::StatusOr<std::optional<Hdf5Place>> Hdf5Links::Find(const std::string& name) {
  return Follow({.file = files_.at(main_).get(), .file_path = main_, .path = "/"}, name, name);
}

absl::StatusOr<Hdf5Place> Hdf5Links::FindSource(const Hdf5Place& from, const std::string& file,
                                                const std::string& name) {
  Hdf5Place at{.file = from.file, .file_path = from.file_path, .path = "/"};
  const std::string link = Label(from.path, from), target = absl::StrCat("'", file, ":", name, "'");
  if (file != ".") OCTAVO_RETURN_IF_ERROR(OpenFile(file, link, target, &at));
  OCTAVO_ASSIGN_OR_RETURN(auto place, Follow(std::move(at), name, from.path));
  if (!place.has_value())
    return BadProjections(path_, link,
                          absl::StrCat("takes data from ", target, ", which is missing"), kAllowed);
  return *std::move(place);
}

// Makes `at` the root of the file that `link` names.
absl::Status Hdf5Links::OpenFile(const std::string& named, const std::string& link,
                                 const std::string& target, Hdf5Place* at) {
  const auto refuse = [&](const char* why) {
    return BadProjections(path_, link, absl::StrCat("leads to ", target, ", which ", why),
                          kAllowed);
  };
  const std::string candidate =
      absl::StartsWith(named, "/")
          ? named
          : absl::StrCat(std::filesystem::path(at->file_path).parent_path().string(), "/", named);
  const std::string plain = std::filesystem::path(candidate).lexically_normal().string();
  // Compare the path as text first, so that the answer does not reveal whether a file outside
  // exists.
  bool inside = false;
  for (size_t i = 0; i < roots_.size(); ++i)
    inside = inside || IsInside(plain, roots_[i]) || IsInside(plain, given_roots_[i]);
  if (roots_.empty())
    return refuse("is another file, and no roots are configured that it may lie under");
  if (!inside) return refuse("lies outside of the configured roots");
  const std::string real = RealPath(candidate);
  if (real.empty()) return refuse("is missing or not accessible");
  inside = false;
  for (const std::string& root : roots_) inside = inside || IsInside(real, root);
  if (!inside) return refuse("lies outside of the configured roots");
  auto opened = files_.find(real);
  if (opened == files_.end()) {
    if (files_.size() >= kMostFiles)
      return refuse(absl::StrCat("is one file too many: an input may have ", kMostFiles).c_str());
    const auto beneath = OpenBeneath(real, roots_, O_RDONLY | O_NONBLOCK);
    struct stat info {};
    if (!beneath.ok())
      return refuse(InfoOf(beneath.status()).reason == Reason::kOutsideRoots
                        ? "lies outside of the configured roots"
                        : "may not be read");
    if (::fstat(beneath->fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return refuse("is no file");
    const std::string name = NameOfOpen(beneath->fd);
    if (H5Fis_hdf5(name.c_str()) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return refuse("is no HDF5 file");
    }
    Hdf5Id file(H5Fopen(name.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    if (!file)
      return DamagedProjections(
          path_, link,
          absl::StrCat("leads to ", target, ", which cannot be opened: ", Hdf5Reason()));
    opened = files_.emplace(real, std::move(file)).first;
  }
  at->file = opened->second.get();
  at->file_path = real;
  at->path = "/";
  return absl::OkStatus();
}

// Go part by part, so that the library meets only hard links.
absl::StatusOr<std::optional<Hdf5Place>> Hdf5Links::Follow(Hdf5Place at, const std::string& name,
                                                           const std::string& asked) {
  const Hdf5Id access = ConfinedAccess(H5P_LINK_ACCESS);
  const auto parts_of = [](const std::string& path) {
    std::deque<std::string> parts;
    for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
      if (part != ".") parts.emplace_back(part);
    }
    return parts;
  };
  std::deque<std::string> left = parts_of(name);
  std::string link, target;  // the last one that was followed
  size_t of_link = 0;        // number of the next parts that come from a link
  for (int links = 0; !left.empty();) {
    const std::string next = absl::StrCat(at.path == "/" ? "" : at.path, "/", left.front());
    const bool linked = of_link > 0;
    if (linked) --of_link;
    left.pop_front();
    const bool group = IsGroup(at);
    const htri_t there = group ? H5Lexists(at.file, next.c_str(), access.get()) : 0;
    H5L_info_t info;
    if (there < 0 || (there > 0 && H5Lget_info(at.file, next.c_str(), &info, access.get()) < 0))
      return DamagedProjections(path_, Label(asked, at),
                                absl::StrCat("cannot be looked up: ", Hdf5Reason()));
    if (there == 0) {
      if (!linked) return std::optional<Hdf5Place>();
      return BadProjections(
          path_, link, absl::StrCat("leads to ", target, ", where there is nothing"), kAllowed);
    }
    if (info.type == H5L_TYPE_HARD) {
      at.path = next;
      continue;
    }
    link = at.file_path == main_ ? next : absl::StrCat(BaseOf(at.file_path), ":", next);
    if (info.type != H5L_TYPE_SOFT && info.type != H5L_TYPE_EXTERNAL) {
      return BadProjections(path_, link, "is a link of a kind that a program has made for itself",
                            kAllowed);
    }
    std::string value(info.u.val_size + 1, '\0');
    if (H5Lget_val(at.file, next.c_str(), value.data(), info.u.val_size, access.get()) < 0)
      return DamagedProjections(path_, link, absl::StrCat("cannot be looked up: ", Hdf5Reason()));
    std::string object = value.c_str();
    if (info.type == H5L_TYPE_EXTERNAL) {
      const char *file = nullptr, *path = nullptr;
      if (H5Lunpack_elink_val(value.data(), info.u.val_size, nullptr, &file, &path) < 0)
        return DamagedProjections(path_, link, absl::StrCat("cannot be looked up: ", Hdf5Reason()));
      object = path;
      target = absl::StrCat("'", file, ":", object, "'");
      if (++links <= kMostLinks) OCTAVO_RETURN_IF_ERROR(OpenFile(file, link, target, &at));
    } else {
      target = absl::StrCat("'", object, "'");
      ++links;
      if (absl::StartsWith(object, "/")) at.path = "/";
    }
    if (links > kMostLinks)
      return BadProjections(path_, link,
                            absl::StrCat("leads to ", target, ", and links go on and on"),
                            "at most 16 on a path");
    std::deque<std::string> parts = parts_of(object);
    left.insert(left.begin(), parts.begin(), parts.end());
    of_link += parts.size();
  }
  return std::optional(std::move(at));
}

}  // namespace octavo::storage
