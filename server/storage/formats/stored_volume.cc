#include "server/storage/formats/stored_volume.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_file.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// .npy (any header with C order and the type and shape of the metadata) or .bin, read in place.
class StoredFlat final : public StoredVolume {
 public:
  StoredFlat(VolumeMeta meta, std::string path, UniqueFd fd, int64_t offset, Manifest::File file)
      : StoredVolume(std::move(meta)),
        path_(std::move(path)),
        fd_(std::move(fd)),
        offset_(offset),
        file_(std::move(file)) {}

  absl::Status Read(int64_t y_begin, int64_t bscans, void* out) override {
    const int64_t plane = meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype);
    return ReadAllAt(fd_.get(), path_, out, static_cast<size_t>(bscans * plane),
                     offset_ + y_begin * plane);
  }
  absl::Status Verify() const override { return VerifyFile(fd_, path_, file_); }

 private:
  const std::string path_;
  const UniqueFd fd_;
  const int64_t offset_;
  const Manifest::File file_;
};

/// Bytes of the .npy header. InvalidArgument if it is not one, or describes another array than
/// `meta`.
absl::StatusOr<int64_t> NpyHeaderBytes(const std::string& head, const std::string& path,
                                       const VolumeMeta& meta) {
  const auto bad = [&](const std::string& what) {
    return InvalidField("source", absl::StrCat(path, " ", what));
  };
  if (head.size() < 12 || !absl::StartsWith(head, "\x93NUMPY") || head[6] < 1 || head[6] > 3)
    return bad("is no .npy file");
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(head[i]));
  };
  const size_t begin = head[6] == 1 ? 10 : 12,
               length = head[6] == 1
                            ? byte(8) + 256 * byte(9)
                            : byte(8) + 256 * byte(9) + 65536 * byte(10) + (byte(11) << 24);
  if (length > head.size() - begin) return bad("has a damaged .npy header");
  std::string dict;
  for (const char c : head.substr(begin, length)) {
    if (c != ' ' && c != '\n') dict += c == '"' ? '\'' : c;
  }
  const std::string wanted[] = {
      absl::StrCat("'descr':'", Info(meta.dtype).numpy, "'"), "'fortran_order':False",
      absl::StrCat("'shape':(", meta.shape[0], ",", meta.shape[1], ",", meta.shape[2], ")")};
  for (const std::string& part : wanted) {
    if (!absl::StrContains(dict, part))
      return bad(absl::StrCat("has the header ", dict, "; its metadata ask for ", part));
  }
  return static_cast<int64_t>(begin + length);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredFlat(const std::string& path) {
  const std::string side = absl::StrCat(path, ".json");
  if (!PathExists(side))
    return InvalidField("source",
                        absl::StrCat(path, " has no metadata of octavo beside it (", side, ")"));
  OCTAVO_ASSIGN_OR_RETURN(const json parsed, ReadJsonFile(side));
  auto meta = MetaFromJson(parsed);
  if (!meta.ok()) return Annotate(meta.status(), side);
  OCTAVO_RETURN_IF_ERROR(ResolveOptions({}, *meta).status());  // checks the shape
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "opening", path);
  int64_t offset = 0;
  if (HasExtension(path, Format::kNpy)) {
    std::string head(static_cast<size_t>(std::min<int64_t>(info.st_size, 65536)), '\0');
    OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd.get(), path, head.data(), head.size(), 0));
    OCTAVO_ASSIGN_OR_RETURN(offset, NpyHeaderBytes(head, path, *meta));
  }
  const int64_t wanted =
      offset + meta->shape[0] * meta->shape[1] * meta->shape[2] * SizeOf(meta->dtype);
  if (info.st_size != wanted)
    return absl::DataLossError(
        absl::StrCat(path, " has ", info.st_size, " bytes; its metadata say ", wanted));
  Manifest::File file{.path = "", .bytes = info.st_size, .crc32c = 0};
  const json& about = parsed.contains("file") ? parsed["file"] : json();
  const bool described = about.is_object() && about.contains("crc32c") &&
                         about["crc32c"].is_string() &&
                         absl::SimpleHexAtoi(about["crc32c"].get<std::string>(), &file.crc32c);
  if (!described && meta->digest.empty())
    return absl::DataLossError(absl::StrCat(side, " tells neither a digest nor a CRC"));
  return std::make_unique<StoredFlat>(*std::move(meta), path, std::move(fd), offset, file);
}

absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStored(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status))
    return ErrnoStatus(error ? error.value() : ENOENT, "opening", path);
  if (std::filesystem::is_directory(status)) return OpenStoredZarr(path);
  if (HasExtension(path, Format::kNpy) || HasExtension(path, Format::kBin))
    return OpenStoredFlat(path);
  return InvalidField("source", absl::StrCat(path, " is no OME-Zarr directory, .npy or .bin file"));
}

}  // namespace octavo::storage
