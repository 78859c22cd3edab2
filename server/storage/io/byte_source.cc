#include "server/storage/io/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>
#include <vector>
#include <zlib.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

absl::Status TooShort(const std::string& name, int64_t offset, size_t bytes, int64_t size) {
  return DamagedFile(
      name, "the file",
      absl::StrCat("ends too early: ", bytes, " bytes are wanted at ", offset, ", it has ", size));
}

bool Reaches(int64_t offset, size_t bytes, int64_t size) {
  return offset >= 0 && offset <= size && bytes <= static_cast<uint64_t>(size - offset);
}

class OpenFile final : public ByteSource {
 public:
  OpenFile(UniqueFd fd, std::string name, int64_t size)
      : ByteSource(std::move(name)), fd_(std::move(fd)), size_(size) {}

  absl::Status ReadAt(int64_t offset, void* out, size_t bytes) override {
    if (!Reaches(offset, bytes, size_)) return TooShort(name_, offset, bytes, size_);
    return ReadAllAt(fd_.get(), name_, out, bytes, offset);
  }
  int64_t size() const override { return size_; }
  std::optional<Plain> plain() const override { return Plain{.fd = fd_.get(), .offset = 0}; }

 private:
  const UniqueFd fd_;
  const int64_t size_;
};

class Inflated final : public ByteSource {
 public:
  Inflated(std::shared_ptr<ByteSource> file, InflateWrap wrap, int64_t offset, int64_t packed,
           int64_t bytes, Trailing trailing)
      : ByteSource(file->name()),
        file_(std::move(file)),
        wrap_(wrap),
        begin_(offset),
        end_(packed < 0 ? file_->size() : std::min(file_->size(), offset + packed)),
        bytes_(bytes),
        trailing_(trailing) {}
  ~Inflated() override {
    MutexLock lock(mutex_);
    End();
  }

  absl::Status ReadAt(int64_t offset, void* out, size_t bytes) override {
    MutexLock lock(mutex_);
    if (offset < 0 || (bytes_ >= 0 && !Reaches(offset, bytes, bytes_)))
      return TooShort(name_, offset, bytes, bytes_);
    absl::Status status = ReadLocked(offset, static_cast<char*>(out), bytes);
    if (!status.ok()) End();  // the next call starts afresh
    return status;
  }
  int64_t size() const override { return bytes_; }
  bool sequential() const override { return true; }

 private:
  static constexpr size_t kPiece = 256 << 10;

  absl::Status ReadLocked(int64_t offset, char* out, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!begun_ || offset < at_) OCTAVO_RETURN_IF_ERROR(Begin());
    std::vector<char> skipped;
    while (at_ < offset) {
      skipped.resize(kPiece);
      OCTAVO_RETURN_IF_ERROR(
          Take(skipped.data(), static_cast<size_t>(std::min<int64_t>(kPiece, offset - at_))));
    }
    while (bytes > 0) {
      const size_t part = std::min<size_t>(bytes, 1 << 30);
      OCTAVO_RETURN_IF_ERROR(Take(out, part));
      out += part, bytes -= part;
    }
    return at_ == bytes_ ? CheckEnd() : absl::OkStatus();
  }

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (begun_) inflateEnd(&stream_);
    begun_ = false;
  }

  absl::Status Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    End();
    stream_ = {};
    if (inflateInit2(&stream_, wrap_ == InflateWrap::kGzip ? MAX_WBITS + 16 : MAX_WBITS) != Z_OK)
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory for an inflater"));
    begun_ = true, ended_ = false;
    at_ = 0, next_ = begin_;
    packed_.resize(kPiece);
    return absl::OkStatus();
  }

  absl::Status Bad(absl::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return DamagedFile(name_, wrap_ == InflateWrap::kGzip ? "the gzip stream" : "the zlib stream",
                       absl::StrCat(what, " after ", at_, " bytes"));
  }

  /// Gives the inflater more of the file. Its input stays empty at the end of the file.
  absl::Status Feed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stream_.avail_in > 0) return absl::OkStatus();
    const auto part = static_cast<size_t>(std::clamp<int64_t>(end_ - next_, 0, kPiece));
    if (part > 0) OCTAVO_RETURN_IF_ERROR(file_->ReadAt(next_, packed_.data(), part));
    next_ += static_cast<int64_t>(part);
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(part);
    return absl::OkStatus();
  }

  /// Inflates up to `bytes` to `out`; fewer only where the stream ends. Returns how many.
  absl::StatusOr<size_t> Inflate(char* out, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(bytes);
    while (stream_.avail_out > 0 && !ended_) {
      OCTAVO_RETURN_IF_ERROR(Feed());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        OCTAVO_RETURN_IF_ERROR(Feed());
        // Another member may follow; zeros and other bytes are padding.
        if (wrap_ == InflateWrap::kGzip && stream_.avail_in > 0 && *stream_.next_in == 0x1F) {
          if (inflateReset(&stream_) != Z_OK) return Bad("cannot be continued");
        } else {
          ended_ = true;
        }
      } else if (result == Z_MEM_ERROR) {
        return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory for an inflater"));
      } else if (result == Z_BUF_ERROR) {
        if (stream_.avail_in == 0 && next_ >= end_) return Bad("ends too early,");
      } else if (result != Z_OK) {
        return Bad("is damaged");
      }
    }
    return bytes - stream_.avail_out;
  }

  absl::Status Take(char* out, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    OCTAVO_ASSIGN_OR_RETURN(const size_t there, Inflate(out, bytes));
    at_ += static_cast<int64_t>(there);
    return there == bytes ? absl::OkStatus() : Bad("ends too early,");
  }

  /// Reads the stream's end behind the last byte, whose checksum would not be looked at otherwise.
  absl::Status CheckEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    char more = 0;
    OCTAVO_ASSIGN_OR_RETURN(const size_t there, Inflate(&more, 1));
    if (there > 0 && trailing_ == Trailing::kRefuse)
      return Bad("goes on, though the header declares no more data,");
    if (there > 0) End();
    return absl::OkStatus();
  }

  const std::shared_ptr<ByteSource> file_;
  const InflateWrap wrap_;
  const int64_t begin_, end_;  // in the file
  const int64_t bytes_;
  const Trailing trailing_;
  Mutex mutex_;
  z_stream stream_ ABSL_GUARDED_BY(mutex_) = {};
  bool begun_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t at_ ABSL_GUARDED_BY(mutex_) = 0;    // bytes given out
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // in the file
  std::vector<char> packed_ ABSL_GUARDED_BY(mutex_);
};

class Shifted final : public ByteSource {
 public:
  Shifted(std::shared_ptr<ByteSource> source, int64_t offset)
      : ByteSource(source->name()), source_(std::move(source)), offset_(offset) {}
  absl::Status ReadAt(int64_t offset, void* out, size_t bytes) override {
    if (offset > INT64_MAX - offset_) return TooShort(name_, offset, bytes, size());
    return source_->ReadAt(offset + offset_, out, bytes);
  }
  int64_t size() const override {
    return source_->size() < 0 ? -1 : std::max<int64_t>(0, source_->size() - offset_);
  }
  bool sequential() const override { return source_->sequential(); }
  std::optional<Plain> plain() const override {
    std::optional<Plain> plain = source_->plain();
    if (plain.has_value()) plain->offset += offset_;
    return plain;
  }

 private:
  const std::shared_ptr<ByteSource> source_;
  const int64_t offset_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<ByteSource>> FileBytes(UniqueFd fd, std::string name) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", name);
  if (!S_ISREG(info.st_mode)) return DamagedFile(name, "the path", "is no regular file");
  return std::make_shared<OpenFile>(std::move(fd), std::move(name), info.st_size);
}

std::shared_ptr<ByteSource> InflatedBytes(std::shared_ptr<ByteSource> file, InflateWrap wrap,
                                          int64_t offset, int64_t packed, int64_t bytes,
                                          Trailing trailing) {
  return std::make_shared<Inflated>(std::move(file), wrap, offset, packed, bytes, trailing);
}

std::shared_ptr<ByteSource> BytesFrom(std::shared_ptr<ByteSource> source, int64_t offset) {
  return std::make_shared<Shifted>(std::move(source), offset);
}

}  // namespace octavo::storage
