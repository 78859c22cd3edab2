#include "server/storage/zarr/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_file.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/zarr/grid.h"

namespace octavo::storage {

using nlohmann::json;

struct ZarrArrayReader::Box {
  const int64_t* start;
  const int64_t* count;
  char* out;
};

absl::StatusOr<json> ZarrArrayReader::ReadJson(const std::string& path, const Roots& roots) {
  const auto opened = OpenBeneath(path, roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok()) return Annotate(opened.status(), path);
  return ReadJsonFile(opened->fd.get(), path);
}

absl::StatusOr<std::unique_ptr<ZarrArrayReader>> ZarrArrayReader::Open(const std::string& path,
                                                                       MissingChunk missing,
                                                                       Roots roots) {
  std::unique_ptr<ZarrArrayReader> reader(new ZarrArrayReader);
  reader->path_ = path;
  reader->missing_ = missing;
  reader->roots_ = std::move(roots);
  std::string file = path + "/zarr.json";
  auto array = ReadJson(file, reader->roots_);
  const bool v3 = !absl::IsNotFound(array.status());
  if (!v3) array = ReadJson(file = path + "/.zarray", reader->roots_);
  if (absl::IsNotFound(array.status()))
    return absl::NotFoundError(absl::StrCat(path, " has neither zarr.json nor .zarray"));
  OCTAVO_RETURN_IF_ERROR(array.status());
  auto meta = v3 ? ParseZarrV3(*array) : ParseZarrV2(*array);
  if (!meta.ok()) return Annotate(meta.status(), file);
  reader->meta_ = *std::move(meta);
  if (const absl::Status seen = reader->SetExtents(); !seen.ok()) return Annotate(seen, file);
  if (!v3) {
    auto attributes = ReadJson(path + "/.zattrs", reader->roots_);
    if (!attributes.ok() && !absl::IsNotFound(attributes.status())) return attributes.status();
    if (attributes.ok()) reader->meta_.attributes = *std::move(attributes);
  }
  return reader;
}

absl::Status ZarrArrayReader::SetExtents() {
  for (int64_t i = 0; i < rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t d = i + 3 - rank();
    if (d < 0) {
      if (meta_.shape[at] != 1)
        return absl::UnimplementedError(
            absl::StrCat("shape[", i, "] is ", meta_.shape[at],
                         "; more than three axes are read where those before have extent 1"));
      if (meta_.file[at] != 1)
        return absl::UnimplementedError("the chunk shape reaches beyond an axis of extent 1");
      continue;
    }
    shape_[d] = meta_.shape[at];
    file_[d] = meta_.file[at];
    chunk_[d] = meta_.chunk[at];
  }
  size_ = meta_.element_bytes;
  return absl::OkStatus();
}

std::string ZarrArrayReader::FileOf(const int64_t at[3]) const {
  std::vector<int64_t> key(static_cast<size_t>(std::max<int64_t>(0, rank() - 3)), 0);
  for (int64_t d = std::max<int64_t>(0, 3 - rank()); d < 3; ++d) key.push_back(at[d]);
  std::string name = absl::StrJoin(key, meta_.separator);
  if (!meta_.prefix.empty())
    name = key.empty() ? meta_.prefix : absl::StrCat(meta_.prefix, meta_.separator, name);
  if (name.empty()) name.push_back('0');
  return absl::StrCat(path_, "/", name);
}

absl::Status ZarrArrayReader::Read(const int64_t start[3], const int64_t count[3],
                                   void* out) const {
  int64_t first[3], files[3];
  for (int d = 0; d < 3; ++d) {
    first[d] = start[d] / file_[d];
    files[d] = CeilDiv(start[d] + count[d], file_[d]) - first[d];
  }
  const Box box{start, count, static_cast<char*>(out)};
  std::vector<absl::Status> results(static_cast<size_t>(files[0] * files[1] * files[2]));
  tbb::parallel_for(size_t{0}, results.size(), [&](size_t k) {
    const auto i = static_cast<int64_t>(k);
    const int64_t at[3] = {first[0] + i / (files[1] * files[2]), first[1] + i / files[2] % files[1],
                           first[2] + i % files[2]};
    results[k] = ReadFile(at, box);
  });
  for (const auto& result : results) OCTAVO_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

// Calls copy(offset in the chunk, address in the box, elements) for each contiguous run in both.
template <class Copy>
void ZarrArrayReader::Intersect(const int64_t begin[3], const int64_t extent[3], const Box& box,
                                const Copy& copy) {
  int64_t lo[3], hi[3];
  for (int d = 0; d < 3; ++d) {
    lo[d] = std::max(begin[d], box.start[d]);
    hi[d] = std::min(begin[d] + extent[d], box.start[d] + box.count[d]);
    if (lo[d] >= hi[d]) return;
  }
  for (int64_t y = lo[0]; y < hi[0]; ++y) {
    for (int64_t x = lo[1]; x < hi[1]; ++x) {
      copy(((y - begin[0]) * extent[1] + x - begin[1]) * extent[2] + lo[2] - begin[2],
           ((y - box.start[0]) * box.count[1] + x - box.start[1]) * box.count[2] + lo[2] -
               box.start[2],
           hi[2] - lo[2]);
    }
  }
}

void ZarrArrayReader::Fill(const int64_t begin[3], const int64_t extent[3], const Box& box) const {
  Intersect(begin, extent, box, [&](int64_t, int64_t to, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(box.out + (to + i) * size_, meta_.fill.data(), static_cast<size_t>(size_));
  });
}

absl::Status ZarrArrayReader::ReadFile(const int64_t at[3], const Box& box) const {
  const std::string path = FileOf(at);
  const int64_t begin[3] = {at[0] * file_[0], at[1] * file_[1], at[2] * file_[2]};
  const auto named = [&](const absl::Status& status) { return Annotate(status, path); };
  const auto opened = OpenBeneath(path, roots_, O_RDONLY | O_NONBLOCK);
  if (absl::IsNotFound(opened.status())) {
    if (missing_ == MissingChunk::kDamage)
      return named(absl::DataLossError("the chunk is missing"));
    Fill(begin, file_, box);
    return absl::OkStatus();
  }
  if (!opened.ok()) return named(opened.status());
  const UniqueFd& fd = opened->fd;
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return named(ErrnoStatus(errno, "examining", path));
  if (!S_ISREG(info.st_mode)) return named(absl::DataLossError("is no regular file"));
  if (!meta_.sharded) return named(ReadChunk(fd.get(), path, 0, info.st_size, begin, box));
  const int64_t ny = file_[0] / chunk_[0], nx = file_[1] / chunk_[1], nz = file_[2] / chunk_[2];
  const int64_t count = ny * nx * nz, index_bytes = 16 * count + 4;
  if (info.st_size < index_bytes) return named(absl::DataLossError("the shard is too short"));
  std::vector<char> index(static_cast<size_t>(index_bytes));
  if (absl::Status status =
          ReadAllAt(fd.get(), path, index.data(), index.size(), info.st_size - index_bytes);
      !status.ok())
    return named(status);
  uint32_t crc = 0;
  std::copy_n(index.data() + 16 * count, 4, reinterpret_cast<char*>(&crc));
  if (crc != Crc32c(index.data(), static_cast<size_t>(16 * count)))
    return named(absl::DataLossError("the shard's index is damaged"));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t inner[3] = {begin[0] + i / (nx * nz) * chunk_[0],
                              begin[1] + i / nz % nx * chunk_[1], begin[2] + i % nz * chunk_[2]};
    bool wanted = true;
    for (int d = 0; d < 3; ++d)
      wanted =
          wanted && inner[d] < box.start[d] + box.count[d] && inner[d] + chunk_[d] > box.start[d];
    if (!wanted) continue;
    uint64_t where[2];
    std::copy_n(index.data() + 16 * i, 16, reinterpret_cast<char*>(where));
    if (where[0] == std::numeric_limits<uint64_t>::max() && where[1] == where[0] &&
        missing_ == MissingChunk::kFill) {
      Fill(inner, chunk_, box);
      continue;
    }
    const auto limit = static_cast<uint64_t>(info.st_size - index_bytes);
    if (where[0] > limit || where[1] > limit - where[0])
      return named(
          absl::DataLossError(absl::StrCat("inner chunk ", i, " is missing or outside the shard")));
    if (absl::Status status = ReadChunk(fd.get(), path, static_cast<int64_t>(where[0]),
                                        static_cast<int64_t>(where[1]), inner, box);
        !status.ok())
      return named(status);
  }
  return absl::OkStatus();
}

absl::Status ZarrArrayReader::ReadChunk(int fd, const std::string& path, int64_t offset,
                                        int64_t bytes, const int64_t begin[3],
                                        const Box& box) const {
  Scratch& scratch = scratch_.local();
  const int64_t chunk_bytes = chunk_[0] * chunk_[1] * chunk_[2] * size_;
  // No codec makes a chunk much longer, so refuse a longer file before it takes memory.
  if (bytes > chunk_bytes + chunk_bytes / 8 + (1 << 20))
    return absl::DataLossError(absl::StrCat(bytes, " bytes for a chunk of ", chunk_bytes));
  scratch.encoded.resize(static_cast<size_t>(bytes));
  OCTAVO_RETURN_IF_ERROR(
      ReadAllAt(fd, path, scratch.encoded.data(), scratch.encoded.size(), offset));
  scratch.coder.chunk.resize(static_cast<size_t>(chunk_bytes));
  OCTAVO_RETURN_IF_ERROR(scratch.coder.Decode(
      meta_.codec, absl::string_view(scratch.encoded.data(), scratch.encoded.size()),
      scratch.coder.chunk.data(), chunk_bytes));
  Intersect(begin, chunk_, box, [&](int64_t from, int64_t to, int64_t n) {
    std::memcpy(box.out + to * size_, scratch.coder.chunk.data() + from * size_,
                static_cast<size_t>(n * size_));
  });
  return absl::OkStatus();
}

}  // namespace octavo::storage
