#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/dtype.h"

namespace octavo::storage {

/// What the header of a .npy file says, of any element type.
struct NpyText {
  std::string descr;           // in its quotes: "'<f4'"
  bool fortran_order = false;  // the first axis is the fastest one
  std::vector<int64_t> shape;  // empty: a single number
  int64_t data_offset = 0;     // bytes before the array
};

/// The contents of the header of a .npy file that can be replayed.
struct NpyHeader {
  DType dtype = DType::kU16;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;
};

/// Parses the first bytes of a .npy file (format 1.0, 2.0 or 3.0; NumPy NEP 1). InvalidArgument
/// says what is wrong with the file: "it has no NumPy magic".
absl::StatusOr<NpyText> ParseNpyText(const std::string& head);

/// The same for records. InvalidArgument ("replay.path") for another type than u1, u2, i2, f4,
/// Fortran order, big-endian or damaged headers; its message names the file, `name`.
absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& head, const std::string& name);

}  // namespace octavo::storage
