#include "server/storage/formats/single_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tbb/parallel_for.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/direct_alignment.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

int64_t SlabWriter::BscansOf(int64_t bytes) const {
  return std::clamp<int64_t>(bytes / PlaneBytes(), 1, meta_.shape[0]);
}
int64_t SlabWriter::SlabBscans() const { return BscansOf(8 << 20); }

absl::Status SlabWriter::WriteSlab(int64_t y_begin, int64_t bscans, const void* data) {
  if (y_begin != next_y_ || bscans < 1 || y_begin + bscans > meta_.shape[0]) {
    return absl::InternalError(absl::StrCat("slab [", y_begin, ", ", y_begin + bscans, ") where ",
                                            next_y_, " comes next of ", meta_.shape[0]));
  }
  next_y_ += bscans;
  absl::Status status;
  arena_.execute([&] { status = Slab(y_begin, bscans, static_cast<const char*>(data)); });
  OCTAVO_RETURN_IF_ERROR(status);
  if (const int error = Failpoint("chunk_written")) return ErrnoStatus(error, "writing", path_);
  return absl::OkStatus();
}

absl::Status SlabWriter::Describe(const VolumeMeta& meta) {
  if (!DescribesLast(options_.format)) {
    return absl::InternalError(
        absl::StrCat(FormatName(options_.format), " has its metadata before the voxels"));
  }
  meta_ = meta;
  return absl::OkStatus();
}

absl::Status SingleFileWriter::Finish() {
  absl::StatusOr<Manifest::File> file = absl::InternalError("not completed");
  arena_.execute([&] { file = Complete(); });
  OCTAVO_RETURN_IF_ERROR(file.status());
  file->path = kDataFile;
  List(*file);
  nlohmann::json meta = MetaJson(meta_);
  meta["format"] = FormatName(options_.format);
  meta["file"] = {
      {"bytes", file->bytes},
      {"crc32c", absl::StrFormat("%08x", file->crc32c)}};  // the whole file beside this one
  AddTo(&meta);
  const std::string text = meta.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  OCTAVO_RETURN_IF_ERROR(WriteListed(kMetaFile, text.data(), text.size()));
  return SyncListed();
}

absl::Status StreamedFileWriter::Open(int64_t head_bytes, int64_t body_bytes) {
  OCTAVO_ASSIGN_OR_RETURN(file_, queue_.Create(data_path_, VolumeBytes() >= kLeastDirectBytes));
  head_bytes_ = at_ = head_bytes;
  // Without a reservation a full disk shows only while writing.
  return body_bytes > 0 ? file_->Reserve(head_bytes + body_bytes).status() : absl::OkStatus();
}

absl::Status StreamedFileWriter::Append(const void* data, int64_t bytes) {
  constexpr int64_t kBlock = WriteQueue::kBlockBytes;
  if (bytes == 0) return absl::OkStatus();
  const auto* p = static_cast<const char*>(data);
  const int64_t first = at_ / kBlock, end = at_ + bytes;
  struct Part {
    absl::Status status;
    uint32_t crc = 0;
    int64_t bytes = 0;
  };
  std::vector<Part> parts(static_cast<size_t>((end - 1) / kBlock - first + 1));
  Tail rest;  // of the last block, if that is not full
  tbb::parallel_for(size_t{0}, parts.size(), [&](size_t i) {
    const int64_t block_at = (first + static_cast<int64_t>(i)) * kBlock,
                  from = std::max(at_, block_at), to = std::min(end, block_at + kBlock);
    Tail tail = i == 0 ? std::move(tail_) : Tail();
    if (!tail.block) {
      tail = {
          .block = queue_.NewBlock(kBlock), .begin = from - block_at, .filled = from - block_at};
    }
    Part& part = parts[i];
    part.bytes = to - from;
    part.crc = CopyWithCrc32c(tail.block.data() + tail.filled, p + (from - at_),
                              static_cast<size_t>(part.bytes));
    tail.filled += part.bytes;
    if (tail.filled == kBlock) {
      part.status = Flush(std::move(tail), block_at);
    } else {
      rest = std::move(tail);
    }
  });
  for (const Part& part : parts) {
    OCTAVO_RETURN_IF_ERROR(part.status);
    body_crc_ = Crc32cCombine(body_crc_, part.crc, static_cast<uint64_t>(part.bytes));
  }
  tail_ = std::move(rest);
  at_ = end;
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::Flush(Tail tail, int64_t block_at) {
  if (!tail.block) return absl::OkStatus();
  const int64_t begin = tail.begin, bytes = tail.filled - tail.begin;
  return queue_.Write(file_, std::move(tail.block),
                      {{.begin = begin, .bytes = bytes, .offset = block_at + begin}});
}

absl::Status StreamedFileWriter::BeginRows(int64_t count, int64_t bytes,
                                           const std::string& between) {
  OCTAVO_RETURN_IF_ERROR(
      Flush(std::exchange(tail_, {}), at_ / WriteQueue::kBlockBytes * WriteQueue::kBlockBytes));
  rows_.assign(static_cast<size_t>(count), {});
  rows_at_ = at_;
  row_bytes_ = bytes;
  between_ = between;
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::AppendToRows(
    int64_t first, int64_t count, int64_t bytes,
    const std::function<void(char* const* places)>& fill) {
  const int64_t pitch = row_bytes_ + static_cast<int64_t>(between_.size());
  // Whole pages go past the page cache: a row's bytes lie at the remainder of their offset, behind
  // those of a page that the last call left.
  std::vector<char*> places;
  std::vector<WriteQueue::Piece> pieces;
  int64_t room = 0;
  for (int64_t row = first; row < first + count; ++row) {
    const Row& state = rows_[static_cast<size_t>(row)];
    if (state.done + bytes > row_bytes_)
      return absl::InternalError(
          absl::StrCat("row ", row, " of ", data_path_, " is longer than ", row_bytes_));
    const int64_t held = std::ssize(state.rest),
                  offset = rows_at_ + row * pitch + state.done - held;
    pieces.push_back({.begin = RoundUp(room, kDirectAlignment) + offset % kDirectAlignment,
                      .bytes = held + bytes,
                      .offset = offset});
    room = pieces.back().begin + pieces.back().bytes;
  }
  WriteQueue::Block block = queue_.NewBlock(room);
  for (int64_t i = 0; i < count; ++i) {
    const Row& state = rows_[static_cast<size_t>(first + i)];
    char* const place = block.data() + pieces[static_cast<size_t>(i)].begin;
    std::copy(state.rest.begin(), state.rest.end(), place);
    places.push_back(place + state.rest.size());
  }
  fill(places.data());
  for (int64_t i = 0; i < count; ++i) {
    Row& state = rows_[static_cast<size_t>(first + i)];
    WriteQueue::Piece& piece = pieces[static_cast<size_t>(i)];
    const char* const place = places[static_cast<size_t>(i)];
    state.crc = Crc32c(place, static_cast<size_t>(bytes), state.crc);
    state.done += bytes;
    const int64_t end = piece.offset + piece.bytes,
                  rest = state.done == row_bytes_
                             ? 0
                             : std::min(piece.bytes, end % OutputFile::Alignment());
    state.rest.assign(place + bytes - rest, static_cast<size_t>(rest));
    piece.bytes -= rest;
  }
  return queue_.Write(file_, std::move(block), std::move(pieces));
}

absl::Status StreamedFileWriter::EndRows() {
  const auto gap = static_cast<int64_t>(between_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (i > 0 && gap > 0) {
      OCTAVO_RETURN_IF_ERROR(
          WriteAllAt(file_->fd(), data_path_, between_.data(), between_.size(), at_));
      body_crc_ = Crc32c(between_.data(), between_.size(), body_crc_);
      at_ += gap;
      disk_bytes_ += gap;
    }
    if (rows_[i].done != row_bytes_)
      return absl::InternalError(absl::StrCat("row ", i, " of ", data_path_, " has ", rows_[i].done,
                                              " of ", row_bytes_, " bytes"));
    body_crc_ = Crc32cCombine(body_crc_, rows_[i].crc, static_cast<uint64_t>(row_bytes_));
    at_ += row_bytes_;
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest::File> StreamedFileWriter::Complete() {
  OCTAVO_ASSIGN_OR_RETURN(const std::string head, Head());
  if (static_cast<int64_t>(head.size()) != head_bytes_) {
    return absl::InternalError(absl::StrCat("the head of ", data_path_, " has ", head.size(),
                                            " bytes; ", head_bytes_, " were kept for it"));
  }
  OCTAVO_RETURN_IF_ERROR(
      Flush(std::exchange(tail_, {}), at_ / WriteQueue::kBlockBytes * WriteQueue::kBlockBytes));
  OCTAVO_RETURN_IF_ERROR(queue_.Drain());
  OCTAVO_RETURN_IF_ERROR(WriteAllAt(file_->fd(), data_path_, head.data(), head.size(), 0));
  disk_bytes_ += head_bytes_;
  file_ = nullptr;
  OCTAVO_RETURN_IF_ERROR(queue_.Drain());  // tells how closing it went
  const uint32_t crc = Crc32cCombine(Crc32c(head.data(), head.size()), body_crc_,
                                     static_cast<uint64_t>(at_ - head_bytes_));
  return Manifest::File{.path = "", .bytes = at_, .crc32c = crc};
}

}  // namespace octavo::storage
