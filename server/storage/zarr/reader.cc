#include "server/storage/zarr/reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tbb/parallel_for.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

class FileSource final : public ChunkSource {
 public:
  FileSource(int fd, const std::string& path) : fd_(fd), path_(path) {}
  absl::Status Read(int64_t offset, int64_t bytes, char* out) const override {
    return ReadAllAt(fd_, path_, out, static_cast<size_t>(bytes), offset);
  }

 private:
  const int fd_;
  const std::string& path_;
};

/// The first error of parallel tasks. The others need not start.
class FirstError {
 public:
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void Set(absl::Status status) {
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    failed_.store(true, std::memory_order_relaxed);
  }
  absl::Status Take() {
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ZarrArrayReader>> ZarrArrayReader::Open(const std::string& path,
                                                                       MissingChunk missing,
                                                                       ZarrFolder::Roots roots) {
  auto folder = ZarrFolder::Open(path, std::move(roots));
  if (absl::IsNotFound(folder.status()))
    return absl::NotFoundError(absl::StrCat(path, " has neither zarr.json nor .zarray"));
  if (!folder.ok()) return folder.status();
  return Open(*std::move(folder), missing);
}

absl::StatusOr<std::unique_ptr<ZarrArrayReader>> ZarrArrayReader::Open(ZarrFolder folder,
                                                                       MissingChunk missing) {
  std::unique_ptr<ZarrArrayReader> reader(new ZarrArrayReader(std::move(folder)));
  const ZarrFolder& at = reader->folder_;
  reader->missing_ = missing;
  OCTAVO_ASSIGN_OR_RETURN(const auto v3, at.ReadJson("zarr.json"));
  if (v3.has_value()) {
    auto meta = ParseZarrV3(*v3);
    if (!meta.ok()) return Annotate(meta.status(), at.PathOf("zarr.json"));
    reader->meta_ = *std::move(meta);
    if (!absl::IsNotFound(at.OpenFile(".zarray").status()))
      reader->notes_.push_back(
          absl::StrCat(at.path(), " has zarr.json and .zarray; zarr.json was read"));
    return reader;
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto v2, at.ReadJson(".zarray"));
  if (!v2.has_value())
    return absl::NotFoundError(absl::StrCat(at.path(), " has neither zarr.json nor .zarray"));
  auto meta = ParseZarrV2(*v2);
  if (!meta.ok()) return Annotate(meta.status(), at.PathOf(".zarray"));
  reader->meta_ = *std::move(meta);
  OCTAVO_ASSIGN_OR_RETURN(auto attributes, at.ReadJson(".zattrs"));
  if (attributes.has_value()) {
    if (!attributes->is_object())
      return absl::DataLossError(absl::StrCat(at.PathOf(".zattrs"), " is no object"));
    reader->meta_.attributes = *std::move(attributes);
  }
  return reader;
}

absl::Status ZarrArrayReader::CheckBox(absl::Span<const int64_t> start,
                                       absl::Span<const int64_t> count) const {
  bool within = start.size() == meta_.shape.size() && count.size() == meta_.shape.size();
  for (size_t d = 0; within && d < start.size(); ++d)
    within = start[d] >= 0 && count[d] >= 0 && start[d] <= meta_.shape[d] &&
             count[d] <= meta_.shape[d] - start[d];
  if (within) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "the box from [", absl::StrJoin(start, ","), "] of [", absl::StrJoin(count, ","),
      "] elements; allowed are boxes within the shape [", absl::StrJoin(meta_.shape, ","), "]"));
}

// Calls use(number of files), then for each k the returned function with the k-th file's indices.
template <class Use>
absl::Status ZarrArrayReader::ForEachFile(absl::Span<const int64_t> start,
                                          absl::Span<const int64_t> count, const Use& use) const {
  OCTAVO_RETURN_IF_ERROR(CheckBox(start, count));
  AxisValues first(start.size()), files(start.size());
  size_t all = 1;
  for (size_t d = 0; d < start.size(); ++d) {
    if (count[d] == 0) return absl::OkStatus();
    const int64_t extent = meta_.chain.shape[d];
    first[d] = start[d] / extent;
    files[d] = (start[d] + count[d] - 1) / extent + 1 - first[d];
    all *= static_cast<size_t>(files[d]);
  }
  return use(all, [&](size_t k) {
    AxisValues chunk(first);
    auto rest = static_cast<int64_t>(k);
    for (size_t d = first.size(); d > 0; --d) {
      chunk[d - 1] += rest % files[d - 1];
      rest /= files[d - 1];
    }
    return chunk;
  });
}

absl::StatusOr<std::optional<UniqueFd>> ZarrArrayReader::PlanFile(
    absl::Span<const int64_t> chunk, absl::Span<const int64_t> start,
    absl::Span<const int64_t> count, std::vector<ZarrPiece>* out) const {
  const size_t rank = chunk.size();
  ZarrPiece window{.form = ZarrPiece::Form::kFill,
                   .file = meta_.FileOf(chunk),
                   .from = AxisValues(rank),
                   .to = AxisValues(rank),
                   .count = AxisValues(rank)};
  for (size_t d = 0; d < rank; ++d) {
    const int64_t extent = meta_.chain.shape[d], begin = chunk[d] * extent,
                  lo = std::max(begin, start[d]),
                  hi = std::min(begin + extent, start[d] + count[d]);
    window.from[d] = lo - begin;
    window.to[d] = lo - start[d];
    window.count[d] = hi - lo;
  }
  auto opened = folder_.OpenFile(window.file);
  if (absl::IsNotFound(opened.status())) {
    if (missing_ == MissingChunk::kDamage)
      return absl::DataLossError(
          absl::StrCat(folder_.PathOf(window.file), ": the chunk is missing"));
    {
      const MutexLock lock(mutex_);
      if (std::ssize(absent_) < kMostMissing) absent_.insert(window.file);
    }
    out->push_back(std::move(window));
    return std::optional<UniqueFd>();
  }
  if (!opened.ok()) return opened.status();
  const std::string path = folder_.PathOf(window.file);
  struct stat info {};
  if (::fstat(opened->get(), &info) != 0) return ErrnoStatus(errno, "examining", path);
  const absl::Status planned = AppendPieces(meta_.chain, FileSource(opened->get(), path), 0,
                                            info.st_size, window, missing_, out);
  if (!planned.ok()) return Annotate(planned, path);
  return std::optional<UniqueFd>(*std::move(opened));
}

ZarrArrayReader::MissingFiles ZarrArrayReader::missing_files() const {
  const MutexLock lock(mutex_);
  if (absent_.empty()) return {};
  return {.count = std::ssize(absent_), .name = *absent_.begin()};
}

absl::Status ZarrArrayReader::ReadPiece(int fd, const ZarrPiece& piece, char* out,
                                        absl::Span<const int64_t> strides) const {
  PieceDecoder& decoder = decoders_.local();
  const int64_t element = meta_.element_bytes;
  if (piece.form == ZarrPiece::Form::kFill)
    return decoder.Decode(piece, {}, meta_.fill, missing_, out, strides);
  const std::string path = folder_.PathOf(piece.file);
  absl::Status status;
  if (piece.form == ZarrPiece::Form::kRaw) {
    // Only what the piece spans, straight to its place if it is one run there.
    const int64_t span = piece.RawSpan(element);
    char* const to = out + OffsetOf(piece.to, strides);
    const bool run = IsOneRun(piece.count, element, piece.chain->stride, strides);
    char* const memory = run ? to : decoder.encoded()->Get(static_cast<size_t>(span));
    status =
        ReadAllAt(fd, path, memory, static_cast<size_t>(span), piece.offset + piece.RawBegin());
    if (status.ok() && !run)
      CopyBox(piece.count, element, memory, piece.chain->stride, to, strides);
  } else {
    char* const memory = decoder.encoded()->Get(static_cast<size_t>(piece.bytes));
    status = ReadAllAt(fd, path, memory, static_cast<size_t>(piece.bytes), piece.offset);
    if (status.ok()) {
      status = decoder.Decode(piece, {memory, static_cast<size_t>(piece.bytes)}, meta_.fill,
                              missing_, out, strides);
      if (!status.ok()) status = Annotate(status, path);
    }
  }
  decoder.Shrink();
  return status;
}

absl::Status ZarrArrayReader::Read(absl::Span<const int64_t> start, absl::Span<const int64_t> count,
                                   void* out, absl::Span<const int64_t> strides,
                                   const std::stop_token& stop) const {
  const AxisValues packed = PackedStrides(count, meta_.element_bytes);
  if (strides.empty()) strides = packed;
  if (strides.size() != count.size())
    return absl::InvalidArgumentError(
        absl::StrCat(strides.size(), " strides for ", count.size(), " axes"));
  return ForEachFile(start, count, [&](size_t files, const auto& chunk_of) {
    FirstError error;
    tbb::parallel_for(size_t{0}, files, [&](size_t k) {
      if (error.failed()) return;
      if (stop.stop_requested()) return error.Set(absl::CancelledError("cancelled"));
      std::vector<ZarrPiece> pieces;
      const auto fd = PlanFile(chunk_of(k), start, count, &pieces);
      if (!fd.ok()) return error.Set(fd.status());
      const auto read = [&](size_t i) {
        if (error.failed()) return;
        if (stop.stop_requested()) return error.Set(absl::CancelledError("cancelled"));
        absl::Status status = ReadPiece(fd->has_value() ? (*fd)->get() : -1, pieces[i],
                                        static_cast<char*>(out), strides);
        if (!status.ok()) error.Set(std::move(status));
      };
      if (pieces.size() == 1)
        read(0);
      else
        tbb::parallel_for(size_t{0}, pieces.size(), read);
    });
    return error.Take();
  });
}

absl::StatusOr<std::vector<ZarrPiece>> ZarrArrayReader::Plan(
    absl::Span<const int64_t> start, absl::Span<const int64_t> count) const {
  std::vector<ZarrPiece> pieces;
  const auto plan = [&](size_t files, const auto& chunk_of) -> absl::Status {
    for (size_t k = 0; k < files; ++k) {
      OCTAVO_RETURN_IF_ERROR(PlanFile(chunk_of(k), start, count, &pieces).status());
      if (pieces.size() + files - k - 1 > kMostPieces)
        return absl::ResourceExhaustedError(absl::StrCat(
            "the box has more than ", kMostPieces, " pieces of chunks; allowed are smaller boxes"));
    }
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(ForEachFile(start, count, plan));
  return pieces;
}

absl::StatusOr<int64_t> ZarrArrayReader::CountFiles(absl::Span<const int64_t> start,
                                                    absl::Span<const int64_t> count) const {
  int64_t files = 0;
  OCTAVO_RETURN_IF_ERROR(ForEachFile(start, count, [&](size_t all, const auto&) {
    files = static_cast<int64_t>(all);
    return absl::OkStatus();
  }));
  return files;
}

absl::Status ZarrArrayReader::PlanOne(int64_t file, absl::Span<const int64_t> start,
                                      absl::Span<const int64_t> count, std::vector<ZarrPiece>* out,
                                      std::optional<UniqueFd>* opened) const {
  return ForEachFile(start, count, [&](size_t, const auto& chunk_of) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(*opened,
                            PlanFile(chunk_of(static_cast<size_t>(file)), start, count, out));
    return absl::OkStatus();
  });
}

absl::Status ZarrArrayReader::Decode(const ZarrPiece& piece, absl::string_view bytes, void* out,
                                     absl::Span<const int64_t> strides) const {
  if (piece.form != ZarrPiece::Form::kFill && static_cast<int64_t>(bytes.size()) != piece.bytes)
    return absl::DataLossError(absl::StrCat(folder_.PathOf(piece.file), ": ", bytes.size(),
                                            " bytes; allowed are the piece's ", piece.bytes));
  PieceDecoder& decoder = decoders_.local();
  const absl::Status status =
      decoder.Decode(piece, bytes, meta_.fill, missing_, static_cast<char*>(out), strides);
  decoder.Shrink();
  return status.ok() ? status : Annotate(status, folder_.PathOf(piece.file));
}

}  // namespace octavo::storage
