#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/v1/types.pb.h"

// Arrays in .npy files.
namespace octavo::cli {

/// The header of a .npy file for an array of such elements. NumPy has no elements of several lanes
/// and no pairs of f2: they become a last axis.
std::string NpyHead(const v1::ElementType& element, std::vector<int64_t> shape);

/// An array in a .npy file, in C order and little endian.
struct NpyFile {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;  // slowest axis first
  int64_t data_offset = 0;     // bytes of the file before the array
  int64_t bytes = 0;           // of the array
};
/// Reads the header of the file that `flag` names. Throws CLI::ValidationError for a file that
/// cannot be read, is no such file, is damaged, or has a type that buffers do not have.
NpyFile OpenNpy(const std::string& flag, const std::string& path);

}  // namespace octavo::cli
