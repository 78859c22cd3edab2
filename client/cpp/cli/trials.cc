#include "client/cpp/cli/trials.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/grey_picture.h"
#include "client/cpp/cli/half.h"

namespace octavo::cli {

namespace {

/// The stored numbers of type T as `scale` x number + `offset`.
template <class T>
std::vector<float> ValuesOf(const std::string& bytes, double scale, double offset) {
  std::vector<float> values;
  values.reserve(bytes.size() / sizeof(T));
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T stored;
    std::memcpy(&stored, bytes.data() + at, sizeof(T));
    if constexpr (std::is_same_v<T, Half>) {
      values.push_back(static_cast<float>(Number(stored)));
    } else {
      values.push_back(static_cast<float>(scale * static_cast<double>(stored) + offset));
    }
  }
  return values;
}

/// Means over `width` neighbours along rows, which become columns: twice is a mean over squares.
std::vector<double> MeansTurned(const std::vector<double>& values, int64_t rows, int64_t columns,
                                int64_t width) {
  const int64_t kept = columns - width + 1;
  std::vector<double> out(static_cast<size_t>(rows * kept));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < kept; ++column) {
      const auto first = values.begin() + row * columns + column;
      out[static_cast<size_t>(column * rows + row)] =
          std::accumulate(first, first + width, 0.0) / static_cast<double>(width);
    }
  }
  return out;
}

}  // namespace

double EdgeSpread(const std::vector<float>& values, int64_t rows, int64_t columns) {
  const int64_t width = std::min<int64_t>({5, rows - 1, columns - 1});
  if (width < 1) return 1;
  std::vector<double> smooth = MeansTurned({values.begin(), values.end()}, rows, columns, width);
  columns -= width - 1;
  smooth = MeansTurned(smooth, columns, rows, width);
  rows -= width - 1;
  const double y0 = static_cast<double>(rows - 1) / 2, x0 = static_cast<double>(columns - 1) / 2;
  const double radius = 0.95 * static_cast<double>(std::min(rows, columns)) / 2;
  const auto at = [&](int64_t y, int64_t x) {
    return smooth[static_cast<size_t>(y * columns + x)];
  };
  double sum = 0, squares = 0;
  int64_t n = 0;
  for (int64_t y = 0; y + 1 < rows; ++y) {
    for (int64_t x = 0; x + 1 < columns; ++x) {
      if (std::hypot(static_cast<double>(y) - y0, static_cast<double>(x) - x0) > radius) continue;
      const double length = std::hypot(at(y + 1, x) - at(y, x), at(y, x + 1) - at(y, x));
      sum += length;
      squares += length * length;
      ++n;
    }
  }
  return squares > 0 ? sum / std::sqrt(static_cast<double>(n) * squares) : 1;
}

std::vector<float> ReadBox(Session& session, const v1::Volume& volume,
                           const std::array<int64_t, 3>& start,
                           const std::array<int64_t, 3>& count) {
  grpc::ClientContext context;
  v1::ReadVolumeRequest request;
  request.set_name(volume.name());
  for (const int64_t first : start) request.add_start(first);
  for (const int64_t extent : count) request.add_count(extent);
  auto reader = v1::VolumeService::NewStub(session.channel())->ReadVolume(&context, request);
  std::string bytes;
  for (v1::ReadVolumeResponse part; reader->Read(&part);) bytes += part.data();
  if (!Check(session, reader->Finish())) return {};
  const auto windowed = [&](double largest) {
    if (!volume.has_levels()) return std::pair{1.0, 0.0};
    const auto lo = static_cast<double>(volume.levels().lo());
    return std::pair{(static_cast<double>(volume.levels().hi()) - lo) / largest, lo};
  };
  switch (volume.dtype()) {
    case v1::DTYPE_U8: {
      const auto [scale, offset] = windowed(UINT8_MAX);
      return ValuesOf<uint8_t>(bytes, scale, offset);
    }
    case v1::DTYPE_U16: {
      const auto [scale, offset] = windowed(UINT16_MAX);
      return ValuesOf<uint16_t>(bytes, scale, offset);
    }
    case v1::DTYPE_F16: return ValuesOf<Half>(bytes, 1, 0);
    default: return ValuesOf<float>(bytes, 1, 0);
  }
}

std::vector<float> ReadSlice(Session& session, const v1::Volume& volume, int64_t slice) {
  return ReadBox(session, volume, {slice, 0, 0}, {1, volume.shape(1), volume.shape(2)});
}

bool ShowTrials(Session& session, const v1::Job& job, const v1::Volume& volume,
                const std::string& png) {
  const auto& axes = job.tomography().centers();
  const int64_t count = std::min<int64_t>(volume.shape(0), axes.size());
  Montage montage(count, volume.shape(1), volume.shape(2));
  std::vector<double> scores;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> slice = ReadSlice(session, volume, i);
    if (slice.empty()) return false;
    scores.push_back(EdgeSpread(slice, volume.shape(1), volume.shape(2)));
    montage.Add(slice, {absl::StrFormat("axis %.7g", axes[static_cast<int>(i)]),
                        absl::StrFormat("score %.5f", scores.back())});
  }
  if (!montage.Write(png)) {
    std::cerr << "octavo: could not write " << png << "\n";
    session.exit_code = kFailed;
    return false;
  }
  const auto best =
      static_cast<int>(std::min_element(scores.begin(), scores.end()) - scores.begin());
  const bool at_edge = count > 1 && (best == 0 || best == count - 1);
  if (session.json) {
    nlohmann::json trials = nlohmann::json::array();
    for (int i = 0; i < count; ++i)
      trials.push_back({{"axis", axes[i]}, {"score", scores[static_cast<size_t>(i)]}});
    std::cout << nlohmann::json({{"trials", trials},
                                 {"best_axis", axes[best]},
                                 {"best_at_edge", at_edge},
                                 {"png", png}})
                     .dump()
              << "\n";
    return true;
  }
  for (int i = 0; i < count; ++i) {
    std::cout << absl::StrFormat("  axis %-10.7g score %.5f%s\n", axes[i],
                                 scores[static_cast<size_t>(i)], i == best ? "  <- least" : "");
  }
  std::cout << png << "  " << count
            << " slices; the score says how spread their edges are: the least is the sharpest\n";
  if (montage.shrunk() > 1)
    std::cout << "  " << montage.shrunk() << " x " << montage.shrunk()
              << " pixels of a slice are one of the picture\n";
  if (at_edge)
    std::cout << "  warning: the sharpest is at an end of the range: try axes beyond it\n";
  return true;
}

}  // namespace octavo::cli
