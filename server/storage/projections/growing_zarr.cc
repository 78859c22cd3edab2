// Zarr folders that are being written: an array, or a group with exchange/data or data.

#include <algorithm>
#include <filesystem>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"
#include "server/storage/projections/growing_array.h"
#include "server/storage/zarr/reader.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 24;

absl::StatusOr<StoredType> TypeOf(const std::string& path, const std::string& name,
                                  const ZarrArrayReader& array) {
  auto type = StoredType::FromZarr(array.data_type());
  if (!type.has_value())
    return BadProjections(path, name, absl::StrCat("holds ", array.data_type()), "real numbers");
  type->big_endian = array.big_endian();
  return *type;
}

double FillOf(const ZarrArrayReader& array, const StoredType& type) {
  const std::string& fill = array.metadata().fill;
  return std::ssize(fill) == type.bytes ? LoadDoubles(fill.data(), type, 1).front() : 0;
}

class GrowingZarrFrames final : public GrowingArray {
 public:
  GrowingZarrFrames(std::string path, std::string name, std::unique_ptr<ZarrArrayReader> array,
                    const StoredType& stored)
      : path_(std::move(path)), array_(std::move(array)), fill_(FillOf(*array_, stored)) {
    dataset = std::move(name);
    type = stored;
    std::copy(array_->shape().begin(), array_->shape().end(), shape);
    if (array_->file_shape()[0] > 1) LimitWindow();
  }

  double fill() const override { return fill_; }

  std::optional<uint64_t> Evidence(int64_t frame, std::string* lacks) override {
    const auto files = FilesOf(frame, lacks);
    const int64_t together = array_->file_shape()[0], next = (frame / together + 1) * together;
    std::string none;
    const bool tells = together == 1 || (next < shape[0] && FilesOf(next, &none).has_value());
    return files.has_value() && !tells ? EvidenceOfValues(frame, fill_, lacks) : files;
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    const int64_t n = count[0] * count[1] * count[2];
    const bool convert = !type.IsAs(dtype);
    std::vector<char> memory(convert ? static_cast<size_t>(n * type.bytes) : 0);
    const absl::Status read =
        array_->Read(absl::MakeConstSpan(start, 3), absl::MakeConstSpan(count, 3),
                     convert ? memory.data() : out);
    if (!read.ok())
      return DamagedProjections(path_, dataset,
                                absl::StrCat("cannot be read: ", std::string(read.message())));
    if (convert) LoadNumbers(memory.data(), type, n, dtype, out);
    return absl::OkStatus();
  }

 private:
  // What the files of a frame are now; nothing: one is missing.
  std::optional<uint64_t> FilesOf(int64_t frame, std::string* lacks) const {
    const int64_t start[3] = {frame, 0, 0}, count[3] = {1, shape[1], shape[2]};
    const auto files = array_->CountFiles(start, count);
    uint64_t all = 3;
    for (int64_t i = 0; files.ok() && i < *files; ++i) {
      std::vector<ZarrPiece> pieces;
      std::optional<UniqueFd> opened;
      struct stat info {};
      const absl::Status found = array_->PlanOne(i, start, count, &pieces, &opened);
      if (!found.ok() || !opened.has_value() || ::fstat(opened->get(), &info) != 0) {
        *lacks = found.ok()
                     ? absl::StrCat("a file of frame ", frame, " of ", dataset, " is not there yet")
                     : std::string(found.message());
        return std::nullopt;
      }
      all = Mixed(Mixed(all, info.st_ino), static_cast<uint64_t>(info.st_size));
      all = Mixed(Mixed(all, static_cast<uint64_t>(info.st_mtim.tv_sec)),
                  static_cast<uint64_t>(info.st_mtim.tv_nsec));
    }
    if (files.ok()) return all;
    *lacks = std::string(files.status().message());
    return std::nullopt;
  }

  const std::string path_;
  const std::unique_ptr<ZarrArrayReader> array_;
  const double fill_;
};

class GrowingZarr final : public GrowingProjections {
 public:
  GrowingZarr(const std::string& path, const ProjectionOptions& options)
      : GrowingProjections(path, options) {}

  std::string PlaceOf(FrameKind kind) const override {
    switch (kind) {
      case FrameKind::kProjection: return Place(options_.projections, "data");
      case FrameKind::kFlat: return Place(options_.flats, "data_white");
      case FrameKind::kDark: return Place(options_.darks, "data_dark");
    }
    return "";
  }
  std::string PlaceOfAngles() const override {
    const bool alone = options_.projections.empty() && IsArray("");
    return alone && options_.angles.empty() ? "" : Place(options_.angles, "theta");
  }

 private:
  static std::string Place(const std::string& given, const std::string& usual) {
    return given.empty() ? absl::StrCat("exchange/", usual, " and ", usual) : given;
  }

  bool IsArray(const std::string& name) const {
    struct stat info {};
    const std::string folder = name.empty() ? path_ : absl::StrCat(path_, "/", name);
    // Of v3 the metadata say whether it is one.
    return ::stat(absl::StrCat(folder, "/.zarray").c_str(), &info) == 0 ||
           ZarrArrayReader::Open(folder, MissingChunk::kFill, {}).ok();
  }

  // "" = none of them is there.
  std::string NameOf(const std::string& given, const std::string& usual) const {
    if (!given.empty()) return given;
    for (const std::string& name : {absl::StrCat("exchange/", usual), usual}) {
      if (IsArray(name)) return name;
    }
    return "";
  }

  // Null: it is not there.
  absl::StatusOr<std::unique_ptr<ZarrArrayReader>> OpenArray(const std::string& name) const {
    auto array = ZarrArrayReader::Open(name.empty() ? path_ : absl::StrCat(path_, "/", name),
                                       MissingChunk::kFill, {});
    if (absl::IsNotFound(array.status())) return std::unique_ptr<ZarrArrayReader>();
    if (absl::IsUnimplemented(array.status()))
      return UnknownCompression(path_, name.empty() ? "the array" : name,
                                std::string(array.status().message()));
    if (!array.ok()) return absl::UnavailableError(array.status().message());
    return array;
  }

  absl::Status OpenFrames(size_t kind, const std::string& name) {
    OCTAVO_ASSIGN_OR_RETURN(auto array, OpenArray(name));
    if (array == nullptr) return absl::OkStatus();
    const std::string dataset = name.empty() ? "the array" : name;
    if (array->rank() != 3)
      return BadProjections(path_, dataset, absl::StrCat("has ", array->rank(), " dimensions"),
                            "3: [frame, row, column]");
    OCTAVO_ASSIGN_OR_RETURN(const StoredType type, TypeOf(path_, dataset, *array));
    arrays_[kind] = std::make_unique<GrowingZarrFrames>(path_, dataset, std::move(array), type);
    return absl::OkStatus();
  }

  absl::Status Open() override {
    for (auto& array : arrays_) array.reset();
    found_.reset();
    std::error_code error;
    if (!std::filesystem::is_directory(path_, error))
      return absl::UnavailableError(absl::StrCat(path_, " is not there now"));
    const bool alone = options_.projections.empty() && IsArray("");
    const std::string data = alone ? "" : NameOf(options_.projections, "data");
    if (alone || !data.empty()) OCTAVO_RETURN_IF_ERROR(OpenFrames(0, data));
    const std::string* given[] = {nullptr, &options_.flats, &options_.darks};
    const char* usual[] = {nullptr, "data_white", "data_dark"};
    for (size_t k = 1; k < 3; ++k) {
      if (!Wants(static_cast<FrameKind>(k)) || (alone && given[k]->empty())) continue;
      if (const std::string name = NameOf(*given[k], usual[k]); !name.empty())
        OCTAVO_RETURN_IF_ERROR(OpenFrames(k, name));
    }
    if (!WantsAngles() || (alone && options_.angles.empty())) return absl::OkStatus();
    const std::string angles = NameOf(options_.angles, "theta");
    return angles.empty() ? absl::OkStatus() : ReadAngles(angles);
  }

  absl::Status ReadAngles(const std::string& name) {
    OCTAVO_ASSIGN_OR_RETURN(const auto array, OpenArray(name));
    if (array == nullptr) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const StoredType type, TypeOf(path_, name, *array));
    if (array->rank() != 1 || array->shape()[0] > kMostNumbers)
      return BadProjections(path_, name, "is no list of numbers",
                            absl::StrCat("1 dimension of at most ", kMostNumbers));
    const int64_t start = 0, count = array->shape()[0];
    std::vector<char> bytes(static_cast<size_t>(count * type.bytes));
    if (count > 0) {
      if (const absl::Status read = array->Read({&start, 1}, {&count, 1}, bytes.data()); !read.ok())
        return absl::UnavailableError(read.message());
    }
    found_ = Angles{.dataset = name,
                    .unit = "",
                    .values = LoadDoubles(bytes.data(), type, count),
                    .fill = FillOf(*array, type)};
    const auto& attributes = array->attributes();
    if (attributes.is_object() && attributes.contains("units") && attributes["units"].is_string())
      found_->unit = attributes["units"];
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<GrowingProjections> FollowZarr(const std::string& path,
                                               const ProjectionOptions& options) {
  return std::make_unique<GrowingZarr>(path, options);
}

}  // namespace octavo::storage
