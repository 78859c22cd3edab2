#include "gpu/device/cuda/cufft_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace octavo::inline gpu::cuda {
namespace {

absl::StatusOr<CufftLibrary> Load() {
  void* library = nullptr;
  for (const char* name :
       {"libcufft.so.12", "libcufft.so.11", "/usr/local/cuda/lib64/libcufft.so.12"}) {
    library = library == nullptr ? ::dlopen(name, RTLD_NOW | RTLD_LOCAL) : library;
  }
  if (library == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("cuFFT cannot be loaded: ", ::dlerror()));
  CufftLibrary out{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  const bool all = find(out.Create, "cufftCreate") && find(out.Destroy, "cufftDestroy") &&
                   find(out.SetAutoAllocation, "cufftSetAutoAllocation") &&
                   find(out.MakePlanMany64, "cufftMakePlanMany64") &&
                   find(out.SetWorkArea, "cufftSetWorkArea") &&
                   find(out.SetStream, "cufftSetStream") && find(out.ExecC2C, "cufftExecC2C") &&
                   find(out.ExecR2C, "cufftExecR2C");
  if (!all) return absl::FailedPreconditionError("cuFFT lacks a function that Octavo needs");
  return out;
}

}  // namespace

absl::StatusOr<const CufftLibrary*> LoadCufft() {
  static const auto& library = *new absl::StatusOr<CufftLibrary>(Load());
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace octavo::inline gpu::cuda
