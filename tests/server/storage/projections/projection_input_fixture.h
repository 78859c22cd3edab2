#pragma once

// Complete and correct scans in files, for tests of their readers.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/hdf5_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage::testing {

using octavo::testing::IsOk;
using octavo::testing::TempFolder;

inline constexpr double kDegree = std::numbers::pi / 180;
inline constexpr int64_t kAngles = 5, kRows = 4, kColumns = 6, kFlats = 3, kDarks = 2;

inline std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Pixels that encode their position: frame, row, column and kind.
template <class T>
std::vector<T> Frames(int64_t frames, int64_t kind, int64_t rows = kRows,
                      int64_t columns = kColumns) {
  std::vector<T> out;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        out.push_back(static_cast<T>(kind * 64 + f * 24 + r * 6 + c));
    }
  }
  return out;
}

template <class T>
std::vector<T> Read(ProjectionInput& input, const ProjectionBox& box) {
  std::vector<T> out(static_cast<size_t>(box.elements()));
  EXPECT_THAT(input.Read(box, out.data()), IsOk());
  return out;
}

template <class T>
std::vector<T> ReadAll(ProjectionInput& input, FrameKind kind) {
  const auto& i = input.info();
  return Read<T>(input,
                 {.kind = kind, .frames = i.frames(kind), .rows = i.rows, .columns = i.columns});
}

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

inline std::vector<double> Degrees(int64_t count) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(36.0 * static_cast<double>(i));
  return out;
}

/// The box as f64, of any type.
inline std::vector<double> ReadAsDoubles(ProjectionInput& input, const ProjectionBox& box) {
  const auto as_doubles = [&](auto zero) {
    const auto read = Read<decltype(zero)>(input, box);
    return std::vector<double>(read.begin(), read.end());
  };
  switch (input.info().dtype) {
    case DType::kU8: return as_doubles(uint8_t{});
    case DType::kU16: return as_doubles(uint16_t{});
    case DType::kI16: return as_doubles(int16_t{});
    default: return as_doubles(float{});
  }
}

/// A complete and correct scan in a file, to which a test makes one change.
class ProjectionInputTest : public ::testing::Test {
 protected:
  using Change = std::function<void(Hdf5Builder&)>;

  std::string DataExchange(const Change& change = {}, const Hdf5Builder::Layout& layout = {}) {
    const std::string path = folder_ / "scan.h5";
    Hdf5Builder file(path);
    file.Data("/exchange/data", {kAngles, kRows, kColumns}, Frames<uint16_t>(kAngles, 0), layout);
    file.Data("/exchange/data_white", {kFlats, kRows, kColumns}, Frames<uint16_t>(kFlats, 1));
    file.Data("/exchange/data_dark", {kDarks, kRows, kColumns}, Frames<uint16_t>(kDarks, 2));
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    if (change) change(file);
    return path;
  }

  // flat, projection x2, invalid, flat, projection x3, dark, dark, flat: 11 frames
  static constexpr int kKeys[] = {1, 0, 0, 3, 1, 0, 0, 0, 2, 2, 1};
  std::string NxTomo(const Change& change = {}) {
    const std::string path = folder_ / "scan.nxs";
    const std::string detector = "/entry1/tomo_entry/instrument/detector/";
    Hdf5Builder file(path);
    file.Data(detector + "data", {11, kRows, kColumns}, Frames<uint16_t>(11, 0),
              {.chunk = {1, 2, kColumns}, .deflate = 4});
    file.Data(detector + "image_key", {11},
              std::vector<int32_t>(std::begin(kKeys), std::end(kKeys)));
    file.Data("/entry1/tomo_entry/sample/rotation_angle", {11}, Degrees(11));
    file.Text("/entry1/tomo_entry/definition", "NXtomo");
    file.Attribute("/entry1", "NX_class", "NXentry");
    file.Attribute("/entry1/tomo_entry", "NX_class", "NXsubentry");
    if (change) change(file);
    return path;
  }

  /// Reads a box from the middle of the projections.
  static void ExpectAPart(ProjectionInput& input) {
    const ProjectionBox box{
        .first_frame = 1, .frames = 2, .first_row = 2, .rows = 2, .first_column = 1, .columns = 3};
    EXPECT_THAT(Read<uint16_t>(input, box),
                ::testing::ElementsAre(37, 38, 39, 43, 44, 45, 61, 62, 63, 67, 68, 69));
  }
  void Npy(const std::string& name, const std::string& descr, const std::vector<int64_t>& shape,
           const std::string& bytes) {
    std::string dict = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(shape, ", "), ",), }");
    dict.resize((dict.size() + 11 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::string head("\x93NUMPY\x01\x00", 8);
    head += static_cast<char>(dict.size() & 255);
    head += static_cast<char>(dict.size() >> 8);
    folder_.Write(name, head + dict + bytes);
  }
  template <class T>
  static std::string Bytes(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  void ZarrJson(const std::string& name, const std::string& shape, const std::string& chunk,
                const std::string& type, const std::string& more = "") {
    const std::string fill = absl::StrContains(type, "complex") ? "[7,0]" : "7";
    const std::string codecs =
        absl::StrContains(more, "codecs")
            ? ""
            : R"(,"codecs":[{"name":"bytes","configuration":{"endian":"little"}}])";
    std::filesystem::create_directories(folder_ / name);
    folder_.Write(
        name + "/zarr.json",
        absl::StrCat(
            R"({"zarr_format":3,"node_type":"array","shape":)", shape, R"(,"data_type":")", type,
            R"(","chunk_grid":{"name":"regular","configuration":{"chunk_shape":)", chunk,
            R"(}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"."}},"fill_value":)",
            fill, codecs, more, "}"));
  }
  std::string ZarrGroup() {
    const std::string path = folder_ / "scan.zarr";
    std::filesystem::create_directories(path + "/exchange");
    folder_.Write("scan.zarr/zarr.json",
                  R"({"zarr_format":3,"node_type":"group","attributes":{}})");
    ZarrJson("scan.zarr/exchange/data", "[5,4,6]", "[2,3,6]", "uint16");
    const auto all = Frames<uint16_t>(kAngles, 0);
    for (int64_t f = 0; f < 3; ++f) {  // chunks reach beyond the end; the last one is missing
      for (int64_t r = 0; r < 2; ++r) {
        std::vector<uint16_t> chunk(2 * 3 * 6, 999);
        for (int64_t y = 0; y < 2; ++y) {
          for (int64_t x = 0; x < 3; ++x) {
            if (2 * f + y < 5 && 3 * r + x < 4)
              std::copy_n(all.begin() + ((2 * f + y) * 4 + 3 * r + x) * 6, 6,
                          chunk.begin() + (y * 3 + x) * 6);
          }
        }
        if (f != 2 || r != 1)
          folder_.Write(absl::StrCat("scan.zarr/exchange/data/c.", f, ".", r, ".0"), Bytes(chunk));
      }
    }
    ZarrJson("scan.zarr/exchange/data_white", "[4,6]", "[4,6]", "uint16");
    folder_.Write("scan.zarr/exchange/data_white/c.0.0", Bytes(Frames<uint16_t>(1, 1)));
    ZarrJson("scan.zarr/exchange/theta", "[5]", "[5]", "float64",
             R"(,"attributes":{"units":"rad"})");
    folder_.Write("scan.zarr/exchange/theta/c.0", Bytes(std::vector<double>{0, 0.5, 1, 1.5, 2}));
    return path;
  }

  const TempFolder folder_;
};

}  // namespace octavo::storage::testing
