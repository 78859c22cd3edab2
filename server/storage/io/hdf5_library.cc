#include "server/storage/io/hdf5_library.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"

namespace octavo::storage {

Mutex& Hdf5Mutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

void QuietHdf5() {
  // The library's clean-up at exit could write to files that were abandoned.
  static const bool no_exit_handler = [] {
    H5dont_atexit();
    return true;
  }();
  (void)no_exit_handler;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string Hdf5Reason(int* error) {
  struct Found {
    std::string text;
    int error = 0;
  } found;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* data) -> herr_t {
        auto* to = static_cast<Found*>(data);
        if (entry->desc == nullptr) return 0;
        if (to->text.empty()) to->text = entry->desc;
        const absl::string_view desc =
            entry->desc;  // "... errno = 28, error message = 'No space left on device' ..."
        if (const size_t at = desc.find("errno = ");
            at != absl::string_view::npos && to->error == 0) {
          absl::string_view number = desc.substr(at + 8);
          (void)absl::SimpleAtoi(number.substr(0, number.find_first_not_of("0123456789")),
                                 &to->error);
        }
        return 0;
      },
      &found);
  H5Eclear2(H5E_DEFAULT);
  *error = found.error;
  return found.text;
}

absl::Status Hdf5Error(const std::string& doing, const std::string& path) {
  int error = 0;
  const std::string text = Hdf5Reason(&error);
  if (error != 0) return ErrnoStatus(error, doing, path);
  return WithInfo(absl::InternalError(absl::StrCat(doing, " ", path, ": HDF5: ", text)),
                  {.reason = Reason::kIoError, .field = "", .numbers = {}});
}

}  // namespace octavo::storage
