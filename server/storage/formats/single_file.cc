#include "server/storage/formats/single_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tbb/parallel_for.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/formats/describes_last.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/crc32c.h"
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
  if (!DescribesLast(options_)) {
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
  fd_ = UniqueFd(::open(data_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd_) return ErrnoStatus(errno, "creating", data_path_);
  head_bytes_ = at_ = head_bytes;
  const int64_t total = head_bytes + body_bytes;
  // Some file systems cannot reserve room; on these a full disk shows only while writing. The C
  // library would emulate the reservation by writing zeros, hence the bare system call.
  while (body_bytes > 0 && ::fallocate(fd_.get(), 0, 0, total) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) break;
    return ErrnoStatus(errno, absl::StrCat("reserving ", total, " bytes for"), data_path_);
  }
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::Append(const void* data, int64_t bytes) {
  constexpr int64_t kPiece = 4 << 20;
  const auto* p = static_cast<const char*>(data);
  struct Part {
    absl::Status status;
    uint32_t crc = 0;
  };
  std::vector<Part> parts(static_cast<size_t>((bytes + kPiece - 1) / kPiece));
  const auto length = [&](size_t i) {
    return static_cast<size_t>(std::min(kPiece, bytes - static_cast<int64_t>(i) * kPiece));
  };
  tbb::parallel_for(size_t{0}, parts.size(), [&](size_t i) {
    const int64_t first = static_cast<int64_t>(i) * kPiece;
    parts[i] = {.status = WriteAllAt(fd_.get(), data_path_, p + first, length(i), at_ + first),
                .crc = Crc32c(p + first, length(i))};
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(parts[i].status);
    body_crc_ = Crc32cCombine(body_crc_, parts[i].crc, length(i));
  }
  // Starts writing back to disk; Finish waits for the end.
  if (bytes >= (1 << 20)) (void)::sync_file_range(fd_.get(), at_, bytes, SYNC_FILE_RANGE_WRITE);
  at_ += bytes;
  disk_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::BeginRows(int64_t count, int64_t bytes,
                                           const std::string& between) {
  rows_.assign(static_cast<size_t>(count), {});
  rows_at_ = at_;
  row_bytes_ = bytes;
  between_ = between;
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::AppendToRow(int64_t row, const void* data, int64_t bytes) {
  Row& state = rows_[static_cast<size_t>(row)];
  if (state.done + bytes > row_bytes_)
    return absl::InternalError(
        absl::StrCat("row ", row, " of ", data_path_, " is longer than ", row_bytes_));
  const int64_t offset =
      rows_at_ + row * (row_bytes_ + static_cast<int64_t>(between_.size())) + state.done;
  OCTAVO_RETURN_IF_ERROR(
      WriteAllAt(fd_.get(), data_path_, data, static_cast<size_t>(bytes), offset));
  state.crc = Crc32c(data, static_cast<size_t>(bytes), state.crc);
  state.done += bytes;
  disk_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status StreamedFileWriter::EndRows() {
  const auto gap = static_cast<int64_t>(between_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (i > 0 && gap > 0) {
      OCTAVO_RETURN_IF_ERROR(
          WriteAllAt(fd_.get(), data_path_, between_.data(), between_.size(), at_));
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
  OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd_.get(), data_path_, head.data(), head.size(), 0));
  disk_bytes_ += head_bytes_;
  if (::close(fd_.release()) != 0) return ErrnoStatus(errno, "closing", data_path_);
  const uint32_t crc = Crc32cCombine(Crc32c(head.data(), head.size()), body_crc_,
                                     static_cast<uint64_t>(at_ - head_bytes_));
  return Manifest::File{.path = "", .bytes = at_, .crc32c = crc};
}

}  // namespace octavo::storage
