#include "server/storage/projections/projection_input.h"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {

const char* Name(FrameKind kind) {
  switch (kind) {
    case FrameKind::kProjection: return "projection";
    case FrameKind::kFlat: return "flat";
    case FrameKind::kDark: return "dark";
  }
  return "?";
}

absl::Status ProjectionInput::Read(const ProjectionBox& box, void* out, PixelForm form) {
  const auto check = [](const char* what, int64_t first, int64_t count,
                        int64_t extent) -> absl::Status {
    if (first >= 0 && count >= 1 && count <= extent && first <= extent - count)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", first, " to ", first + count - 1, "; there are ", extent));
  };
  OCTAVO_RETURN_IF_ERROR(check(absl::StrCat(Name(box.kind), " frames").c_str(), box.first_frame,
                               box.frames, info_.frames(box.kind)));
  OCTAVO_RETURN_IF_ERROR(check("rows", box.first_row, box.rows, info_.rows));
  OCTAVO_RETURN_IF_ERROR(check("columns", box.first_column, box.columns, info_.columns));
  if (form == PixelForm::kNumbers || info_.packing == math::Packing::kNone)
    return ReadInside(box, out);
  if (box.columns == info_.columns) return ReadPacked(box, out);
  return absl::InvalidArgumentError(
      absl::StrCat("columns ", box.first_column, " to ", box.first_column + box.columns - 1,
                   " of packed rows; allowed are all ", info_.columns));
}

absl::Status ProjectionInput::ReadPacked(const ProjectionBox&, void*) {
  return absl::InternalError("the input has no packed rows");
}

namespace {

/// A file or folder, opened.
struct Opened {
  UniqueFd fd;
  bool folder = false;
};

absl::StatusOr<Opened> OpenPath(const std::string& path, const ProjectionOptions& options) {
  struct stat info {};
  auto opened = OpenBeneath(path, options.roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok()) return Annotate(opened.status(), BaseOf(path));
  if (::fstat(opened->fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", BaseOf(path));
  const bool folder = S_ISDIR(info.st_mode);
  if (!folder && !S_ISREG(info.st_mode))
    return BadProjections(path, "the path", "is no regular file", "files and folders");
  return Opened{.fd = std::move(opened->fd), .folder = folder};
}

/// A folder with files of TIFF, and none of those that every array and group of Zarr has.
bool IsTiffFolder(const UniqueFd& folder) {
  for (const char* entry : {"zarr.json", ".zarray", ".zgroup", ".zattrs"}) {
    struct stat info {};
    if (::fstatat(folder.get(), entry, &info, AT_SYMLINK_NOFOLLOW) == 0) return false;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator at(NameOfOpen(folder), error), end; !error && at != end;
       at.increment(error)) {
    if (IsTiffName(at->path().filename().string())) return true;
  }
  return false;
}

std::string FormatOf(const Opened& opened, const std::string& path,
                     const ProjectionOptions& options) {
  if (!options.format.empty()) return options.format;
  if (opened.folder) return IsTiffFolder(opened.fd) ? "tiff" : "zarr";
  if (absl::EndsWith(path, ".npy")) return "npy";
  return IsTiffName(path) || absl::EndsWithIgnoreCase(path, ".btf") ? "tiff" : "";
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenOnce(const std::string& path,
                                                          const ProjectionOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(Opened opened, OpenPath(path, options));
  for (size_t i = 0; i < options.angle_values.size(); ++i) {
    if (!std::isfinite(options.angle_values[i]))
      return BadProjections(path, "angle_values", absl::StrCat("is not finite at ", i),
                            "finite angles");
  }
  const std::string format = FormatOf(opened, path, options);
  if (opened.folder != (format == "zarr") && format != "tiff") {
    return BadProjections(path, "format",
                          absl::StrCat("is ", format.empty() ? "that of a file" : format,
                                       ", the path is a ", opened.folder ? "folder" : "file"),
                          "zarr for folders, tiff for both, the others for files");
  }
  if (format == "tiff") return OpenTiffProjections(std::move(opened.fd), path, options);
  if (format == "zarr") return OpenZarrProjections(path, options);
  if (format == "npy") return OpenNpyProjections(path, options);
  if (format.empty() || format == "data_exchange" || format == "nxtomo") {
    // Probe the file that is opened, even if its name refers to another file by now.
    OCTAVO_RETURN_IF_ERROR(ProbeHdf5(opened.fd, path, options));
    return OpenHdf5Projections(opened.fd, path, options);
  }
  return BadProjections(path, "format", absl::StrCat("is '", format, "'"),
                        "data_exchange, nxtomo, npy, tiff, zarr");
}

}  // namespace

absl::StatusOr<std::string> ProjectionFormatOf(const std::string& path,
                                               const ProjectionOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const Opened opened, OpenPath(path, options));
  return FormatOf(opened, path, options);
}

bool NamesFurtherFiles(const std::string& format) { return format == "npy" || format == "tiff"; }

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenProjections(const std::string& path,
                                                                 const ProjectionOptions& options) {
  constexpr int kTries = 5;
  for (int tries = 1;; ++tries) {
    auto input = OpenOnce(path, options);
    if (InfoOf(input.status()).reason != Reason::kReplaced || tries == kTries) return input;
  }
}

}  // namespace octavo::storage
