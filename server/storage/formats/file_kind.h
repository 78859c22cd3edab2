#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::storage {

/// The kind of file that begins with these bytes, in words ("a PNG picture", "an HDF5 file (so are
/// MATLAB 7.3 and NeXus)"); empty if they are of none that is known. Only beginnings that raw
/// samples hardly have count.
std::string KindOfFile(absl::string_view beginning);

/// Bytes that KindOfFile looks at.
constexpr int64_t kKindBytes = 4096;

}  // namespace octavo::storage
