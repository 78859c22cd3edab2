#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/direct/cufile_abi.h"
#include "server/storage/direct/read_way.h"

namespace octavo::storage {

/// Why cuFile cannot be used, as a word and as a sentence without its end.
struct CuFileRefusal {
  WhyNot why = WhyNot::kNone;
  std::string text;
};

/// NVIDIA's cuFile: libcufile.so.0, loaded at run time and never unloaded, because its threads and
/// exit handlers stay. Its driver is opened once for the life of the process; the process must not
/// fork afterwards (posix_spawn is fine). Its own detour through host memory (compat mode) is
/// turned off, so that reads fail instead: the server's own ways are better. Thread-safe.
class CuFile {
 public:
  struct Options {
    std::string library = "libcufile.so.0";
    /// Looks at the host (/run/udev, WSL, module) before it opens the driver. Off for libraries
    /// that stand in for cuFile.
    bool check_host = true;
    /// Lets cuFile copy through host memory where it is not native. For measurements that say so.
    bool allow_compat = false;
    std::string root;  // of the host's files; empty = "/". For tests
  };
  /// Loads and opens it. Never fails: `refusal` says whether it can be used.
  static std::unique_ptr<CuFile> Open(const Options& options);
  ~CuFile();
  CuFile(const CuFile&) = delete;

  const CuFileRefusal& refusal() const { return refusal_; }
  bool usable() const { return refusal_.why == WhyNot::kNone; }
  /// "1.13" and what nvidia-fs says, for people; empty if it is not usable.
  const std::string& version() const { return version_; }

  /// Registers a descriptor that was opened with O_DIRECT; it must stay open until Deregister. The
  /// error names cuFile's code.
  absl::StatusOr<cufile::Handle> Register(int fd) const;
  void Deregister(cufile::Handle handle) const;
  /// Registers device memory for all reads to come; not needed, but faster. The calling thread's
  /// device must be that of the memory.
  absl::Status RegisterBuffer(const void* base, int64_t bytes) const;
  void DeregisterBuffer(const void* base) const;
  /// Reads `bytes` at `file_offset` to `base` + `base_offset`; all are multiples of 4096. The
  /// number of bytes read, fewer at the end of the file or of what cuFile takes at once. Not
  /// ordered with any stream: what used the memory before must be over.
  absl::StatusOr<int64_t> Read(cufile::Handle handle, void* base, int64_t base_offset,
                               int64_t bytes, int64_t file_offset) const;

 private:
  CuFile() = default;
  CuFileRefusal Load(const Options& options);

  struct Functions {
    cufile::DriverOpen driver_open = nullptr;
    cufile::DriverClose driver_close = nullptr;
    cufile::GetProperties get_properties = nullptr;
    cufile::SetParameterBool set_bool = nullptr;  // from 1.14 on
    cufile::HandleRegister handle_register = nullptr;
    cufile::HandleDeregister handle_deregister = nullptr;
    cufile::BufferRegister buffer_register = nullptr;
    cufile::BufferDeregister buffer_deregister = nullptr;
    cufile::Read read = nullptr;
    cufile::GetVersion get_version = nullptr;  // from 1.8 on
  } functions_;
  bool opened_ = false;
  CuFileRefusal refusal_;
  std::string version_;
};

/// "5008 (IO_NOT_SUPPORTED)"; codes that are not known as numbers.
std::string CuFileCode(int code);

/// What the host's files say about an IOMMU that translates addresses: a hint for people; empty if
/// there is none, or none that is known. `root` as in CuFile::Options.
std::string IommuHint(const std::string& root);

}  // namespace octavo::storage
