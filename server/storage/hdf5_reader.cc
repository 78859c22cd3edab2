#include "server/storage/hdf5_reader.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr int64_t kMostNumbers = int64_t{1} << 24;
constexpr size_t kMostText = 4096;

std::string Reason() {
  int error = 0;
  return Hdf5Reason(&error);
}

/// Properties of an access through which no other file is reached.
Id ConfinedAccess(hid_t of_class) {
  Id access(H5Pcreate(of_class), H5Pclose);
  H5Pset_elink_cb(
      access.get(), [](const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) -> herr_t { return -1; }, nullptr);
  return access;
}

/// What a number's type is; nothing for what is no real number.
std::optional<StoredType> TypeOf(hid_t type) {
  const auto bytes = static_cast<int64_t>(H5Tget_size(type));
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return std::nullopt;
  StoredType out{.bytes = bytes, .big_endian = H5Tget_order(type) == H5T_ORDER_BE};
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: out.kind = H5Tget_sign(type) == H5T_SGN_NONE ? StoredType::Kind::kUnsigned : StoredType::Kind::kSigned; return out;
    case H5T_FLOAT: return bytes == 1 ? std::nullopt : std::optional(out);
    default: return std::nullopt;
  }
}

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

hid_t MemoryType(DType dtype) {
  switch (dtype) {
    case DType::kU8: return H5T_NATIVE_UINT8;
    case DType::kU16: return H5T_NATIVE_UINT16;
    case DType::kI16: return H5T_NATIVE_INT16;
    default: return H5T_NATIVE_FLOAT;
  }
}

enum class Written { kUnknown, kNothing, kPart, kAll };

/// How much of a dataset there is in the file. Chunks are counted: by their bytes the library takes compressed ones for missing.
Written WrittenOf(hid_t data) {
  const Id creation(H5Dget_create_plist(data), H5Pclose), space(H5Dget_space(data), H5Sclose);
  if (!creation || !space) return Written::kUnknown;
  if (H5Sget_simple_extent_npoints(space.get()) == 0) return Written::kAll;
  hsize_t extent[H5S_MAX_RANK], chunk[H5S_MAX_RANK], wanted = 1, there = 0;
  const int rank = H5Sget_simple_extent_dims(space.get(), extent, nullptr);
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED && H5Pget_chunk(creation.get(), H5S_MAX_RANK, chunk) == rank) {
    for (int d = 0; d < rank; ++d) wanted *= (extent[d] + chunk[d] - 1) / chunk[d];
    if (H5Dget_num_chunks(data, space.get(), &there) < 0) return Written::kUnknown;
    return there == 0 ? Written::kNothing : there < wanted ? Written::kPart : Written::kAll;
  }
  H5D_space_status_t allocated = H5D_SPACE_STATUS_ALLOCATED;
  if (H5Dget_space_status(data, &allocated) < 0) return Written::kUnknown;
  return allocated == H5D_SPACE_STATUS_NOT_ALLOCATED ? Written::kNothing : Written::kAll;
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

/// A dataset of frames. Reads take turns.
class Hdf5Frames final : public FrameArray {
 public:
  Hdf5Frames(std::shared_ptr<Hdf5Reader> file, Id data, int rank) : file_(std::move(file)), data_(std::move(data)), rank_(rank) {}
  ~Hdf5Frames() override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    (void)data_.Close();
    H5Eclear2(H5E_DEFAULT);
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype, char* out) override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    const int skip = 3 - rank_;
    hsize_t from[3], extent[3];
    for (int d = 0; d < 3; ++d) from[d] = static_cast<hsize_t>(start[d]), extent[d] = static_cast<hsize_t>(count[d]);
    const Id space(H5Dget_space(data_.get()), H5Sclose), memory(H5Screate_simple(rank_, extent + skip, nullptr), H5Sclose);
    const bool fine = space && memory && H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, from + skip, nullptr, extent + skip, nullptr) >= 0 &&
                      H5Dread(data_.get(), MemoryType(dtype), memory.get(), space.get(), H5P_DEFAULT, out) >= 0;
    if (fine) return absl::OkStatus();
    return DamagedProjections(file_->path(), dataset, absl::StrCat("cannot be read at frame ", start[0], ": ", Reason()));
  }

 private:
  const std::shared_ptr<Hdf5Reader> file_;
  Id data_;
  const int rank_;
};

absl::StatusOr<std::shared_ptr<Hdf5Reader>> Hdf5Reader::Open(const std::string& path) {
  std::shared_ptr<Hdf5Reader> reader(new Hdf5Reader(path));
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    return BadProjections(path, "the file", "is no HDF5 file", "HDF5 (Data Exchange, NXtomo), .npy and Zarr");
  }
  reader->file_ = Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!reader->file_) return DamagedProjections(path, "the file", absl::StrCat("cannot be opened: ", Reason()));
  return reader;
}

Hdf5Reader::~Hdf5Reader() {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  (void)file_.Close();
  H5Eclear2(H5E_DEFAULT);
}

absl::StatusOr<bool> Hdf5Reader::Exists(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  return ExistsLocked(name);
}

absl::StatusOr<bool> Hdf5Reader::ExistsLocked(const std::string& name) {
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  std::string at;
  for (const absl::string_view part : absl::StrSplit(name, '/', absl::SkipEmpty())) {
    absl::StrAppend(&at, "/", part);
    const htri_t there = H5Lexists(file_.get(), at.c_str(), access.get());
    if (there < 0) {  // its parent is a dataset, or cannot be looked into
      const std::string reason = Reason();
      H5O_info_t info;
      const std::string parent = at.substr(0, at.rfind('/'));
      if (!parent.empty() && H5Oget_info_by_name2(file_.get(), parent.c_str(), &info, H5O_INFO_BASIC, access.get()) >= 0 &&
          info.type != H5O_TYPE_GROUP)
        return false;
      H5Eclear2(H5E_DEFAULT);
      return DamagedProjections(path_, at, absl::StrCat("cannot be looked up: ", reason));
    }
    if (there == 0) return false;
    H5L_info_t link;
    if (H5Lget_info(file_.get(), at.c_str(), &link, access.get()) < 0)
      return DamagedProjections(path_, at, absl::StrCat("cannot be looked up: ", Reason()));
    if (link.type == H5L_TYPE_EXTERNAL || link.type >= H5L_TYPE_UD_MIN)
      return BadProjections(path_, at, "is a link to another file", "data in the file itself");
    if (link.type == H5L_TYPE_SOFT && H5Oexists_by_name(file_.get(), at.c_str(), access.get()) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return BadProjections(path_, at, "is a link to nothing, or to another file", "data in the file itself");
    }
  }
  return true;
}

std::vector<std::string> Hdf5Reader::Groups(const std::string& group) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  std::vector<std::string> links, groups;
  const Id opened(H5Oopen(file_.get(), group.c_str(), access.get()), H5Oclose);
  if (opened && H5Iget_type(opened.get()) == H5I_GROUP) {
    hsize_t at = 0;
    H5Literate(
        opened.get(), H5_INDEX_NAME, H5_ITER_INC, &at,
        [](hid_t, const char* name, const H5L_info_t* info, void* to) -> herr_t {
          if (info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT) static_cast<std::vector<std::string>*>(to)->emplace_back(name);
          return 0;
        },
        &links);
    for (const std::string& name : links) {
      H5O_info_t info;
      if (H5Oget_info_by_name2(opened.get(), name.c_str(), &info, H5O_INFO_BASIC, access.get()) >= 0 && info.type == H5O_TYPE_GROUP)
        groups.push_back(name);
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return groups;
}

std::string Hdf5Reader::TextAttribute(const std::string& name, const std::string& attribute) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  return TextAttributeLocked(name, attribute);
}

std::string Hdf5Reader::TextAttributeLocked(const std::string& name, const std::string& attribute) {
  const Id access = ConfinedAccess(H5P_LINK_ACCESS);
  std::string out;
  const Id object(H5Oopen(file_.get(), name.c_str(), access.get()), H5Oclose);
  if (object && H5Aexists(object.get(), attribute.c_str()) > 0) {
    const Id a(H5Aopen(object.get(), attribute.c_str(), H5P_DEFAULT), H5Aclose);
    const Id type(H5Aget_type(a.get()), H5Tclose), space(H5Aget_space(a.get()), H5Sclose);
    out = ReadText(type.get(), space.get(), [&](hid_t as, void* to) { return H5Aread(a.get(), as, to); });
  }
  H5Eclear2(H5E_DEFAULT);
  return out;
}

std::string Hdf5Reader::Text(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  const Id access = ConfinedAccess(H5P_DATASET_ACCESS);
  std::string out;
  const Id data(H5Dopen2(file_.get(), name.c_str(), access.get()), H5Dclose);
  if (data) {
    const Id type(H5Dget_type(data.get()), H5Tclose), space(H5Dget_space(data.get()), H5Sclose);
    out = ReadText(type.get(), space.get(), [&](hid_t as, void* to) { return H5Dread(data.get(), as, H5S_ALL, H5S_ALL, H5P_DEFAULT, to); });
  }
  H5Eclear2(H5E_DEFAULT);
  return out;
}

// A dataset whose bytes are in this file and can be decoded here.
absl::StatusOr<Hdf5Id> Hdf5Reader::OpenDatasetLocked(const std::string& name, int64_t cache_bytes) {
  OCTAVO_ASSIGN_OR_RETURN(const bool there, ExistsLocked(name));
  if (!there) return BadProjections(path_, name, "is missing", "a dataset of this name");
  const Id access = ConfinedAccess(H5P_DATASET_ACCESS);
  if (cache_bytes > 0) H5Pset_chunk_cache(access.get(), 10007, static_cast<size_t>(cache_bytes), 1.0);  // chunks that were read whole go first
  H5O_info_t info;
  if (H5Oget_info_by_name2(file_.get(), name.c_str(), &info, H5O_INFO_BASIC, access.get()) < 0)
    return DamagedProjections(path_, name, absl::StrCat("cannot be opened: ", Reason()));
  if (info.type != H5O_TYPE_DATASET) return BadProjections(path_, name, "is a group", "a dataset");
  Id data(H5Dopen2(file_.get(), name.c_str(), access.get()), H5Dclose);
  if (!data) return DamagedProjections(path_, name, absl::StrCat("cannot be opened: ", Reason()));
  const Id creation(H5Dget_create_plist(data.get()), H5Pclose), space(H5Dget_space(data.get()), H5Sclose);
  if (!creation || !space) return DamagedProjections(path_, name, absl::StrCat("cannot be opened: ", Reason()));
  if (H5Pget_layout(creation.get()) == H5D_VIRTUAL || H5Pget_external_count(creation.get()) > 0)
    return BadProjections(path_, name, "lies in other files (a virtual dataset or external storage)", "data in the file itself");
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    char text[64] = "";
    const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values, nullptr, sizeof text, text, &config);
    if (H5Zfilter_avail(filter) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return UnknownCompression(path_, name, absl::StrCat("filter ", filter, text[0] != '\0' ? absl::StrCat(" (", text, ")") : ""));
    }
  }
  return data;
}

// What can be known of a dataset without reading it comes before this.
absl::Status Hdf5Reader::CheckWrittenLocked(const Hdf5Id& data, const std::string& name) {
  const Written written = WrittenOf(data.get());
  if (written == Written::kUnknown) return DamagedProjections(path_, name, absl::StrCat("cannot be opened: ", Reason()));
  if (written == Written::kNothing) return BadProjections(path_, name, "was never written", "a dataset with data");
  if (written == Written::kPart) return BadProjections(path_, name, "was written in part only", "a dataset that is whole");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FrameArray>> Hdf5Reader::Frames(const std::string& name, bool flat) {
  std::shared_ptr<Hdf5Reader> self = shared_from_this();  // released behind the lock if this fails
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  OCTAVO_ASSIGN_OR_RETURN(Id data, OpenDatasetLocked(name, 64 << 20));
  const Id space(H5Dget_space(data.get()), H5Sclose), type(H5Dget_type(data.get()), H5Tclose), creation(H5Dget_create_plist(data.get()), H5Pclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != 3 && !(flat && rank == 2)) {
    return BadProjections(path_, name, absl::StrCat("has ", rank, " dimensions"), flat ? "2 or 3: [frame, row, column]" : "3: [angle, row, column]");
  }
  const auto stored = TypeOf(type.get());
  if (!stored.has_value()) return BadProjections(path_, name, absl::StrCat("holds ", NameOfClass(type.get())), "real numbers");
  OCTAVO_RETURN_IF_ERROR(CheckWrittenLocked(data, name));
  hsize_t extent[3] = {1, 1, 1}, chunk[3] = {1, 1, 1};
  H5Sget_simple_extent_dims(space.get(), extent + (3 - rank), nullptr);
  const bool chunked = H5Pget_layout(creation.get()) == H5D_CHUNKED && H5Pget_chunk(creation.get(), rank, chunk + (3 - rank)) == rank;
  auto frames = std::make_shared<Hdf5Frames>(std::move(self), std::move(data), rank);
  frames->dataset = name;
  frames->type = *stored;
  for (int d = 0; d < 3; ++d) frames->shape[d] = static_cast<int64_t>(std::min<hsize_t>(extent[d], INT64_MAX));
  if (chunked) frames->row_granularity = std::min(static_cast<int64_t>(chunk[1]), std::max<int64_t>(frames->shape[1], 1));
  return frames;
}

absl::StatusOr<std::vector<double>> Hdf5Reader::Numbers(const std::string& name) {
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  OCTAVO_ASSIGN_OR_RETURN(const Id data, OpenDatasetLocked(name, 0));
  const Id space(H5Dget_space(data.get()), H5Sclose), type(H5Dget_type(data.get()), H5Tclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != 0 && rank != 1) return BadProjections(path_, name, absl::StrCat("has ", rank, " dimensions"), "1");
  if (!TypeOf(type.get()).has_value()) return BadProjections(path_, name, absl::StrCat("holds ", NameOfClass(type.get())), "real numbers");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0 || count > kMostNumbers)
    return BadProjections(path_, name, absl::StrCat("has ", count, " values"), absl::StrCat("at most ", kMostNumbers));
  OCTAVO_RETURN_IF_ERROR(CheckWrittenLocked(data, name));
  std::vector<double> out(static_cast<size_t>(count));
  if (count > 0 && H5Dread(data.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0)
    return DamagedProjections(path_, name, absl::StrCat("cannot be read: ", Reason()));
  return out;
}

}  // namespace octavo::storage
