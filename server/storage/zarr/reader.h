#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "tbb/enumerable_thread_specific.h"

#include "gpu/base/mutex.h"
#include "server/storage/zarr/folder.h"
#include "server/storage/zarr/metadata.h"
#include "server/storage/zarr/piece.h"

namespace octavo::storage {

/// One Zarr array in a folder, of v3 or v2 (metadata.h lists the supported parts), with 0 to 32
/// axes. Thread-safe.
class ZarrArrayReader {
 public:
  /// The most pieces of one plan.
  static constexpr size_t kMostPieces = size_t{1} << 20;
  static constexpr int64_t kMostMissing = 1 << 16;

  /// Reads `path`/zarr.json or `path`/.zarray; never consolidated metadata. NotFound if there is
  /// neither; DataLoss for damaged ones; Unimplemented names the unsupported part; PermissionDenied
  /// for files outside of the roots.
  static absl::StatusOr<std::unique_ptr<ZarrArrayReader>> Open(const std::string& path,
                                                               MissingChunk missing,
                                                               ZarrFolder::Roots roots);
  static absl::StatusOr<std::unique_ptr<ZarrArrayReader>> Open(ZarrFolder folder,
                                                               MissingChunk missing);

  const ZarrFolder& folder() const { return folder_; }
  const ZarrMetadata& metadata() const { return meta_; }
  absl::Span<const int64_t> shape() const { return meta_.shape; }
  int64_t rank() const { return std::ssize(meta_.shape); }
  const std::string& data_type() const { return meta_.data_type; }  // its name in v3: "uint16"
  bool big_endian() const { return meta_.big_endian; }  // of the elements that Read returns
  int64_t element_bytes() const { return meta_.element_bytes; }
  /// Elements per file, which is a chunk or a shard.
  absl::Span<const int64_t> file_shape() const { return meta_.chain.shape; }
  const nlohmann::json& attributes() const { return meta_.attributes; }
  /// What a user should know about the folder: two sets of metadata, for example.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Reads the box [start, start + count), elements as stored, to `out`: packed in C order, or with
  /// these strides (bytes between neighbours along each axis, not negative, without overlaps).
  /// Chunks are read and decoded in parallel in the caller's oneTBB arena. OutOfRange: the box is
  /// not within the array. DataLoss names the file of the chunk; PermissionDenied as Open. After an
  /// error the contents of `out` are undefined.
  /// Cancelled: `stop` was requested, and is looked at before each chunk.
  absl::Status Read(absl::Span<const int64_t> start, absl::Span<const int64_t> count, void* out,
                    absl::Span<const int64_t> strides = {}, const std::stop_token& stop = {}) const;

  /// Where the box comes from: pieces that cover it without overlaps, in no particular order. Opens
  /// every file of the box, for its length, and reads the indices of shards. The pieces are valid
  /// as long as this reader. Errors as Read; ResourceExhausted: more than kMostPieces.
  absl::StatusOr<std::vector<ZarrPiece>> Plan(absl::Span<const int64_t> start,
                                              absl::Span<const int64_t> count) const;

  /// The number of files that the box lies in, and the pieces of one of them, as Plan: for callers
  /// that open files when they read them. Sets `opened` to the file, or to nothing if it is missing
  /// and filled.
  absl::StatusOr<int64_t> CountFiles(absl::Span<const int64_t> start,
                                     absl::Span<const int64_t> count) const;
  absl::Status PlanOne(int64_t file, absl::Span<const int64_t> start,
                       absl::Span<const int64_t> count, std::vector<ZarrPiece>* out,
                       std::optional<UniqueFd>* opened) const;

  /// Files that were looked for so far and are not there, each counted once, up to kMostMissing;
  /// `name` is one of them.
  /// MissingChunk::kFill only: elsewhere they are errors.
  struct MissingFiles {
    int64_t count = 0;
    std::string name;
  };
  MissingFiles missing_files() const;

  /// Puts a piece of a plan into its box, given the bytes of its range (none for kFill). `strides`
  /// of the box. DataLoss names the file.
  absl::Status Decode(const ZarrPiece& piece, absl::string_view bytes, void* out,
                      absl::Span<const int64_t> strides) const;

 private:
  explicit ZarrArrayReader(ZarrFolder folder) : folder_(std::move(folder)) {}
  struct Box;
  absl::Status CheckBox(absl::Span<const int64_t> start, absl::Span<const int64_t> count) const;
  template <class Use>
  absl::Status ForEachFile(absl::Span<const int64_t> start, absl::Span<const int64_t> count,
                           const Use& use) const;
  absl::StatusOr<std::optional<UniqueFd>> PlanFile(absl::Span<const int64_t> chunk,
                                                   absl::Span<const int64_t> start,
                                                   absl::Span<const int64_t> count,
                                                   std::vector<ZarrPiece>* out) const;
  absl::Status ReadPiece(int fd, const ZarrPiece& piece, char* out,
                         absl::Span<const int64_t> strides) const;

  const ZarrFolder folder_;
  ZarrMetadata meta_;
  MissingChunk missing_ = MissingChunk::kDamage;
  mutable Mutex mutex_;
  mutable std::set<std::string> absent_ ABSL_GUARDED_BY(mutex_);  // at most kMostMissing
  std::vector<std::string> notes_;
  mutable tbb::enumerable_thread_specific<PieceDecoder> decoders_;
};

}  // namespace octavo::storage
