#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/formats/volume_meta.h"
#include "server/storage/zarr/compression.h"

namespace octavo::storage {

enum class Format : uint8_t {
  kOmeZarr05 = 1,
  kNpy = 2,
  kNrrd = 3,
  kNifti = 4,
  kOmeTiff = 5,
  kMatlab = 6,
  kHdf5 = 7,
  kBin = 8
};  // values equal octavo.v1.Format
inline constexpr Format kFormats[] = {Format::kOmeZarr05, Format::kNpy,     Format::kNrrd,
                                      Format::kNifti,     Format::kOmeTiff, Format::kMatlab,
                                      Format::kHdf5,      Format::kBin};
/// The version of OME-Zarr. Values equal octavo.v1.NgffVersion.
enum class NgffVersion : uint8_t {
  kDefault = 0,  // 0.5
  k05 = 1,       // arrays of Zarr v3
  k04 = 2        // arrays of Zarr v2
};
/// The content of a page of a TIFF. Values equal octavo.v1.TiffPlane.
enum class TiffPlane : uint8_t { kDefault = 0, kBscan = 1, kEnFace = 2 };

struct WriterOptions {
  Format format = Format::kOmeZarr05;
  int64_t chunk[3] = {
      0, 0, 0};  // OME-Zarr, HDF5: voxels along the axes of shape; 0 = chosen (about 1 MiB)
  int64_t shard[3] = {0, 0, 0};  // OME-Zarr: voxels; 0 = no shards; multiples of chunk
  int zstd_level = 0;            // 1 ... 19, of kZstd; 0 = 1
  bool compress = true;
  int threads = 0;                // encoders; 0 = one per core
  Codec codec = Codec::kDefault;  // OME-Zarr: any, default zstd; NRRD, TIFF, MATLAB, HDF5: gzip;
                                  // the others have none
  int level = 0;                  // 1 ... 9 of gzip (default 1) and Blosc (default 5); 0 = default
  Shuffle shuffle =
      Shuffle::kDefault;  // Blosc: default bytes, for 1-byte types bits; HDF5: default bytes
  // OME-Zarr: number of arrays, each half as large as the one before; 0 or 1 = the volume alone
  int pyramid_levels = 0;
  /// OME-Zarr: further arrays with voxels of these sizes in µm, ascending; an axis whose spacing is
  /// as large, or that has one voxel, stays. Instead of halves.
  std::vector<double> pyramid_um;
  NgffVersion ngff = NgffVersion::kDefault;  // OME-Zarr
  int nifti_version = 0;                     // NIfTI: 1 or 2; 0 = 1 if the volume fits
  // TIFF: a page for each y (B-scans: rows z, columns x) or each z (en face planes, slices of a
  // tomogram: rows y, columns x); default: for each index of the volume's first axis.
  TiffPlane tiff_plane = TiffPlane::kDefault;
  bool tiff_stack = false;  // TIFF: a folder with one file per page
};

/// Fills in the options left open and checks the others against the volume. InvalidArgument names
/// the field ("options.chunk", "options.shard", "options.zstd_level", "options.codec",
/// "options.format" ...), also for an option that only other formats have. Accepts its own result
/// unchanged.
absl::StatusOr<WriterOptions> ResolveOptions(const WriterOptions& options, const VolumeMeta& meta);

/// Writes one volume into files below a path that does not exist yet (a temporary name: StagedPath
/// renames it). Slabs come in order along the first axis (here called y, its planes B-scans); each
/// slab holds whole planes. One thread calls; encoding and writing run in parallel inside.
class VolumeWriter {
 public:
  virtual ~VolumeWriter() = default;
  /// B-scans per WriteSlab call this writer wants (the last slab may be shorter): whole chunks
  /// (shards) along y.
  virtual int64_t SlabBscans() const = 0;
  /// Encodes and writes B-scans [y_begin, y_begin + bscans) at `data`; returns when `data` may be
  /// reused.
  virtual absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) = 0;
  /// Writes the metadata last and makes every file and directory below the path durable (fsync).
  virtual absl::Status Finish() = 0;
  /// Bytes written to disk so far. Any thread.
  virtual int64_t DiskBytes() const = 0;
};

/// Opens a writer for `path` (created here). Errors: InvalidArgument (options), ResourceExhausted
/// (no space), PermissionDenied, Internal (I/O error) with path and errno text.
absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeWriter(const std::string& path,
                                                         const VolumeMeta& meta,
                                                         const WriterOptions& resolved_options);

/// Name of a format for people and command lines: "zarr", "npy", "nrrd", "nifti", "tiff", "mat",
/// "hdf5", "bin".
const char* FormatName(Format format);
/// File name ending of a format: ".ome.zarr", ".npy", ".nrrd", ".nii", ".ome.tif", ".mat", ".h5",
/// ".bin".
const char* Extension(Format format);
/// Whether `path` ends as files of this format do: Extension, ".zarr", ".ome.tiff", ".tif",
/// ".tiff", ".hdf5"; in any case.
bool HasExtension(const std::string& path, Format format);
/// Whether the metadata go into the files only when all voxels are there, so that what of them is
/// not known before (digest, levels to show, warnings) may be told then. NRRD, NIfTI and MATLAB
/// have them all in a head of a size that must be known before the first voxel.
bool DescribesLast(Format format);
/// One file with a `.json` of the metadata beside it; otherwise a directory.
inline constexpr bool IsSingleFile(const WriterOptions& options) {
  return options.format != Format::kOmeZarr05 && !options.tiff_stack;
}
/// `path`, with the format's ending if it has none of its endings. Folders of TIFF files have no
/// ending of their own.
std::string WithExtension(const std::string& path, const WriterOptions& options);

}  // namespace octavo::storage
