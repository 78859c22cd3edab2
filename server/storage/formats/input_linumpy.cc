#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/folder_files.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

constexpr char kInfo[] = "info.txt";
constexpr size_t kMostInfo = 1 << 20, kMostFiles = 1 << 16;
constexpr ElementType kF32{ElementType::Kind::kFloat, 4};

/// The lines "key: value".
std::map<std::string, std::string> LinesOf(const std::string& text) {
  std::map<std::string, std::string> out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    out[std::string(absl::StripAsciiWhitespace(line.substr(0, colon)))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return out;
}

absl::StatusOr<int64_t> IntegerOf(const std::string& name,
                                  const std::map<std::string, std::string>& lines, const char* key,
                                  int64_t least, int64_t most) {
  const auto found = lines.find(key);
  if (found == lines.end()) return DamagedFile(name, key, "is missing");
  double value = 0;  // some programs write 400.0
  if (!absl::SimpleAtod(found->second, &value) || value != std::floor(value) ||
      value < static_cast<double>(least) || value > static_cast<double>(most))
    return UnsupportedFile(name, key, absl::StrCat("'", found->second, "'"),
                           absl::StrCat("integers from ", least, " to ", most));
  return static_cast<int64_t>(value);
}

/// Frames one after the other in several files, each with whole frames [x, z].
class LinumpyInput final : public VolumeInput {
 public:
  struct File {
    std::shared_ptr<FolderFile> file;
    int64_t first, frames;
  };
  LinumpyInput(VolumeInputInfo info, std::vector<File> files)
      : VolumeInput(std::move(info)), files_(std::move(files)) {}

 private:
  absl::StatusOr<std::unique_ptr<PieceSource>> PiecesInside(
      const base::ArrayBox& box) const override {
    std::vector<FlatPieces::Part> parts;
    for (const File& file : files_) {
      const int64_t from = std::max(file.first, box.start[0]),
                    to = std::min(file.first + file.frames, box.start[0] + box.count[0]);
      if (from >= to) continue;
      FlatPieces::Part part{.open = [opened = file.file] { return opened->Open(); },
                            .layout = LayoutOf(file),
                            .box = box,
                            .to = from - box.start[0]};
      part.box.start[0] = from - file.first;
      part.box.count[0] = to - from;
      parts.push_back(std::move(part));
    }
    return std::make_unique<FlatPieces>(std::move(parts));
  }

  FlatLayout LayoutOf(const File& file) const {
    return {.type = kF32,
            .shape = {file.frames, info_.axes[1].extent, info_.axes[2].extent},
            .file_order = COrder(3)};
  }

  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    const int64_t plane = box.count[1] * box.count[2] * kF32.bytes,
                  last = box.start[0] + box.count[0];
    for (const File& file : files_) {
      const int64_t from = std::max(file.first, box.start[0]),
                    to = std::min(file.first + file.frames, last);
      if (from >= to) continue;
      base::ArrayBox part = box;
      part.start[0] = from - file.first;
      part.count[0] = to - from;
      const FlatLayout layout = LayoutOf(file);
      OCTAVO_ASSIGN_OR_RETURN(const auto bytes, file.file->Open());
      OCTAVO_RETURN_IF_ERROR(
          ReadFlat(*bytes, layout, part, out + (from - box.start[0]) * plane, stop_));
    }
    return absl::OkStatus();
  }

  const std::vector<File> files_;
};

}  // namespace

/// linumpy's raw data: info.txt, and image_*.bin with f32 in Fortran order (z, x, frames), frames
/// along y. As C order that is [y, x, z], the order of a scan. A row holds nx + n_extra A-scans;
/// the last n_extra are those of the galvo's way back, which are left in.
OpenedVolume OpenLinumpyInput(OpenedInput input, const VolumeInputOptions& options) {
  (void)options;
  const std::string info_name = absl::StrCat(input.name, "/", kInfo);
  const UniqueFd about = OpenWithin(input.fd, kInfo, O_RDONLY | O_NONBLOCK);
  if (!about) return ErrnoStatus(errno, "opening", info_name);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(about.get(), info_name, kMostInfo));
  const auto lines = LinesOf(text);
  constexpr int64_t kMost = 1 << 24;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t nx, IntegerOf(info_name, lines, "nx", 1, kMost));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t ny, IntegerOf(info_name, lines, "ny", 1, kMost));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t extra, IntegerOf(info_name, lines, "n_extra", 0, kMost));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t top, IntegerOf(info_name, lines, "top_z", 0, kMost));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bottom,
                          IntegerOf(info_name, lines, "bottom_z", top, kMost));

  OCTAVO_ASSIGN_OR_RETURN(auto found, FolderFiles(input.fd, input.name, kMostFiles));
  std::erase_if(found, [](const auto& file) {
    return !absl::StartsWith(file->name(), "image_") || !absl::EndsWith(file->name(), ".bin");
  });
  if (found.empty())
    return UnsupportedFile(input.name, "the folder", "without files image_*.bin",
                           "folders with info.txt and such files");
  int64_t bytes = 0;
  for (const auto& file : found) bytes += file->bytes();
  // Programs count bottom_z in or not: the size of all files decides.
  const int64_t line = (nx + extra) * ny * kF32.bytes, nz = bytes / line;
  if (bytes % line != 0 || (nz != bottom - top && nz != bottom - top + 1))
    return DamagedFile(
        input.name, "image_*.bin",
        absl::StrCat("have ", bytes, " bytes together; info.txt asks for (bottom_z - top_z = ",
                     bottom - top, ", or one more) x (nx + n_extra = ", nx + extra,
                     ") x (ny = ", ny, ") numbers of 4 bytes"));
  VolumeInputInfo info{.format = InputFormat::kLinumpy,
                       .kind = "linumpy raw folder",
                       .type = kF32,
                       .axes = {{.name = "y", .extent = ny},
                                {.name = "x", .extent = nx + extra},
                                {.name = "z", .extent = nz}},
                       .file_order = COrder(3),
                       .chunk = {1, 1, 1},
                       .read_memory_bytes = kFlatReadBytes};
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(info_name, "shape", info.shape()));
  std::vector<LinumpyInput::File> files;
  int64_t first = 0;
  const int64_t frame = nz * (nx + extra) * kF32.bytes;
  for (const auto& file : found) {
    if (file->bytes() % frame != 0)
      return DamagedFile(input.name, file->name(),
                         absl::StrCat("has ", file->bytes(), " bytes; whole frames have ", frame));
    files.push_back({file, first, file->bytes() / frame});
    first += files.back().frames;
  }
  for (const auto& [key, value] : lines) {
    if (info.labels.size() < 64) info.labels[key.substr(0, 64)] = value.substr(0, 256);
  }
  // The field of view, without a unit.
  for (const auto& [key, axis, count] : {std::tuple("width", 1, nx), std::tuple("height", 0, ny)}) {
    double extent = 0;
    const auto value = lines.find(key);
    if (value == lines.end() || !absl::SimpleAtod(value->second, &extent)) continue;
    SetSpacing(extent / static_cast<double>(count), "",
               absl::StrCat(key, " / ", axis == 1 ? "nx" : "ny"),
               &info.axes[static_cast<size_t>(axis)], &info.notes);
  }
  if (extra > 0)
    info.notes.push_back(absl::StrCat("the last ", extra,
                                      " of the A-scans along x were taken on the galvo's way back "
                                      "(n_extra)"));
  return std::make_unique<LinumpyInput>(std::move(info), std::move(files));
}

}  // namespace octavo::storage
