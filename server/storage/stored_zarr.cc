#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/chunk_codec.h"
#include "server/storage/chunk_grid.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/manifest.h"
#include "server/storage/meta_json.h"
#include "server/storage/stored_volume.h"
#include "server/storage/writer.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

absl::StatusOr<json> ReadJson(const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  json out = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (out.is_discarded()) return absl::DataLossError(absl::StrCat(path, " is no JSON"));
  return out;
}

/// What the metadata of an array say about its files.
struct Layout {
  ChunkGrid grid;
  int64_t file_shape[3];  // voxels of a file: a chunk or a shard
  bool sharded = false;
  ChunkCodec codec;
};

/// The codecs of a chunk: "bytes" in little-endian order, then at most one that compresses.
absl::StatusOr<ChunkCodec> ChunkCodecOf(const json& codecs, int64_t size) {
  if (codecs.empty() || codecs.size() > 2 || codecs.at(0).at("name") != "bytes")
    return absl::UnimplementedError(absl::StrCat("codecs ", codecs.dump()));
  if (size > 1 && codecs.at(0).at("configuration").at("endian") != "little") return absl::UnimplementedError("big-endian voxels");
  if (codecs.size() == 1) return ChunkCodec{};
  return ChunkCodec::FromJson(codecs.at(1));
}

absl::StatusOr<Layout> ParseArray(const json& array, const VolumeMeta& meta) {
  Layout out{
      .grid = {.shape = {meta.shape[0], meta.shape[1], meta.shape[2]}, .chunk = {}, .size = SizeOf(meta.dtype), .fill = FillValue::Of(meta.dtype)},
      .file_shape = {},
      .codec = {}};
  const auto same_shape = [&](const json& shape) { return shape == json(meta.shape); };
  if (array.at("zarr_format") != 3 || array.at("node_type") != "array") return absl::UnimplementedError("no array of Zarr v3");
  if (!same_shape(array.at("shape")))
    return absl::DataLossError(absl::StrCat("shape ", array.at("shape").dump(), " where the volume has ", json(meta.shape).dump()));
  if (array.at("data_type") != Info(meta.dtype).zarr)
    return absl::DataLossError(absl::StrCat("data_type ", array.at("data_type").dump(), " where the volume has ", Info(meta.dtype).zarr));
  if (array.at("chunk_grid").at("name") != "regular") return absl::UnimplementedError("chunk_grid that is not regular");
  const json keys = array.at("chunk_key_encoding");
  if (keys.at("name") != "default" || keys.value("configuration", json::object()).value("separator", "/") != "/")
    return absl::UnimplementedError("chunk_key_encoding");
  const json* codecs = &array.at("codecs");
  const json* chunk = &array.at("chunk_grid").at("configuration").at("chunk_shape");
  for (size_t d = 0; d < 3; ++d) out.file_shape[d] = chunk->at(d);
  if (codecs->size() == 1 && codecs->at(0).is_object() && codecs->at(0).value("name", "") == "sharding_indexed") {
    const json& sharding = codecs->at(0).at("configuration");
    if (sharding.value("index_location", "end") != "end" || sharding.at("index_codecs").size() != 2 ||
        sharding.at("index_codecs").at(1).at("name") != "crc32c") {
      return absl::UnimplementedError("shard index");
    }
    out.sharded = true;
    chunk = &sharding.at("chunk_shape");
    codecs = &sharding.at("codecs");
  }
  int64_t voxels = 1;
  for (size_t d = 0; d < 3; ++d) {
    out.grid.chunk[d] = chunk->at(d);
    if (out.grid.chunk[d] < 1 || out.file_shape[d] < 1 || out.file_shape[d] % out.grid.chunk[d] != 0 || out.file_shape[d] > (1 << 24) ||
        (voxels *= out.grid.chunk[d]) > (1 << 30)) {
      return absl::DataLossError("chunk shape");
    }
  }
  OCTAVO_ASSIGN_OR_RETURN(out.codec, ChunkCodecOf(*codecs, out.grid.size));
  return out;
}

/// The full resolution of an OME-Zarr 0.5. A row of files along y is decoded at a time, in parallel, and kept until the next.
class StoredZarr final : public StoredVolume {
 public:
  StoredZarr(VolumeMeta meta, std::string path, std::string array, Layout layout)
      : StoredVolume(std::move(meta)), path_(std::move(path)), array_(std::move(array)), layout_(std::move(layout)) {}

  absl::Status Read(int64_t y_begin, int64_t bscans, void* out) override {
    const int64_t plane = meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype), rows = layout_.file_shape[0];
    auto* to = static_cast<char*>(out);
    while (bscans > 0) {
      const int64_t row = y_begin / rows, first = row * rows, there = std::min(rows, meta_.shape[0] - first);
      if (row != row_) {
        row_ = -1;
        slab_.resize(static_cast<size_t>(there * plane));
        OCTAVO_RETURN_IF_ERROR(Decode(row, there));
        row_ = row;
      }
      const int64_t count = std::min(bscans, first + there - y_begin);
      std::copy_n(slab_.data() + (y_begin - first) * plane, count * plane, to);
      y_begin += count, bscans -= count, to += count * plane;
    }
    return absl::OkStatus();
  }

  absl::Status Verify() const override { return VerifyDirectory(path_).status(); }

 private:
  absl::Status Decode(int64_t row, int64_t bscans) {
    const int64_t nx = CeilDiv(meta_.shape[1], layout_.file_shape[1]), nz = CeilDiv(meta_.shape[2], layout_.file_shape[2]);
    std::vector<absl::Status> results(static_cast<size_t>(nx * nz));
    tbb::parallel_for(int64_t{0}, nx * nz, [&](int64_t i) {
      const std::string path = absl::StrCat(path_, "/", array_, "/c/", row, "/", i / nz, "/", i % nz);
      absl::Status status = DecodeFile(path, bscans, i / nz * layout_.file_shape[1], i % nz * layout_.file_shape[2]);
      results[static_cast<size_t>(i)] = Annotate(status, path);
    });
    for (const auto& result : results) OCTAVO_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::Status DecodeFile(const std::string& path, int64_t bscans, int64_t x0, int64_t z0) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd && errno == ENOENT) return absl::DataLossError("the chunk is missing");  // a commit writes all of them
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "opening", path);
    if (!layout_.sharded) return DecodeChunk(fd.get(), path, 0, info.st_size, bscans, 0, x0, z0);
    const ChunkGrid& grid = layout_.grid;
    const int64_t ny = layout_.file_shape[0] / grid.chunk[0], nx = layout_.file_shape[1] / grid.chunk[1], nz = layout_.file_shape[2] / grid.chunk[2];
    const int64_t count = ny * nx * nz, index_bytes = 16 * count + 4;
    if (info.st_size < index_bytes) return absl::DataLossError("the shard is too short");
    std::vector<char> index(static_cast<size_t>(index_bytes));
    OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd.get(), path, index.data(), index.size(), info.st_size - index_bytes));
    uint32_t crc = 0;
    std::copy_n(index.data() + 16 * count, 4, reinterpret_cast<char*>(&crc));
    if (crc != Crc32c(index.data(), static_cast<size_t>(16 * count))) return absl::DataLossError("the shard's index is damaged");
    for (int64_t i = 0; i < count; ++i) {
      const int64_t y = i / (nx * nz) * grid.chunk[0], x = x0 + i / nz % nx * grid.chunk[1], z = z0 + i % nz * grid.chunk[2];
      if (y >= bscans || x >= grid.shape[1] || z >= grid.shape[2]) continue;
      uint64_t at[2];
      std::copy_n(index.data() + 16 * i, 16, reinterpret_cast<char*>(at));
      const auto limit = static_cast<uint64_t>(info.st_size - index_bytes);
      if (at[0] > limit || at[1] > limit - at[0]) return absl::DataLossError(absl::StrCat("inner chunk ", i, " is missing or outside the shard"));
      OCTAVO_RETURN_IF_ERROR(DecodeChunk(fd.get(), path, static_cast<int64_t>(at[0]), static_cast<int64_t>(at[1]), bscans, y, x, z));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeChunk(int fd, const std::string& path, int64_t offset, int64_t bytes, int64_t bscans, int64_t y, int64_t x, int64_t z) {
    Scratch& scratch = scratch_.local();
    scratch.encoded.resize(static_cast<size_t>(bytes));
    OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd, path, scratch.encoded.data(), scratch.encoded.size(), offset));
    scratch.coder.chunk.resize(static_cast<size_t>(layout_.grid.ChunkBytes()));
    OCTAVO_RETURN_IF_ERROR(scratch.coder.Decode(layout_.codec, absl::string_view(scratch.encoded.data(), scratch.encoded.size()),
                                                scratch.coder.chunk.data(), layout_.grid.ChunkBytes()));
    layout_.grid.Scatter(scratch.coder.chunk.data(), slab_.data(), bscans, y, x, z);
    return absl::OkStatus();
  }

  struct Scratch {
    ChunkCoder coder;
    std::vector<char> encoded;
  };
  const std::string path_, array_;
  const Layout layout_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
  std::vector<char> slab_;  // of the row of files row_
  int64_t row_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredZarr(const std::string& path) {
  const std::string group_path = absl::StrCat(path, "/zarr.json");
  if (!PathExists(group_path)) return InvalidField("source", absl::StrCat(path, " is no OME-Zarr of version 0.5: it has no zarr.json"));
  OCTAVO_ASSIGN_OR_RETURN(const json group, ReadJson(group_path));
  try {
    if (!group.contains("attributes") || !group["attributes"].contains("octavo") || !group["attributes"].contains("ome")) {
      return InvalidField("source", absl::StrCat(path, " was not written by octavo: its group has no attributes ome and octavo"));
    }
    auto meta = MetaFromJson(group["attributes"]["octavo"]);
    if (!meta.ok()) return Annotate(meta.status(), group_path);
    OCTAVO_RETURN_IF_ERROR(ResolveOptions({}, *meta).status());  // a shape that can be
    const std::string name = group["attributes"]["ome"].at("multiscales").at(0).at("datasets").at(0).at("path");
    if (name.empty() || name.find('/') != std::string::npos || absl::StartsWith(name, "."))
      return absl::DataLossError(absl::StrCat(group_path, ": dataset path '", name, "'"));
    const std::string array_path = absl::StrCat(path, "/", name, "/zarr.json");
    OCTAVO_ASSIGN_OR_RETURN(const json array, ReadJson(array_path));
    auto layout = ParseArray(array, *meta);
    if (!layout.ok()) return Annotate(layout.status(), array_path);
    return std::make_unique<StoredZarr>(*std::move(meta), path, name, *std::move(layout));
  } catch (const json::exception& e) {
    return absl::DataLossError(absl::StrCat(path, ": ", e.what()));
  }
}

}  // namespace octavo::storage
