#include "server/storage/formats/zarr_array.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

#include "gpu/base/status.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

using nlohmann::json;

namespace {

/// The codec of resolved options.
ChunkCodec CodecOf(const WriterOptions& options, DType dtype) {
  ChunkCodec out{.codec = options.compress ? options.codec : Codec::kDefault,
                 .level = options.level,
                 .shuffle = options.shuffle,
                 .type_bytes = SizeOf(dtype)};
  if (out.codec == Codec::kZstd) out.level = options.zstd_level;
  // Bytes of equal weight lie together; where an element is one byte, bits do.
  if (out.shuffle == Shuffle::kDefault)
    out.shuffle = out.type_bytes > 1 ? Shuffle::kByte : Shuffle::kBit;
  return out;
}

}  // namespace

ZarrArray::ZarrArray(FileListWriter* writer, std::string name, const int64_t* shape,
                     const VolumeMeta& meta, const WriterOptions& options, bool wide)
    : writer_(writer),
      name_(std::move(name)),
      dtype_(meta.dtype),
      axes_({meta.axes[0], meta.axes[1], meta.axes[2]}),
      codec_(CodecOf(options, dtype_)),
      v2_(options.ngff == NgffVersion::k04),
      sharded_(options.shard[0] != 0),
      grid_{.shape = {shape[0], shape[1], shape[2]},
            .chunk = {options.chunk[0], options.chunk[1], options.chunk[2]},
            .size = SizeOf(dtype_),
            .fill = FillValue::Of(dtype_)} {
  for (int d = 0; d < 3; ++d) {
    file_shape_[d] = sharded_ ? options.shard[d] : options.chunk[d];
    inner_[d] = file_shape_[d] / options.chunk[d];
  }
  if (!wide) return;
  // A slab ends when its last chunk does: with a few for each thread, none waits long for that.
  constexpr int64_t kChunksOfThread = 4, kMostBytes = 64 << 20;
  const int64_t chunks = inner_[0] * CeilDiv(shape[1], options.chunk[1]) *
                         CeilDiv(shape[2], options.chunk[2]),
                row_bytes = file_shape_[0] * shape[1] * shape[2] * grid_.size;
  slab_rows_ = std::clamp<int64_t>(CeilDiv(kChunksOfThread * options.threads, chunks), 1,
                                   std::max<int64_t>(1, kMostBytes / row_bytes));
}

std::string ZarrArray::Path() const { return absl::StrCat(writer_->path(), "/", name_); }
std::string ZarrArray::ChunkPath() const { return absl::StrCat(Path(), v2_ ? "" : "/c"); }

absl::Status ZarrArray::Start() {
  OCTAVO_RETURN_IF_ERROR(MakeDirectory(Path()));
  return v2_ ? absl::OkStatus() : MakeDirectory(ChunkPath());
}

absl::Status ZarrArray::WriteSlab(int64_t y_begin, int64_t bscans, const void* data) {
  const int64_t next = std::min(SlabBscans(), grid_.shape[0] - next_y_);
  if (y_begin != next_y_ || y_begin >= grid_.shape[0] || bscans != next) {
    return absl::InternalError(absl::StrCat("slab [", y_begin, ", ", y_begin + bscans, ") where ",
                                            next, " B-scans from ", next_y_, " come next"));
  }
  next_y_ += bscans;
  const int64_t first = y_begin / file_shape_[0], ny = CeilDiv(bscans, file_shape_[0]),
                nx = CeilDiv(grid_.shape[1], file_shape_[1]),
                nz = CeilDiv(grid_.shape[2], file_shape_[2]),
                row_bytes = file_shape_[0] * grid_.shape[1] * grid_.shape[2] * grid_.size;
  for (int64_t fy = first; fy < first + ny; ++fy) {
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(absl::StrCat(ChunkPath(), "/", fy)));
    for (int64_t fx = 0; fx < nx; ++fx)
      OCTAVO_RETURN_IF_ERROR(MakeDirectory(absl::StrCat(ChunkPath(), "/", fy, "/", fx)));
  }
  std::vector<absl::Status> results(static_cast<size_t>(ny * nx * nz));
  std::atomic<bool> failed{false};
  tbb::parallel_for(int64_t{0}, ny * nx * nz, [&](int64_t i) {
    if (failed) return;
    const int64_t row = i / (nx * nz);
    absl::Status& result = results[static_cast<size_t>(i)];
    result = WriteFile(static_cast<const char*>(data) + row * row_bytes,
                       std::min(file_shape_[0], bscans - row * file_shape_[0]), first + row,
                       i / nz % nx, i % nz);
    if (!result.ok()) failed = true;
  });
  for (const auto& result : results) OCTAVO_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status ZarrArray::Finish() {
  if (next_y_ != grid_.shape[0])
    return absl::InternalError(
        absl::StrCat("array ", name_, " has ", next_y_, " of ", grid_.shape[0], " B-scans"));
  const auto write = [&](const char* file, const json& value) {
    const std::string text = value.dump(1, ' ', false, json::error_handler_t::replace);
    return writer_->WriteListed(absl::StrCat(name_, "/", file), text.data(), text.size());
  };
  if (!v2_) return write("zarr.json", Metadata());
  OCTAVO_RETURN_IF_ERROR(write(".zarray", MetadataV2()));
  return write(".zattrs", {{"_ARRAY_DIMENSIONS", axes_}});  // v2 has no names; xarray reads these
}

absl::Status ZarrArray::SyncDirectories() {
  const int64_t ny = CeilDiv(grid_.shape[0], file_shape_[0]),
                nx = CeilDiv(grid_.shape[1], file_shape_[1]);
  const std::string base = ChunkPath();
  OCTAVO_RETURN_IF_ERROR(SyncMany(static_cast<size_t>(ny * nx), [&](size_t i) {
    const auto at = static_cast<int64_t>(i);
    return SyncDirectory(absl::StrCat(base, "/", at / nx, "/", at % nx));
  }));
  OCTAVO_RETURN_IF_ERROR(SyncMany(static_cast<size_t>(ny), [&](size_t y) {
    return SyncDirectory(absl::StrCat(base, "/", y));
  }));
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(base));
  return v2_ ? absl::OkStatus() : SyncDirectory(Path());
}

// The encoded bytes of this chunk; valid until the same thread encodes again, or the slab's memory
// is reused.
absl::StatusOr<absl::string_view> ZarrArray::Encode(const void* slab, int64_t bscans, int64_t y0,
                                                    int64_t x0, int64_t z0) {
  ChunkCoder& coder = coders_.local();
  const char* chunk = grid_.Gather(slab, bscans, y0, x0, z0, &coder.chunk);
  return coder.Encode(codec_, absl::string_view(chunk, static_cast<size_t>(grid_.ChunkBytes())));
}

absl::Status ZarrArray::WriteFile(const void* slab, int64_t bscans, int64_t fy, int64_t fx,
                                  int64_t fz) {
  const std::string key = absl::StrCat(name_, v2_ ? "/" : "/c/", fy, "/", fx, "/", fz);
  const int64_t x0 = fx * file_shape_[1], z0 = fz * file_shape_[2];
  if (!sharded_ && codec_.codec == Codec::kDefault &&
      grid_.ChunkBytes() <= WriteQueue::kBlockBytes) {
    return writer_->WriteMade(key, grid_.ChunkBytes(), [&](char* memory) {
      grid_.GatherInto(slab, bscans, 0, x0, z0, memory);
    });
  }
  if (!sharded_) {
    OCTAVO_ASSIGN_OR_RETURN(const auto encoded, Encode(slab, bscans, 0, x0, z0));
    return writer_->WriteListed(key, encoded.data(), encoded.size());
  }
  // A shard: inner chunks in C order, then their offsets and sizes as little-endian u64 pairs
  // (empty = all ones) with CRC. A few at a time are encoded in parallel and then written, so that
  // no shard is held as a whole.
  OCTAVO_ASSIGN_OR_RETURN(FileListWriter::Output out, writer_->Create(key));
  const int64_t count = inner_[0] * inner_[1] * inner_[2],
                group = 2 * tbb::this_task_arena::max_concurrency();
  std::vector<uint64_t> index(static_cast<size_t>(2 * count), ~uint64_t{0});
  struct Part {
    absl::Status status;
    std::string bytes;
  };
  for (int64_t first = 0; first < count; first += group) {
    std::vector<Part> parts(static_cast<size_t>(std::min(group, count - first)));
    // Isolated: a thread that waits here must not begin another shard meanwhile.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(size_t{0}, parts.size(), [&](size_t k) {
        const int64_t i = first + static_cast<int64_t>(k);
        const int64_t y = i / (inner_[1] * inner_[2]) * grid_.chunk[0];
        const int64_t x = x0 + i / inner_[2] % inner_[1] * grid_.chunk[1],
                      z = z0 + i % inner_[2] * grid_.chunk[2];
        if (y >= bscans || x >= grid_.shape[1] || z >= grid_.shape[2])
          return;  // past the edge: an empty slot of the index
        const auto encoded = Encode(slab, bscans, y, x, z);
        parts[k].status = encoded.status();
        if (encoded.ok()) parts[k].bytes.assign(encoded->data(), encoded->size());
      });
    });
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

json ZarrArray::ChunkCodecs() const {
  json bytes = {{"name", "bytes"}};
  if (grid_.size > 1) bytes["configuration"] = {{"endian", "little"}};
  json codecs = json::array({bytes});
  if (json codec = codec_.ToJson(); !codec.is_null()) codecs.push_back(std::move(codec));
  return codecs;
}

json ZarrArray::Metadata() const {
  json codecs = ChunkCodecs();
  if (sharded_) {
    codecs = json::array(
        {{{"name", "sharding_indexed"},
          {"configuration",
           {{"chunk_shape", grid_.chunk},
            {"codecs", ChunkCodecs()},
            {"index_codecs",
             json::array({{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}},
                          {{"name", "crc32c"}}})},
            {"index_location", "end"}}}}});
  }
  return {{"zarr_format", 3},
          {"node_type", "array"},
          {"shape", grid_.shape},
          {"data_type", Info(dtype_).zarr},
          {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", file_shape_}}}}},
          {"chunk_key_encoding", {{"name", "default"}, {"configuration", {{"separator", "/"}}}}},
          {"fill_value", grid_.fill.metadata},
          {"codecs", codecs},
          {"dimension_names", axes_},
          {"attributes", json::object()}};
}

json ZarrArray::MetadataV2() const {
  const char* code = "|u1";
  switch (dtype_) {
    case DType::kU8: break;
    case DType::kI8: code = "|i1"; break;
    case DType::kU16: code = "<u2"; break;
    case DType::kI16: code = "<i2"; break;
    case DType::kF16: code = "<f2"; break;
    case DType::kF32: code = "<f4"; break;
    case DType::kF64: code = "<f8"; break;
    case DType::kC64: code = "<c8"; break;
  }
  return {{"zarr_format", 2},
          {"shape", grid_.shape},
          {"chunks", grid_.chunk},
          {"dtype", code},
          {"compressor", codec_.ToJsonV2()},
          {"fill_value", grid_.fill.metadata},
          {"order", "C"},
          {"filters", nullptr},
          {"dimension_separator", "/"}};
}

}  // namespace octavo::storage
