#include <algorithm>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

std::vector<Manifest::File> FileListWriter::Files() {
  MutexLock lock(mutex_);
  return files_;
}

void FileListWriter::List(Manifest::File file) {
  MutexLock lock(mutex_);
  files_.push_back(std::move(file));
}

absl::StatusOr<FileListWriter::Output> FileListWriter::Create(const std::string& relative) {
  Output out;
  out.writer_ = this;
  out.path_ = absl::StrCat(path_, "/", relative);
  out.file_.path = relative;
  out.fd_ = UniqueFd(::open(out.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!out.fd_) return ErrnoStatus(errno, "creating", out.path_);
  return out;
}

absl::Status FileListWriter::Output::Append(const void* data, size_t bytes) {
  OCTAVO_RETURN_IF_ERROR(WriteAll(fd_.get(), path_, data, bytes));
  file_.crc32c = Crc32c(data, bytes, file_.crc32c);
  file_.bytes += static_cast<int64_t>(bytes);
  writer_->disk_bytes_ += static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

absl::Status FileListWriter::Output::Close() {
  if (const int error = Failpoint("chunk_written")) return ErrnoStatus(error, "writing", path_);
  // Only a hint; the sync in Finish makes the file durable.
  (void)::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  if (::close(fd_.release()) != 0) return ErrnoStatus(errno, "closing", path_);
  writer_->List(file_);
  return absl::OkStatus();
}

absl::Status FileListWriter::WriteListed(const std::string& relative, const void* data,
                                         size_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(Output out, Create(relative));
  OCTAVO_RETURN_IF_ERROR(out.Append(data, bytes));
  return out.Close();
}

absl::Status FileListWriter::SyncListed() {
  const auto files = Files();
  return SyncMany(files.size(),
                  [&](size_t i) { return SyncFile(absl::StrCat(path_, "/", files[i].path)); });
}

absl::Status SyncMany(size_t count, const std::function<absl::Status(size_t)>& sync) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex;
  absl::Status first;
  const auto one = [&](size_t i) -> absl::Status {
    try {
      return sync(i);
    } catch (const std::exception& e) {
      return absl::InternalError(e.what());
    }
  };
  const auto work = [&] {
    for (size_t i; !failed && (i = next++) < count;) {
      if (absl::Status status = one(i); !status.ok()) {
        failed = true;
        MutexLock lock(mutex);
        if (first.ok()) first = std::move(status);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min<size_t>(count, 8); ++i) threads.emplace_back(work);
    } catch (const std::exception&) {  // no more threads can start: those that did, and this one,
                                       // do it all
    }
    work();
  }
  return first;
}

}  // namespace octavo::storage
