#include "client/cpp/cli/scan_names.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <glob.h>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "client/cpp/cli/terminal.h"
#include "gpu/base/json.h"
#include "server/storage/formats/folder_files.h"
#include "server/storage/formats/manifest.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

/// What a folder of scans holds.
constexpr const char* kOfFolders[] = {".h5", ".hdf5", ".hdf", ".nxs", ".npy", ".zarr"};
/// What else is a scan by itself, where it is named, or a pattern finds it.
constexpr const char* kOthers[] = {".nx", ".tif", ".tiff", ".btf"};
constexpr char kPatterns[] = "*?[";

template <class List>
bool EndsAsOneOf(const std::string& name, const List& endings) {
  return std::any_of(std::begin(endings), std::end(endings),
                     [&](const char* ending) { return absl::EndsWithIgnoreCase(name, ending); });
}
bool IsTiff(const std::string& name) {
  return absl::EndsWithIgnoreCase(name, ".tif") || absl::EndsWithIgnoreCase(name, ".tiff");
}
bool EndsAsScan(const std::string& name) {
  return EndsAsOneOf(name, kOfFolders) || EndsAsOneOf(name, kOthers);
}

std::string WithoutSlash(std::string name) {
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  return name;
}
std::string LastPart(const std::string& name) {
  const std::string whole = WithoutSlash(name);
  return whole.substr(whole.rfind('/') + 1);
}
std::string Joined(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}
bool IsZarr(const std::string& folder) {
  const char* const marks[] = {"zarr.json", ".zarray", ".zgroup", ".zattrs"};
  return std::any_of(std::begin(marks), std::end(marks),
                     [&](const char* mark) { return Exists(Joined(folder, mark)); });
}

/// Names in a folder, hidden ones left out, in natural order. Nothing: this user may not list it.
std::optional<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (std::string one = at->path().filename().string(); one[0] != '.')
      names.push_back(std::move(one));
  }
  if (error) return std::nullopt;
  std::sort(names.begin(), names.end(), storage::NaturallyBefore);
  return names;
}

/// The first few of many, quoted.
std::string Some(const std::vector<std::string>& names) {
  constexpr ptrdiff_t kMost = 4;
  const ptrdiff_t count = std::min(kMost, std::ssize(names));
  std::vector<std::string> shown(names.begin(), names.begin() + count);
  for (std::string& name : shown) name = Printable(name);
  return absl::StrCat(
      absl::StrJoin(shown, ", "),
      std::ssize(names) > count ? absl::StrCat(" and ", std::ssize(names) - count, " more") : "");
}
std::string CountOf(size_t count, const char* one, const char* many) {
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

/// The JSON of a file; null if it is none.
nlohmann::json JsonIn(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return nullptr;
  auto json = ParseJson(text.str());
  return json.ok() ? *std::move(json) : nlohmann::json(nullptr);
}

/// The metadata with which Octavo wrote a file or a folder; null if it did not.
nlohmann::json OwnMetadata(const std::string& path) {
  const auto own = [](const nlohmann::json& json) {
    return json.is_object() && json.contains("software") && json["software"].is_string() &&
           absl::StartsWith(json["software"].get<std::string>(), "octavo ");
  };
  if (!IsFolder(path)) {
    nlohmann::json beside = JsonIn(path + ".json");
    return own(beside) ? beside : nlohmann::json(nullptr);
  }
  for (const auto& [file, at] :
       {std::pair("zarr.json", "/attributes/octavo"), std::pair(".zattrs", "/octavo")}) {
    const nlohmann::json json = JsonIn(Joined(path, file));
    if (json.is_object() && json.contains(nlohmann::json::json_pointer(at)) &&
        own(json[nlohmann::json::json_pointer(at)]))
      return json[nlohmann::json::json_pointer(at)];
  }
  return Exists(Joined(path, storage::kManifestName)) ? nlohmann::json::object()
                                                      : nlohmann::json(nullptr);
}

std::string QuantityOf(const nlohmann::json& metadata) {
  const auto kind = metadata.find("value");
  return kind != metadata.end() && kind->is_string() ? kind->get<std::string>() : "";
}

/// A name whose characters stand for themselves in a pattern.
std::string Escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (std::strchr("*?[]\\", c) != nullptr) out += '\\';
    out += c;
  }
  return out;
}

thread_local std::string unreadable;  // by NoteUnreadable, which takes no argument of ours
int NoteUnreadable(const char* path, int error) {
  if (error == ENOENT || error == ENOTDIR) return 0;  // there is nothing to match
  unreadable = absl::StrCat(path, ": ", std::strerror(error));
  return 1;
}

}  // namespace

bool HasPattern(const std::string& name) {
  return name.find_first_of(kPatterns) != std::string::npos;
}

bool MayStandForMany(const std::string& name) { return HasPattern(name) || !EndsAsScan(name); }

ScanFinder::ScanFinder(Options options) : options_(std::move(options)) {
  for (const std::string& root : options_.roots) (IsFolder(root) ? seen_ : unseen_).push_back(root);
  for (const std::string& name : options_.fields) {
    if (const std::string here = name.empty() ? "" : Here(name); !here.empty())
      fields_.insert(here);
  }
}

ScanNames ScanFinder::Find(const std::vector<std::string>& names) const {
  ScanNames out;
  for (const std::string& name : names) {
    const std::string here = Here(name);
    // Where nobody can look, brackets alone are rather a part of a name.
    const bool looks = absl::StartsWith(name, "/") || unseen_.empty() ||
                       name.find_first_of("*?") != std::string::npos;
    if (here.empty() && HasPattern(name) && looks) {
      AddPattern(name, &out);
    } else if (!here.empty() && IsFolder(here) && !IsZarr(here)) {
      AddFolder(name, here, &out);
    } else {
      out.files.push_back(name);
    }
  }
  return out;
}

std::string ScanFinder::Here(const std::string& name) const {
  std::error_code error;
  const auto real = [&](const std::string& path) {
    const fs::path resolved = fs::canonical(path, error);
    return error ? std::string() : resolved.string();
  };
  if (absl::StartsWith(name, "/")) return real(name);
  for (const std::string& root : seen_) {
    if (const std::string path = real(Joined(root, name)); !path.empty()) return path;
  }
  return "";
}

std::string ScanFinder::RootsInWords() const {
  if (options_.roots.empty()) return "the server's replay roots, of which it has none";
  return absl::StrCat("the server's replay roots ", absl::StrJoin(options_.roots, ", "));
}

std::string ScanFinder::Unseen() const {
  if (unseen_.empty()) return "";
  return absl::StrCat("the server at ", options_.address,
                      " lists no files, so patterns are looked up on this "
                      "computer, and its replay roots ",
                      absl::StrJoin(unseen_, ", "), " are not folders here");
}

std::string ScanFinder::WhyNot(const std::string& name, const std::string& here, bool asked) const {
  if (fields_.contains(here)) return "fields or angles of the scans";
  const std::string last = LastPart(name), stem = last.substr(0, last.rfind('.'));
  if (!asked && absl::EndsWithIgnoreCase(absl::StripSuffix(stem, ".ome"), "_rec"))
    return "by its name a result";
  const nlohmann::json metadata = OwnMetadata(here);
  if (metadata.is_null()) return "";
  const std::string quantity = QuantityOf(metadata);
  if (quantity == "line_integral")
    return options_.sinograms ? "" : "sinograms that Octavo prepared, which need --sinograms";
  if (quantity == "transmission")
    return options_.transmissions ? "" : "transmissions of Octavo, which need --transmissions";
  return "a result of Octavo";
}

ScanFinder::Found ScanFinder::Match(const std::string& pattern) const {
  Found found;
  const auto search = [&](const std::string& root) {
    const std::string prefix = root.empty() ? "" : Joined(root, "");
    glob_t matches{};
    unreadable.clear();
    const int code =
        ::glob((Escaped(prefix) + pattern).c_str(), GLOB_NOSORT, NoteUnreadable, &matches);
    const std::unique_ptr<glob_t, void (*)(glob_t*)> closer(&matches, ::globfree);
    if (code != 0 && code != GLOB_NOMATCH) {
      throw CLI::ValidationError(
          "file", absl::StrCat(
                      "'", pattern, "' cannot be looked up on this computer: ",
                      code == GLOB_NOSPACE ? "it matches more than the memory holds" : unreadable));
    }
    for (size_t i = 0; code == 0 && i < matches.gl_pathc; ++i) {
      const std::string path = WithoutSlash(matches.gl_pathv[i]);
      found.emplace(path.substr(prefix.size()), path);  // of several roots the first, as there
    }
  };
  if (absl::StartsWith(pattern, "/")) {
    search("");
  } else {
    for (const std::string& root : seen_) search(root);
  }
  std::erase_if(found, [](const auto& one) { return absl::StartsWith(LastPart(one.first), "."); });
  return found;
}

void ScanFinder::AddPattern(const std::string& pattern, ScanNames* to) const {
  const std::string last = LastPart(pattern);
  for (const absl::string_view part : absl::StrSplit(pattern, '/')) {
    if (part == "**") {
      throw CLI::ValidationError("file", absl::StrCat("'", pattern,
                                                      "' has the part **; allowed "
                                                      "are * ? [...], each within one folder"));
    }
  }
  const bool absolute = absl::StartsWith(pattern, "/");
  const Found found = Match(pattern);
  std::vector<std::string> names;
  for (const auto& [name, here] : found) names.push_back(name);
  std::sort(names.begin(), names.end(), storage::NaturallyBefore);
  // Where the pattern says how the files end, they are what the user wants.
  const size_t dot = last.rfind('.');
  const bool ends = dot != std::string::npos && !HasPattern(last.substr(dot)),
             asked = absl::StrContains(absl::AsciiStrToLower(last), "_rec");
  std::map<std::string, std::vector<std::string>> left;  // by the reason
  std::vector<std::string> scans;
  for (const std::string& name : names) {
    const std::string& here = found.at(name);
    if (IsFolder(here) && !IsZarr(here)) {
      const auto inside = NamesIn(here);
      if (!inside.has_value() || std::none_of(inside->begin(), inside->end(), IsTiff)) {
        left[inside.has_value() ? "a folder without TIFF files" : "a folder that you may not list"]
            .push_back(name);
        continue;
      }
    } else if (!ends && IsTiff(name)) {
      left
          ["of TIFF, perhaps a part of a scan: a pattern that ends in .tif or .tiff takes files of "
           "pages"]
              .push_back(name);
      continue;
    } else if (absl::EndsWith(name, ".json") &&
               found.contains(std::string(absl::StripSuffix(name, ".json")))) {
      continue;  // it says what the other one is
    } else if (!ends && !EndsAsScan(name) && !IsFolder(here)) {
      left["no scan by its name"].push_back(name);
      continue;
    }
    std::error_code error;
    const fs::path real = fs::canonical(here, error);
    const std::string why = WhyNot(name, error ? here : real.string(), asked);
    if (why.empty()) {
      scans.push_back(name);
    } else {
      left[why].push_back(name);
    }
  }
  std::vector<std::string> reasons;
  for (const auto& [why, of] : left) reasons.push_back(absl::StrCat(Some(of), " (", why, ")"));
  if (scans.empty()) {
    const std::string unseen = absolute ? "" : Unseen();
    throw CLI::ValidationError(
        "file",
        absl::StrCat(
            "'", pattern, "' is a pattern that matches no scan",
            !reasons.empty() ? absl::StrCat(", only ", absl::StrJoin(reasons, ", "))
            : absolute
                ? absl::StrCat(" on this computer. The server at ", options_.address,
                               " lists no files: a pattern is looked up here, and helps only where "
                               "this computer has the scans under the same names")
            : unseen.empty() ? absl::StrCat(" below ", RootsInWords())
                             : absl::StrCat(": ", unseen),
            unseen.empty() ? "" : "; allowed are the names of scans, one by one"));
  }
  if (to->many.empty()) to->many = absl::StrCat("'", pattern, "' is a pattern");
  if (!absolute && !unseen_.empty())
    to->notes.push_back(absl::StrCat("'", pattern, "': ", Unseen()));
  if (!reasons.empty())
    to->notes.push_back(absl::StrCat("'", pattern, "': left out: ", absl::StrJoin(reasons, ", ")));
  for (std::string& name : scans) {
    // Two patterns may match one scan, which is made once.
    if (std::find(to->files.begin(), to->files.end(), name) == to->files.end())
      to->files.push_back(std::move(name));
  }
}

void ScanFinder::AddFolder(const std::string& name, const std::string& here, ScanNames* to) const {
  std::vector<std::string> tiffs, scans, others, folders;
  std::map<std::string, std::vector<std::string>> left;
  const auto inside = NamesIn(here);
  if (!inside.has_value()) {  // the server may be allowed more, and tells what it finds
    to->files.push_back(name);
    return;
  }
  for (const std::string& one : *inside) {
    const std::string path = Joined(here, one);
    const bool folder = IsFolder(path);
    if (!folder && IsTiff(one)) {
      tiffs.push_back(one);
    } else if (folder ? absl::EndsWithIgnoreCase(one, ".zarr") : EndsAsOneOf(one, kOfFolders)) {
      std::error_code error;
      const fs::path real = fs::canonical(path, error);
      const std::string why = WhyNot(one, error ? path : real.string(), false);
      if (why.empty()) {
        scans.push_back(one);
      } else {
        left[why].push_back(one);
      }
    } else {
      (folder ? folders : others).push_back(one);
    }
  }
  const std::string kinds = "*.h5, *.hdf5, *.hdf, *.nxs, *.npy, *.zarr";
  if (!tiffs.empty() && !scans.empty()) {
    throw CLI::ValidationError(
        "file",
        absl::StrCat("'", name, "' is a folder with ",
                     CountOf(tiffs.size(), "TIFF file", "TIFF files"), " (", Some(tiffs), ") and ",
                     CountOf(scans.size(), "other scan", "other scans"), " (", Some(scans),
                     "); allowed is a folder of TIFF files, which is one scan, "
                     "or a folder of scans (",
                     kinds, "). A pattern such as '", Joined(WithoutSlash(name), "*.h5"),
                     "' picks some; --flats, --darks and "
                     "--angles-file name files that are no scans"));
  }
  if (!tiffs.empty()) {
    to->files.push_back(name);
    return;
  }
  std::vector<std::string> reasons;
  for (const auto& [why, of] : left) reasons.push_back(absl::StrCat(Some(of), " (", why, ")"));
  if (scans.empty()) {
    std::vector<std::string> there = reasons;
    if (!others.empty())
      there.push_back(absl::StrCat(CountOf(others.size(), "other file", "other files"), " (",
                                   Some(others), ")"));
    if (!folders.empty())
      there.push_back(
          absl::StrCat(CountOf(folders.size(), "folder", "folders"), " (", Some(folders), ")"));
    throw CLI::ValidationError(
        "file", absl::StrCat("'", name, "' is a folder without a scan: it holds ",
                             there.empty() ? "nothing" : absl::StrJoin(there, ", "),
                             "; allowed are scans (", kinds, "), or the TIFF files of one"));
  }
  if (to->many.empty()) to->many = absl::StrCat("'", name, "' is a folder of scans");
  if (!reasons.empty())
    to->notes.push_back(absl::StrCat("'", name, "': left out: ", absl::StrJoin(reasons, ", ")));
  const std::string folder = WithoutSlash(name);
  for (const std::string& one : scans) {
    const std::string scan = folder == "." ? one : Joined(folder, one);
    if (std::find(to->files.begin(), to->files.end(), scan) == to->files.end())
      to->files.push_back(scan);
  }
}

}  // namespace octavo::cli
