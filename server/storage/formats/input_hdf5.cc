#include <algorithm>
#include <hdf5.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/hdf5/dataset_errors.h"
#include "server/storage/hdf5/dataset_list.h"
#include "server/storage/hdf5/hdf5_dataset.h"
#include "server/storage/hdf5/hdf5_links.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/io/hdf5_library.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
using Kind = ElementType::Kind;
constexpr size_t kMostText = 32 << 20, kMostNames = 32;
constexpr int64_t kCacheBytes = 64 << 20;  // of decoded chunks
constexpr int64_t kChunksTogether = 4096;

Id Copy(hid_t type) { return Id(H5Tcopy(type), H5Tclose); }

/// Half precision in memory, which the library has no constant for.
Id Half() {
  Id half = Copy(H5T_IEEE_F32LE);
  if (H5Tset_fields(half.get(), 15, 10, 5, 0, 10) < 0 || H5Tset_size(half.get(), 2) < 0 ||
      H5Tset_ebias(half.get(), 15) < 0)
    return {};
  return half;
}

/// The type of elements, and the library's type for them in memory.
struct Stored {
  ElementType type;
  Id memory;
};

Id MemoryOf(const ElementType& type) {
  const bool is_signed = type.kind == Kind::kSigned;
  if (type.kind == Kind::kFloat)
    return type.bytes == 2 ? Half() : Copy(type.bytes == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE);
  switch (type.bytes) {
    case 1: return Copy(is_signed ? H5T_NATIVE_INT8 : H5T_NATIVE_UINT8);
    case 2: return Copy(is_signed ? H5T_NATIVE_INT16 : H5T_NATIVE_UINT16);
    case 4: return Copy(is_signed ? H5T_NATIVE_INT32 : H5T_NATIVE_UINT32);
    default: return Copy(is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64);
  }
}

std::optional<Stored> StoredReal(hid_t type) {
  const auto bytes = static_cast<int64_t>(H5Tget_size(type));
  std::optional<ElementType> element;
  if (H5Tget_class(type) == H5T_INTEGER) {
    element = CheckedElementType(
        H5Tget_sign(type) == H5T_SGN_NONE ? Kind::kUnsigned : Kind::kSigned, bytes);
  } else if (H5Tget_class(type) == H5T_FLOAT) {
    element = CheckedElementType(Kind::kFloat, bytes);
    // Other floats of 16 bits (bfloat16) would lose digits.
    if (bytes == 2) {
      size_t sign = 0, at = 0, exponent = 0, fraction_at = 0, fraction = 0;
      if (H5Tget_fields(type, &sign, &at, &exponent, &fraction_at, &fraction) < 0 ||
          exponent != 5 || fraction != 10)
        return std::nullopt;
    }
  }
  if (!element.has_value()) return std::nullopt;
  return Stored{*element, MemoryOf(*element)};
}

/// Numbers, and pairs of floats: h5py's form of complex numbers.
std::optional<Stored> StoredOf(hid_t type) {
  if (H5Tget_class(type) != H5T_COMPOUND) return StoredReal(type);
  if (H5Tget_nmembers(type) != 2) return std::nullopt;
  Id parts[2];
  std::string names[2];
  std::optional<Stored> real;
  for (unsigned i = 0; i < 2; ++i) {
    parts[i] = Id(H5Tget_member_type(type, i), H5Tclose);
    char* const name = H5Tget_member_name(type, i);
    if (!parts[i] || name == nullptr) return std::nullopt;
    names[i] = name;
    H5free_memory(name);
    auto stored = StoredReal(parts[i].get());
    if (!stored.has_value() || stored->type.kind != Kind::kFloat || stored->type.bytes < 4 ||
        (i == 1 && stored->type != real->type))
      return std::nullopt;
    real = std::move(stored);
  }
  const bool usual =
      (names[0] == "r" && names[1] == "i") || (names[0] == "real" && names[1] == "imag");
  if (!usual) return std::nullopt;
  const auto bytes = static_cast<size_t>(real->type.bytes);
  Id pair(H5Tcreate(H5T_COMPOUND, 2 * bytes), H5Tclose);
  if (!pair || H5Tinsert(pair.get(), names[0].c_str(), 0, real->memory.get()) < 0 ||
      H5Tinsert(pair.get(), names[1].c_str(), bytes, real->memory.get()) < 0)
    return std::nullopt;
  return Stored{ElementType{Kind::kComplex, 2 * real->type.bytes}, std::move(pair)};
}

/// Texts of an attribute: one, or a list of up to `most`.
std::vector<std::string> TextsOf(hid_t object, const char* name, hsize_t most) {
  std::vector<std::string> out;
  if (H5Aexists(object, name) <= 0) return out;
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (!attribute) return out;
  const Id type(H5Aget_type(attribute.get()), H5Tclose),
      space(H5Aget_space(attribute.get()), H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_STRING || count < 1 || static_cast<hsize_t>(count) > most)
    return out;
  if (H5Tis_variable_str(type.get()) > 0) {
    Id memory = Copy(H5T_C_S1);
    H5Tset_size(memory.get(), H5T_VARIABLE);
    H5Tset_cset(memory.get(), H5Tget_cset(type.get()));
    std::vector<char*> texts(static_cast<size_t>(count), nullptr);
    if (H5Aread(attribute.get(), memory.get(), texts.data()) < 0) return out;
    for (char* text : texts) {
      out.emplace_back(text == nullptr ? "" : std::string(text).substr(0, 4096));
      H5free_memory(text);
    }
    return out;
  }
  const size_t size = H5Tget_size(type.get());
  if (size == 0 || size > 4096) return out;
  std::string all(size * static_cast<size_t>(count), '\0');
  if (H5Aread(attribute.get(), type.get(), all.data()) < 0) return out;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const std::string text = all.substr(i * size, size);
    out.push_back(text.substr(0, text.find('\0')));
  }
  return out;
}

std::vector<double> NumbersOf(hid_t object, const char* name, hsize_t count) {
  if (H5Aexists(object, name) <= 0) return {};
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (!attribute) return {};
  const Id type(H5Aget_type(attribute.get()), H5Tclose),
      space(H5Aget_space(attribute.get()), H5Sclose);
  std::vector<double> out(count);
  const auto of_class = H5Tget_class(type.get());
  if ((of_class != H5T_FLOAT && of_class != H5T_INTEGER) ||
      H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(count) ||
      H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, out.data()) < 0)
    return {};
  return out;
}

/// A dataset of a file. The library's lock guards everything but `info`.
class Hdf5Input final : public VolumeInput {
 public:
  Hdf5Input(VolumeInputInfo info, std::unique_ptr<Hdf5Links> links,
            std::unique_ptr<Hdf5Dataset> data, Id memory, std::string name, std::string dataset)
      : VolumeInput(std::move(info)),
        links_(std::move(links)),
        data_(std::move(data)),
        memory_(std::move(memory)),
        name_(std::move(name)),
        dataset_(std::move(dataset)) {}
  ~Hdf5Input() override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    data_.reset();
    (void)memory_.Close();
    links_.reset();
    H5Eclear2(H5E_DEFAULT);
  }

 private:
  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    // In parts of whole chunks, so that a stop, and others that want the library's lock, wait for
    // few of them.
    int64_t chunks = 1;  // of a row of chunks along the first axis
    for (size_t d = 1; d < box.count.size(); ++d)
      chunks *= (box.count[d] + info_.chunk[d] - 1) / info_.chunk[d] + 1;
    const int64_t thick = info_.chunk[0],
                  rows = std::max<int64_t>(1, kChunksTogether / chunks) * thick;
    base::ArrayBox part = box;
    const int64_t row_bytes = ElementsOf(box.count) / box.count[0] * info_.type.bytes;
    for (int64_t done = 0; done < box.count[0]; done += part.count[0]) {
      OCTAVO_RETURN_IF_ERROR(CheckStop(stop_));
      part.start[0] = box.start[0] + done;
      part.count[0] = std::min(box.count[0] - done, rows - part.start[0] % thick);
      OCTAVO_RETURN_IF_ERROR(ReadPart(part, out + done * row_bytes));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPart(const base::ArrayBox& box, char* out) {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    const size_t rank = box.start.size();
    std::vector<hsize_t> from(rank), count(rank), zero(rank, 0);
    for (size_t d = 0; d < rank; ++d) {
      from[d] = static_cast<hsize_t>(box.start[d]);
      count[d] = static_cast<hsize_t>(box.count[d]);
    }
    const Id space(H5Dget_space(data_->id()), H5Sclose),
        memory(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), H5Sclose);
    const bool fine = space && memory &&
                      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, from.data(), nullptr,
                                          count.data(), nullptr) >= 0 &&
                      H5Sselect_hyperslab(memory.get(), H5S_SELECT_SET, zero.data(), nullptr,
                                          count.data(), nullptr) >= 0 &&
                      data_->Read(memory_.get(), memory.get(), space.get(), out);
    if (fine) return absl::OkStatus();
    return DamagedFile(
        name_, dataset_,
        absl::StrCat("cannot be read at [", absl::StrJoin(box.start, ", "), "]: ", Hdf5Reason()));
  }

  std::unique_ptr<Hdf5Links> links_;
  std::unique_ptr<Hdf5Dataset> data_;
  Id memory_;
  const std::string name_, dataset_;
};

/// The errors of the classes that projections share, as those of a volume.
absl::Status AsVolumeError(const absl::Status& status) {
  ErrorInfo info = InfoOf(status);
  if (info.reason == Reason::kBadProjections) {
    info.reason = Reason::kUnsupportedFile;
    for (auto& [key, value] : info.numbers) {
      if (key == "dataset") key = "place";
    }
  }
  return info.reason == Reason::kNone ? status : WithInfo(status, info);
}

/// The text /octavo that a commit wrote, or nothing.
absl::StatusOr<std::optional<std::string>> OwnText(Hdf5Links& links) {
  OCTAVO_ASSIGN_OR_RETURN(const auto place, links.Find("/octavo"));
  if (!place.has_value()) return std::nullopt;
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  const Id data(H5Oopen(place->file, place->path.c_str(), access.get()), H5Oclose);
  if (!data || H5Iget_type(data.get()) != H5I_DATASET) return std::nullopt;
  const Id type(H5Dget_type(data.get()), H5Tclose), space(H5Dget_space(data.get()), H5Sclose),
      creation(H5Dget_create_plist(data.get()), H5Pclose);
  const size_t size = H5Tget_size(type.get());
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0 || size == 0 ||
      size > kMostText || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) ||
      H5Pget_external_count(creation.get()) > 0)
    return std::nullopt;
  std::string text(size, '\0');
  if (H5Dread(data.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0)
    return DamagedFile(links.path(), "/octavo", absl::StrCat("cannot be read: ", Hdf5Reason()));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

struct Opened {
  VolumeInputInfo info;
  std::unique_ptr<Hdf5Links> links;
  std::unique_ptr<Hdf5Dataset> data;
  Id memory;
  std::string dataset;
};

absl::Status OpenLocked(const OpenedInput& input, const VolumeInputOptions& options, Opened* out)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(Hdf5Mutex()) {
  const std::string name = BaseOf(input.name), path = input.path.empty() ? input.name : input.path;
  const std::string through = NameOfOpen(input.fd);  // the library opens by name
  struct stat info {};
  const bool gone = ::fstat(input.fd.get(), &info) == 0 && info.st_nlink == 0;
  Id file(H5Fopen(through.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file && gone) return ReplacedProjections(path);
  if (!file) return DamagedFile(name, "the file", absl::StrCat("cannot be opened: ", Hdf5Reason()));
  const hid_t opened = file.get();
  out->links = std::make_unique<Hdf5Links>(path, std::move(file), options.roots);
  OCTAVO_ASSIGN_OR_RETURN(const auto own, OwnText(*out->links));
  out->dataset = !options.dataset.empty() ? options.dataset : own.has_value() ? "/volume" : "";
  if (out->dataset.empty()) {
    const Hdf5DatasetList all = ListHdf5Datasets(opened, kMostNames);
    if (all.entries.size() != 1 || all.more)
      return InvalidField(FieldOf(options, "dataset"),
                          absl::StrCat("is missing; allowed are the paths of the datasets in ",
                                       name, ": ", all.Text()));
    out->dataset = all.entries.front().path;
  }
  if (out->dataset[0] != '/') out->dataset.insert(0, 1, '/');
  OCTAVO_ASSIGN_OR_RETURN(const auto place, out->links->Find(out->dataset));
  if (!place.has_value())
    return InvalidField(FieldOf(options, "dataset"),
                        absl::StrCat("is '", options.dataset, "', which ", name,
                                     " does not have; allowed are the paths of its datasets: ",
                                     ListHdf5Datasets(opened, kMostNames).Text()));
  OCTAVO_ASSIGN_OR_RETURN(out->data,
                          Hdf5Dataset::Open(*out->links, *place, out->dataset, kCacheBytes));
  const hid_t data = out->data->id();
  const Id space(H5Dget_space(data), H5Sclose), type(H5Dget_type(data), H5Tclose);
  auto stored = StoredOf(type.get());
  if (!stored.has_value() || !stored->memory)
    return UnsupportedFile(
        name, absl::StrCat(out->dataset, ", its type"),
        absl::StrCat("of class ", static_cast<int>(H5Tget_class(type.get())), " and ",
                     H5Tget_size(type.get()), " bytes"),
        "integers of 8 to 64 bits, floats of 16, 32 and 64, pairs r, i of floats");
  out->memory = std::move(stored->memory);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> extents(H5S_MAX_RANK);
  if (rank < 1 || H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank)
    return UnsupportedFile(name, out->dataset, "a single value", "arrays");
  VolumeInputInfo& about = out->info;
  about.format = InputFormat::kHdf5;
  about.type = stored->type;
  about.kind = absl::StrCat("HDF5 dataset ", out->dataset);
  const std::vector<std::string> labels =
      TextsOf(data, "DIMENSION_LABELS", static_cast<hsize_t>(rank));
  const std::vector<double> sizes = NumbersOf(data, "element_size_um", static_cast<hsize_t>(rank));
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d) {
    InputAxis axis{.extent = static_cast<int64_t>(std::min<hsize_t>(extents[d], INT64_MAX))};
    if (labels.size() == static_cast<size_t>(rank)) axis.name = labels[d];
    if (!sizes.empty())
      SetSpacing(sizes[d], "\xC2\xB5m", absl::StrCat("element_size_um[", d, "]"), &axis,
                 &about.notes);
    about.axes.push_back(std::move(axis));
    about.chunk.push_back(std::min(std::max<int64_t>(out->data->Chunk(static_cast<int>(d)), 1),
                                   about.axes.back().extent));
  }
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(name, out->dataset, about.shape()));
  OCTAVO_RETURN_IF_ERROR(out->data->CheckWritten());
  if (const auto unit = TextsOf(data, "units", 1); !unit.empty()) about.value_unit = unit[0];
  about.file_order = COrder(about.axes.size());
  about.read_memory_bytes = kCacheBytes + ElementsOf(about.chunk) * about.type.bytes;
  if (own.has_value() && out->dataset == "/volume") {
    OCTAVO_ASSIGN_OR_RETURN(VolumeMeta meta, ParseOwnMeta(name, "/octavo", *own));
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(name, std::move(meta), COrder(3), &about));
  }
  return absl::OkStatus();
}

}  // namespace

/// A dataset of an HDF5 file; a commit's is /volume. Links and virtual datasets lead to other files
/// only below options.roots.
OpenedVolume OpenHdf5Input(OpenedInput input, const VolumeInputOptions& options) {
  if (options.probe_hdf5)
    OCTAVO_RETURN_IF_ERROR(AsVolumeError(
        options.probe_hdf5(input.fd, input.path.empty() ? input.name : input.path, options)));
  Opened opened;
  absl::Status status;
  {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    status = OpenLocked(input, options, &opened);
    if (!status.ok()) {
      opened.data.reset();
      (void)opened.memory.Close();
      opened.links.reset();
    }
    H5Eclear2(H5E_DEFAULT);
  }
  if (!status.ok()) return AsVolumeError(status);
  return std::make_unique<Hdf5Input>(std::move(opened.info), std::move(opened.links),
                                     std::move(opened.data), std::move(opened.memory), input.name,
                                     opened.dataset);
}

}  // namespace octavo::storage
