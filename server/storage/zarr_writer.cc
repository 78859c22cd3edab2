#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/format_writers.h"
#include "server/storage/meta_json.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

struct ZstdContext {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZstdContext() = default;
  ZstdContext(const ZstdContext&) = delete;
  ~ZstdContext() { ZSTD_freeCCtx(context); }
};

/// OME-Zarr 0.5 (Zarr v3): a group with multiscales of one array "0". Chunks, or shards of chunks (sharding_indexed), are
/// encoded in parallel as slabs of B-scans come.
class ZarrWriter final : public FileListWriter {
 public:
  ZarrWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)), meta_(meta), options_(options), size_(SizeOf(meta.dtype)),
        sharded_(options.shard[0] != 0), arena_(options.threads) {
    for (int d = 0; d < 3; ++d) {
      file_shape_[d] = sharded_ ? options.shard[d] : options.chunk[d];
      inner_[d] = file_shape_[d] / options.chunk[d];
    }
  }

  absl::Status Start() {
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(path_));
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(absl::StrCat(path_, "/0")));
    return MakeDirectory(absl::StrCat(path_, "/0/c"));
  }

  int64_t SlabBscans() const override { return file_shape_[0]; }

  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) override {
    if (y_begin % file_shape_[0] != 0) return absl::InternalError(absl::StrCat("slab begins at B-scan ", y_begin, ", not at a chunk"));
    const int64_t fy = y_begin / file_shape_[0];
    const int64_t nx = Ceil(meta_.shape[1], file_shape_[1]), nz = Ceil(meta_.shape[2], file_shape_[2]);
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(absl::StrCat(path_, "/0/c/", fy)));
    for (int64_t fx = 0; fx < nx; ++fx) OCTAVO_RETURN_IF_ERROR(MakeDirectory(absl::StrCat(path_, "/0/c/", fy, "/", fx)));
    std::vector<absl::Status> results(static_cast<size_t>(nx * nz));
    std::atomic<bool> failed{false};
    arena_.execute([&] {
      tbb::parallel_for(int64_t{0}, nx * nz, [&](int64_t i) {
        if (failed) return;
        const int64_t fx = i / nz, fz = i % nz;
        absl::Status& result = results[static_cast<size_t>(i)];
        result = WriteFile(data, bscans, fy, fx, fz);
        if (!result.ok()) failed = true;
      });
    });
    for (const auto& result : results) OCTAVO_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    OCTAVO_RETURN_IF_ERROR(WriteJson("0/zarr.json", ArrayJson()));
    OCTAVO_RETURN_IF_ERROR(WriteJson("zarr.json", GroupJson()));
    OCTAVO_RETURN_IF_ERROR(SyncListed());
    // Directories from the leaves up: an entry must be durable before what refers to it.
    const int64_t ny = Ceil(meta_.shape[0], file_shape_[0]), nx = Ceil(meta_.shape[1], file_shape_[1]);
    for (int64_t y = 0; y < ny; ++y) {
      for (int64_t x = 0; x < nx; ++x) OCTAVO_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(path_, "/0/c/", y, "/", x)));
      OCTAVO_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(path_, "/0/c/", y)));
    }
    OCTAVO_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(path_, "/0/c")));
    return SyncDirectory(absl::StrCat(path_, "/0"));
  }

 private:
  static int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t ChunkBytes() const { return options_.chunk[0] * options_.chunk[1] * options_.chunk[2] * size_; }

  // The chunk at voxel (y0 within the slab, x0, z0), padded with the fill value where it leaves the volume.
  void Gather(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0, std::vector<char>* chunk) const {
    chunk->resize(static_cast<size_t>(ChunkBytes()));
    const int64_t ny = std::min(options_.chunk[0], bscans - y0), nx = std::min(options_.chunk[1], meta_.shape[1] - x0);
    const int64_t nz = std::min(options_.chunk[2], meta_.shape[2] - z0);
    if (ny < options_.chunk[0] || nx < options_.chunk[1] || nz < options_.chunk[2]) Fill(chunk);
    const auto* in = static_cast<const char*>(slab);
    for (int64_t y = 0; y < ny; ++y) {
      for (int64_t x = 0; x < nx; ++x) {
        std::memcpy(chunk->data() + (y * options_.chunk[1] + x) * options_.chunk[2] * size_,
                    in + (((y0 + y) * meta_.shape[1] + x0 + x) * meta_.shape[2] + z0) * size_, static_cast<size_t>(nz * size_));
      }
    }
  }
  void Fill(std::vector<char>* chunk) const {
    if (meta_.dtype != DType::kF32) {
      std::fill(chunk->begin(), chunk->end(), 0);
      return;
    }
    const uint32_t nan = 0x7FC00000u;
    for (size_t i = 0; i < chunk->size(); i += 4) std::memcpy(chunk->data() + i, &nan, 4);
  }

  absl::StatusOr<std::vector<char>> Encode(std::vector<char> chunk) {
    if (!options_.compress) return chunk;
    std::vector<char> out(ZSTD_compressBound(chunk.size()));
    // One-shot compression writes the content size into the frame, which some readers need.
    const size_t n = ZSTD_compressCCtx(contexts_.local().context, out.data(), out.size(), chunk.data(), chunk.size(), options_.zstd_level);
    if (ZSTD_isError(n)) return absl::InternalError(absl::StrCat("zstd: ", ZSTD_getErrorName(n)));
    out.resize(n);
    return out;
  }

  absl::Status WriteFile(const void* slab, int64_t bscans, int64_t fy, int64_t fx, int64_t fz) {
    const std::string key = absl::StrCat("0/c/", fy, "/", fx, "/", fz);
    const int64_t x0 = fx * file_shape_[1], z0 = fz * file_shape_[2];
    if (!sharded_) {
      std::vector<char> chunk;
      Gather(slab, bscans, 0, x0, z0, &chunk);
      OCTAVO_ASSIGN_OR_RETURN(const auto encoded, Encode(std::move(chunk)));
      return WriteListed(key, encoded.data(), encoded.size());
    }
    // A shard: inner chunks in C order, then their offsets and sizes as little-endian u64 pairs (empty = all ones) with CRC.
    const int64_t count = inner_[0] * inner_[1] * inner_[2];
    std::vector<absl::StatusOr<std::vector<char>>> parts(static_cast<size_t>(count), std::vector<char>());
    tbb::parallel_for(int64_t{0}, count, [&](int64_t i) {
      const int64_t cy = i / (inner_[1] * inner_[2]), cx = i / inner_[2] % inner_[1], cz = i % inner_[2];
      const int64_t y = cy * options_.chunk[0], x = x0 + cx * options_.chunk[1], z = z0 + cz * options_.chunk[2];
      if (y >= bscans || x >= meta_.shape[1] || z >= meta_.shape[2]) return;  // past the edge: an empty slot of the index
      std::vector<char> chunk;
      Gather(slab, bscans, y, x, z, &chunk);
      parts[static_cast<size_t>(i)] = Encode(std::move(chunk));
    });
    std::vector<char> shard;
    std::vector<uint64_t> index;
    for (const auto& part : parts) {
      OCTAVO_RETURN_IF_ERROR(part.status());
      index.push_back(part->empty() ? ~uint64_t{0} : shard.size());
      index.push_back(part->empty() ? ~uint64_t{0} : part->size());
      shard.insert(shard.end(), part->begin(), part->end());
    }
    const auto* bytes = reinterpret_cast<const char*>(index.data());
    const uint32_t crc = Crc32c(bytes, index.size() * 8);
    shard.insert(shard.end(), bytes, bytes + index.size() * 8);
    shard.insert(shard.end(), reinterpret_cast<const char*>(&crc), reinterpret_cast<const char*>(&crc) + 4);
    return WriteListed(key, shard.data(), shard.size());
  }

  absl::Status WriteJson(const std::string& relative, const json& value) {
    const std::string text = value.dump(1, ' ', false, json::error_handler_t::replace);
    return WriteListed(relative, text.data(), text.size());
  }

  json ChunkCodecs() const {
    json bytes = {{"name", "bytes"}};
    if (size_ > 1) bytes["configuration"] = {{"endian", "little"}};
    json codecs = json::array({bytes});
    if (options_.compress) codecs.push_back({{"name", "zstd"}, {"configuration", {{"level", options_.zstd_level}, {"checksum", false}}}});
    return codecs;
  }

  json ArrayJson() const {
    json codecs = ChunkCodecs();
    if (sharded_) {
      codecs = json::array({{{"name", "sharding_indexed"},
                             {"configuration",
                              {{"chunk_shape", options_.chunk},
                               {"codecs", ChunkCodecs()},
                               {"index_codecs", json::array({{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}, {{"name", "crc32c"}}})},
                               {"index_location", "end"}}}}});
    }
    return {{"zarr_format", 3},
            {"node_type", "array"},
            {"shape", meta_.shape},
            {"data_type", Info(meta_.dtype).zarr},
            {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", file_shape_}}}}},
            {"chunk_key_encoding", {{"name", "default"}, {"configuration", {{"separator", "/"}}}}},
            {"fill_value", meta_.dtype == DType::kF32 ? json("NaN") : json(0)},
            {"codecs", codecs},
            {"dimension_names", {"y", "x", "z"}},
            {"attributes", json::object()}};
  }

  json GroupJson() const {
    json axes = json::array();
    for (const char* name : {"y", "x", "z"}) axes.push_back({{"name", name}, {"type", "space"}, {"unit", "micrometer"}});
    const double top = meta_.dtype == DType::kU8 ? 255 : meta_.dtype == DType::kU16 ? 65535 : meta_.display_hi;
    const double bottom = meta_.dtype == DType::kF32 ? meta_.display_lo : 0;
    const json multiscale = {
        {"name", meta_.title.empty() ? meta_.volume_name : meta_.title},
        {"axes", axes},
        {"datasets", json::array({{{"path", "0"},
                                   {"coordinateTransformations", json::array({{{"type", "scale"}, {"scale", meta_.spacing_um}}})}}})}};
    const json channel = {{"label", meta_.value_kind},
                          {"color", "FFFFFF"},
                          {"active", true},
                          {"window", {{"min", bottom}, {"max", top}, {"start", meta_.display_lo}, {"end", meta_.display_hi}}}};
    return {{"zarr_format", 3},
            {"node_type", "group"},
            {"attributes",
             {{"ome", {{"version", "0.5"}, {"multiscales", json::array({multiscale})}, {"omero", {{"channels", json::array({channel})}}}}},
              {"octavo", MetaJson(meta_)}}}};
  }

  const VolumeMeta meta_;
  const WriterOptions options_;
  const int64_t size_;
  const bool sharded_;
  int64_t file_shape_[3], inner_[3];  // voxels of a file (chunk or shard); chunks in it
  tbb::task_arena arena_;
  tbb::enumerable_thread_specific<ZstdContext> contexts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeZarrWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options) {
  auto writer = std::make_unique<ZarrWriter>(path, meta, options);
  OCTAVO_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace octavo::storage
