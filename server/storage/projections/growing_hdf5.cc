// HDF5 files that are being written: Data Exchange, or datasets by their names. The library of this
// process reads them as they are; a daemon must not do that (hdf5_probe.h), a program of the user
// may.

#include <algorithm>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/hdf5/checked_read.h"
#include "server/storage/hdf5/hdf5_links.h"
#include "server/storage/io/files.h"
#include "server/storage/io/hdf5_library.h"
#include "server/storage/projections/growing_array.h"
#include "server/storage/projections/hdf5_reader.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr hsize_t kMostNumbers = hsize_t{1} << 24;
// Of metadata whose checksum is wrong. The library doubles its pause with each, from a nanosecond
// on: its own 100 would last for ever, these last a millisecond, and the next look tries again.
constexpr unsigned kReadAttempts = 20;

// Whether there is an object of this path. Links to nothing count as missing.
bool Exists(hid_t file, const std::string& name) {
  std::string path;
  for (const absl::string_view part : absl::StrSplit(name, '/', absl::SkipEmpty())) {
    absl::StrAppend(&path, "/", std::string(part));
    if (H5Lexists(file, path.c_str(), H5P_DEFAULT) <= 0 ||
        H5Oexists_by_name(file, path.c_str(), H5P_DEFAULT) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return false;
    }
  }
  return !path.empty();
}

/// The fill value of a dataset; 0 if none is defined.
double FillOf(hid_t creation) {
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  double fill = 0;
  if (H5Pfill_value_defined(creation, &defined) < 0 || defined == H5D_FILL_VALUE_UNDEFINED ||
      H5Pget_fill_value(creation, H5T_NATIVE_DOUBLE, &fill) < 0)
    return 0;
  return fill;
}

/// Frames of a dataset in the file that is open until the next look.
class GrowingHdf5Frames final : public GrowingArray {
 public:
  // With the library's lock held.
  static absl::StatusOr<std::unique_ptr<GrowingHdf5Frames>> Make(hid_t file, uint64_t file_bytes,
                                                                 const std::string& path,
                                                                 const std::string& name,
                                                                 bool flat) {
    std::unique_ptr<GrowingHdf5Frames> frames(new GrowingHdf5Frames());
    frames->file_bytes_ = file_bytes;
    frames->dataset = name;
    frames->path_ = path;
    const absl::Status described = frames->Describe(file, flat);
    if (described.ok()) return frames;
    (void)frames->data_.Close();
    return described;
  }
  ~GrowingHdf5Frames() override {
    if (!data_) return;
    MutexLock lock(Hdf5Mutex());
    (void)data_.Close();
  }

  double fill() const override { return fill_; }

  std::optional<uint64_t> Evidence(int64_t frame, std::string* lacks) override {
    if (layout_ != H5D_CHUNKED) return EvidenceOfValues(frame, fill_, lacks);
    std::optional<uint64_t> chunks;
    bool next = false;
    {
      MutexLock lock(Hdf5Mutex());
      QuietHdf5();
      const int64_t row_of_chunks = frame / chunk_[0];
      chunks = ChunksOf(row_of_chunks);
      next = (row_of_chunks + 1) * chunk_[0] < shape[0] && IsThere(row_of_chunks + 1, 0, 0);
    }
    if (!chunks.has_value()) {
      *lacks = absl::StrCat("frame ", frame, " of ", dataset, " is not in the file yet");
      return std::nullopt;
    }
    const bool tells = !early_ && (chunk_[0] == 1 || next);
    return tells ? chunks : EvidenceOfValues(frame, fill_, lacks);
  }

  // Where the first chunk of the first frame ends in the file; 0: not known. With the library's
  // lock held.
  uint64_t EndOfFirst() const {
    if (layout_ != H5D_CHUNKED) return 0;
    const hsize_t offset[3] = {};
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    const bool known =
        H5Dget_chunk_info_by_coord(data_.get(), offset, &skipped, &address, &size) >= 0 &&
        address != HADDR_UNDEF;
    H5Eclear2(H5E_DEFAULT);
    return known ? std::min<uint64_t>(address + size, file_bytes_) : 0;
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    const int skip = 3 - rank_;
    hsize_t from[3], extent[3];
    for (int d = 0; d < 3; ++d)
      from[d] = static_cast<hsize_t>(start[d]), extent[d] = static_cast<hsize_t>(count[d]);
    const Id space(H5Dget_space(data_.get()), H5Sclose),
        memory(H5Screate_simple(rank_, extent + skip, nullptr), H5Sclose);
    Hdf5ChunkCheck check(data_.get());  // anew: chunks that grow are written again
    if (space && memory &&
        H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, from + skip, nullptr, extent + skip,
                            nullptr) >= 0 &&
        CheckedHdf5Read(check, data_.get(), MemoryTypeOf(dtype), memory.get(), space.get(), out))
      return absl::OkStatus();
    return DamagedProjections(
        path_, dataset, absl::StrCat("cannot be read at frame ", start[0], ": ", Hdf5Reason()));
  }

 private:
  GrowingHdf5Frames() = default;

  absl::Status Describe(hid_t file, bool flat) {
    data_ = Id(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), H5Dclose);
    if (!data_)
      return absl::UnavailableError(absl::StrCat(dataset, " cannot be opened: ", Hdf5Reason()));
    const Id space(H5Dget_space(data_.get()), H5Sclose), stored(H5Dget_type(data_.get()), H5Tclose),
        creation(H5Dget_create_plist(data_.get()), H5Pclose);
    if (!space || !stored || !creation)
      return absl::UnavailableError(absl::StrCat(dataset, " cannot be read: ", Hdf5Reason()));
    rank_ = H5Sget_simple_extent_ndims(space.get());
    if (rank_ != 3 && !(flat && rank_ == 2))
      return BadProjections(path_, dataset, absl::StrCat("has ", rank_, " dimensions"),
                            flat ? "2 or 3: [frame, row, column]" : "3: [angle, row, column]");
    const auto number = StoredTypeOf(stored.get());
    if (!number.has_value())
      return BadProjections(path_, dataset, "holds no real numbers", "real numbers");
    type = *number;
    hsize_t extent[3] = {1, 1, 1}, most[3] = {1, 1, 1};
    const int skip = 3 - rank_;
    H5Sget_simple_extent_dims(space.get(), extent + skip, most + skip);
    for (int d = 0; d < 3; ++d)
      shape[d] = static_cast<int64_t>(std::min<hsize_t>(extent[d], INT64_MAX));
    if (most[0] == extent[0]) planned = shape[0];
    fill_ = FillOf(creation.get());
    return DescribeLayout(creation.get());
  }

  absl::Status DescribeLayout(hid_t creation) {
    layout_ = H5Pget_layout(creation);
    if (layout_ == H5D_VIRTUAL)
      return BadProjections(path_, dataset, "is a virtual dataset",
                            "a dataset of the file that is written, which this one refers to");
    if (layout_ != H5D_CHUNKED) {
      LimitWindow();
      return absl::OkStatus();
    }
    for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
      unsigned flags = 0, config = 0;
      size_t none = 0;
      const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &none,
                                                 nullptr, 0, nullptr, &config);
      if (H5Zfilter_avail(filter) > 0) continue;
      H5Eclear2(H5E_DEFAULT);
      return UnknownCompression(path_, dataset,
                                absl::StrCat("passes filter ", static_cast<int>(filter),
                                             ", and this computer has no plug-in of the HDF5 "
                                             "library for it"));
    }
    hsize_t chunk[3] = {1, 1, 1};
    if (H5Pget_chunk(creation, rank_, chunk + (3 - rank_)) != rank_)
      return absl::UnavailableError(absl::StrCat(dataset, " cannot be read: ", Hdf5Reason()));
    for (int d = 0; d < 3; ++d)
      chunk_[d] = static_cast<int64_t>(std::clamp<hsize_t>(chunk[d], 1, INT32_MAX));
    H5D_alloc_time_t when = H5D_ALLOC_TIME_ERROR;
    early_ = H5Pget_alloc_time(creation, &when) < 0 || when == H5D_ALLOC_TIME_EARLY;
    if (early_ || chunk_[0] > 1) LimitWindow();
    return absl::OkStatus();
  }

  // What the file says about the chunk at these numbers of chunks; nothing: it is not there, or the
  // file is not so long yet. With the library's lock held.
  std::optional<uint64_t> Chunk(int64_t frames, int64_t rows, int64_t columns) const {
    const hsize_t offset[3] = {static_cast<hsize_t>(frames * chunk_[0]),
                               static_cast<hsize_t>(rows * chunk_[1]),
                               static_cast<hsize_t>(columns * chunk_[2])};
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    if (H5Dget_chunk_info_by_coord(data_.get(), offset + (3 - rank_), &skipped, &address, &size) <
            0 ||
        address == HADDR_UNDEF || address + size > file_bytes_) {
      H5Eclear2(H5E_DEFAULT);
      return std::nullopt;
    }
    return Mixed(Mixed(skipped, address), size);
  }
  bool IsThere(int64_t frames, int64_t rows, int64_t columns) const {
    return Chunk(frames, rows, columns).has_value();
  }
  std::optional<uint64_t> ChunksOf(int64_t frames) const {
    uint64_t all = 2;
    for (int64_t row = 0; row * chunk_[1] < shape[1]; ++row) {
      for (int64_t column = 0; column * chunk_[2] < shape[2]; ++column) {
        const auto one = Chunk(frames, row, column);
        if (!one.has_value()) return std::nullopt;
        all = Mixed(all, *one);
      }
    }
    return all;
  }

  std::string path_;
  Id data_;
  int rank_ = 3;
  H5D_layout_t layout_ = H5D_CHUNKED;
  int64_t chunk_[3] = {1, 1, 1};
  double fill_ = 0;
  bool early_ = false;  // space is taken before anything is written to it
  uint64_t file_bytes_ = 0;
};

class GrowingHdf5 final : public GrowingProjections {
 public:
  GrowingHdf5(const std::string& path, const ProjectionOptions& options)
      : GrowingProjections(path, options) {}
  ~GrowingHdf5() override { Close(); }

  std::string PlaceOf(FrameKind kind) const override {
    const std::string* given[] = {&options_.projections, &options_.flats, &options_.darks};
    const char* usual[] = {"/exchange/data", "/exchange/data_white", "/exchange/data_dark"};
    const auto k = static_cast<size_t>(kind);
    return given[k]->empty() ? usual[k] : *given[k];
  }
  std::string PlaceOfAngles() const override {
    return options_.angles.empty() ? "/exchange/theta" : options_.angles;
  }

 private:
  void Close() {
    for (auto& array : arrays_) array.reset();
    MutexLock lock(Hdf5Mutex());
    (void)file_.Close();
  }

  absl::Status Open() override {
    Close();
    found_.reset();
    struct stat info {};
    if (::stat(path_.c_str(), &info) != 0)
      return absl::UnavailableError(absl::StrCat(path_, " is not there now"));
    // The library would wait for a writer of a pipe.
    if (!S_ISREG(info.st_mode))
      return BadProjections(path_, "the path", "is no regular file any more", "the file of before");
    OCTAVO_RETURN_IF_ERROR(CheckSize(info));
    std::array<std::unique_ptr<GrowingHdf5Frames>, 3> made;  // destroyed without the lock
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    OCTAVO_RETURN_IF_ERROR(OpenFile());
    OCTAVO_RETURN_IF_ERROR(CheckIdentity());
    for (size_t k = 0; k < made.size(); ++k) {
      const std::string name = PlaceOf(static_cast<FrameKind>(k));
      if (!Wants(static_cast<FrameKind>(k)) || !Exists(file_.get(), name)) continue;
      OCTAVO_ASSIGN_OR_RETURN(made[k],
                              GrowingHdf5Frames::Make(file_.get(), file_bytes_, path_, name,
                                                      /*flat=*/k > 0));
      if (HasRead(static_cast<FrameKind>(k)))
        least_bytes_ = std::max(least_bytes_, made[k]->EndOfFirst());
    }
    if (WantsAngles()) OCTAVO_RETURN_IF_ERROR(ReadAngles());
    std::move(made.begin(), made.end(), arrays_.begin());
    return absl::OkStatus();
  }

  // A program that writes another scan into the same file cuts it first. The library cuts what is
  // behind the last frame at most, when it closes the file.
  absl::Status CheckSize(const struct stat& info) const {
    const auto bytes = static_cast<uint64_t>(info.st_size);
    const std::pair<dev_t, ino_t> now{info.st_dev, info.st_ino};
    if (identity_ != now || bytes >= least_bytes_) return absl::OkStatus();
    return BadProjections(
        path_, "the file",
        absl::StrCat("was cut to ", bytes,
                     " bytes after frames of it were read: another scan is "
                     "written in its place"),
        absl::StrCat("at least ", least_bytes_, " bytes, where the first frames end"));
  }

  // A file that is open for writing can be read by SWMR alone, or if nobody minds: the library's
  // locks keep readers away, and this one copes with what it finds.
  absl::Status OpenFile() {
    const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_file_locking(access.get(), /*use=*/false, /*ignore_when_disabled=*/true);
    H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
    H5Pset_metadata_read_attempts(access.get(), kReadAttempts);
    file_ = Id(H5Fopen(path_.c_str(), H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, access.get()), H5Fclose);
    if (!file_) {
      H5Eclear2(H5E_DEFAULT);
      file_ = Id(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
    }
    if (file_) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(BaseOf(path_),
                     " cannot be read now, as a file that is written without SWMR in a form that "
                     "no other program may read until it is closed: ",
                     Hdf5Reason()));
  }

  // A file that was renamed over the path holds another scan, whatever its shape. One of which
  // nothing was taken may be replaced. With the library's lock held.
  absl::Status CheckIdentity() {
    void* handle = nullptr;  // of the file that is open, whatever the path leads to now
    struct stat info {};
    if (H5Fget_vfd_handle(file_.get(), H5P_DEFAULT, &handle) < 0 || handle == nullptr ||
        ::fstat(*static_cast<const int*>(handle), &info) != 0)
      return absl::UnavailableError(absl::StrCat(path_, " cannot be examined now"));
    const std::pair<dev_t, ino_t> now{info.st_dev, info.st_ino};
    file_bytes_ = static_cast<uint64_t>(info.st_size);
    if (identity_.has_value() && *identity_ != now) {
      if (HasTaken())
        return BadProjections(path_, "the file",
                              "is not that of before: another file has taken its place",
                              "the file whose frames were taken");
      Forget();
      least_bytes_ = 0;
    }
    identity_ = now;
    return absl::OkStatus();
  }

  absl::Status ReadAngles() {
    const std::string name = PlaceOfAngles();
    if (!Exists(file_.get(), name)) return absl::OkStatus();
    const Id data(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!data)
      return absl::UnavailableError(absl::StrCat(name, " cannot be opened: ", Hdf5Reason()));
    const Id space(H5Dget_space(data.get()), H5Sclose), type(H5Dget_type(data.get()), H5Tclose),
        creation(H5Dget_create_plist(data.get()), H5Pclose);
    if (H5Sget_simple_extent_ndims(space.get()) != 1 || !StoredTypeOf(type.get()).has_value())
      return BadProjections(path_, name, "is no list of numbers", "1 dimension of real numbers");
    hsize_t extent = 0, most = 0;
    H5Sget_simple_extent_dims(space.get(), &extent, &most);
    if (extent > kMostNumbers)
      return BadProjections(path_, name, absl::StrCat("has ", extent, " values"),
                            absl::StrCat("at most ", kMostNumbers));
    Angles angles{.dataset = name,
                  .unit = Hdf5TextAttribute(data.get(), "units"),
                  .values = std::vector<double>(static_cast<size_t>(extent)),
                  .fill = FillOf(creation.get()),
                  .fixed = most == extent};
    Hdf5ChunkCheck check(data.get());
    if (extent > 0 && !CheckedHdf5Read(check, data.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                                       angles.values.data()))
      return absl::UnavailableError(absl::StrCat(name, " cannot be read: ", Hdf5Reason()));
    found_ = std::move(angles);
    return absl::OkStatus();
  }

  Id file_;
  std::optional<std::pair<dev_t, ino_t>> identity_;  // of the file of the last look
  uint64_t file_bytes_ = 0;                          // of the file that is open
  uint64_t least_bytes_ = 0;                         // where the first frames end that were read
};

}  // namespace

std::unique_ptr<GrowingProjections> FollowHdf5(const std::string& path,
                                               const ProjectionOptions& options) {
  return std::make_unique<GrowingHdf5>(path, options);
}

}  // namespace octavo::storage
