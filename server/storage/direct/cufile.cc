#include "server/storage/direct/cufile.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/utsname.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

using cufile::Error;

constexpr int kVersionBefore18 = 1070;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The module's names in sysfs and procfs.
bool HasModule(const std::string& root) {
  return IsFolder(root + "/sys/module/nvidia_fs") || IsFolder(root + "/proc/driver/nvidia-fs");
}

/// What the host says against it, before the driver is opened.
CuFileRefusal CheckHost(const std::string& root) {
  utsname system{};
  const bool asked = ::uname(&system) == 0;
  if (asked && absl::StrContains(system.release, "icrosoft"))
    return {WhyNot::kWsl, absl::StrCat("this host is WSL (kernel ", system.release,
                                       "), where cuFile is not "
                                       "native")};
  if (!IsFolder(root + "/run/udev"))
    return {WhyNot::kNoUdev,
            "/run/udev is missing, from which cuFile learns of the drives; a container needs it "
            "mounted (-v /run/udev:/run/udev:ro)"};
  return {};
}

/// The refusal of a driver that cannot be opened, told by what the host says.
CuFileRefusal DriverRefusal(const Error& error, const std::string& root) {
  const std::string code = absl::StrCat(
      "cuFileDriverOpen answers ", CuFileCode(error.err),
      error.err == cufile::kCudaError ? absl::StrCat(" with CUDA's error ", error.cu_err) : "");
  if (!HasModule(root))
    return {WhyNot::kNoModule,
            absl::StrCat("the kernel module nvidia-fs is not loaded, and cuFile is not set to "
                         "peer-to-peer DMA of the kernel instead; ",
                         code)};
  if (const std::string hint = IommuHint(root); !hint.empty())
    return {WhyNot::kIommu, absl::StrCat(hint, "; ", code)};
  return {WhyNot::kDriver, code};
}

}  // namespace

std::string CuFileCode(int code) {
  const char* name = nullptr;
  switch (code) {
    case cufile::kNotInitialised: name = "DRIVER_NOT_INITIALIZED"; break;
    case 5002: name = "DRIVER_INVALID_PROPS"; break;
    case 5003: name = "DRIVER_UNSUPPORTED_LIMIT"; break;
    case 5004: name = "DRIVER_VERSION_MISMATCH"; break;
    case 5005: name = "DRIVER_VERSION_READ_ERROR"; break;
    case 5006: name = "DRIVER_CLOSING"; break;
    case cufile::kPlatform: name = "PLATFORM_NOT_SUPPORTED"; break;
    case cufile::kIoNotSupported: name = "IO_NOT_SUPPORTED"; break;
    case cufile::kDevice: name = "DEVICE_NOT_SUPPORTED"; break;
    case 5010: name = "NVFS_DRIVER_ERROR"; break;
    case cufile::kCudaError: name = "CUDA_DRIVER_ERROR"; break;
    case 5012: name = "CUDA_POINTER_INVALID"; break;
    case 5013: name = "CUDA_MEMORY_TYPE_INVALID"; break;
    case 5016: name = "INVALID_MAPPING_SIZE"; break;
    case cufile::kFileType: name = "INVALID_FILE_TYPE"; break;
    case cufile::kOpenFlags: name = "INVALID_FILE_OPEN_FLAG"; break;
    case cufile::kDirectNotSet: name = "DIO_NOT_SET"; break;
    case 5022: name = "INVALID_VALUE"; break;
    case 5023: name = "MEMORY_ALREADY_REGISTERED"; break;
    case 5024: name = "MEMORY_NOT_REGISTERED"; break;
    case 5027: name = "HANDLE_NOT_REGISTERED"; break;
    case 5028: name = "HANDLE_ALREADY_REGISTERED"; break;
    case cufile::kInternal: name = "INTERNAL_ERROR"; break;
    case cufile::kDisabled: name = "IO_DISABLED"; break;
    case 5036: name = "GPU_MEMORY_PINNING_FAILED"; break;
    default: break;
  }
  return name == nullptr ? absl::StrCat(code) : absl::StrCat(code, " (", name, ")");
}

std::string IommuHint(const std::string& root) {
  std::error_code error;
  const std::filesystem::directory_iterator units(root + "/sys/class/iommu", error), end;
  if (error || units == end) return "";
  const std::string line = TextOf(root + "/proc/cmdline");
  if (absl::StrContains(line, "iommu=pt") || absl::StrContains(line, "iommu.passthrough=1"))
    return "";
  return "an IOMMU translates the addresses of this host's devices (boot it with iommu=pt or "
         "without)";
}

std::unique_ptr<CuFile> CuFile::Open(const Options& options) {
  std::unique_ptr<CuFile> self(new CuFile);
  self->refusal_ = self->Load(options);
  return self;
}

CuFile::~CuFile() {
  if (opened_ && functions_.driver_close != nullptr) (void)functions_.driver_close();
}

CuFileRefusal CuFile::Load(const Options& options) {
  void* const library = ::dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return {WhyNot::kNoLibrary, absl::StrCat(options.library, " cannot be loaded",
                                             why == nullptr ? "" : absl::StrCat(": ", why))};
  }
  std::vector<std::string> missing;
  const auto find = [&](auto* function, const char* name, bool needed) {
    void* const symbol = ::dlsym(library, name);
    if (symbol == nullptr && needed) missing.emplace_back(name);
    std::memcpy(function, &symbol, sizeof symbol);
  };
  Functions& f = functions_;
  find(&f.driver_open, "cuFileDriverOpen", true);
  // The header has called it _v2 since a version that closes more.
  find(&f.driver_close, "cuFileDriverClose_v2", false);
  if (f.driver_close == nullptr) find(&f.driver_close, "cuFileDriverClose", false);
  find(&f.get_properties, "cuFileDriverGetProperties", true);
  find(&f.set_bool, "cuFileSetParameterBool", false);
  find(&f.handle_register, "cuFileHandleRegister", true);
  find(&f.handle_deregister, "cuFileHandleDeregister", true);
  find(&f.buffer_register, "cuFileBufRegister", true);
  find(&f.buffer_deregister, "cuFileBufDeregister", true);
  find(&f.read, "cuFileRead", true);
  find(&f.get_version, "cuFileGetVersion", false);
  if (!missing.empty())
    return {WhyNot::kNoLibrary,
            absl::StrCat(options.library, " has no ", absl::StrJoin(missing, ", "))};
  if (options.check_host) {
    if (CuFileRefusal host = CheckHost(options.root); host.why != WhyNot::kNone) return host;
  }
  // Has an effect only before the driver is opened. Wins over the environment and cufile.json.
  if (f.set_bool != nullptr) {
    (void)f.set_bool(cufile::kAllowCompatMode, options.allow_compat);
    (void)f.set_bool(cufile::kForceCompatMode, false);
  }
  const Error opened = f.driver_open();
  if (opened.err != cufile::kSuccess) return DriverRefusal(opened, options.root);
  opened_ = true;
  cufile::DriverProperties properties{};
  const Error asked = f.get_properties(&properties);
  if (asked.err != cufile::kSuccess)
    return {WhyNot::kDriver,
            absl::StrCat("cuFileDriverGetProperties answers ", CuFileCode(asked.err))};
  const bool compat = (properties.control_flags & cufile::kControlAllowCompat) != 0,
             module = properties.nvfs_major != 0 || properties.nvfs_minor != 0;
  if (compat && !options.allow_compat)
    return {WhyNot::kCompat,
            module ? "cuFile's compat mode cannot be turned off, so that it could copy through "
                     "host memory without a word; set allow_compat_mode to false in cufile.json"
                   : "cuFile is in compat mode: without the kernel module nvidia-fs it would copy "
                     "through host memory itself, slower than the server does"};
  int version = kVersionBefore18;
  if (f.get_version != nullptr && f.get_version(&version).err != cufile::kSuccess)
    version = kVersionBefore18;
  version_ = absl::StrCat(
      "cuFile ", version / 1000, ".", version % 1000 / 10, ", ",
      module ? absl::StrCat("nvidia-fs ", properties.nvfs_major, ".", properties.nvfs_minor)
             : "no nvidia-fs",
      compat ? ", compat mode allowed" : "");
  return {};
}

absl::StatusOr<cufile::Handle> CuFile::Register(int fd) const {
  cufile::Description description{};
  description.type = cufile::kLinuxDescriptor;
  description.fd = fd;
  cufile::Handle handle = nullptr;
  const Error error = functions_.handle_register(&handle, &description);
  if (error.err == cufile::kSuccess) return handle;
  return absl::UnavailableError(
      absl::StrCat("cuFileHandleRegister answers ", CuFileCode(error.err)));
}

void CuFile::Deregister(cufile::Handle handle) const { functions_.handle_deregister(handle); }

absl::Status CuFile::RegisterBuffer(const void* base, int64_t bytes) const {
  const Error error = functions_.buffer_register(base, static_cast<size_t>(bytes), 0);
  if (error.err == cufile::kSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cuFileBufRegister answers ", CuFileCode(error.err)));
}

void CuFile::DeregisterBuffer(const void* base) const { (void)functions_.buffer_deregister(base); }

absl::StatusOr<int64_t> CuFile::Read(cufile::Handle handle, void* base, int64_t base_offset,
                                     int64_t bytes, int64_t file_offset) const {
  const ssize_t read =
      functions_.read(handle, base, static_cast<size_t>(bytes), file_offset, base_offset);
  const int error = errno;
  if (read >= 0) return read;
  return absl::UnavailableError(
      absl::StrCat("cuFileRead answers ",
                   read == -1 ? std::strerror(error) : CuFileCode(static_cast<int>(-read))));
}

}  // namespace octavo::storage
