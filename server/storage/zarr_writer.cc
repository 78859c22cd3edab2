#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
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

/// What one thread encodes with; kept between chunks, so that no chunk allocates.
struct Scratch {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<char> chunk, encoded;
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  ~Scratch() { ZSTD_freeCCtx(context); }
};

/// What a voxel outside the volume holds: 0, or NaN for the types that have it (complex: both parts).
struct FillValue {
  json metadata;
  std::array<unsigned char, 8> bytes{};  // repeats with the element's size
};
FillValue FillOf(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {"NaN", {0x00, 0x7E}};
    case DType::kF32: return {"NaN", {0x00, 0x00, 0xC0, 0x7F}};
    case DType::kF64: return {"NaN", {0, 0, 0, 0, 0, 0, 0xF8, 0x7F}};
    case DType::kC64: return {json::array({"NaN", "NaN"}), {0x00, 0x00, 0xC0, 0x7F, 0x00, 0x00, 0xC0, 0x7F}};
    default: return {0, {}};
  }
}

/// OME-Zarr 0.5 (Zarr v3): a group with multiscales of one array "0". Chunks, or shards of chunks (sharding_indexed), are
/// encoded in parallel as slabs of B-scans come; every chunk is written, also one that holds only the fill value.
class ZarrWriter final : public FileListWriter {
 public:
  ZarrWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)), meta_(meta), options_(options), size_(SizeOf(meta.dtype)),
        sharded_(options.shard[0] != 0), arena_(ArenaThreads(options)) {
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
    if (y_begin != next_y_ || y_begin >= meta_.shape[0] || bscans != std::min(file_shape_[0], meta_.shape[0] - y_begin)) {
      return absl::InternalError(absl::StrCat("slab [", y_begin, ", ", y_begin + bscans, ") where ", std::min(file_shape_[0], meta_.shape[0] - next_y_),
                                              " B-scans from ", next_y_, " come next"));
    }
    next_y_ += bscans;
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
    const std::string base = absl::StrCat(path_, "/0/c");
    OCTAVO_RETURN_IF_ERROR(SyncMany(static_cast<size_t>(ny * nx), [&](size_t i) {
      const auto at = static_cast<int64_t>(i);
      return SyncDirectory(absl::StrCat(base, "/", at / nx, "/", at % nx));
    }));
    OCTAVO_RETURN_IF_ERROR(SyncMany(static_cast<size_t>(ny), [&](size_t y) { return SyncDirectory(absl::StrCat(base, "/", y)); }));
    OCTAVO_RETURN_IF_ERROR(SyncDirectory(base));
    OCTAVO_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(path_, "/0")));
    return SyncDirectory(path_);
  }

 private:
  static int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t ChunkBytes() const { return options_.chunk[0] * options_.chunk[1] * options_.chunk[2] * size_; }

  // The bytes of the chunk at voxel (y0 within the slab, x0, z0), padded with the fill value where it leaves the volume:
  // in the slab itself where they lie there in a row, else gathered into `chunk`.
  const char* Gather(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0, std::vector<char>* chunk) const {
    const int64_t ny = std::min(options_.chunk[0], bscans - y0), nx = std::min(options_.chunk[1], meta_.shape[1] - x0);
    const int64_t nz = std::min(options_.chunk[2], meta_.shape[2] - z0);
    const bool full = ny == options_.chunk[0] && nx == options_.chunk[1] && nz == options_.chunk[2];
    const auto* in = static_cast<const char*>(slab) + ((y0 * meta_.shape[1] + x0) * meta_.shape[2] + z0) * size_;
    if (full && nz == meta_.shape[2] && (nx == meta_.shape[1] || ny == 1)) return in;
    chunk->resize(static_cast<size_t>(ChunkBytes()));
    if (!full) {
      const auto size = static_cast<size_t>(size_);
      for (size_t i = 0; i < chunk->size(); i += size) std::memcpy(chunk->data() + i, fill_.bytes.data(), size);
    }
    for (int64_t y = 0; y < ny; ++y) {
      for (int64_t x = 0; x < nx; ++x) {
        std::memcpy(chunk->data() + (y * options_.chunk[1] + x) * options_.chunk[2] * size_,
                    in + (y * meta_.shape[1] + x) * meta_.shape[2] * size_, static_cast<size_t>(nz * size_));
      }
    }
    return chunk->data();
  }

  // What the file holds of this chunk; valid until the same thread encodes again, or the slab's memory is reused.
  absl::StatusOr<absl::string_view> Encode(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0) {
    Scratch& scratch = scratch_.local();
    const auto bytes = static_cast<size_t>(ChunkBytes());
    const char* chunk = Gather(slab, bscans, y0, x0, z0, &scratch.chunk);
    if (!options_.compress) return absl::string_view(chunk, bytes);
    if (scratch.context == nullptr) return absl::ResourceExhaustedError("no memory for a zstd encoder");
    scratch.encoded.resize(ZSTD_compressBound(bytes));
    // One-shot compression writes the content size into the frame, which some readers need.
    const size_t n = ZSTD_compressCCtx(scratch.context, scratch.encoded.data(), scratch.encoded.size(), chunk, bytes, options_.zstd_level);
    if (ZSTD_isError(n)) return absl::InternalError(absl::StrCat("zstd: ", ZSTD_getErrorName(n)));
    return absl::string_view(scratch.encoded.data(), n);
  }

  absl::Status WriteFile(const void* slab, int64_t bscans, int64_t fy, int64_t fx, int64_t fz) {
    const std::string key = absl::StrCat("0/c/", fy, "/", fx, "/", fz);
    const int64_t x0 = fx * file_shape_[1], z0 = fz * file_shape_[2];
    if (!sharded_) {
      OCTAVO_ASSIGN_OR_RETURN(const auto encoded, Encode(slab, bscans, 0, x0, z0));
      return WriteListed(key, encoded.data(), encoded.size());
    }
    // A shard: inner chunks in C order, then their offsets and sizes as little-endian u64 pairs (empty = all ones) with CRC.
    // A few at a time are encoded in parallel and then written, so that no shard is held as a whole.
    OCTAVO_ASSIGN_OR_RETURN(Output out, Create(key));
    const int64_t count = inner_[0] * inner_[1] * inner_[2], group = 2 * arena_.max_concurrency();
    std::vector<uint64_t> index(static_cast<size_t>(2 * count), ~uint64_t{0});
    struct Part {
      absl::Status status;
      std::string bytes;
    };
    for (int64_t first = 0; first < count; first += group) {
      std::vector<Part> parts(static_cast<size_t>(std::min(group, count - first)));
      // Isolated: a thread that waits here must not begin another shard meanwhile.
      tbb::this_task_arena::isolate([&] { tbb::parallel_for(size_t{0}, parts.size(), [&](size_t k) {
        const int64_t i = first + static_cast<int64_t>(k);
        const int64_t y = i / (inner_[1] * inner_[2]) * options_.chunk[0];
        const int64_t x = x0 + i / inner_[2] % inner_[1] * options_.chunk[1], z = z0 + i % inner_[2] * options_.chunk[2];
        if (y >= bscans || x >= meta_.shape[1] || z >= meta_.shape[2]) return;  // past the edge: an empty slot of the index
        const auto encoded = Encode(slab, bscans, y, x, z);
        parts[k].status = encoded.status();
        if (encoded.ok()) parts[k].bytes.assign(encoded->data(), encoded->size());
      }); });
      for (size_t k = 0; k < parts.size(); ++k) {
        OCTAVO_RETURN_IF_ERROR(parts[k].status);
        if (parts[k].bytes.empty()) continue;
        const size_t at = 2 * (static_cast<size_t>(first) + k);
        index[at] = static_cast<uint64_t>(out.bytes());
        index[at + 1] = parts[k].bytes.size();
        OCTAVO_RETURN_IF_ERROR(out.Append(parts[k].bytes.data(), parts[k].bytes.size()));
      }
    }
    const uint32_t crc = Crc32c(index.data(), index.size() * 8);
    OCTAVO_RETURN_IF_ERROR(out.Append(index.data(), index.size() * 8));
    OCTAVO_RETURN_IF_ERROR(out.Append(&crc, 4));
    return out.Close();
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
            {"fill_value", fill_.metadata},
            {"codecs", codecs},
            {"dimension_names", {"y", "x", "z"}},
            {"attributes", json::object()}};
  }

  json GroupJson() const {
    json axes = json::array();
    for (const char* name : {"y", "x", "z"}) axes.push_back({{"name", name}, {"type", "space"}, {"unit", "micrometer"}});
    // The window's ends: what the type can hold, or for floats what is shown.
    double bottom = meta_.display_lo, top = meta_.display_hi;
    if (meta_.dtype == DType::kU8 || meta_.dtype == DType::kU16) bottom = 0, top = meta_.dtype == DType::kU8 ? 255 : 65535;
    if (meta_.dtype == DType::kI8 || meta_.dtype == DType::kI16) bottom = meta_.dtype == DType::kI8 ? -128 : -32768, top = -bottom - 1;
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
  const FillValue fill_ = FillOf(meta_.dtype);
  const bool sharded_;
  int64_t file_shape_[3], inner_[3];  // voxels of a file (chunk or shard); chunks in it
  tbb::task_arena arena_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
  int64_t next_y_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeZarrWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options) {
  auto writer = std::make_unique<ZarrWriter>(path, meta, options);
  OCTAVO_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace octavo::storage
