#include "server/base/exception_to_status.h"

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"

namespace octavo::base {
namespace {

absl::Status Exhausted(const std::string& what, Reason reason) {
  return WithInfo(absl::ResourceExhaustedError(what),
                  {.reason = reason, .field = "", .numbers = {{"retryable", "true"}}});
}

absl::Status Describe() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Exhausted("no host memory left for it; try again", Reason::kOutOfMemory);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again) {
      return Exhausted(
          absl::StrCat("the system has no thread left for it (", e.what(), "); try again"),
          Reason::kNoThread);
    }
    if (e.code() == std::errc::not_enough_memory)
      return Exhausted("the system has no memory left for it; try again", Reason::kOutOfMemory);
    if (e.code() == std::errc::too_many_files_open ||
        e.code() == std::errc::too_many_files_open_in_system) {
      return Exhausted(absl::StrCat("the process has no file descriptor left for it (", e.what(),
                                    "); try again"),
                       Reason::kNoDescriptors);
    }
    return absl::InternalError(e.what());
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  } catch (...) {
    return absl::InternalError("an exception of unknown type");
  }
}

}  // namespace

absl::Status StatusOfException() noexcept {
  try {
    return Describe();
  } catch (...) {
    return absl::Status(absl::StatusCode::kResourceExhausted,
                        "");  // an empty message needs no memory
  }
}

void LogException(const char* what) noexcept {
  try {
    Log(LogLevel::kError, what, {{"error", StatusOfException().ToString()}});
  } catch (...) {  // the exception was lack of memory, and the line needs some
  }
}

}  // namespace octavo::base
