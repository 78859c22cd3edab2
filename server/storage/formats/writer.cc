#include "server/storage/formats/writer.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/storage/formats/downsample.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/json_members.h"

namespace octavo::storage {
namespace {

std::string IsoTime(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  char nanos[16];
  std::snprintf(nanos, sizeof nanos, ".%09lldZ", static_cast<long long>(unix_ns % 1'000'000'000));
  return std::string(text, n) + nanos;
}

/// The properties of a format.
struct FormatInfo {
  const char* name;
  const char* extension;
  std::vector<const char*> also;  // other endings in use for such files
  bool compresses;                // with gzip; OME-Zarr with every codec
  bool has_f16;
  bool describes_last;  // DescribesLast
};
const FormatInfo& InfoOfFormat(Format format) {
  static const FormatInfo zarr{"zarr", ".ome.zarr", {".zarr"}, true, true, true},
      npy{"npy", ".npy", {}, false, true, true}, nrrd{"nrrd", ".nrrd", {}, true, false, false},
      nifti{"nifti", ".nii", {}, false, false, false},
      tiff{"tiff", ".ome.tif", {".ome.tiff", ".tif", ".tiff"}, true, false, true},
      matlab{"mat", ".mat", {}, true, false, false},
      hdf5{"hdf5", ".h5", {".hdf5"}, true, true, true}, bin{"bin", ".bin", {}, false, true, true};
  switch (format) {
    case Format::kOmeZarr05: break;
    case Format::kNpy: return npy;
    case Format::kNrrd: return nrrd;
    case Format::kNifti: return nifti;
    case Format::kOmeTiff: return tiff;
    case Format::kMatlab: return matlab;
    case Format::kHdf5: return hdf5;
    case Format::kBin: return bin;
  }
  return zarr;
}

}  // namespace

const char* FormatName(Format format) { return InfoOfFormat(format).name; }
const char* Extension(Format format) { return InfoOfFormat(format).extension; }
bool DescribesLast(Format format) { return InfoOfFormat(format).describes_last; }
bool HasExtension(const std::string& path, Format format) {
  const FormatInfo& info = InfoOfFormat(format);
  return absl::EndsWithIgnoreCase(path, info.extension) ||
         std::any_of(info.also.begin(), info.also.end(),
                     [&](const char* ending) { return absl::EndsWithIgnoreCase(path, ending); });
}

std::string WithExtension(const std::string& path, const WriterOptions& options) {
  return options.tiff_stack || HasExtension(path, options.format)
             ? path
             : path + Extension(options.format);
}

namespace {

constexpr int kMaxPyramidLevels = 16;
constexpr const char* kCodecs[] = {"default", "ZSTD", "GZIP", "BLOSC_ZSTD", "BLOSC_LZ4"};
constexpr const char* kShuffles[] = {"default", "NONE", "BYTE", "BIT"};

bool AnyGiven(const int64_t* extents) {
  return std::any_of(extents, extents + 3, [](int64_t extent) { return extent != 0; });
}

/// An option that not all formats have.
struct OptionOfFormats {
  const char* field;
  bool (*given)(const WriterOptions& options);
  std::vector<Format> has;
};
const std::vector<OptionOfFormats>& OptionsOfFormats() {
  using enum Format;
  using O = const WriterOptions&;
  static const std::vector<Format> compressed = {kOmeZarr05, kNrrd, kOmeTiff, kMatlab, kHdf5};
  static const std::vector<OptionOfFormats> options = {
      {"options.chunk", [](O o) { return AnyGiven(o.chunk); }, {kOmeZarr05, kHdf5}},
      {"options.shard", [](O o) { return AnyGiven(o.shard); }, {kOmeZarr05}},
      {"options.codec", [](O o) { return o.codec != Codec::kDefault; }, compressed},
      {"options.zstd_level", [](O o) { return o.zstd_level != 0; }, {kOmeZarr05}},
      {"options.level", [](O o) { return o.level != 0; }, compressed},
      {"options.shuffle", [](O o) { return o.shuffle != Shuffle::kDefault; }, {kOmeZarr05, kHdf5}},
      {"options.pyramid_levels", [](O o) { return o.pyramid_levels > 1; }, {kOmeZarr05}},
      {"options.pyramid_um", [](O o) { return !o.pyramid_um.empty(); }, {kOmeZarr05}},
      {"options.ngff", [](O o) { return o.ngff != NgffVersion::kDefault; }, {kOmeZarr05}},
      {"options.nifti_version", [](O o) { return o.nifti_version != 0; }, {kNifti}},
      {"options.tiff_plane", [](O o) { return o.tiff_plane != TiffPlane::kDefault; }, {kOmeTiff}},
      {"options.tiff_stack", [](O o) { return o.tiff_stack; }, {kOmeTiff}}};
  return options;
}

/// Refuses an option of other formats, which this format would ignore.
absl::Status CheckOptionsOfFormats(const WriterOptions& options) {
  for (const OptionOfFormats& one : OptionsOfFormats()) {
    if (!one.given(options) ||
        std::find(one.has.begin(), one.has.end(), options.format) != one.has.end())
      continue;
    std::string formats;
    for (const Format format : one.has)
      absl::StrAppend(&formats, formats.empty() ? "" : ", ", FormatName(format));
    return InvalidField(one.field,
                        absl::StrCat("is given, and the format is ", FormatName(options.format),
                                     "; allowed with ", formats));
  }
  return absl::OkStatus();
}

/// Chooses codec, level and shuffle where they were left open; refuses those that the format does
/// not have.
absl::Status ResolveCodec(WriterOptions* out) {
  const bool zarr = out->format == Format::kOmeZarr05;
  const char* name = FormatName(out->format);
  if (out->codec > Codec::kBloscLz4)
    return InvalidField("options.codec",
                        absl::StrCat("has the unknown value ", static_cast<int>(out->codec)));
  if (out->shuffle > Shuffle::kBit)
    return InvalidField("options.shuffle",
                        absl::StrCat("has the unknown value ", static_cast<int>(out->shuffle)));
  if (out->level < 0 || out->level > 9) return FieldOutOfRange("options.level", out->level, 0, 9);
  const char* codec = kCodecs[static_cast<int>(out->codec)];
  if (out->codec != Codec::kDefault) {
    if (!out->compress)
      return InvalidField(
          "options.codec",
          absl::StrCat("is ", codec, ", but the options ask for no compression; give one of them"));
    if (!zarr && out->codec != Codec::kGzip)
      return InvalidField("options.codec",
                          absl::StrCat("is ", codec, "; allowed for ", name, " is GZIP"));
  }
  if (!InfoOfFormat(out->format).compresses) out->compress = false;
  if (out->compress && out->codec == Codec::kDefault)
    out->codec = zarr ? Codec::kZstd : Codec::kGzip;
  const bool blosc = out->codec == Codec::kBloscZstd || out->codec == Codec::kBloscLz4,
             hdf5 = out->format == Format::kHdf5 && out->compress;
  if (out->level != 0 && !blosc && out->codec != Codec::kGzip) {
    return InvalidField("options.level",
                        absl::StrCat("is ", out->level,
                                     "; allowed with GZIP and Blosc; ZSTD has options.zstd_level"));
  }
  const bool zstd = out->codec == Codec::kZstd && out->compress;
  if (out->zstd_level != 0 && !zstd) {
    return InvalidField(
        "options.zstd_level",
        absl::StrCat("is ", out->zstd_level, "; allowed with the codec ZSTD; the codec is ",
                     out->compress ? kCodecs[static_cast<int>(out->codec)] : "NONE"));
  }
  if (zstd && out->zstd_level == 0) out->zstd_level = 1;
  if (out->level == 0) out->level = blosc ? 5 : out->codec == Codec::kGzip ? 1 : 0;
  if (out->shuffle != Shuffle::kDefault && !blosc && !(hdf5 && out->shuffle != Shuffle::kBit)) {
    return InvalidField(
        "options.shuffle",
        absl::StrCat("is ", kShuffles[static_cast<int>(out->shuffle)],
                     "; allowed NONE, BYTE, BIT with Blosc, and NONE, BYTE with hdf5"));
  }
  return absl::OkStatus();
}

/// Chooses the planes of a TIFF's pages.
absl::Status ResolveTiff(WriterOptions* out, const VolumeMeta& meta) {
  if (out->tiff_plane > TiffPlane::kEnFace) {
    return InvalidField("options.tiff_plane",
                        absl::StrCat("has the unknown value ", static_cast<int>(out->tiff_plane)));
  }
  if (out->format != Format::kOmeTiff) return absl::OkStatus();
  if (meta.axes[0] == "x" && out->tiff_plane != TiffPlane::kDefault) {
    return InvalidField(
        "options.tiff_plane",
        "is given for a volume whose first axis is x; allowed is the default, a page for each x");
  }
  if (out->tiff_plane == TiffPlane::kDefault && meta.axes[0] != "x") {
    out->tiff_plane = meta.axes[0] == "z" ? TiffPlane::kEnFace : TiffPlane::kBscan;
  }
  return absl::OkStatus();
}

/// Chooses the version of an OME-Zarr.
absl::Status ResolveNgff(WriterOptions* out) {
  if (out->format != Format::kOmeZarr05) return absl::OkStatus();
  if (out->ngff > NgffVersion::k04)
    return InvalidField("options.ngff",
                        absl::StrCat("has the unknown value ", static_cast<int>(out->ngff)));
  if (out->ngff == NgffVersion::kDefault) out->ngff = NgffVersion::k05;
  if (out->ngff == NgffVersion::k04 && AnyGiven(out->shard))
    return InvalidField("options.shard",
                        "is given, and options.ngff is 0.4, whose arrays (Zarr v2) have no shards; "
                        "allowed with 0.5");
  return absl::OkStatus();
}

/// Checks the sizes of voxels of a pyramid's arrays.
absl::Status CheckPyramidUm(const WriterOptions& options, const VolumeMeta& meta) {
  constexpr char kField[] = "options.pyramid_um";
  const std::vector<double>& sizes = options.pyramid_um;
  if (sizes.empty()) return absl::OkStatus();
  if (options.pyramid_levels > 1)
    return InvalidField(kField, absl::StrCat("is given, and options.pyramid_levels is ",
                                             options.pyramid_levels, "; allowed is one of them"));
  if (std::ssize(sizes) >= kMaxPyramidLevels)
    return InvalidField(kField, absl::StrCat("has ", sizes.size(), " sizes; allowed up to ",
                                             kMaxPyramidLevels - 1));
  if (meta.dtype == DType::kC64)
    return InvalidField(kField,
                        "is given; complex voxels have no intensity to average; allowed is none");
  double finest = 0, longest = 0;  // of the axes that can become coarser
  for (int d = 0; d < 3; ++d) {
    if (meta.shape[d] == 1) continue;
    if (meta.spacing_assumed[d])
      return InvalidField(kField,
                          absl::StrCat("is given, and the volume's spacing along ", meta.axes[d],
                                       " is not known; allowed where all are"));
    finest = finest == 0 ? meta.spacing_um[d] : std::min(finest, meta.spacing_um[d]);
    longest = std::max(longest, meta.spacing_um[d] * static_cast<double>(meta.shape[d]));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string field = absl::StrCat(kField, "[", i, "]");
    if (!std::isfinite(sizes[i]) || sizes[i] <= finest || sizes[i] > longest || finest == 0)
      return InvalidField(
          field, absl::StrCat("is ", sizes[i], "; allowed are sizes in um above ", finest,
                              ", the volume's finest spacing, up to ", longest, ", its extent"));
    if (i > 0 && sizes[i] <= sizes[i - 1])
      return InvalidField(field, absl::StrCat("is ", sizes[i], " after ", sizes[i - 1],
                                              "; allowed are ascending sizes"));
  }
  return absl::OkStatus();
}

/// Refuses a volume that the format cannot hold.
absl::Status CheckFits(WriterOptions* out, const VolumeMeta& meta) {
  constexpr char kField[] = "options.format";
  const char* name = FormatName(out->format);
  const int64_t bytes = meta.shape[0] * meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
  if (meta.dtype == DType::kF16 && !InfoOfFormat(out->format).has_f16) {
    return InvalidField(
        kField,
        absl::StrCat(
            "is ", name,
            ", which has no half-precision floats; allowed for f16 are zarr, npy, hdf5, bin"));
  }
  if (out->format == Format::kMatlab && bytes > kMatlabMaxBytes) {
    return WithInfo(
        InvalidField(kField, absl::StrCat("is mat (MATLAB v5), whose variables hold up to ",
                                          kMatlabMaxBytes, " bytes; the volume has ", bytes,
                                          "; use hdf5, which MATLAB reads too")),
        {.reason = Reason::kFormatLimit,
         .field = kField,
         .numbers = {{"bytes", absl::StrCat(bytes)}, {"allowed", absl::StrCat(kMatlabMaxBytes)}}});
  }
  if (out->format == Format::kOmeTiff &&
      *std::max_element(meta.shape, meta.shape + 3) > 0x7FFFFFFF) {
    return InvalidField(kField, "is tiff, which holds up to 2147483647 voxels along an axis");
  }
  OCTAVO_RETURN_IF_ERROR(ResolveTiff(out, meta));
  if (out->format == Format::kNifti) {
    const int64_t largest = *std::max_element(meta.shape, meta.shape + 3);
    if (out->nifti_version < 0 || out->nifti_version > 2) {
      return FieldNotAllowed("options.nifti_version", out->nifti_version, "0, 1, 2");
    }
    if (out->nifti_version == 1 && largest > 32767) {
      return InvalidField(
          "options.nifti_version",
          absl::StrCat("is 1, which holds up to 32767 voxels along an axis; the volume has ",
                       largest, "; use 2"));
    }
    if (out->nifti_version == 0) out->nifti_version = largest > 32767 ? 2 : 1;
  }
  const int64_t allowed = meta.dtype == DType::kC64 ? 1 : PyramidLevelsPossible(meta.shape);
  if (out->pyramid_levels < 0 ||
      out->pyramid_levels >
          (out->format == Format::kOmeZarr05 ? std::min<int64_t>(allowed, kMaxPyramidLevels) : 1)) {
    return InvalidField(
        "options.pyramid_levels",
        meta.dtype == DType::kC64
            ? absl::StrCat("is ", out->pyramid_levels,
                           "; complex voxels have no intensity to average; allowed 0, 1")
            : absl::StrCat("is ", out->pyramid_levels, "; allowed for this shape 0 to ",
                           std::min<int64_t>(allowed, kMaxPyramidLevels)));
  }
  return CheckPyramidUm(*out, meta);
}

}  // namespace

absl::StatusOr<WriterOptions> ResolveOptions(const WriterOptions& options, const VolumeMeta& meta) {
  WriterOptions out = options;
  if (SizeOf(meta.dtype) == 0)
    return InvalidField(
        "dtype", absl::StrCat("is ", static_cast<int>(meta.dtype), ", which is no element type"));
  if (!AxesAreFine(meta)) {
    return InvalidField(
        "axes", absl::StrCat("are '", meta.axes[0], "', '", meta.axes[1], "', '", meta.axes[2],
                             "'; allowed are x, y and z in any order"));
  }
  int64_t voxels = 1;
  for (int d = 0; d < 3; ++d) {
    if (meta.shape[d] < 1 || meta.shape[d] > (int64_t{1} << 40) / voxels) {
      return InvalidField("shape", absl::StrCat("is ", meta.shape[d], " along axis ", d,
                                                "; allowed from 1, and 2^40 voxels together"));
    }
    voxels *= meta.shape[d];
  }
  if (std::find(std::begin(kFormats), std::end(kFormats), out.format) == std::end(kFormats)) {
    return InvalidField("options.format",
                        absl::StrCat("has the unknown value ", static_cast<int>(out.format)));
  }
  if (out.zstd_level < 0 || out.zstd_level > 19) {
    return FieldOutOfRange("options.zstd_level", out.zstd_level, 0, 19);
  }
  OCTAVO_RETURN_IF_ERROR(CheckOptionsOfFormats(out));
  OCTAVO_RETURN_IF_ERROR(ResolveNgff(&out));
  OCTAVO_RETURN_IF_ERROR(ResolveCodec(&out));
  OCTAVO_RETURN_IF_ERROR(CheckFits(&out, meta));
  if (out.threads <= 0)
    out.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (out.format != Format::kOmeZarr05 && out.format != Format::kHdf5) return out;  // no chunks
  if (!AnyGiven(out.chunk)) {
    out.chunk[2] = std::min<int64_t>(meta.shape[2], 128);
    out.chunk[1] = std::min<int64_t>(meta.shape[1], 128);
    out.chunk[0] =
        std::clamp<int64_t>((1 << 20) / (out.chunk[2] * out.chunk[1] * SizeOf(meta.dtype)), 1,
                            std::min<int64_t>(meta.shape[0], 256));
  }
  const bool sharded = AnyGiven(out.shard);
  int64_t chunk_bytes = SizeOf(meta.dtype), shard_bytes = SizeOf(meta.dtype);
  for (int d = 0; d < 3; ++d) {
    if (out.chunk[d] < 1 || out.chunk[d] > (1 << 20)) {
      return InvalidField("options.chunk", absl::StrCat("is ", out.chunk[d], " along axis ", d,
                                                        "; allowed 1 to ", 1 << 20));
    }
    if (sharded &&
        (out.shard[d] < 1 || out.shard[d] > (1 << 24) || out.shard[d] % out.chunk[d] != 0)) {
      return InvalidField("options.shard",
                          absl::StrCat("is ", out.shard[d], " along axis ", d,
                                       "; allowed are multiples of the chunk's ", out.chunk[d]));
    }
    chunk_bytes *= out.chunk[d];
    shard_bytes = std::min(shard_bytes, int64_t{1} << 40) * (sharded ? out.shard[d] : 1);
  }
  if (chunk_bytes > (1 << 30))
    return InvalidField("options.chunk", absl::StrCat("makes chunks of ", chunk_bytes,
                                                      " bytes; allowed ", 1 << 30, " bytes"));
  if (shard_bytes > (int64_t{4} << 30))
    return InvalidField("options.shard",
                        absl::StrCat("makes shards of ", shard_bytes, " bytes; allowed ",
                                     int64_t{4} << 30, " bytes"));
  return out;
}

absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeWriter(const std::string& path,
                                                         const VolumeMeta& meta,
                                                         const WriterOptions& resolved_options) {
  return MakeFileListWriter(path, meta, resolved_options);
}

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeFileListWriter(const std::string& path,
                                                                   const VolumeMeta& meta,
                                                                   const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const WriterOptions resolved, ResolveOptions(options, meta));
  switch (resolved.format) {
    case Format::kOmeZarr05: break;
    case Format::kNpy:
    case Format::kBin: return MakeFlatWriter(path, meta, resolved);
    case Format::kNrrd: return MakeNrrdWriter(path, meta, resolved);
    case Format::kNifti: return MakeNiftiWriter(path, meta, resolved);
    case Format::kOmeTiff:
      return resolved.tiff_stack ? MakeTiffStackWriter(path, meta, resolved)
                                 : MakeTiffWriter(path, meta, resolved);
    case Format::kMatlab: return MakeMatlabWriter(path, meta, resolved);
    case Format::kHdf5: return MakeHdf5Writer(path, meta, resolved);
  }
  return MakeZarrWriter(path, meta, resolved);
}

nlohmann::json MetaJson(const VolumeMeta& meta) {
  nlohmann::json assumed = nlohmann::json::array();
  for (int d = 0; d < 3; ++d) {
    if (meta.spacing_assumed[d]) assumed.push_back(meta.axes[d]);
  }
  nlohmann::json missing = nlohmann::json::array();
  for (const auto& [first, count] : meta.missing_ranges) missing.push_back({first, count});
  nlohmann::json out = {
      {"volume", meta.volume_name},
      {"scan", meta.scan_name},
      {"title", meta.title},
      {"index", meta.index},
      {"shape", meta.shape},
      {"axes", meta.axes},
      {"dtype", Info(meta.dtype).name},
      {"spacing_um", meta.spacing_um},
      {"value", meta.value_kind},
      {"display", {meta.display_lo, meta.display_hi}},
      {"labels", meta.labels},
      {"subject",
       {{"id", meta.subject_id}, {"site", meta.subject_site}, {"note", meta.subject_note}}},
      {"acquired_begin", IsoTime(meta.acquired_begin_unix_ns)},
      {"acquired_end", IsoTime(meta.acquired_end_unix_ns)},
      {"acquired_begin_unix_ns", meta.acquired_begin_unix_ns},
      {"acquired_end_unix_ns", meta.acquired_end_unix_ns},
      {"complete", meta.missing_ascans == 0 && meta.missing_frames == 0},
      {"missing_ascans", meta.missing_ascans},
      {"missing_ranges", missing},
      {"device", meta.device_model},
      {"software", meta.software},
      {"digest", meta.digest},
      {"processing", meta.processing},
      {"acquisition", meta.acquisition}};
  if (meta.has_levels) out["levels"] = {meta.level_lo, meta.level_hi};
  if (!assumed.empty()) out["spacing_assumed"] = assumed;
  if (meta.expected_frames > 0) {
    out["missing_frames"] = meta.missing_frames;
    out["expected_frames"] = meta.expected_frames;
  }
  if (!meta.warnings.empty()) {
    out["warnings"] = std::vector<std::string>(
        meta.warnings.begin(),
        meta.warnings.begin() + std::min(std::ssize(meta.warnings), kMostWarnings));
  }
  return out;
}

std::string TextOf(const nlohmann::json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

namespace {
/// Members that are written only if they have a value.
absl::Status ReadOptional(const nlohmann::json& json, VolumeMeta* meta) {
  if (json.contains("spacing_assumed")) {
    std::vector<std::string> assumed;
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "spacing_assumed", &assumed));
    for (const std::string& name : assumed) {
      const auto* const axis = std::find(meta->axes, meta->axes + 3, name);
      if (axis == meta->axes + 3)
        return BadValue("spacing_assumed", json["spacing_assumed"], "are names of axes");
      meta->spacing_assumed[axis - meta->axes] = true;
    }
  }
  if (json.contains("expected_frames")) {
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "expected_frames", &meta->expected_frames));
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "missing_frames", &meta->missing_frames));
  }
  return json.contains("warnings") ? ReadMember(json, "warnings", &meta->warnings)
                                   : absl::OkStatus();
}

absl::Status ReadMeta(const nlohmann::json& json, VolumeMeta* meta) {
  std::string dtype;
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "volume", &meta->volume_name));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "scan", &meta->scan_name));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "title", &meta->title));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "index", &meta->index));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "dtype", &dtype));
  for (int value = 1; Info(static_cast<DType>(value)).bytes > 0; ++value) {
    if (dtype == Info(static_cast<DType>(value)).name) meta->dtype = static_cast<DType>(value);
  }
  if (dtype != Info(meta->dtype).name)
    return BadValue("dtype", dtype, "are names of element types");
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "shape", &meta->shape));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "spacing_um", &meta->spacing_um));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "axes", &meta->axes));
  if (!AxesAreFine(*meta)) return BadValue("axes", json["axes"], "are x, y and z, each once");
  OCTAVO_RETURN_IF_ERROR(ReadOptional(json, meta));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "value", &meta->value_kind));
  double display[2];
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "display", &display));
  meta->display_lo = display[0];
  meta->display_hi = display[1];
  if (json.contains("levels")) {
    float levels[2];
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "levels", &levels));
    meta->has_levels = true;
    meta->level_lo = levels[0];
    meta->level_hi = levels[1];
  }
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "labels", &meta->labels));
  nlohmann::json subject;
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "subject", &subject));
  OCTAVO_RETURN_IF_ERROR(ReadMember(subject, "id", &meta->subject_id, "subject"));
  OCTAVO_RETURN_IF_ERROR(ReadMember(subject, "site", &meta->subject_site, "subject"));
  OCTAVO_RETURN_IF_ERROR(ReadMember(subject, "note", &meta->subject_note, "subject"));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "acquired_begin_unix_ns", &meta->acquired_begin_unix_ns));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "acquired_end_unix_ns", &meta->acquired_end_unix_ns));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "missing_ascans", &meta->missing_ascans));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "missing_ranges", &meta->missing_ranges));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "device", &meta->device_model));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "software", &meta->software));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "digest", &meta->digest));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "processing", &meta->processing));
  return ReadMember(json, "acquisition", &meta->acquisition);
}
}  // namespace

absl::StatusOr<VolumeMeta> MetaFromJson(const nlohmann::json& json) {
  VolumeMeta meta;
  if (const absl::Status read = ReadMeta(json, &meta); !read.ok())
    return Annotate(read, "metadata");
  return meta;
}

}  // namespace octavo::storage
