#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/commit_store.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/format_writers.h"
#include "server/storage/meta_json.h"
#include "tbb/parallel_for.h"

namespace octavo::storage {

std::vector<Manifest::File> FileListWriter::Files() {
  MutexLock lock(mutex_);
  return files_;
}

void FileListWriter::List(Manifest::File file) {
  MutexLock lock(mutex_);
  files_.push_back(std::move(file));
}

absl::Status FileListWriter::WriteListed(const std::string& relative, const void* data, size_t bytes) {
  const std::string file = absl::StrCat(path_, "/", relative);
  if (const int error = Failpoint("chunk_written")) return ErrnoStatus(error, "writing", file);
  OCTAVO_RETURN_IF_ERROR(WriteNewFile(file, data, bytes));
  disk_bytes_ += static_cast<int64_t>(bytes);
  List({.path = relative, .bytes = static_cast<int64_t>(bytes), .crc32c = Crc32c(data, bytes)});
  return absl::OkStatus();
}

absl::Status FileListWriter::SyncListed() {
  const auto files = Files();
  std::atomic<bool> failed{false};
  std::vector<absl::Status> results(files.size());
  tbb::parallel_for(size_t{0}, files.size(), [&](size_t i) {
    if (!failed) results[i] = SyncFile(absl::StrCat(path_, "/", files[i].path));
    if (!results[i].ok()) failed = true;
  });
  for (const auto& status : results) OCTAVO_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

namespace {

/// One file: header of NumPy's format 1.0 padded to 64 bytes, then the voxels as they come.
class NpyWriter final : public FileListWriter {
 public:
  NpyWriter(std::string path, const VolumeMeta& meta) : FileListWriter(std::move(path)), meta_(meta) {}

  absl::Status Start() {
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(path_));
    const std::string file = absl::StrCat(path_, "/", kNpyData);
    fd_ = UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd_) return ErrnoStatus(errno, "creating", file);
    std::string dict = absl::StrCat("{'descr': '", Info(meta_.dtype).numpy, "', 'fortran_order': False, 'shape': (", meta_.shape[0], ", ",
                                    meta_.shape[1], ", ", meta_.shape[2], "), }");
    dict.append(63 - (10 + dict.size()) % 64, ' ');
    dict += '\n';
    std::string head("\x93NUMPY\x01\x00", 8);
    head += static_cast<char>(dict.size() & 255);
    head += static_cast<char>(dict.size() >> 8);
    head += dict;
    const int64_t total = static_cast<int64_t>(head.size()) + meta_.shape[0] * PlaneBytes();
    // A full disk is found before any data moves. Some file systems cannot reserve; they find out while writing.
    if (const int error = ::posix_fallocate(fd_.get(), 0, total); error == ENOSPC || error == EDQUOT) return ErrnoStatus(error, "reserving", file);
    return Append(head.data(), head.size());
  }

  int64_t SlabBscans() const override { return std::max<int64_t>(1, (8 << 20) / PlaneBytes()); }

  absl::Status WriteSlab(int64_t, int64_t bscans, const void* data) override {
    if (const int error = Failpoint("chunk_written")) return ErrnoStatus(error, "writing", path_);
    return Append(data, static_cast<size_t>(bscans * PlaneBytes()));
  }

  absl::Status Finish() override {
    List({.path = kNpyData, .bytes = disk_bytes_.load(), .crc32c = crc_});
    const std::string text = MetaJson(meta_).dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    OCTAVO_RETURN_IF_ERROR(WriteListed(kNpyMeta, text.data(), text.size()));
    return SyncListed();
  }

 private:
  int64_t PlaneBytes() const { return meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype); }
  absl::Status Append(const void* data, size_t bytes) {
    crc_ = Crc32c(data, bytes, crc_);
    const auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_.get(), p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "writing", absl::StrCat(path_, "/", kNpyData));
      p += n;
      bytes -= static_cast<size_t>(n);
      disk_bytes_ += n;
    }
    return absl::OkStatus();
  }

  const VolumeMeta meta_;
  UniqueFd fd_;
  uint32_t crc_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeNpyWriter(const std::string& path, const VolumeMeta& meta) {
  auto writer = std::make_unique<NpyWriter>(path, meta);
  OCTAVO_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace octavo::storage
