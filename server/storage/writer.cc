#include "server/storage/writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/storage/format_writers.h"
#include "server/storage/meta_json.h"

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

}  // namespace

absl::Status ErrnoStatus(int error, const std::string& doing, const std::string& path) {
  const std::string text = absl::StrCat(doing, " ", path, ": ", std::strerror(error));
  const auto make = [&](absl::Status status, const char* reason) {
    return WithInfo(std::move(status), {.reason = reason, .field = "", .numbers = {{"errno", absl::StrCat(error)}}});
  };
  switch (error) {
    case ENOSPC:
    case EDQUOT: return make(absl::ResourceExhaustedError(text), "DISK_FULL");
    case EACCES:
    case EPERM:
    case EROFS: return make(absl::PermissionDeniedError(text), "READ_ONLY");
    case EEXIST:
    case ENOTEMPTY: return make(absl::AlreadyExistsError(text), "DESTINATION_EXISTS");
    case ENOENT: return make(absl::NotFoundError(text), "NO_PATH");
    default: return make(absl::InternalError(text), "IO_ERROR");
  }
}

const char* Extension(Format format) { return format == Format::kNpy ? ".npy" : ".ome.zarr"; }

absl::StatusOr<WriterOptions> ResolveOptions(const WriterOptions& options, const VolumeMeta& meta) {
  WriterOptions out = options;
  if (SizeOf(meta.dtype) == 0) return InvalidField("dtype", absl::StrCat("is ", static_cast<int>(meta.dtype), ", which is no element type"));
  int64_t voxels = 1;
  for (int d = 0; d < 3; ++d) {
    if (meta.shape[d] < 1 || meta.shape[d] > (int64_t{1} << 40) / voxels) {
      return InvalidField("shape", absl::StrCat("is ", meta.shape[d], " along axis ", d, "; allowed from 1, and 2^40 voxels together"));
    }
    voxels *= meta.shape[d];
  }
  if (out.format != Format::kOmeZarr05 && out.format != Format::kNpy) {
    return InvalidField("options.format", absl::StrCat("is ", static_cast<int>(out.format), "; allowed OME_ZARR_05, NPY"));
  }
  if (out.zstd_level < 1 || out.zstd_level > 19) {
    return InvalidField("options.zstd_level", absl::StrCat("is ", out.zstd_level, "; allowed 1 to 19"));
  }
  if (out.threads <= 0) out.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const bool chosen = std::all_of(out.chunk, out.chunk + 3, [](int64_t c) { return c == 0; });
  if (chosen) {
    out.chunk[2] = std::min<int64_t>(meta.shape[2], 128);
    out.chunk[1] = std::min<int64_t>(meta.shape[1], 128);
    out.chunk[0] = std::clamp<int64_t>((1 << 20) / (out.chunk[2] * out.chunk[1] * SizeOf(meta.dtype)), 1, std::min<int64_t>(meta.shape[0], 256));
  }
  const bool sharded = std::any_of(out.shard, out.shard + 3, [](int64_t s) { return s != 0; });
  int64_t chunk_bytes = SizeOf(meta.dtype), shard_bytes = SizeOf(meta.dtype);
  for (int d = 0; d < 3; ++d) {
    if (out.chunk[d] < 1 || out.chunk[d] > (1 << 20)) {
      return InvalidField("options.chunk", absl::StrCat("is ", out.chunk[d], " along axis ", d, "; allowed 1 to ", 1 << 20));
    }
    if (sharded && (out.shard[d] < 1 || out.shard[d] > (1 << 24) || out.shard[d] % out.chunk[d] != 0)) {
      return InvalidField("options.shard", absl::StrCat("is ", out.shard[d], " along axis ", d, "; allowed are multiples of the chunk's ", out.chunk[d]));
    }
    chunk_bytes *= out.chunk[d];
    shard_bytes = std::min(shard_bytes, int64_t{1} << 40) * (sharded ? out.shard[d] : 1);
  }
  if (chunk_bytes > (1 << 30)) return InvalidField("options.chunk", absl::StrCat("makes chunks of ", chunk_bytes, " bytes; allowed ", 1 << 30));
  if (shard_bytes > (int64_t{4} << 30)) return InvalidField("options.shard", absl::StrCat("makes shards of ", shard_bytes, " bytes; allowed ", int64_t{4} << 30));
  return out;
}

absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeWriter(const std::string& path, const VolumeMeta& meta,
                                                         const WriterOptions& resolved_options) {
  return MakeFileListWriter(path, meta, resolved_options);
}

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeFileListWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const WriterOptions resolved, ResolveOptions(options, meta));
  return resolved.format == Format::kNpy ? MakeNpyWriter(path, meta, resolved) : MakeZarrWriter(path, meta, resolved);
}

nlohmann::json MetaJson(const VolumeMeta& meta) {
  nlohmann::json missing = nlohmann::json::array();
  for (const auto& [first, count] : meta.missing_ranges) missing.push_back({first, count});
  nlohmann::json out = {
      {"volume", meta.volume_name}, {"scan", meta.scan_name}, {"title", meta.title}, {"index", meta.index},
      {"shape", meta.shape}, {"axes", {"y", "x", "z"}}, {"dtype", Info(meta.dtype).name}, {"spacing_um", meta.spacing_um},
      {"value", meta.value_kind}, {"display", {meta.display_lo, meta.display_hi}}, {"labels", meta.labels},
      {"subject", {{"id", meta.subject_id}, {"site", meta.subject_site}, {"note", meta.subject_note}}},
      {"acquired_begin", IsoTime(meta.acquired_begin_unix_ns)}, {"acquired_end", IsoTime(meta.acquired_end_unix_ns)},
      {"acquired_begin_unix_ns", meta.acquired_begin_unix_ns}, {"acquired_end_unix_ns", meta.acquired_end_unix_ns},
      {"complete", meta.missing_ascans == 0}, {"missing_ascans", meta.missing_ascans}, {"missing_ranges", missing},
      {"device", meta.device_model}, {"software", meta.software}, {"digest", meta.digest},
      {"processing", meta.processing}, {"acquisition", meta.acquisition}};
  if (meta.has_levels) out["levels"] = {meta.level_lo, meta.level_hi};
  return out;
}

}  // namespace octavo::storage
