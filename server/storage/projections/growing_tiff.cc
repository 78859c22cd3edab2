// Folders of TIFF that are being written, a file for each projection. Flat and dark fields are
// further folders, or files of pages that are complete.

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/formats/folder_files.h"
#include "server/storage/io/files.h"
#include "server/storage/projections/growing_array.h"

namespace octavo::storage {
namespace {

/// What identifies the contents of a file, as far as the file system tells.
uint64_t StateOf(const struct stat& info) {
  uint64_t all = Mixed(Mixed(4, info.st_ino), static_cast<uint64_t>(info.st_size));
  all = Mixed(all, static_cast<uint64_t>(info.st_mtim.tv_sec));
  return Mixed(all, static_cast<uint64_t>(info.st_mtim.tv_nsec));
}

/// The last number in a name, with what stands before and behind it.
struct Numbered {
  std::string before, behind;
  int64_t number = -1;  // -1: there is none
};
Numbered NumberIn(const std::string& name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t dot = name.rfind('.');
  size_t end = dot == std::string::npos ? name.size() : dot;
  while (end > 0 && !digit(name[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && digit(name[begin - 1])) --begin;
  Numbered found{.before = name.substr(0, begin), .behind = name.substr(end)};
  if (begin == end || !absl::SimpleAtoi(name.substr(begin, end - begin), &found.number))
    found.number = -1;
  return found;
}

/// The files of a folder, a frame each, or the pages of one file. Kept from look to look.
class GrowingTiffFiles final : public GrowingArray {
 public:
  explicit GrowingTiffFiles(std::string path) : path_(std::move(path)) {
    dataset = BaseOf(path_);
    window = 64;  // each is read to see whether it can be
  }

  /// Lists them anew; `taken`: frames that were read. Whether there is one that can be described,
  /// else `lacks` says why not.
  absl::StatusOr<bool> List(int64_t taken, std::string* lacks) {
    struct stat info {};
    if (::stat(path_.c_str(), &info) != 0) {
      *lacks = absl::StrCat(path_, shape[1] == 0 ? " is not there yet" : " is not there now");
      return false;
    }
    const bool folder = S_ISDIR(info.st_mode);
    if (shape[1] != 0 && folder != folder_) {
      *lacks = absl::StrCat(path_, " is ", folder_ ? "no folder now" : "a folder now");
      return false;
    }
    std::vector<std::string> names;
    if (folder) {
      std::error_code error;
      for (std::filesystem::directory_iterator at(path_, error), end; !error && at != end;
           at.increment(error)) {
        std::string name = at->path().filename().string();
        if (name[0] != '.' && IsTiffName(name)) names.push_back(std::move(name));
      }
      if (error) {
        *lacks = absl::StrCat(path_, " cannot be listed: ", error.message());
        return false;
      }
      std::sort(names.begin(), names.end(), NaturallyBefore);
    }
    folder_ = folder;
    // The look before made these frames whole, and it looked at their files.
    for (int64_t i = std::ssize(taken_); i < taken; ++i) taken_.push_back(states_[FileOf(i)]);
    OCTAVO_ASSIGN_OR_RETURN(const bool stayed, StillThere(names, lacks));
    if (!stayed) return false;
    names_ = std::move(names);
    states_.swap(earlier_);
    states_.clear();
    if (shape[1] == 0 && !Describe(lacks)) return false;
    if (folder_) shape[0] = std::ssize(names_);
    return true;
  }

  std::optional<uint64_t> Evidence(int64_t frame, std::string* lacks) override {
    const std::string file = FileOf(frame);
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) {
      *lacks = absl::StrCat(file, " is not there now");
      return std::nullopt;
    }
    if (const std::string missing = MissingBefore(frame); !missing.empty()) {
      *lacks = missing;
      return std::nullopt;
    }
    const uint64_t state = StateOf(info);
    states_[file] = state;
    const auto before = earlier_.find(file);
    if (before == earlier_.end() || before->second != state) return Mixed(state, 1);
    std::vector<char> values(static_cast<size_t>(shape[1] * shape[2] * SizeOf(type.Loaded())));
    const int64_t start[3] = {frame, 0, 0}, count[3] = {1, shape[1], shape[2]};
    const absl::Status read = Read(start, count, type.Loaded(), values.data());
    if (read.ok()) return Mixed(state, 1);
    *lacks = std::string(read.message());
    return std::nullopt;
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    const std::string file = FileOf(start[0]);
    OCTAVO_ASSIGN_OR_RETURN(const auto frames, OpenFile(file));
    if (struct stat info{}; ::stat(file.c_str(), &info) != 0 || StateOf(info) != Known(start[0]))
      return absl::UnavailableError(absl::StrCat(file, " changes"));
    if (frames->shape[1] != shape[1] || frames->shape[2] != shape[2] ||
        frames->type.Loaded() != type.Loaded() || (folder_ && frames->shape[0] != 1)) {
      return BadProjections(path_, BaseOf(file),
                            absl::StrCat("has ", frames->shape[0], " pages of ", frames->shape[1],
                                         " x ", frames->shape[2], ", ", frames->type.Name()),
                            absl::StrCat("1 page of ", shape[1], " x ", shape[2], ", ", type.Name(),
                                         ", as the files before"));
    }
    const int64_t from[3] = {folder_ ? 0 : start[0], start[1], start[2]};
    return frames->Read(from, count, dtype, out);
  }

 private:
  std::string FileOf(int64_t frame) const {
    return folder_ ? absl::StrCat(path_, "/", names_[static_cast<size_t>(frame)]) : path_;
  }

  // What the file of a frame was when the frame was taken, or in this look.
  uint64_t Known(int64_t frame) const {
    if (frame < std::ssize(taken_)) return taken_[static_cast<size_t>(frame)];
    const auto found = states_.find(FileOf(frame));
    return found == states_.end() ? 0 : found->second;
  }

  // Whether the files of the frames that were taken are there; `lacks`: one is not, and may come
  // back. An error if one of them has changed, or another would shift their numbers.
  absl::StatusOr<bool> StillThere(const std::vector<std::string>& names, std::string* lacks) const {
    const size_t taken = taken_.size();
    const std::set<std::string> now(names.begin(), names.end());
    for (size_t i = 0; folder_ && i < taken; ++i) {
      if (now.contains(names_[i])) continue;
      *lacks = absl::StrCat(path_, "/", names_[i], " was taken and is not there now");
      return false;
    }
    for (size_t i = 0; i < taken; ++i) {
      if (folder_ && names[i] != names_[i])
        return BadProjections(path_, names[i], absl::StrCat("came after ", names_[i], " was taken"),
                              "files that appear in the order of their names, and stay");
      const std::string file = FileOf(static_cast<int64_t>(i));
      struct stat info {};
      if (::stat(file.c_str(), &info) != 0) {
        *lacks = absl::StrCat(file, " was taken and is not there now");
        return false;
      }
      if (StateOf(info) != taken_[i])
        return BadProjections(path_, BaseOf(file), "has changed after it was taken",
                              "files that stay as they are once they are written");
      if (!folder_) break;  // one file for all
    }
    return true;
  }

  static absl::StatusOr<std::shared_ptr<FrameArray>> OpenFile(const std::string& file) {
    UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return absl::UnavailableError(absl::StrCat(file, " cannot be opened"));
    ProjectionParts notes;
    return OpenTiffFrames(std::move(fd), file, &notes);
  }

  bool Describe(std::string* lacks) {
    if (folder_ && names_.empty()) {
      *lacks = absl::StrCat(path_, " has no file *.tif yet");
      return false;
    }
    const auto frames = OpenFile(FileOf(0));
    if (!frames.ok()) {
      *lacks = std::string(frames.status().message());
      return false;
    }
    type = (*frames)->type;
    std::copy((*frames)->shape, (*frames)->shape + 3, shape);
    if (!folder_) planned = shape[0];
    return true;
  }

  // A file between this one and the one before seems to be missing; "" = none.
  std::string MissingBefore(int64_t frame) const {
    if (!folder_ || frame < 2) return "";
    const auto name = [&](int64_t i) { return names_[static_cast<size_t>(i)]; };
    const Numbered first = NumberIn(name(0)), second = NumberIn(name(1)),
                   last = NumberIn(name(frame - 1)), own = NumberIn(name(frame));
    const auto alike = [&](const Numbered& other) {
      return other.number >= 0 && other.before == first.before && other.behind == first.behind;
    };
    if (!alike(first) || !alike(second) || !alike(last) || !alike(own)) return "";
    const int64_t step = second.number - first.number;
    if (own.number - last.number == step) return "";
    return absl::StrCat("a file seems to be missing between ", name(frame - 1), " and ",
                        name(frame), ": the numbers before go on by ", step);
  }

  const std::string path_;
  bool folder_ = true;
  std::vector<std::string> names_;                    // in natural order
  std::map<std::string, uint64_t> states_, earlier_;  // of files, in this look and the one before
  std::vector<uint64_t> taken_;  // states of the files of frames that are whole
};

class GrowingTiff final : public GrowingProjections {
 public:
  GrowingTiff(const std::string& path, const ProjectionOptions& options)
      : GrowingProjections(path, options) {}

  std::string PlaceOf(FrameKind kind) const override {
    const std::string* places[] = {&path_, &options_.flats, &options_.darks};
    return *places[static_cast<size_t>(kind)];
  }
  std::string PlaceOfAngles() const override { return options_.angles; }

 private:
  absl::Status Open() override {
    if (!options_.projections.empty())
      return BadProjections(path_, "projections", absl::StrCat("is '", options_.projections, "'"),
                            "nothing: the folder itself holds the projections");
    const std::string* places[] = {&path_, &options_.flats, &options_.darks};
    std::string lacks;
    for (size_t k = 0; k < 3; ++k) {
      const auto kind = static_cast<FrameKind>(k);
      if (places[k]->empty() || !Wants(kind)) continue;
      auto files = arrays_[k] != nullptr ? std::move(arrays_[k]) : std::move(waiting_[k]);
      if (files == nullptr) files = std::make_unique<GrowingTiffFiles>(*places[k]);
      auto& own = static_cast<GrowingTiffFiles&>(*files);
      const auto listed = own.List(frames(kind).whole, &lacks);
      (listed.ok() && *listed ? arrays_ : waiting_)[k] = std::move(files);
      OCTAVO_RETURN_IF_ERROR(listed.status());
    }
    if (WantsAngles() && !options_.angles.empty()) OCTAVO_RETURN_IF_ERROR(ReadAngles());
    if (arrays_[0] == nullptr) return absl::UnavailableError(lacks);
    return absl::OkStatus();
  }

  absl::Status ReadAngles() {
    ProjectionParts parts;
    ProjectionOptions options = options_;
    options.roots.clear();
    if (const absl::Status read = ReadNpyAngles(options, &parts); !read.ok())
      return absl::IsNotFound(read) || absl::IsDataLoss(read)
                 ? absl::UnavailableError(read.message())
                 : read;
    // A file of angles is there as a whole: nothing stands for a value to come.
    found_ = Angles{.dataset = parts.angles_dataset,
                    .unit = "",
                    .values = std::move(parts.angles),
                    .fill = std::numeric_limits<double>::quiet_NaN(),
                    .fixed = true};
    return absl::OkStatus();
  }

  std::array<std::unique_ptr<GrowingArray>, 3> waiting_;  // that cannot be described yet
};

}  // namespace

std::unique_ptr<GrowingProjections> FollowTiff(const std::string& path,
                                               const ProjectionOptions& options) {
  return std::make_unique<GrowingTiff>(path, options);
}

}  // namespace octavo::storage
