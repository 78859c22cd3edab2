// TIFF: a folder of files with a projection each, or a file whose pages are the projections. The
// files are read as volumes of other programs are (server/storage/formats/volume_input.h), with the
// same natural order of names, ImageJ and OME-TIFF included.

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/projections/committed_frames.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {
namespace {

constexpr int64_t kConvertBytes = 16 << 20;  // read before they are converted

/// Pages of a file, or the files of a folder. Every read opens the files that it needs, one after
/// the other on each thread of the arena: a folder may have more than a process may open. Rows that
/// lie plain in a file are read to their place at once.
class TiffFrames final : public FrameArray {
 public:
  /// `axis`: the one of the frames, of those before rows and columns.
  TiffFrames(std::string path, std::shared_ptr<VolumeInput> pages, size_t axis)
      : path_(std::move(path)), pages_(std::move(pages)), axis_(axis) {}

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    const size_t rank = pages_->info().axes.size();
    const int64_t frame = count[1] * count[2];
    base::ArrayBox box{.start = std::vector<int64_t>(rank, 0),
                       .count = std::vector<int64_t>(rank, 1)};
    box.start[rank - 2] = start[1], box.count[rank - 2] = count[1];
    box.start[rank - 1] = start[2], box.count[rank - 1] = count[2];
    const bool convert = !type.IsAs(dtype);
    const int64_t together =
        convert ? std::max<int64_t>(1, kConvertBytes / (frame * type.bytes)) : count[0];
    std::vector<char> memory;
    for (int64_t done = 0; done < count[0]; done += together) {
      const int64_t frames = std::min(together, count[0] - done);
      const auto bytes = static_cast<size_t>(frames * frame * type.bytes);
      box.start[axis_] = start[0] + done, box.count[axis_] = frames;
      char* const to = out + done * frame * SizeOf(dtype);
      if (convert) memory.resize(bytes);
      const absl::Status read = pages_->Read(box, {convert ? memory.data() : to, bytes});
      if (!read.ok()) return Told(read);
      if (convert) LoadNumbers(memory.data(), type, frames * frame, dtype, to);
    }
    return absl::OkStatus();
  }

 private:
  // A file that is gone, or a link by now, is as good as a damaged one for a job that reads it.
  absl::Status Told(const absl::Status& status) const {
    if (InfoOf(status).reason == Reason::kDamagedFile || absl::IsResourceExhausted(status))
      return status;
    return DamagedProjections(path_, dataset,
                              absl::StrCat("cannot be read: ", std::string(status.message())));
  }

  const std::string path_;
  const std::shared_ptr<VolumeInput> pages_;
  const size_t axis_;
};

/// That the folder has no TIFF under its name that would be left out: links are not followed.
absl::Status CheckRegular(const UniqueFd& folder, const std::string& path) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(NameOfOpen(folder), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    struct stat info {};
    if (name[0] == '.' || !IsTiffName(name) ||
        ::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISREG(info.st_mode))
      continue;
    return BadProjections(path, name, S_ISLNK(info.st_mode) ? "is a link" : "is no regular file",
                          "regular files in a folder of TIFF files");
  }
  return error ? ErrnoStatus(error.value(), "listing", BaseOf(path)) : absl::OkStatus();
}

/// That an open file begins as a TIFF does.
absl::Status CheckTiff(const UniqueFd& file, const std::string& path) {
  struct stat info {};
  std::string head(4, '\0');
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "examining", BaseOf(path));
  if (!S_ISREG(info.st_mode))
    return BadProjections(path, "the path", "is no regular file", "files and folders");
  if (info.st_size >= std::ssize(head))
    OCTAVO_RETURN_IF_ERROR(ReadAllAt(file.get(), BaseOf(path), head.data(), head.size(), 0));
  if (RecogniseInput(head) == InputFormat::kTiff) return absl::OkStatus();
  return BadProjections(path, "the file", "is no TIFF file", "TIFF and BigTIFF");
}

}  // namespace

absl::StatusOr<std::shared_ptr<FrameArray>> OpenTiffFrames(UniqueFd opened, const std::string& path,
                                                           ProjectionParts* parts) {
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return ErrnoStatus(errno, "examining", BaseOf(path));
  const bool folder = S_ISDIR(info.st_mode);
  OCTAVO_RETURN_IF_ERROR(folder ? CheckRegular(opened, path) : CheckTiff(opened, path));
  // By descriptor: an OME-TIFF that refers to other files is refused.
  OCTAVO_ASSIGN_OR_RETURN(
      std::shared_ptr<VolumeInput> pages,
      OpenVolumeInput(std::move(opened), BaseOf(path),
                      {.format = folder ? InputFormat::kTiffStack : InputFormat::kTiff}));
  const VolumeInputInfo& found = pages->info();
  const std::vector<int64_t> shape = found.shape();
  const size_t rank = shape.size();
  const std::string dataset = BaseOf(path);
  const auto type =
      StoredType::FromNumpy(absl::StrCat(found.type.kind == ElementType::Kind::kUnsigned ? "u"
                                         : found.type.kind == ElementType::Kind::kSigned ? "i"
                                         : found.type.kind == ElementType::Kind::kFloat  ? "f"
                                                                                         : "c",
                                         found.type.bytes));
  if (!type.has_value())
    return BadProjections(path, dataset, absl::StrCat("holds ", found.type.Name()),
                          "real numbers: u8 to u64, i8 to i64, f16 to f64");
  size_t axis = 0;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (shape[d] == 1) continue;
    if (shape[axis] > 1 && d != axis)
      return BadProjections(
          path, dataset,
          absl::StrCat("has ", shape[axis], " pages along ", found.axes[axis].name, " and ",
                       shape[d], " along ", found.axes[d].name),
          "one axis of projections");
    axis = d;
  }
  const int64_t granularity = std::min(found.chunk[rank - 2], shape[rank - 2]);
  for (const std::string& note : found.notes) {
    auto& sentences = note == found.numbering ? parts->doubts : parts->notes;
    sentences.push_back(absl::StrCat(dataset, ": ", note));
  }
  auto frames = std::make_shared<TiffFrames>(path, pages, axis);
  frames->dataset = dataset;
  frames->type = *type;
  frames->shape[0] = shape[axis];
  frames->shape[1] = shape[rank - 2];
  frames->shape[2] = shape[rank - 1];
  frames->row_granularity = granularity;
  return frames;
}

bool IsTiffName(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".tif") || absl::EndsWithIgnoreCase(name, ".tiff");
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenTiffProjections(
    UniqueFd opened, const std::string& path, const ProjectionOptions& options) {
  if (!options.projections.empty()) {
    return BadProjections(path, "projections", absl::StrCat("is '", options.projections, "'"),
                          "nothing: the file or folder itself holds the projections");
  }
  ProjectionParts parts;
  parts.path = path;
  parts.format = "tiff";
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return ErrnoStatus(errno, "examining", BaseOf(path));
  OCTAVO_ASSIGN_OR_RETURN(parts.array[0], OpenTiffFrames(std::move(opened), path, &parts));
  const bool folder = S_ISDIR(info.st_mode);
  OCTAVO_RETURN_IF_ERROR(
      TakeMetadataFile(path + (folder ? "/octavo.json" : ".json"), options.roots,
                       folder ? std::nullopt : std::optional<int64_t>(info.st_size), &parts)
          .status());
  const std::string* further[] = {nullptr, &options.flats, &options.darks};
  for (size_t k = 1; k < 3; ++k) {
    const std::string& name = *further[k];
    if (name.empty() || name == "-") continue;
    auto beneath = OpenBeneath(name, options.roots, O_RDONLY | O_NONBLOCK);
    if (!beneath.ok()) return Annotate(beneath.status(), BaseOf(name));
    OCTAVO_ASSIGN_OR_RETURN(parts.array[k], OpenTiffFrames(std::move(beneath->fd), name, &parts));
  }
  OCTAVO_RETURN_IF_ERROR(ReadNpyAngles(options, &parts));
  return AssembleProjections(std::move(parts), options);
}

}  // namespace octavo::storage
