#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

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

absl::StatusOr<FileListWriter::Output> FileListWriter::Create(const std::string& relative,
                                                              int64_t bytes) {
  Output out;
  out.writer_ = this;
  out.expected_ = bytes;
  out.listed_.path = relative;
  OCTAVO_ASSIGN_OR_RETURN(out.file_, queue_.Create(absl::StrCat(path_, "/", relative),
                                                   bytes == 0 || bytes >= kLeastDirectBytes));
  return out;
}

absl::Status FileListWriter::Output::Append(const void* data, size_t bytes) {
  const auto* p = static_cast<const char*>(data);
  for (auto left = static_cast<int64_t>(bytes); left > 0;) {
    constexpr int64_t kMost = WriteQueue::kBlockBytes;
    if (!block_)
      block_ = writer_->queue_.NewBlock(expected_ == 0 ? kMost : std::min(kMost, expected_));
    const int64_t n = std::min(left, std::min(kMost, block_.size()) - filled_);
    listed_.crc32c =
        CopyWithCrc32c(block_.data() + filled_, p, static_cast<size_t>(n), listed_.crc32c);
    listed_.bytes += n;
    filled_ += n, p += n, left -= n;
    if (filled_ == std::min(kMost, block_.size())) OCTAVO_RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

absl::Status FileListWriter::Output::Flush() {
  if (filled_ == 0) return absl::OkStatus();
  const int64_t n = std::exchange(filled_, 0);
  return writer_->queue_.Write(file_, std::move(block_),
                               {{.begin = 0, .bytes = n, .offset = listed_.bytes - n}});
}

absl::Status FileListWriter::Output::Close() {
  if (const int error = Failpoint("chunk_written"))
    return ErrnoStatus(error, "writing", file_->path());
  OCTAVO_RETURN_IF_ERROR(Flush());
  file_ = nullptr;
  writer_->List(listed_);
  return absl::OkStatus();
}

absl::Status FileListWriter::WriteListed(const std::string& relative, const void* data,
                                         size_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(Output out, Create(relative, static_cast<int64_t>(bytes)));
  OCTAVO_RETURN_IF_ERROR(out.Append(data, bytes));
  return out.Close();
}

absl::Status FileListWriter::WriteMade(const std::string& relative, int64_t bytes,
                                       const std::function<void(char*)>& make) {
  OCTAVO_ASSIGN_OR_RETURN(Output out, Create(relative, bytes));
  out.block_ = queue_.NewBlock(bytes);
  make(out.block_.data());
  out.listed_.crc32c = Crc32c(out.block_.data(), static_cast<size_t>(bytes));
  out.listed_.bytes = out.filled_ = bytes;
  return out.Close();
}

absl::Status FileListWriter::SyncListed() {
  OCTAVO_RETURN_IF_ERROR(queue_.Drain());
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
