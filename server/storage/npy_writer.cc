#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/commit_store.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/format_writers.h"
#include "server/storage/meta_json.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

namespace octavo::storage {
namespace {

/// One file: header of NumPy's format 1.0 padded to 64 bytes, then the voxels as they come; and the metadata beside it.
class NpyWriter final : public FileListWriter {
 public:
  NpyWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)), meta_(meta), arena_(ArenaThreads(options)) {}

  absl::Status Start() {
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(path_));
    fd_ = UniqueFd(::open(data_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd_) return ErrnoStatus(errno, "creating", data_path_);
    std::string dict = absl::StrCat("{'descr': '", Info(meta_.dtype).numpy, "', 'fortran_order': False, 'shape': (", meta_.shape[0], ", ",
                                    meta_.shape[1], ", ", meta_.shape[2], "), }");
    dict.append(63 - (10 + dict.size()) % 64, ' ');
    dict += '\n';
    std::string head("\x93NUMPY\x01\x00", 8);
    head += static_cast<char>(dict.size() & 255);
    head += static_cast<char>(dict.size() >> 8);
    head += dict;
    const int64_t total = static_cast<int64_t>(head.size()) + meta_.shape[0] * PlaneBytes();
    // A full disk is found before any data moves. Some file systems cannot reserve (the C library would then write
    // zeros everywhere, hence the bare call); they find out while writing.
    while (::fallocate(fd_.get(), 0, 0, total) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) break;
      return ErrnoStatus(errno, absl::StrCat("reserving ", total, " bytes for"), data_path_);
    }
    return Append(head.data(), static_cast<int64_t>(head.size()));
  }

  int64_t SlabBscans() const override { return std::max<int64_t>(1, (8 << 20) / PlaneBytes()); }

  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) override {
    if (y_begin != next_y_ || bscans < 1 || y_begin + bscans > meta_.shape[0]) {
      return absl::InternalError(absl::StrCat("slab [", y_begin, ", ", y_begin + bscans, ") where ", next_y_, " comes next of ", meta_.shape[0]));
    }
    next_y_ += bscans;
    absl::Status status;
    arena_.execute([&] { status = Append(data, bscans * PlaneBytes()); });
    OCTAVO_RETURN_IF_ERROR(status);
    if (const int error = Failpoint("chunk_written")) return ErrnoStatus(error, "writing", data_path_);
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (::close(fd_.release()) != 0) return ErrnoStatus(errno, "closing", data_path_);
    List({.path = kNpyData, .bytes = at_, .crc32c = crc_});
    nlohmann::json meta = MetaJson(meta_);
    meta["npy"] = {{"bytes", at_}, {"crc32c", absl::StrFormat("%08x", crc_)}};  // the whole file beside this one
    const std::string text = meta.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    OCTAVO_RETURN_IF_ERROR(WriteListed(kNpyMeta, text.data(), text.size()));
    return SyncListed();
  }

 private:
  int64_t PlaneBytes() const { return meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype); }

  absl::Status Append(const void* data, int64_t bytes) {
    constexpr int64_t kPiece = 4 << 20;
    const auto* p = static_cast<const char*>(data);
    struct Part {
      absl::Status status;
      uint32_t crc = 0;
    };
    std::vector<Part> parts(static_cast<size_t>((bytes + kPiece - 1) / kPiece));
    const auto length = [&](size_t i) { return static_cast<size_t>(std::min(kPiece, bytes - static_cast<int64_t>(i) * kPiece)); };
    tbb::parallel_for(size_t{0}, parts.size(), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * kPiece;
      parts[i] = {.status = WriteAllAt(fd_.get(), data_path_, p + first, length(i), at_ + first), .crc = Crc32c(p + first, length(i))};
    });
    for (size_t i = 0; i < parts.size(); ++i) {
      OCTAVO_RETURN_IF_ERROR(parts[i].status);
      crc_ = Crc32cCombine(crc_, parts[i].crc, length(i));
    }
    (void)::sync_file_range(fd_.get(), at_, bytes, SYNC_FILE_RANGE_WRITE);  // starts it; Finish waits
    at_ += bytes;
    disk_bytes_ += bytes;
    return absl::OkStatus();
  }

  const VolumeMeta meta_;
  const std::string data_path_ = absl::StrCat(path_, "/", kNpyData);
  tbb::task_arena arena_;
  UniqueFd fd_;
  uint32_t crc_ = 0;
  int64_t at_ = 0, next_y_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeNpyWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options) {
  auto writer = std::make_unique<NpyWriter>(path, meta, options);
  OCTAVO_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace octavo::storage
