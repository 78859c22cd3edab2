#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <hdf5.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"
#include "tbb/parallel_invoke.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/storage/formats/hdf5_output.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/single_file.h"
#include "server/storage/io/byte_shuffle.h"
#include "server/storage/io/deflate.h"
#include "server/storage/io/direct_alignment.h"
#include "server/storage/io/hdf5_library.h"
#include "server/storage/zarr/grid.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;

// About what the library's index takes for a chunk, and its other tables.
constexpr int64_t kIndexBytes = 64, kTableBytes = 64 << 10;

/// The type in the file: little-endian on every machine. Half precision and complex are built from
/// the library's types.
Id TypeOf(DType dtype) {
  const auto copy = [](hid_t type) { return Id(H5Tcopy(type), H5Tclose); };
  switch (dtype) {
    case DType::kU8: return copy(H5T_STD_U8LE);
    case DType::kI8: return copy(H5T_STD_I8LE);
    case DType::kU16: return copy(H5T_STD_U16LE);
    case DType::kI16: return copy(H5T_STD_I16LE);
    case DType::kF32: return copy(H5T_IEEE_F32LE);
    case DType::kF64: return copy(H5T_IEEE_F64LE);
    case DType::kF16: {
      Id half = copy(H5T_IEEE_F32LE);
      if (H5Tset_fields(half.get(), 15, 10, 5, 0, 10) < 0 || H5Tset_size(half.get(), 2) < 0 ||
          H5Tset_ebias(half.get(), 15) < 0)
        return {};
      return half;
    }
    case DType::kC64: {
      Id pair(H5Tcreate(H5T_COMPOUND, 8), H5Tclose);  // h5py's form of complex numbers
      if (H5Tinsert(pair.get(), "r", 0, H5T_IEEE_F32LE) < 0 ||
          H5Tinsert(pair.get(), "i", 4, H5T_IEEE_F32LE) < 0)
        return {};
      return pair;
    }
  }
  return {};
}

/// HDF5 with the dataset /volume in chunks, deflated (after HDF5's byte shuffle) in parallel here
/// and handed to the library ready, and the text /octavo with all metadata as JSON. Attributes of
/// /volume: DIMENSION_LABELS, spacing_um and element_size_um (per axis; where one is not known,
/// spacing_assumed with the axes' names in place of the latter), display, levels and warnings (if
/// there are any), value.
class Hdf5Writer final : public SingleFileWriter {
 public:
  using SingleFileWriter::SingleFileWriter;

  ~Hdf5Writer() override {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    output_.GiveUp();
    (void)dataset_.Close();
    (void)file_.Close();
    H5Eclear2(H5E_DEFAULT);
  }

  absl::Status Start() {
    OCTAVO_RETURN_IF_ERROR(CreateFile());
    if (options_.compress) return absl::OkStatus();
    // Without the library's lock: some file systems take their time.
    const int64_t chunks = CeilDiv(grid_.shape[0], grid_.chunk[0]) *
                           CeilDiv(grid_.shape[1], grid_.chunk[1]) *
                           CeilDiv(grid_.shape[2], grid_.chunk[2]);
    return output_.Reserve(
        chunks * (RoundUp(grid_.ChunkBytes(), Aligned() ? kDirectAlignment : 1) + kIndexBytes) +
        kTableBytes);
  }

  int64_t SlabBscans() const override { return std::min(grid_.chunk[0], meta_.shape[0]); }

 private:
  /// An encoded chunk: in memory of the queue, or in `packed`.
  struct Part {
    Hdf5Output::Chunk chunk;
    std::string packed;
    absl::Status status;
  };

  /// Whether chunks lie at multiples of a page.
  bool Aligned() const { return !options_.compress && grid_.ChunkBytes() >= kLeastDirectBytes; }
  absl::Status CreateFile() {
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    // The file must be complete or absent, so the library may keep no object of it open.
    H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
    bool driven = output_.Use(access.get());
    // Chunks at multiples of a page go past the page cache as a whole.
    if (driven && Aligned())
      driven = H5Pset_alignment(access.get(), kLeastDirectBytes, kDirectAlignment) >= 0;
    if (driven)
      file_ =
          Id(H5Fcreate(data_path_.c_str(), H5F_ACC_EXCL, creation.get(), access.get()), H5Fclose);
    if (!file_) return Failed("creating");
    const Id type = TypeOf(meta_.dtype);
    const hsize_t shape[3] = {Size(meta_.shape[0]), Size(meta_.shape[1]), Size(meta_.shape[2])};
    const hsize_t chunk[3] = {Size(grid_.chunk[0]), Size(grid_.chunk[1]), Size(grid_.chunk[2])};
    Id space(H5Screate_simple(3, shape, nullptr), H5Sclose),
        layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    bool fine = type && space && layout && H5Pset_chunk(layout.get(), 3, chunk) >= 0 &&
                H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER) >= 0 &&
                H5Pset_obj_track_times(layout.get(), false) >= 0;  // equal volumes give equal files
    if (fine && Shuffled()) fine = H5Pset_shuffle(layout.get()) >= 0;
    if (fine && options_.compress)
      fine = H5Pset_deflate(layout.get(), static_cast<unsigned>(options_.level)) >= 0;
    if (fine)
      dataset_ = Id(H5Dcreate2(file_.get(), "volume", type.get(), space.get(), H5P_DEFAULT,
                               layout.get(), H5P_DEFAULT),
                    H5Dclose);
    if (!fine || !dataset_) return Failed("creating /volume in");
    return absl::OkStatus();
  }

  /// The status of a failed call of the library.
  absl::Status Failed(const char* doing) const {
    absl::Status failed = Hdf5Error(doing, data_path_);
    return output_.status().ok() ? failed : output_.status();
  }
  static hsize_t Size(int64_t value) { return static_cast<hsize_t>(value); }
  bool Shuffled() const {
    return options_.compress && options_.shuffle != Shuffle::kNone && SizeOf(meta_.dtype) > 1;
  }

  absl::Status Slab(int64_t y_begin, int64_t bscans, const char* data) override {
    if (y_begin % grid_.chunk[0] != 0)
      return absl::InternalError(
          absl::StrCat("slab from ", y_begin, "; chunks have ", grid_.chunk[0], " B-scans"));
    const int64_t nx = CeilDiv(grid_.shape[1], grid_.chunk[1]),
                  nz = CeilDiv(grid_.shape[2], grid_.chunk[2]),
                  group = 4 * tbb::this_task_arena::max_concurrency();
    std::vector<Part> parts = EncodeGroup(data, bscans, 0, group);
    for (int64_t first = 0; first < nx * nz; first += group) {
      std::vector<Part> next;
      absl::Status written;
      tbb::parallel_invoke([&] { written = WriteGroup(y_begin, first, parts); },
                           [&] { next = EncodeGroup(data, bscans, first + group, group); });
      OCTAVO_RETURN_IF_ERROR(written);
      parts = std::move(next);
    }
    return absl::OkStatus();
  }

  /// Up to `count` chunks of a slab from one on.
  std::vector<Part> EncodeGroup(const char* data, int64_t bscans, int64_t first, int64_t count) {
    const int64_t nx = CeilDiv(grid_.shape[1], grid_.chunk[1]),
                  nz = CeilDiv(grid_.shape[2], grid_.chunk[2]);
    std::vector<Part> parts(static_cast<size_t>(std::clamp<int64_t>(nx * nz - first, 0, count)));
    tbb::parallel_for(size_t{0}, parts.size(), [&](size_t k) {
      const int64_t i = first + static_cast<int64_t>(k);
      parts[k] = Encode(data, bscans, i / nz * grid_.chunk[1], i % nz * grid_.chunk[2]);
    });
    return parts;
  }

  absl::Status WriteGroup(int64_t y_begin, int64_t first, std::vector<Part>& parts) {
    const int64_t nz = CeilDiv(grid_.shape[2], grid_.chunk[2]);
    MutexLock lock(Hdf5Mutex());
    QuietHdf5();
    for (size_t k = 0; k < parts.size(); ++k) {
      OCTAVO_RETURN_IF_ERROR(parts[k].status);
      const int64_t i = first + static_cast<int64_t>(k);
      const hsize_t at[3] = {Size(y_begin), Size(i / nz * grid_.chunk[1]),
                             Size(i % nz * grid_.chunk[2])};
      const bool whole = static_cast<bool>(parts[k].chunk.block);
      const char* const data = whole ? parts[k].chunk.block.data() : parts[k].packed.data();
      const size_t bytes =
          whole ? static_cast<size_t>(parts[k].chunk.bytes) : parts[k].packed.size();
      output_.Lend(std::move(parts[k].chunk));
      if (H5Dwrite_chunk(dataset_.get(), H5P_DEFAULT, 0, at, bytes, data) < 0)
        return Failed("writing");
    }
    return absl::OkStatus();
  }

  /// A chunk as the library's filters would make it.
  Part Encode(const char* slab, int64_t bscans, int64_t x0, int64_t z0) {
    Part out;
    if (Aligned()) {
      out.chunk = output_.MakeChunk(grid_.ChunkBytes(), [&](char* memory) {
        grid_.GatherInto(slab, bscans, 0, x0, z0, memory);
      });
      return out;
    }
    Scratch& scratch = scratch_.local();
    const char* chunk = grid_.Gather(slab, bscans, 0, x0, z0, &scratch.chunk);
    const auto bytes = static_cast<size_t>(grid_.ChunkBytes());
    if (Shuffled()) {
      scratch.shuffled.resize(bytes);
      ShuffleBytes(chunk, grid_.ChunkBytes() / grid_.size, grid_.size, scratch.shuffled.data());
      chunk = scratch.shuffled.data();
    }
    if (options_.compress)
      out.status =
          scratch.deflater.Append(DeflateWrap::kZlib, options_.level, chunk, bytes, &out.packed);
    else
      out.packed.assign(chunk, bytes);
    return out;
  }

  bool Numbers(const char* name, const std::vector<double>& values) {
    const hsize_t count = values.size();
    Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
    Id attribute(
        H5Acreate2(dataset_.get(), name, H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    return attribute && H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) >= 0;
  }
  bool Texts(const char* name, const std::vector<const char*>& values, bool list = false) {
    const hsize_t count = values.size();
    Id type(H5Tcopy(H5T_C_S1), H5Tclose),
        space(values.size() == 1 && !list ? H5Screate(H5S_SCALAR)
                                          : H5Screate_simple(1, &count, nullptr),
              H5Sclose);
    if (H5Tset_size(type.get(), H5T_VARIABLE) < 0 || H5Tset_cset(type.get(), H5T_CSET_UTF8) < 0)
      return false;
    Id attribute(
        H5Acreate2(dataset_.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    return attribute && H5Awrite(attribute.get(), type.get(), values.data()) >= 0;
  }
  /// Too large for an attribute, whose limit is 64 KiB.
  bool Metadata() {
    const std::string text = MetaText(meta_);
    Id type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose),
        creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (H5Tset_size(type.get(), text.size() + 1) < 0 ||
        H5Pset_obj_track_times(creation.get(), false) < 0)
      return false;
    Id data(H5Dcreate2(file_.get(), "octavo", type.get(), space.get(), H5P_DEFAULT, creation.get(),
                       H5P_DEFAULT),
            H5Dclose);
    return data &&
           H5Dwrite(data.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()) >= 0;
  }

  absl::StatusOr<Manifest::File> Complete() override {
    // Without the library's lock, which other files need.
    OCTAVO_RETURN_IF_ERROR(queue_.Drain());
    {
      MutexLock lock(Hdf5Mutex());
      QuietHdf5();
      const std::vector<double> spacing(meta_.spacing_um, meta_.spacing_um + 3);
      std::vector<const char*> assumed, warnings;
      for (int d = 0; d < 3; ++d) {
        if (meta_.spacing_assumed[d]) assumed.push_back(meta_.axes[d].c_str());
      }
      for (const std::string& warning : meta_.warnings) {
        if (std::ssize(warnings) < kMostWarnings) warnings.push_back(warning.c_str());
      }
      const bool fine =
          Texts("DIMENSION_LABELS",
                {meta_.axes[0].c_str(), meta_.axes[1].c_str(), meta_.axes[2].c_str()}) &&
          Numbers("spacing_um", spacing) &&
          (assumed.empty() ? Numbers("element_size_um", spacing)
                           : Texts("spacing_assumed", assumed, /*list=*/true)) &&
          (warnings.empty() || Texts("warnings", warnings, /*list=*/true)) &&
          Numbers("display", {meta_.display_lo, meta_.display_hi}) &&
          (!meta_.has_levels || Numbers("levels", {meta_.level_lo, meta_.level_hi})) &&
          Texts("value", {meta_.value_kind.c_str()}) && Metadata();
      if (!fine) return Failed("writing");
      if (H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) < 0 || dataset_.Close() < 0 ||
          file_.Close() < 0 || !output_.status().ok())
        return Failed("writing");
    }
    OCTAVO_RETURN_IF_ERROR(queue_.Drain());
    OCTAVO_ASSIGN_OR_RETURN(const Manifest::File file, output_.Describe(data_path_));
    disk_bytes_ = file.bytes;
    return file;
  }

  struct Scratch {
    std::vector<char> chunk, shuffled;
    BlockDeflater deflater;
  };
  const ChunkGrid grid_{.shape = {meta_.shape[0], meta_.shape[1], meta_.shape[2]},
                        .chunk = {std::min(options_.chunk[0], meta_.shape[0]),
                                  std::min(options_.chunk[1], meta_.shape[1]),
                                  std::min(options_.chunk[2], meta_.shape[2])},
                        .size = SizeOf(meta_.dtype),
                        .fill = FillValue::Of(meta_.dtype)};
  Hdf5Output output_{&queue_, &disk_bytes_};
  Id file_, dataset_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeHdf5Writer(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options) {
  return Started<Hdf5Writer>(path, meta, options);
}

}  // namespace octavo::storage
