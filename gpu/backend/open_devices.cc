#include "gpu/backend/open_devices.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/backend/host/host_device.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#if OCTAVO_WITH_CUDA
#include "gpu/backend/cuda/cuda_device.h"
#endif

namespace octavo::inline gpu {

absl::StatusOr<OpenedDevices> OpenDevices(const std::string& choice, int host_devices,
                                          bool host_for_jobs) {
  if (choice != "auto" && choice != "host" && choice != "cuda") {
    return InvalidField("backend", absl::StrCat("is '", choice, "'; allowed are auto, host, cuda"));
  }
  if (host_devices < 1 || host_devices > 16)
    return FieldOutOfRange("host_devices", host_devices, 1, 16);
  OpenedDevices opened;
  BackendReport cuda{
      .name = "cuda", .available = false, .chosen = false, .reason = "", .devices = 0};
#if OCTAVO_WITH_CUDA
  auto gpus = cuda::OpenCudaDevices(0);
  if (gpus.ok()) {
    cuda.available = true;
    cuda.devices = static_cast<int>(gpus->size());
    cuda.chosen = choice != "host";
    cuda.reason = choice == "host" ? "the configuration says host"
                                   : absl::StrCat(cuda.devices, " usable GPU(s)");
    if (cuda.chosen) opened.devices = *std::move(gpus);
  } else {
    cuda.reason = std::string(gpus.status().message());
  }
#else
  cuda.reason = "this program was built without CUDA";
#endif
  if (choice == "cuda" && !cuda.chosen) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend cuda cannot be used: ", cuda.reason));
  }
  BackendReport host{.name = "host",
                     .available = true,
                     .chosen = !cuda.chosen,
                     .reason = "",
                     .devices = cuda.chosen && host_for_jobs ? 1 : host_devices};
  host.reason = cuda.chosen        ? "not needed: cuda is used"
                : choice == "host" ? "the configuration says host"
                                   : absl::StrCat("no GPU: ", cuda.reason);
  if (host_for_jobs) host.reason += "; as devices/host it is there for jobs that name it";
  const int shares = (host.chosen ? host_devices : 0) + (host_for_jobs ? 1 : 0);
  for (int i = 0; host.chosen && i < host_devices; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(auto device, host::MakeHostDevice(i, shares));
    opened.devices.push_back(std::move(device));
  }
  if (host_for_jobs) {
    const int index = static_cast<int>(opened.devices.size());
    OCTAVO_ASSIGN_OR_RETURN(auto device,
                            host::MakeHostDevice(index, shares, /*leaves_cores=*/true));
    opened.devices.push_back(std::move(device));
  }
  opened.reports = {cuda, host};
  return opened;
}

}  // namespace octavo::inline gpu
