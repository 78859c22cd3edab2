#include "server/storage/projections/hdf5_reader.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/hdf5/checked_read.h"
#include "server/storage/hdf5/dataset_list.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/projections/hdf5_chunks.h"
#include "server/storage/projections/hdf5_filters.h"
#include "server/storage/projections/plain_frames.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr int64_t kMostNumbers = int64_t{1} << 24;
constexpr size_t kMostText = 4096;
constexpr size_t kMostListed = 10, kMostLooked = 1000;  // datasets, in an error and for it

const char* NameOfClass(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_STRING: return "text";
    case H5T_COMPOUND: return "compound";
    case H5T_ENUM: return "enumeration";
    case H5T_INTEGER: return "integers of an unusual size";
    case H5T_FLOAT: return "floating point numbers of an unusual size";
    default: return "something else";
  }
}

/// Text of a dataset or attribute, as `read(type, memory)` gives it.
template <class Read>
std::string ReadText(hid_t type, hid_t space, const Read& read) {
  if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1) return "";
  if (H5Tis_variable_str(type) > 0) {
    Id memory(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(memory.get(), H5T_VARIABLE);
    H5Tset_cset(memory.get(), H5Tget_cset(type));
    char* text = nullptr;
    if (read(memory.get(), &text) < 0 || text == nullptr) return "";
    std::string out = std::string(text).substr(0, kMostText);
    H5free_memory(text);
    return out;
  }
  const size_t size = H5Tget_size(type);
  if (size == 0 || size > kMostText) return "";
  std::string out(size + 1, '\0');
  if (read(type, out.data()) < 0) return "";
  out.resize(out.find('\0'));
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::optional<StoredType> StoredTypeOf(hid_t type) {
  const auto bytes = static_cast<int64_t>(H5Tget_size(type));
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return std::nullopt;
  StoredType out{.bytes = bytes, .big_endian = H5Tget_order(type) == H5T_ORDER_BE};
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      out.kind = H5Tget_sign(type) == H5T_SGN_NONE ? StoredType::Kind::kUnsigned
                                                   : StoredType::Kind::kSigned;
      return out;
    case H5T_FLOAT: return bytes == 1 ? std::nullopt : std::optional(out);
    default: return std::nullopt;
  }
}

hid_t MemoryTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8: return H5T_NATIVE_UINT8;
    case DType::kU16: return H5T_NATIVE_UINT16;
    case DType::kI16: return H5T_NATIVE_INT16;
    default: return H5T_NATIVE_FLOAT;
  }
}

std::string Hdf5TextAttribute(hid_t object, const std::string& attribute) {
  if (H5Aexists(object, attribute.c_str()) <= 0) return "";
  const Id a(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), H5Aclose);
  const Id type(H5Aget_type(a.get()), H5Tclose), space(H5Aget_space(a.get()), H5Sclose);
  return ReadText(type.get(), space.get(),
                  [&](hid_t as, void* to) { return H5Aread(a.get(), as, to); });
}

/// A dataset of frames. Chunks that Hdf5Chunks knows are decoded in parallel; other reads take
/// turns.
class Hdf5Frames final : public FrameArray {
 public:
  /// With the library's lock held. `chunks`: of `data`; null: the library reads.
  Hdf5Frames(std::shared_ptr<Hdf5Reader> file, std::unique_ptr<Hdf5Dataset> data, int rank,
             std::unique_ptr<Hdf5Chunks> chunks)
      : file_(std::move(file)), data_(std::move(data)), rank_(rank), chunks_(std::move(chunks)) {}
  ~Hdf5Frames() override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    data_.reset();
    H5Eclear2(H5E_DEFAULT);
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    if (chunks_ != nullptr) {
      const bool suits = chunks_->Suits(count[0]);
      const absl::Status read =
          suits ? chunks_->Read(start, count, dtype, out) : chunks_->Check(start, count);
      if (!read.ok() && !absl::IsResourceExhausted(read))
        return DamagedProjections(
            file_->path(), dataset,
            absl::StrCat("cannot be read at frame ", start[0], ": ", std::string(read.message())));
      if (suits || !read.ok()) return read;
    }
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    const int skip = 3 - rank_;
    hsize_t from[3], extent[3], zero[3] = {};
    for (int d = 0; d < 3; ++d)
      from[d] = static_cast<hsize_t>(start[d]), extent[d] = static_cast<hsize_t>(count[d]);
    const Id space(H5Dget_space(data_->id()), H5Sclose),
        memory(H5Screate_simple(rank_, extent + skip, nullptr), H5Sclose);
    const bool fine = space && memory &&
                      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, from + skip, nullptr,
                                          extent + skip, nullptr) >= 0 &&
                      H5Sselect_hyperslab(memory.get(), H5S_SELECT_SET, zero, nullptr,
                                          extent + skip, nullptr) >= 0 &&
                      data_->Read(MemoryTypeOf(dtype), memory.get(), space.get(), out);
    if (fine) return absl::OkStatus();
    return DamagedProjections(
        file_->path(), dataset,
        absl::StrCat("cannot be read at frame ", start[0], ": ", Hdf5Reason()));
  }

 private:
  const std::shared_ptr<Hdf5Reader> file_;
  std::unique_ptr<Hdf5Dataset> data_;
  const int rank_;
  const std::unique_ptr<Hdf5Chunks> chunks_;
};

absl::StatusOr<std::shared_ptr<Hdf5Reader>> Hdf5Reader::Open(
    const UniqueFd& opened, const std::string& path, const std::vector<std::string>& roots) {
  std::shared_ptr<Hdf5Reader> reader(new Hdf5Reader(path));
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  const std::string name = NameOfOpen(opened);  // the library opens by name
  // It looks up the file's name, and fails if the file has none any more.
  const auto replaced = [&] {
    struct stat info {};
    return ::fstat(opened.get(), &info) == 0 && info.st_nlink == 0;
  };
  if (H5Fis_hdf5(name.c_str()) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    if (replaced()) return ReplacedProjections(path);
    return BadProjections(path, "the file", "is no HDF5 file",
                          "HDF5 (Data Exchange, NXtomo), .npy, TIFF and Zarr");
  }
  Id file(H5Fopen(name.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file && replaced()) return ReplacedProjections(path);
  if (!file)
    return DamagedProjections(path, "the file", absl::StrCat("cannot be opened: ", Hdf5Reason()));
  // The library reads what its identifier names, and this the same file: NameOfOpen names it.
  reader->file_ = UniqueFd(::fcntl(opened.get(), F_DUPFD_CLOEXEC, 0));
  reader->links_ = std::make_unique<Hdf5Links>(path, std::move(file), roots);
  return reader;
}

Hdf5Reader::~Hdf5Reader() {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  links_.reset();
  H5Eclear2(H5E_DEFAULT);
}

absl::StatusOr<bool> Hdf5Reader::Exists(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  OCTAVO_ASSIGN_OR_RETURN(const auto place, links_->Find(name));
  return place.has_value();
}

std::vector<std::string> Hdf5Reader::Groups(const std::string& group) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  std::vector<std::string> names, groups;
  if (const Id opened = OpenLocked(group); opened && H5Iget_type(opened.get()) == H5I_GROUP) {
    hsize_t at = 0;
    H5Literate(
        opened.get(), H5_INDEX_NAME, H5_ITER_INC, &at,
        [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
          static_cast<std::vector<std::string>*>(to)->emplace_back(name);
          return 0;
        },
        &names);
  }
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  for (std::string& name : names) {
    const auto place = links_->Find(absl::StrCat(group, "/", name));
    if (!place.ok()) links_->Overlook(place.status());
    if (!place.ok() || !place->has_value()) continue;
    H5O_info_t info;
    const Hdf5Place& at = **place;
    if (H5Oget_info_by_name2(at.file, at.path.c_str(), &info, H5O_INFO_BASIC, access.get()) >= 0 &&
        info.type == H5O_TYPE_GROUP)
      groups.push_back(std::move(name));
  }
  H5Eclear2(H5E_DEFAULT);
  return groups;
}

absl::Status Hdf5Reader::LeftOut() {
  MutexLock lock(Hdf5Mutex());
  return links_->overlooked();
}

// The group or dataset of this name, or nothing.
Hdf5Id Hdf5Reader::OpenLocked(const std::string& name) {
  const auto place = links_->Find(name);
  if (!place.ok() || !place->has_value()) return Id();
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  return Id(H5Oopen((*place)->file, (*place)->path.c_str(), access.get()), H5Oclose);
}

std::string Hdf5Reader::TextAttribute(const std::string& name, const std::string& attribute) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  std::string out;
  if (const Id object = OpenLocked(name)) out = Hdf5TextAttribute(object.get(), attribute);
  H5Eclear2(H5E_DEFAULT);
  return out;
}

std::string Hdf5Reader::Text(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  std::string out;
  if (const Id data = OpenLocked(name); data && H5Iget_type(data.get()) == H5I_DATASET) {
    const Id type(H5Dget_type(data.get()), H5Tclose), space(H5Dget_space(data.get()), H5Sclose),
        creation(H5Dget_create_plist(data.get()), H5Pclose);
    if (H5Pget_layout(creation.get()) != H5D_VIRTUAL && H5Pget_external_count(creation.get()) == 0)
      out = ReadText(type.get(), space.get(), [&](hid_t as, void* to) {
        Hdf5ChunkCheck check(data.get());
        return CheckedHdf5Read(check, data.get(), as, H5S_ALL, H5S_ALL, to) ? 0 : -1;
      });
  }
  H5Eclear2(H5E_DEFAULT);
  return out;
}

absl::StatusOr<Hdf5Place> Hdf5Reader::FindDatasetLocked(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(auto place, links_->Find(name));
  if (!place.has_value()) {
    OCTAVO_ASSIGN_OR_RETURN(const auto root, links_->Find("/"));
    Hdf5DatasetList there;
    if (root.has_value()) there = ListHdf5Datasets(root->file, kMostLooked);
    there.KeepLargest(kMostListed);
    return BadProjections(path_, name, "is missing",
                          absl::StrCat("are the datasets of the file: ", there.Text()));
  }
  return *std::move(place);
}

absl::StatusOr<std::unique_ptr<Hdf5Dataset>> Hdf5Reader::OpenDatasetLocked(const std::string& name,
                                                                           const Hdf5Place& place,
                                                                           int64_t cache_bytes,
                                                                           bool decodes) {
  static constexpr H5Z_filter_t kOwn[] = {kHdf5Lz4, kHdf5Bitshuffle};
  return Hdf5Dataset::Open(*links_, place, links_->Label(name, place), cache_bytes,
                           decodes ? absl::MakeConstSpan(kOwn) : absl::Span<const H5Z_filter_t>());
}

// The opened file, if the place is in it, and addresses count from its beginning; else none.
UniqueFd Hdf5Reader::PlainFileLocked(const Hdf5Place& place) {
  const Id of_file(H5Fget_create_plist(place.file), H5Pclose);
  hsize_t before = 1;  // what other programs keep in front of the file
  if (!of_file || !file_ || !links_->IsOfOpenedFile(place) ||
      H5Pget_userblock(of_file.get(), &before) < 0 || before != 0)
    return UniqueFd();
  return UniqueFd(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
}

// Frames of a dataset that lies in one piece of the opened file; null for any other.
std::shared_ptr<FrameArray> Hdf5Reader::PlainLocked(const Hdf5Place& place, const Hdf5Dataset& data,
                                                    const StoredType& type, int64_t elements) {
  const Id creation(H5Dget_create_plist(data.id()), H5Pclose);
  if (!creation || H5Pget_layout(creation.get()) != H5D_CONTIGUOUS ||
      !IsUsualFormat(data.id(), type))
    return nullptr;
  UniqueFd file = PlainFileLocked(place);
  const haddr_t offset = H5Dget_offset(data.id());
  const hsize_t bytes = static_cast<hsize_t>(elements) * static_cast<hsize_t>(type.bytes);
  struct stat info {};
  if (offset == HADDR_UNDEF || offset > static_cast<haddr_t>(INT64_MAX) - bytes ||
      H5Dget_storage_size(data.id()) != bytes || !file || ::fstat(file.get(), &info) != 0 ||
      offset + bytes > static_cast<haddr_t>(info.st_size))
    return nullptr;
  return std::make_shared<PlainFrames>(path_, std::move(file), static_cast<int64_t>(offset));
}

absl::StatusOr<std::shared_ptr<FrameArray>> Hdf5Reader::Frames(const std::string& name, bool flat) {
  std::shared_ptr<Hdf5Reader> self = shared_from_this();  // released after the lock if this fails
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  OCTAVO_ASSIGN_OR_RETURN(const Hdf5Place place, FindDatasetLocked(name));
  OCTAVO_ASSIGN_OR_RETURN(auto data, OpenDatasetLocked(name, place, 64 << 20, /*decodes=*/true));
  const Id space(H5Dget_space(data->id()), H5Sclose), type(H5Dget_type(data->id()), H5Tclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != 3 && !(flat && rank == 2)) {
    return BadProjections(path_, name, absl::StrCat("has ", rank, " dimensions"),
                          flat ? "2 or 3: [frame, row, column]" : "3: [angle, row, column]");
  }
  const auto stored = StoredTypeOf(type.get());
  if (!stored.has_value())
    return BadProjections(path_, name, absl::StrCat("holds ", NameOfClass(type.get())),
                          "real numbers");
  // The library unpacks them without their sign.
  const Id creation(H5Dget_create_plist(data->id()), H5Pclose);
  for (int i = 0;
       stored->kind == StoredType::Kind::kSigned && creation && i < H5Pget_nfilters(creation.get());
       ++i) {
    unsigned flags = 0, config = 0;
    size_t count = 0;
    if (H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &count, nullptr, 0,
                       nullptr, &config) == H5Z_FILTER_NBIT &&
        static_cast<int64_t>(H5Tget_precision(type.get())) < 8 * stored->bytes) {
      return BadProjections(path_, name, "holds signed numbers that the n-bit filter packs",
                            "unsigned ones with this filter, and all without it");
    }
  }
  OCTAVO_RETURN_IF_ERROR(data->CheckWritten());
  hsize_t extent[3] = {1, 1, 1};
  H5Sget_simple_extent_dims(space.get(), extent + (3 - rank), nullptr);
  const int64_t chunk_rows = data->Chunk(rank - 2), chunk_frames = rank == 3 ? data->Chunk(0) : 1;
  int64_t shape[3];
  for (int d = 0; d < 3; ++d)
    shape[d] = static_cast<int64_t>(std::min<hsize_t>(extent[d], INT64_MAX));
  std::shared_ptr<FrameArray> frames =
      PlainLocked(place, *data, *stored, H5Sget_simple_extent_npoints(space.get()));
  if (frames == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(
        auto chunks, Hdf5Chunks::Of(path_, name, *data, *stored, rank, PlainFileLocked(place)));
    frames =
        std::make_shared<Hdf5Frames>(std::move(self), std::move(data), rank, std::move(chunks));
  }
  frames->dataset = name;
  frames->type = *stored;
  std::copy(shape, shape + 3, frames->shape);
  frames->frame_granularity = std::min(chunk_frames, std::max<int64_t>(frames->shape[0], 1));
  frames->row_granularity = std::min(chunk_rows, std::max<int64_t>(frames->shape[1], 1));
  return frames;
}

absl::StatusOr<std::vector<double>> Hdf5Reader::Numbers(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  OCTAVO_ASSIGN_OR_RETURN(const Hdf5Place place, FindDatasetLocked(name));
  OCTAVO_ASSIGN_OR_RETURN(const auto data, OpenDatasetLocked(name, place, 0, /*decodes=*/false));
  const Id space(H5Dget_space(data->id()), H5Sclose), type(H5Dget_type(data->id()), H5Tclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != 0 && rank != 1)
    return BadProjections(path_, name, absl::StrCat("has ", rank, " dimensions"), "1");
  if (!StoredTypeOf(type.get()).has_value())
    return BadProjections(path_, name, absl::StrCat("holds ", NameOfClass(type.get())),
                          "real numbers");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0 || count > kMostNumbers)
    return BadProjections(path_, name, absl::StrCat("has ", count, " values"),
                          absl::StrCat("at most ", kMostNumbers));
  OCTAVO_RETURN_IF_ERROR(data->CheckWritten());
  std::vector<double> out(static_cast<size_t>(count));
  if (count == 0) return out;
  const hsize_t extent = static_cast<hsize_t>(count), zero = 0;
  const Id memory(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr),
                  H5Sclose);
  for (const hid_t selected :
       {space.get(), memory.get()}) {  // parts of virtual datasets must be hyperslabs
    if (rank == 1) H5Sselect_hyperslab(selected, H5S_SELECT_SET, &zero, nullptr, &extent, nullptr);
  }
  if (!data->Read(H5T_NATIVE_DOUBLE, memory.get(), space.get(), out.data()))
    return DamagedProjections(path_, name, absl::StrCat("cannot be read: ", Hdf5Reason()));
  return out;
}

}  // namespace octavo::storage
