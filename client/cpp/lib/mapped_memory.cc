#include "client/cpp/lib/mapped_memory.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace octavo::client {
namespace {

class FileMemory final : public MappedMemory {
 public:
  FileMemory(int fd, int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        address_(::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0)) {
    if (address_ == MAP_FAILED) {
      throw Refusal(Code::kInternal, "MAP",
                    "cannot map " + std::to_string(bytes) +
                        " bytes of a memory file: " + std::strerror(errno));
    }
  }
  ~FileMemory() override { ::munmap(address_, bytes_); }
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;
  const void* address() const override { return address_; }
  int device() const override { return -1; }
  void Synchronize() override {}
  void Read(const void* from, void* to, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);  // `to` may be null for an empty array
  }

 private:
  const size_t bytes_;
  void* const address_;
};

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<MappedMemory> MapFile(int fd, int64_t bytes) {
  // A read behind the end of the file would end the program.
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size < bytes) {
    throw Refusal(Code::kInternal, "MAP",
                  "the memory file has " + std::to_string(info.st_size) + " bytes and not " +
                      std::to_string(bytes) + ", as the server says");
  }
  return std::make_shared<FileMemory>(fd, bytes);
}

Error Refusal(Code code, const std::string& reason, const std::string& message) {
  Error error(code, message);
  error.reason = reason;
  return error;
}

}  // namespace octavo::client
