#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::testing {

/// Folder of the real tomography data (OCTAVO_TEST_DATA).
inline std::string TomoData() {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const char* source = std::getenv("OCTAVO_SOURCE_DIR");
  return (set != nullptr ? std::string(set)
                         : std::string(source != nullptr ? source : ".") + "/../shared/data") +
         "/tomo/";
}

/// The values of a little-endian .npy file (f4, f8, i4, u2) in C order as double; empty if the file
/// does not exist.
inline std::vector<double> LoadTomoNpy(const std::string& name) {
  std::ifstream file(TomoData() + name, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string bytes = stream.str();
  if (bytes.size() < 10) return {};
  const size_t header = static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
  const std::string text = bytes.substr(10, header);
  EXPECT_NE(text.find("'fortran_order': False"), std::string::npos) << text;
  std::vector<double> values;
  const auto read = [&](auto type) {
    for (size_t at = 10 + header; at + sizeof type <= bytes.size(); at += sizeof type) {
      std::memcpy(&type, bytes.data() + at, sizeof type);
      values.push_back(static_cast<double>(type));
    }
  };
  if (text.find("<f8") != std::string::npos) {
    read(double{});
  } else if (text.find("<f4") != std::string::npos) {
    read(float{});
  } else if (text.find("<i4") != std::string::npos) {
    read(int32_t{});
  } else if (text.find("<u2") != std::string::npos) {
    read(uint16_t{});
  } else {
    ADD_FAILURE() << text;
  }
  return values;
}

template <class T>
std::vector<T> As(const std::vector<double>& values) {
  std::vector<T> out;
  for (const double v : values) out.push_back(static_cast<T>(v));
  return out;
}

}  // namespace octavo::testing
