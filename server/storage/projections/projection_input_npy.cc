// NumPy's .npy files (NEP 1, formats 1.0 to 3.0), C order, any real type and byte order.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/projections/committed_frames.h"
#include "server/storage/projections/internal.h"
#include "server/storage/projections/plain_frames.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostHeader = 65536, kMostNumbers = int64_t{1} << 24;

/// An open .npy file: its parsed header and its bytes.
struct NpyFile {
  std::string path, name;  // as opened; without folders, which stands for the dataset in errors
  UniqueFd fd;
  StoredType type;
  std::vector<int64_t> shape;
  int64_t offset = 0, bytes = 0;  // where the numbers begin; of the whole file
};

/// The text of a key's value to the end of the header, without blanks before it.
absl::string_view After(absl::string_view dict, absl::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted =
        absl::StrCat(absl::string_view(&quote, 1), key, absl::string_view(&quote, 1));
    const size_t at = dict.find(quoted);
    if (at == absl::string_view::npos) continue;
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(dict.substr(at + quoted.size()));
    if (absl::ConsumePrefix(&rest, ":")) return absl::StripLeadingAsciiWhitespace(rest);
  }
  return "";
}

absl::StatusOr<NpyFile> OpenNpy(const std::string& path, const std::vector<std::string>& roots) {
  NpyFile file{.path = path, .name = BaseOf(path)};
  OCTAVO_ASSIGN_OR_RETURN(OpenedBeneath opened, OpenBeneath(path, roots, O_RDONLY | O_NONBLOCK));
  file.fd = std::move(opened.fd);
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", file.name);
  file.bytes = info.st_size;
  const auto bad = [&](const std::string& what, const std::string& allowed) {
    return BadProjections(path, "the header", what, allowed);
  };
  if (!S_ISREG(info.st_mode))
    return BadProjections(path, "the path", "is no regular file", "files");
  std::string head(static_cast<size_t>(std::min<int64_t>(info.st_size, kMostHeader)), '\0');
  OCTAVO_RETURN_IF_ERROR(ReadAllAt(file.fd.get(), BaseOf(path), head.data(), head.size(), 0));
  if (head.size() < 12 || !absl::StartsWith(head, "\x93NUMPY"))
    return bad("is none of NumPy", "an .npy file");
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(head[i]));
  };
  if (byte(6) < 1 || byte(6) > 3) return bad(absl::StrCat("has the version ", byte(6)), "1 to 3");
  const size_t begin = byte(6) == 1 ? 10 : 12,
               length =
                   byte(8) | byte(9) << 8 | (byte(6) == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > head.size() - begin)
    return DamagedProjections(path, "the header",
                              absl::StrCat("has ", length, " bytes, which the file does not hold"));
  const absl::string_view dict = absl::string_view(head).substr(begin, length);
  file.offset = static_cast<int64_t>(begin + length);

  const absl::string_view descr = After(dict, "descr");
  const auto type = descr.size() > 4 ? StoredType::FromNumpy(descr.substr(2, 2)) : std::nullopt;
  if (!type.has_value() || absl::string_view("<>|=").find(descr[1]) == absl::string_view::npos ||
      (descr[4] != '\'' && descr[4] != '"'))
    return bad(absl::StrCat("has the type ", std::string(descr.substr(0, descr.find(',')))),
               "real numbers: u1 to u8, i1 to i8, f2 to f8");
  file.type = *type;
  file.type.big_endian = descr[1] == '>';
  if (!absl::StartsWith(After(dict, "fortran_order"), "False"))
    return bad("says Fortran order", "C order");
  absl::string_view shape = After(dict, "shape");
  const size_t close = shape.find(')');
  if (!absl::ConsumePrefix(&shape, "(") || close == absl::string_view::npos)
    return bad("has no shape", "a shape");
  int64_t elements = 1;
  for (const absl::string_view part :
       absl::StrSplit(shape.substr(0, close - 1), ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0 ||
        (extent > 0 && elements > (int64_t{1} << 50) / extent))
      return bad(absl::StrCat("has the shape (", std::string(shape.substr(0, close)), ""),
                 "extents that can be");
    elements *= extent;
    file.shape.push_back(extent);
  }
  if (const int64_t there = info.st_size - file.offset; there < elements * file.type.bytes) {
    return DamagedProjections(
        path, "the file",
        absl::StrCat("has ", there, " bytes of data; its shape (", absl::StrJoin(file.shape, ", "),
                     ") of ", file.type.Name(), " has ", elements * file.type.bytes));
  }
  return file;
}

/// Frames of 3 dimensions. 2 are one frame [row, column] where the projections have 3, else one row
/// of each [frame, column]; and 1 is a row of one frame where they have 2.
absl::StatusOr<std::shared_ptr<FrameArray>> OpenFrames(const std::string& path,
                                                       const std::vector<std::string>& roots,
                                                       size_t rank_of_data, std::string* note,
                                                       int64_t* bytes = nullptr) {
  OCTAVO_ASSIGN_OR_RETURN(NpyFile file, OpenNpy(path, roots));
  if (bytes != nullptr) *bytes = file.bytes;
  const size_t rank = file.shape.size();
  if (rank == 2 && rank_of_data == 3) {
    file.shape.insert(file.shape.begin(), 1);
  } else if (rank == 2) {
    file.shape.insert(file.shape.begin() + 1, 1);
    if (note != nullptr)
      *note = absl::StrCat(file.name, " has 2 dimensions; taken as one row of each frame");
  } else if (rank == 1 && rank_of_data == 2) {
    file.shape = {1, 1, file.shape[0]};
  } else if (rank != 3) {
    return BadProjections(path, file.name, absl::StrCat("has ", rank, " dimensions"),
                          "3: [angle, row, column], or 2: [angle, column]");
  }
  auto frames = std::make_shared<PlainFrames>(file.path, std::move(file.fd), file.offset);
  frames->dataset = file.name;
  frames->type = file.type;
  std::copy(file.shape.begin(), file.shape.end(), frames->shape);
  return frames;
}

absl::StatusOr<std::vector<double>> ReadNumbers(const std::string& path,
                                                const std::vector<std::string>& roots) {
  OCTAVO_ASSIGN_OR_RETURN(const NpyFile file, OpenNpy(path, roots));
  if (file.shape.size() > 1)
    return BadProjections(path, file.name, absl::StrCat("has ", file.shape.size(), " dimensions"),
                          "1");
  const int64_t count = file.shape.empty() ? 1 : file.shape[0];
  if (count > kMostNumbers)
    return BadProjections(path, file.name, absl::StrCat("has ", count, " values"),
                          absl::StrCat("at most ", kMostNumbers));
  std::vector<char> bytes(static_cast<size_t>(count * file.type.bytes));
  OCTAVO_RETURN_IF_ERROR(
      ReadAllAt(file.fd.get(), BaseOf(path), bytes.data(), bytes.size(), file.offset));
  return LoadDoubles(bytes.data(), file.type, count);
}

/// Without metadata of Octavo's the order of the axes is the usual one, whatever it is in the file.
void TellOfAxes(MetadataFile metadata, ProjectionParts* parts) {
  const std::string& name = parts->array[0]->dataset;
  const std::string unsaid =
      absl::StrCat(metadata == MetadataFile::kNone
                       ? absl::StrCat("There is no ", name, ".json, which would say")
                       : absl::StrCat(name, ".json is another program's, and does not say"),
                   " what the axes of ", name, " are");
  if (!TellAxes(unsaid, parts))
    parts->notes.push_back(absl::StrCat(unsaid, "; taken as [angle, row, column]"));
}

}  // namespace

absl::Status ReadNpyAngles(const ProjectionOptions& options, ProjectionParts* parts) {
  if (!options.angle_values.empty()) return absl::OkStatus();
  if (options.angles.empty())
    return BadProjections(parts->path, "angles", "are not given",
                          "a file of angles, or their values");
  parts->angles_dataset = BaseOf(options.angles);
  OCTAVO_ASSIGN_OR_RETURN(parts->angles, ReadNumbers(options.angles, options.roots));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenNpyProjections(
    const std::string& path, const ProjectionOptions& options) {
  if (!options.projections.empty()) {
    return BadProjections(path, "projections", absl::StrCat("is '", options.projections, "'"),
                          "nothing: the file itself holds the projections");
  }
  ProjectionParts parts;
  parts.path = path;
  parts.format = "npy";
  std::string note;
  int64_t bytes = 0;
  OCTAVO_ASSIGN_OR_RETURN(parts.array[0], OpenFrames(path, options.roots, 2, &note, &bytes));
  const size_t rank = note.empty() ? 3 : 2;
  if (!note.empty()) parts.notes.push_back(note);
  OCTAVO_ASSIGN_OR_RETURN(const MetadataFile metadata,
                          TakeMetadataFile(path + ".json", options.roots, bytes, &parts));
  if (rank == 3 && metadata != MetadataFile::kOwn) TellOfAxes(metadata, &parts);
  const std::string* further[] = {nullptr, &options.flats, &options.darks};
  for (size_t k = 1; k < 3; ++k) {
    if (further[k]->empty() || *further[k] == "-") continue;
    OCTAVO_ASSIGN_OR_RETURN(parts.array[k], OpenFrames(*further[k], options.roots, rank, nullptr));
  }
  OCTAVO_RETURN_IF_ERROR(ReadNpyAngles(options, &parts));
  return AssembleProjections(std::move(parts), options);
}

}  // namespace octavo::storage
