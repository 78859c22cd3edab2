#include "client/cpp/cli/npy_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "server/storage/formats/npy_header.h"

namespace octavo::cli {
namespace {

struct Type {
  v1::Dtype dtype;
  const char* numpy;
  int64_t bytes;  // of a number
};
constexpr Type kTypes[] = {
    {v1::DTYPE_U8, "|u1", 1},    {v1::DTYPE_I8, "|i1", 1},  {v1::DTYPE_U16, "<u2", 2},
    {v1::DTYPE_I16, "<i2", 2},   {v1::DTYPE_F16, "<f2", 2}, {v1::DTYPE_F32, "<f4", 4},
    {v1::DTYPE_F64, "<f8", 8},   {v1::DTYPE_C64, "<c8", 8}, {v1::DTYPE_U32, "<u4", 4},
    {v1::DTYPE_I32, "<i4", 4},   {v1::DTYPE_U64, "<u8", 8}, {v1::DTYPE_I64, "<i8", 8},
    {v1::DTYPE_C128, "<c16", 16}};

}  // namespace

std::string NpyHead(const v1::ElementType& element, std::vector<int64_t> shape) {
  const bool pairs = element.dtype() == v1::DTYPE_C32;
  const v1::Dtype dtype = pairs ? v1::DTYPE_F16 : element.dtype();
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const Type& one) { return one.dtype == dtype; });
  const int64_t lanes = pairs ? 2 : std::max<int64_t>(1, element.lanes());
  if (lanes > 1) shape.push_back(lanes);
  std::string text = absl::StrCat("{'descr': '", type == std::end(kTypes) ? "|V1" : type->numpy,
                                  "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  text.append(63 - (10 + text.size()) % 64, ' ');  // the array begins at a multiple of 64 bytes
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 255);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

NpyFile OpenNpy(const std::string& flag, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return CLI::ValidationError(flag, absl::StrCat("'", path, "' ", why));
  };
  std::ifstream file(path, std::ios::binary);
  std::string head(65536 + 12, '\0');
  if (file) file.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (file.bad() || !file.is_open())
    throw refuse(absl::StrCat("cannot be read here: ", std::strerror(errno)));
  head.resize(static_cast<size_t>(file.gcount()));
  file.clear();
  file.seekg(0, std::ios::end);
  const int64_t size = file.tellg();
  const auto text = storage::ParseNpyText(head);
  if (!text.ok())
    throw refuse(absl::StrCat("is no .npy file: ", std::string(text.status().message())));
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& one) {
    return text->descr == absl::StrCat("'", one.numpy, "'");
  });
  if (type == std::end(kTypes)) {
    throw refuse(absl::StrCat(
        "has the type ", text->descr, "; allowed ",
        absl::StrJoin(kTypes, ", ", [](std::string* out, const Type& one) { *out += one.numpy; })));
  }
  if (text->fortran_order)
    throw refuse("is in Fortran order; allowed is C order (np.ascontiguousarray)");
  NpyFile out{.dtype = type->dtype,
              .shape = text->shape,
              .data_offset = text->data_offset,
              .bytes = type->bytes};
  for (const int64_t extent : out.shape) out.bytes *= extent;
  if (size - out.data_offset != out.bytes) {
    throw refuse(absl::StrCat("holds ", size - out.data_offset, " bytes of data; its header says ",
                              out.bytes));
  }
  return out;
}

}  // namespace octavo::cli
