#include "server/storage/formats/hdf5_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/direct_alignment.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

/// What the list of access properties carries to the driver.
struct Access {
  Hdf5Output* output;
};

/// No exception may pass through the library.
template <class Work>
absl::Status Guarded(Work&& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

}  // namespace

struct Hdf5Output::Driver {
  H5FD_t base{};  // the library's, first
  Hdf5Output* output = nullptr;
  haddr_t allocated = 0;  // the library's end of the file, which it asks for again

  static Hdf5Output& Of(H5FD_t* file) { return *reinterpret_cast<Driver*>(file)->output; }

  static H5FD_t* Open(const char* name, unsigned flags, hid_t access, haddr_t) {
    const auto* const info = static_cast<const Access*>(H5Pget_driver_info(access));
    if (info == nullptr || (flags & H5F_ACC_EXCL) == 0) return nullptr;
    if (info->output->Kept(Guarded([&] { return info->output->Create(name); })) < 0) return nullptr;
    auto* const driver = new (std::nothrow) Driver;
    if (driver == nullptr) return nullptr;
    driver->output = info->output;
    return &driver->base;
  }
  static herr_t Close(H5FD_t* file) {
    Of(file).Close();
    delete reinterpret_cast<Driver*>(file);
    return 0;
  }
  static herr_t Query(const H5FD_t*, unsigned long* flags) {
    // As the library's own driver, so that files are laid out as by that one.
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
  }
  static haddr_t GetAllocated(const H5FD_t* file, H5FD_mem_t) {
    return reinterpret_cast<const Driver*>(file)->allocated;
  }
  static herr_t SetAllocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
    reinterpret_cast<Driver*>(file)->allocated = address;
    return 0;
  }
  static haddr_t GetEnd(const H5FD_t* file, H5FD_mem_t) {
    return static_cast<haddr_t>(reinterpret_cast<const Driver*>(file)->output->end_);
  }
  static herr_t Read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, void* out) {
    return Of(file).Kept(Guarded([&] {
      return Of(file).Read(static_cast<int64_t>(address), static_cast<int64_t>(bytes),
                           static_cast<char*>(out));
    }));
  }
  static herr_t Write(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, size_t bytes,
                      const void* data) {
    return Of(file).Kept(Guarded([&] {
      return Of(file).Write(type == H5FD_MEM_DRAW, static_cast<int64_t>(address),
                            static_cast<int64_t>(bytes), static_cast<const char*>(data));
    }));
  }
  static herr_t Truncate(H5FD_t* file, hid_t, hbool_t closes) {
    const auto allocated = static_cast<int64_t>(reinterpret_cast<Driver*>(file)->allocated);
    const herr_t kept =
        Of(file).Kept(Guarded([&] { return Of(file).Truncate(allocated, closes); }));
    return closes ? 0 : kept;
  }
};

hid_t Hdf5Output::DriverId() {
  static const hid_t id = [] {
    static H5FD_class_t driver{};
    driver.name = "octavo_write_queue";
    driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<off_t>::max());
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.fapl_size = sizeof(Access);
    driver.fapl_copy = [](const void* access) -> void* {
      return new (std::nothrow) Access(*static_cast<const Access*>(access));
    };
    driver.fapl_free = [](void* access) -> herr_t {
      delete static_cast<Access*>(access);
      return 0;
    };
    driver.open = &Driver::Open;
    driver.close = &Driver::Close;
    driver.query = &Driver::Query;
    driver.get_eoa = &Driver::GetAllocated;
    driver.set_eoa = &Driver::SetAllocated;
    driver.get_eof = &Driver::GetEnd;
    driver.read = &Driver::Read;
    driver.write = &Driver::Write;
    driver.truncate = &Driver::Truncate;
    constexpr H5FD_mem_t kMap[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kMap), std::end(kMap), std::begin(driver.fl_map));
    return H5FDregister(&driver);
  }();
  return id;
}

bool Hdf5Output::Use(hid_t access) {
  const Access info{this};
  return DriverId() >= 0 && H5Pset_driver(access, DriverId(), &info) >= 0;
}

herr_t Hdf5Output::Kept(absl::Status status) {
  if (status.ok()) return 0;
  if (status_.ok()) status_ = std::move(status);
  return -1;
}

absl::Status Hdf5Output::Create(const char* path) {
  OCTAVO_ASSIGN_OR_RETURN(file_, queue_->Create(path, /*direct=*/true));
  return absl::OkStatus();
}

absl::Status Hdf5Output::ForgetParts(int64_t offset, int64_t bytes) {
  auto it = parts_.upper_bound(offset);
  if (it != parts_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > offset) --it;
  while (it != parts_.end() && it->first < offset + bytes) {
    OCTAVO_RETURN_IF_ERROR(queue_->Drain());
    it = parts_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status Hdf5Output::Write(bool of_dataset, int64_t offset, int64_t bytes, const char* data) {
  if (IsOver()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(ForgetParts(offset, bytes));
  end_ = std::max(end_, offset + bytes);
  if (!of_dataset || bytes < kLeastDirectBytes) {
    OCTAVO_RETURN_IF_ERROR(
        WriteAllAt(file_->fd(), file_->path(), data, static_cast<size_t>(bytes), offset));
    *written_ += bytes;
    return absl::OkStatus();
  }
  const int64_t begin = offset % kDirectAlignment;
  if (begin == 0 && lent_.block && data == lent_.block.data() && bytes == lent_.bytes) {
    parts_[offset] = {.bytes = bytes, .crc = lent_.crc};
    return queue_->Write(file_, std::move(lent_.block),
                         {{.begin = 0, .bytes = bytes, .offset = offset}});
  }
  WriteQueue::Block block = queue_->NewBlock(begin + bytes);
  parts_[offset] = {.bytes = bytes,
                    .crc = CopyWithCrc32c(block.data() + begin, data, static_cast<size_t>(bytes))};
  return queue_->Write(file_, std::move(block),
                       {{.begin = begin, .bytes = bytes, .offset = offset}});
}

absl::Status Hdf5Output::Read(int64_t offset, int64_t bytes, char* out) {
  // The library reads its own tables again, if ever: waiting for all costs little.
  OCTAVO_RETURN_IF_ERROR(queue_->Drain());
  if (!readable_) {
    readable_ =
        UniqueFd(::open(absl::StrCat("/proc/self/fd/", file_->fd()).c_str(), O_RDONLY | O_CLOEXEC));
    if (!readable_) return ErrnoStatus(errno, "opening", file_->path());
  }
  // What is allocated and not written yet is zeros.
  const int64_t there = std::clamp<int64_t>(end_ - offset, 0, bytes);
  std::memset(out + there, 0, static_cast<size_t>(bytes - there));
  return ReadAllAt(readable_.get(), file_->path(), out, static_cast<size_t>(there), offset);
}

absl::Status Hdf5Output::Truncate(int64_t bytes, bool closes) {
  if (IsOver()) return absl::OkStatus();
  // Before the end, a size within what is reserved concerns only the library.
  const bool there = !closes && bytes <= reserved_;
  const int64_t size = closes && reserved_ > 0 ? std::max(reserved_, end_) : end_;
  if (!there && bytes != size) {
    OCTAVO_RETURN_IF_ERROR(queue_->Drain());
    OCTAVO_RETURN_IF_ERROR(file_->Truncate(bytes));
    reserved_ = 0;
  }
  end_ = bytes;
  return absl::OkStatus();
}

Hdf5Output::Chunk Hdf5Output::MakeChunk(int64_t bytes, const std::function<void(char*)>& make) {
  Chunk chunk{.block = queue_->NewBlock(bytes), .bytes = bytes};
  make(chunk.block.data());
  chunk.crc = Crc32c(chunk.block.data(), static_cast<size_t>(bytes));
  return chunk;
}

absl::Status Hdf5Output::Reserve(int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(const bool reserved, file_->Reserve(bytes));
  if (reserved) reserved_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<Manifest::File> Hdf5Output::Describe(const std::string& path) const {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", path);
  Manifest::File file{.path = "", .bytes = 0, .crc32c = 0};
  std::vector<char> piece(1 << 20);
  const auto read_until = [&](int64_t end) -> absl::Status {
    while (file.bytes < end) {
      const auto n = static_cast<size_t>(std::min(end - file.bytes, std::ssize(piece)));
      OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd.get(), path, piece.data(), n, file.bytes));
      file.crc32c = Crc32c(piece.data(), n, file.crc32c);
      file.bytes += static_cast<int64_t>(n);
    }
    return absl::OkStatus();
  };
  for (const auto& [offset, part] : parts_) {
    OCTAVO_RETURN_IF_ERROR(read_until(offset));
    file.crc32c = Crc32cCombine(file.crc32c, part.crc, static_cast<uint64_t>(part.bytes));
    file.bytes += part.bytes;
  }
  OCTAVO_RETURN_IF_ERROR(read_until(info.st_size));
  return file;
}

}  // namespace octavo::storage
