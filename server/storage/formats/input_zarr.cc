#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tbb/task_arena.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/storage/direct/device_reader.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/zarr/group.h"
#include "server/storage/zarr/ome.h"
#include "server/storage/zarr/reader.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr size_t kMostLabels = 64, kMostChannels = 32, kMostNames = 16;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int kMostAbove = 4;  // folders above an array that may be the group of its image

/// At most `most` bytes of a text, not cutting a character of UTF-8.
std::string Cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

/// The errors of the readers of Zarr, as those of volume inputs.
class Errors {
 public:
  Errors(std::string name, const std::string& path)
      : name_(std::move(name)), folder_(absl::StrCat(path, "/")) {}

  absl::Status operator()(const absl::Status& status, const std::string& place) const {
    // Callers know the file by its name, which is not always its path.
    const std::string text = absl::StrReplaceAll(status.message(), {{folder_, ""}});
    const auto told = [&](absl::Status as, Reason reason) {
      return WithInfo(std::move(as),
                      {.reason = reason, .field = "", .numbers = {{"place", place}}});
    };
    const std::string message = absl::StrCat(name_, ": ", text);
    if (absl::IsDataLoss(status)) return told(absl::DataLossError(message), Reason::kDamagedFile);
    if (absl::IsNotFound(status))
      return told(absl::DataLossError(absl::StrCat(name_, ": ", place, " is missing: ", text)),
                  Reason::kDamagedFile);
    const bool codec = absl::StrContains(text, "codec") || absl::StrContains(text, "compressor") ||
                       absl::StrContains(text, "filters");
    if (absl::IsUnimplemented(status) && codec)
      return told(absl::UnimplementedError(message), Reason::kUnknownCompression);
    // A link in a folder that was handed over has no reason of its own.
    if (absl::IsUnimplemented(status) ||
        (absl::IsPermissionDenied(status) && InfoOf(status).reason == Reason::kNone))
      return told(absl::InvalidArgumentError(message), Reason::kUnsupportedFile);
    return Annotate(status, name_);
  }

 private:
  const std::string name_, folder_;
};

/// The type of the elements that Read returns, or nothing for raw bytes. A bool is a byte.
std::optional<ElementType> TypeOf(const ZarrArrayReader& array) {
  using Kind = ElementType::Kind;
  const std::string& name = array.data_type();
  if (name == "bool") return ElementType{};
  for (const auto& [prefix, kind] : {std::pair{"uint", Kind::kUnsigned},
                                     {"int", Kind::kSigned},
                                     {"float", Kind::kFloat},
                                     {"complex", Kind::kComplex}}) {
    if (absl::StartsWith(name, prefix)) return CheckedElementType(kind, array.element_bytes());
  }
  return std::nullopt;
}

/// A piece of an array that is decoded.
class PieceDecoding final : public StoredDecoder {
 public:
  PieceDecoding(std::shared_ptr<const ZarrArrayReader> array, ZarrPiece piece)
      : array_(std::move(array)), piece_(std::move(piece)) {
    for (int64_t& to : piece_.to) to = 0;  // into memory of its own
  }
  absl::Status Decode(absl::string_view encoded, char* out) const override {
    return array_->Decode(piece_, encoded, out,
                          PackedStrides(piece_.count, array_->element_bytes()));
  }

 private:
  const std::shared_ptr<const ZarrArrayReader> array_;
  ZarrPiece piece_;
};

/// The innermost chunks that are read by themselves.
const ZarrChain& InnermostOf(const ZarrArrayReader& array) {
  const ZarrChain* chain = &array.metadata().chain;
  while (chain->IsOpenShard()) chain = &chain->shard->inner;
  return *chain;
}

/// A box of an array, chunk file by chunk file.
class ZarrPieces final : public PieceSource {
 public:
  ZarrPieces(std::shared_ptr<const ZarrArrayReader> array, base::ArrayBox box, int64_t files,
             int64_t most_decoded, Errors errors, std::string place)
      : array_(std::move(array)),
        box_(std::move(box)),
        errors_(std::move(errors)),
        place_(std::move(place)) {
    element_bytes_ = array_->element_bytes();
    big_endian_ = array_->big_endian();
    most_decoded_ = most_decoded;
    units_ = files;
  }

  absl::Status Open(int64_t unit, std::vector<StoredPiece>* out) const override {
    const absl::Status opened = OpenFile(unit, out);
    return opened.ok() ? opened : Told(opened);
  }
  absl::Status Told(const absl::Status& error) const override { return errors_(error, place_); }

 private:
  absl::Status OpenFile(int64_t unit, std::vector<StoredPiece>* out) const {
    std::vector<ZarrPiece> pieces;
    std::optional<UniqueFd> fd;
    OCTAVO_RETURN_IF_ERROR(array_->PlanOne(unit, box_.start, box_.count, &pieces, &fd));
    std::shared_ptr<DataFile> file;
    if (fd.has_value() && !pieces.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(
          file, DataFile::Of(*std::move(fd), array_->folder().PathOf(pieces.front().file)));
    }
    for (ZarrPiece& piece : pieces) {
      StoredPiece& stored = out->emplace_back();
      stored.to = piece.to;
      stored.count = piece.count;
      if (piece.form == ZarrPiece::Form::kFill) {
        stored.fill = array_->metadata().fill;
        continue;
      }
      stored.file = file;
      if (piece.form == ZarrPiece::Form::kRaw) {
        stored.offset = piece.offset + piece.RawBegin();
        stored.bytes = piece.RawSpan(element_bytes_);
        stored.stride = piece.chain->stride;
        continue;
      }
      stored.offset = piece.offset;
      stored.bytes = piece.bytes;
      stored.decoder = std::make_shared<PieceDecoding>(array_, std::move(piece));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const ZarrArrayReader> array_;
  const base::ArrayBox box_;
  const Errors errors_;
  const std::string place_;
};

/// A Zarr array.
class ZarrInput final : public VolumeInput {
 public:
  ZarrInput(VolumeInputInfo info, std::shared_ptr<const ZarrArrayReader> array, Errors errors,
            std::string place)
      : VolumeInput(std::move(info)),
        array_(std::move(array)),
        errors_(std::move(errors)),
        place_(std::move(place)) {}

  std::vector<std::string> Noticed() const override {
    const ZarrArrayReader::MissingFiles missing = array_->missing_files();
    if (missing.count == 0) return {};
    return {absl::StrCat(
        missing.count, missing.count == ZarrArrayReader::kMostMissing ? " or more" : "",
        missing.count == 1 ? " chunk file is" : " chunk files are", " not there ('", missing.name,
        missing.count == 1 ? "'" : "', for example",
        "): their voxels have the fill value. Zarr may leave out chunks that hold nothing else; "
        "a copy that was not finished looks the same.")};
  }

 private:
  absl::StatusOr<std::unique_ptr<PieceSource>> PiecesInside(
      const base::ArrayBox& box) const override {
    const ZarrChain& chain = InnermostOf(*array_);
    int64_t decoded = chain.IsRaw() ? 0 : array_->element_bytes();
    for (size_t d = 0; d < chain.shape.size() && decoded > 0; ++d) {
      const int64_t extent = std::min(chain.shape[d], box.count[d]);
      decoded = decoded > kMostBytes / extent ? kMostBytes : decoded * extent;
    }
    // Larger ones take the memory that info().read_memory_bytes tells.
    if (decoded > DeviceReader::kMostDecoded) return std::unique_ptr<PieceSource>();
    const auto files = array_->CountFiles(box.start, box.count);
    if (!files.ok()) return errors_(files.status(), place_);
    return std::make_unique<ZarrPieces>(array_, box, *files, decoded, errors_, place_);
  }

  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    if (absl::Status read = array_->Read(box.start, box.count, out, {}, stop_); !read.ok())
      return absl::IsCancelled(read) ? read : errors_(read, place_);
    if (array_->big_endian()) SwapBytes(info_.type, ElementsOf(box.count), out);
    return absl::OkStatus();
  }

  const std::shared_ptr<const ZarrArrayReader> array_;
  const Errors errors_;
  const std::string place_;
};

/// An image, and which of its levels is read.
struct FoundImage {
  ZarrFolder group;
  json attributes;
  OmeImage image;
  size_t index = 0, level = 0;
};

/// Finds the array in a folder, and what its metadata say about it.
class Opener {
 public:
  Opener(const OpenedInput& input, const VolumeInputOptions& options, ZarrFolder root)
      : input_(input),
        options_(options),
        root_(std::move(root)),
        errors_(input.name, root_.path()) {
    place_ = options.dataset;
    while (absl::StartsWith(place_, "/")) place_.erase(0, 1);
    while (absl::EndsWith(place_, "/")) place_.pop_back();
  }

  OpenedVolume Open() {
    OCTAVO_ASSIGN_OR_RETURN(ZarrFolder folder, Node());
    const auto kind = ZarrNodeKindOf(folder);
    if (!kind.ok()) return errors_(kind.status(), Place("the folder"));
    if (*kind == ZarrNodeKind::kNone)
      return UnsupportedFile(input_.name, Place("the folder"), "no array and no group of Zarr",
                             "folders with zarr.json, .zarray or .zgroup");
    if (*kind == ZarrNodeKind::kGroup) {
      OCTAVO_ASSIGN_OR_RETURN(folder, ChooseLevel(std::move(folder)));
    } else {
      OCTAVO_RETURN_IF_ERROR(RefuseChoices());
      LookAbove();
    }
    OCTAVO_RETURN_IF_ERROR(FindOwnMeta());
    auto array =
        ZarrArrayReader::Open(std::move(folder),
                              // A commit writes all chunks.
                              own_.has_value() ? MissingChunk::kDamage : MissingChunk::kFill);
    if (!array.ok()) return errors_(array.status(), Place("the array"));
    array_ = *std::move(array);
    OCTAVO_RETURN_IF_ERROR(Describe());
    auto opened =
        std::make_unique<ZarrInput>(std::move(info_), array_, errors_, Place("the array"));
    if (own_.has_value()) {
      struct stat info {};
      const ZarrFolder group = found_->group;
      if (::fstatat(group.fd().get(), kManifestName, &info, AT_SYMLINK_NOFOLLOW) == 0)
        opened->SetVerify(
            [group, name = input_.name] { return VerifyDirectory(group.fd(), name).status(); });
    }
    return opened;
  }

 private:
  std::string Place(const char* whole) const { return place_.empty() ? whole : place_; }
  std::string Field(const char* option) const { return FieldOf(options_, option); }

  /// The folder that the caller names.
  absl::StatusOr<ZarrFolder> Node() const {
    if (place_.empty()) return root_;
    const std::string allowed = "paths of arrays and groups below the folder, as \"a/b\"";
    if (!IsPathBelow(place_))
      return FieldNotAllowed(Field("dataset"), absl::StrCat("'", options_.dataset, "'"), allowed);
    auto folder = root_.OpenFolder(place_);
    if (!absl::IsNotFound(folder.status()))
      return folder.ok() ? std::move(folder) : errors_(folder.status(), place_);
    std::string there;
    if (const auto group = ZarrGroup::Open(root_); group.ok()) there = NamesIn(*group);
    return InvalidField(
        Field("dataset"),
        absl::StrCat("is '", options_.dataset, "', which ", input_.name, " does not have; allowed ",
                     allowed, there.empty() ? "" : ", at its top ", there));
  }

  static std::string NamesIn(const ZarrGroup& group) {
    std::vector<std::string> names;
    const auto children = group.Children();
    if (children.ok()) {
      for (const ZarrGroup::Child& child : *children) {
        if (names.size() < kMostNames)
          names.push_back(child.name + (child.kind == ZarrNodeKind::kGroup ? "/" : ""));
      }
    }
    return absl::StrJoin(names, ", ");
  }

  /// A level and an image are chosen of a group only.
  absl::Status RefuseChoices() const {
    for (const auto& [option, given] :
         {std::pair{"level", options_.level.has_value()}, {"image", options_.image.has_value()}}) {
      if (given)
        return InvalidField(Field(option),
                            absl::StrCat("is given, and ", Place(input_.name.c_str()),
                                         " is an array; allowed with images of OME-Zarr"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> ChooseImage(const std::vector<std::string>& names) const {
    const auto count = std::ssize(names);
    if (options_.image.has_value())
      OCTAVO_RETURN_IF_ERROR(
          InRange(Field("image"), static_cast<int64_t>(*options_.image), 0, count - 1));
    if (options_.image.has_value() || count == 1)
      return static_cast<size_t>(options_.image.value_or(0));
    std::vector<std::string> shown;
    for (const std::string& name : names) {
      if (shown.size() < kMostNames) shown.push_back(absl::StrCat("'", Cut(name, 64), "'"));
    }
    return InvalidField(Field("image"),
                        absl::StrCat("is missing: ", input_.name, " has ", count, " images (",
                                     absl::StrJoin(shown, ", "), "); allowed 0 to ", count - 1));
  }

  /// The groups of the images of a conversion by bioformats2raw, in their order; none if it is
  /// another group. https://ngff.openmicroscopy.org/0.5, "bioformats2raw.layout"
  static std::vector<std::string> SeriesIn(const ZarrGroup& group) {
    const json& ome = OmeMembers(group.attributes);
    std::vector<std::string> series;
    if (!ome.is_object() || !ome.contains("bioformats2raw.layout")) return series;
    if (auto folder = group.folder.OpenFolder("OME"); folder.ok()) {
      const auto listed = ZarrGroup::Open(*std::move(folder));
      const json* list = listed.ok() ? &OmeMembers(listed->attributes) : nullptr;
      if (list != nullptr && list->is_object() && list->contains("series") &&
          (*list)["series"].is_array()) {
        for (const json& one : (*list)["series"]) {
          if (one.is_string() && IsPathBelow(one.get<std::string>()))
            series.push_back(one.get<std::string>());
        }
        return series;
      }
    }
    for (;;) {  // numbered from 0
      std::string name = absl::StrCat(series.size());
      const auto folder = group.folder.OpenFolder(name);
      if (!folder.ok() || series.size() >= ZarrGroup::kMostNames) return series;
      series.push_back(std::move(name));
    }
  }

  /// The array of an image's level.
  absl::StatusOr<ZarrFolder> ChooseLevel(ZarrFolder folder) {
    auto group = ZarrGroup::Open(std::move(folder));
    if (!group.ok()) return errors_(group.status(), Place("the group"));
    std::vector<std::string> names = OmeImageNames(group->attributes);
    const json& ome = OmeMembers(group->attributes);
    size_t index = 0;
    if (names.empty() && !(ome.is_object() && ome.contains("multiscales"))) {
      const std::vector<std::string> series = SeriesIn(*group);
      if (series.empty())
        return InvalidField(
            Field("dataset"),
            absl::StrCat(place_.empty() ? "is missing" : absl::StrCat("is '", place_, "'"), ": ",
                         input_.name,
                         " is a group of Zarr without an image of OME-Zarr; allowed are paths of "
                         "arrays and images below it: ",
                         NamesIn(*group)));
      OCTAVO_ASSIGN_OR_RETURN(const size_t chosen, ChooseImage(series));
      place_ = absl::StrCat(place_, place_.empty() ? "" : "/", series[chosen]);
      auto below = group->folder.OpenFolder(series[chosen]);
      if (!below.ok()) return errors_(below.status(), place_);
      group = ZarrGroup::Open(*std::move(below));
      if (!group.ok()) return errors_(group.status(), place_);
    } else if (!names.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(index, ChooseImage(names));
    }
    auto image = OmeImage::Parse(group->attributes, index);
    if (absl::IsNotFound(image.status()))
      return UnsupportedFile(input_.name, Place("the group"), "without an image of OME-Zarr",
                             "groups with multiscales");
    if (!image.ok()) return errors_(image.status(), Place("the image"));
    const auto levels = std::ssize(image->levels);
    if (options_.level.has_value())
      OCTAVO_RETURN_IF_ERROR(
          InRange(Field("level"), static_cast<int64_t>(*options_.level), 0, levels - 1));
    const auto level = static_cast<size_t>(options_.level.value_or(0));
    place_ = absl::StrCat(place_, place_.empty() ? "" : "/", image->levels[level].path);
    auto array = group->folder.OpenFolder(image->levels[level].path);
    if (!array.ok()) return errors_(array.status(), place_);
    if (names.size() > 1)
      notes_.push_back(absl::StrCat("of ", names.size(), " images this is number ", index));
    found_ = FoundImage{.group = group->folder,
                        .attributes = std::move(group->attributes),
                        .image = *std::move(image),
                        .index = index,
                        .level = level};
    return array;
  }

  /// An array may be a level of an image whose group lies above it: then the group has its axes.
  void LookAbove() {
    std::string rest, at = place_;
    while (!at.empty()) {
      const size_t cut = at.rfind('/');
      const std::string last = cut == std::string::npos ? at : at.substr(cut + 1);
      rest = rest.empty() ? last : absl::StrCat(last, "/", rest);
      at = cut == std::string::npos ? "" : at.substr(0, cut);
      if (LookIn(at.empty() ? root_ : root_.OpenFolder(at), rest)) return;
    }
    // The folder itself was named by its path.
    std::string path = input_.path;
    for (int i = 0; i < kMostAbove && path.size() > 1; ++i) {
      rest = rest.empty() ? BaseOf(path) : absl::StrCat(BaseOf(path), "/", rest);
      path = ParentOf(path);
      if (LookIn(ZarrFolder::Open(path, options_.roots), rest)) return;
    }
  }

  /// Whether the folder is a group that has an image with a level of this path.
  bool LookIn(absl::StatusOr<ZarrFolder> folder, const std::string& path) {
    if (!folder.ok()) return false;
    auto group = ZarrGroup::Open(*std::move(folder));
    if (!group.ok()) return false;
    const size_t images = OmeImageNames(group->attributes).size();
    for (size_t index = 0; index < images; ++index) {
      auto image = OmeImage::Parse(group->attributes, index);
      if (!image.ok()) {
        notes_.push_back(
            absl::StrCat("the image above the array cannot be read: ", image.status().message()));
        continue;
      }
      for (size_t level = 0; level < image->levels.size(); ++level) {
        if (image->levels[level].path != path) continue;
        found_ = FoundImage{.group = group->folder,
                            .attributes = std::move(group->attributes),
                            .image = *std::move(image),
                            .index = index,
                            .level = level};
        return true;
      }
    }
    return false;
  }

  /// What a commit of Octavo wrote beside its image.
  absl::Status FindOwnMeta() {
    if (!found_.has_value() || found_->index != 0 || !found_->attributes.contains("octavo"))
      return absl::OkStatus();
    auto meta = MetaFromJson(found_->attributes["octavo"]);
    if (!meta.ok())
      return DamagedFile(input_.name, "the attribute octavo",
                         absl::StrCat(": ", meta.status().message()));
    own_ = *std::move(meta);
    return absl::OkStatus();
  }

  absl::Status Describe() {
    info_.format = InputFormat::kZarr;
    const std::string version =
        absl::StrCat("Zarr v", static_cast<int>(array_->metadata().version));
    info_.kind = !found_.has_value()
                     ? absl::StrCat(version, " array")
                     : absl::StrCat("OME-Zarr ", found_->image.version,
                                    own_.has_value() ? " of a commit, " : ", ", version, ", level ",
                                    found_->level, " of ", found_->image.levels.size());
    const auto type = TypeOf(*array_);
    if (!type.has_value())
      return UnsupportedFile(input_.name, absl::StrCat(Place("the array"), ", its type"),
                             array_->data_type(), "bool, integers, floats and complex numbers");
    info_.type = *type;
    OCTAVO_RETURN_IF_ERROR(CheckInputShape(input_.name,
                                           absl::StrCat(Place("the array"), ", its shape"),
                                           {array_->shape().begin(), array_->shape().end()}));
    for (const int64_t extent : array_->shape()) info_.axes.push_back({.extent = extent});
    for (size_t d = 0; d < info_.axes.size(); ++d) info_.file_order.push_back(static_cast<int>(d));
    OCTAVO_RETURN_IF_ERROR(DescribeChunks());
    info_.notes.insert(info_.notes.end(), array_->notes().begin(), array_->notes().end());
    info_.notes.insert(info_.notes.end(), notes_.begin(), notes_.end());
    const std::vector<std::string> names = DimensionNames();
    if (!found_.has_value()) {
      for (size_t d = 0; d < names.size(); ++d) info_.axes[d].name = names[d];
      TellAttributes();
      return absl::OkStatus();
    }
    OCTAVO_RETURN_IF_ERROR(DescribeLevel(names));
    if (own_.has_value()) return AdoptOwnMeta();
    if (!found_->image.name.empty()) info_.labels["name"] = Cut(found_->image.name, 256);
    TellChannels();
    return absl::OkStatus();
  }

  /// Parts of the array are decoded as a whole: chunks, and of an open shard its inner chunks.
  absl::Status DescribeChunks() {
    const ZarrChain* chain = &array_->metadata().chain;
    int64_t bytes = 0;
    while (chain->IsOpenShard()) {
      bytes += 2 * chain->shard->IndexBytes();
      chain = &chain->shard->inner;
    }
    // Of a shard that is compressed as a whole, the chain knows only what no shard exceeds.
    int64_t decoded = array_->element_bytes();
    for (const int64_t extent : chain->shape)
      decoded = decoded > kMostBytes / extent ? kMostBytes : decoded * extent;
    if (!chain->IsRaw() && decoded > options_.most_chunk_bytes)
      return UnsupportedFile(input_.name, absl::StrCat(Place("the array"), ", its chunk"),
                             absl::StrCat(decoded, " bytes"),
                             absl::StrCat("up to ", options_.most_chunk_bytes, " bytes"));
    for (size_t d = 0; d < info_.axes.size(); ++d)
      info_.chunk.push_back(std::min(chain->shape[d], info_.axes[d].extent));
    int64_t most = decoded;
    for (const ZarrChain::Step& step : chain->steps) {
      if (step.exact) most = std::max(most, step.decoded);
    }
    // Each thread of the arena has what is encoded, and what two codecs make of it.
    bytes += chain->IsRaw() ? decoded : 3 * most;
    info_.read_memory_bytes = bytes * tbb::this_task_arena::max_concurrency();
    return absl::OkStatus();
  }

  /// "dimension_names" of v3, or what xarray writes beside arrays of v2. Empty: they are not all
  /// there.
  std::vector<std::string> DimensionNames() const {
    std::vector<std::string> names;
    for (const auto& name : array_->metadata().dimension_names) names.push_back(name.value_or(""));
    const json& attributes = array_->attributes();
    constexpr char kOfXarray[] = "_ARRAY_DIMENSIONS";
    if (names.empty() && attributes.is_object() && attributes.contains(kOfXarray) &&
        attributes[kOfXarray].is_array()) {
      for (const json& name : attributes[kOfXarray])
        names.push_back(name.is_string() ? name.get<std::string>() : "");
    }
    return names.size() == info_.axes.size() ? names : std::vector<std::string>();
  }

  absl::Status DescribeLevel(const std::vector<std::string>& names) {
    const OmeImage& image = found_->image;
    const OmeLevel& level = image.levels[found_->level];
    if (image.axes.size() != info_.axes.size())
      return DamagedFile(
          input_.name, Place("the array"),
          absl::StrCat("has ", info_.axes.size(), " axes; its image says ", image.axes.size()));
    std::vector<std::string> begins;
    bool renamed = false;
    for (size_t d = 0; d < info_.axes.size(); ++d) {
      const OmeAxis& axis = image.axes[d];
      info_.axes[d].name = axis.name;
      SetSpacing(level.scale[d], axis.unit, absl::StrCat("scale[", d, "]"), &info_.axes[d],
                 &info_.notes);
      renamed = renamed || (!names.empty() && !names[d].empty() && names[d] != axis.name);
      if (level.translation[d] != 0)
        begins.push_back(absl::StrCat(axis.name, " ", Number(level.translation[d]),
                                      axis.unit.empty() ? "" : " ", axis.unit));
    }
    if (renamed)
      info_.notes.push_back(absl::StrCat("the array calls its axes ", absl::StrJoin(names, ", "),
                                         "; the names of the image are taken"));
    if (begins.empty()) return absl::OkStatus();
    info_.labels["translation"] = absl::StrJoin(begins, ", ");
    info_.notes.push_back(absl::StrCat("the first sample lies at ", info_.labels["translation"],
                                       ", which volumes do not keep"));
    return absl::OkStatus();
  }

  /// The metadata of the commit, which are those of the full resolution.
  absl::Status AdoptOwnMeta() {
    VolumeMeta meta = *own_;
    const OmeLevel& level = found_->image.levels[found_->level];
    if (found_->level > 0 && info_.axes.size() == 3) {
      const std::vector<int64_t> shape = info_.shape();
      for (size_t d = 0; d < 3; ++d) {
        meta.shape[d] = shape[d];
        meta.spacing_um[d] = level.scale[d];
      }
      meta.digest.clear();
      // Their places are those of the full resolution.
      if (meta.missing_ascans > 0 && std::ssize(meta.warnings) < kMostWarnings)
        meta.warnings.push_back(absl::StrCat("The volume is level ", found_->level,
                                             " of the pyramid of one with ", meta.missing_ascans,
                                             " missing A-scans."));
      meta.missing_ascans = 0;
      meta.missing_ranges.clear();
    }
    return AdoptMeta(input_.name, std::move(meta), {0, 1, 2}, &info_);
  }

  /// Names, colours and display windows of the channels.
  void TellChannels() {
    const json& ome = OmeMembers(found_->attributes);
    if (!ome.contains("omero") || !ome["omero"].is_object()) return;
    const json& omero = ome["omero"];
    if (!omero.contains("channels") || !omero["channels"].is_array()) return;
    const json& channels = omero["channels"];
    for (size_t i = 0; i < std::min(channels.size(), kMostChannels); ++i) {
      const json& channel = channels[i];
      if (!channel.is_object()) continue;
      for (const auto& [member, label] : {std::pair{"label", "channel "}, {"color", "color "}}) {
        if (channel.contains(member) && channel[member].is_string() &&
            !channel[member].get<std::string>().empty())
          info_.labels[absl::StrCat(label, i)] = Cut(channel[member].get<std::string>(), 256);
      }
      if (!channel.contains("window") || !channel["window"].is_object()) continue;
      const json& window = channel["window"];
      if (window.contains("start") && window["start"].is_number() && window.contains("end") &&
          window["end"].is_number())
        info_.labels[absl::StrCat("window ", i)] = absl::StrCat(
            Number(window["start"].get<double>()), " to ", Number(window["end"].get<double>()));
    }
  }

  /// Texts and numbers of a plain array.
  void TellAttributes() {
    const json& attributes = array_->attributes();
    if (!attributes.is_object()) return;
    for (const auto& [key, value] : attributes.items()) {
      if (info_.labels.size() >= kMostLabels || absl::StartsWith(key, "_")) continue;
      if (value.is_string())
        info_.labels[Cut(key, 64)] = Cut(value.get<std::string>(), 256);
      else if (value.is_number() || value.is_boolean())
        info_.labels[Cut(key, 64)] = value.dump();
    }
  }

  const OpenedInput& input_;
  const VolumeInputOptions& options_;
  const ZarrFolder root_;
  const Errors errors_;
  std::string place_;  // of the array below the folder
  std::vector<std::string> notes_;
  std::optional<FoundImage> found_;
  std::optional<VolumeMeta> own_;
  std::shared_ptr<const ZarrArrayReader> array_;
  VolumeInputInfo info_;
};

}  // namespace

/// An image of OME-Zarr 0.4 or 0.5, or an array of Zarr v2 or v3.
OpenedVolume OpenZarrInput(OpenedInput input, const VolumeInputOptions& options) {
  // Through the folder that is open: its name may be another's by now.
  UniqueFd fd(::fcntl(input.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "opening", input.name);
  ZarrFolder root = input.path.empty()
                        ? ZarrFolder::FromDescriptor(std::move(fd), input.name)
                        : ZarrFolder::FromOpened(std::move(fd), input.path, options.roots);
  return Opener(input, options, std::move(root)).Open();
}

}  // namespace octavo::storage
