#include "server/tomography/value_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu/device/dtype.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kRows = 2;

// Nothing if the request names projections that the input does not have: of a push, an input may
// hold a part of them.
model::IndexRange ChosenIn(const model::IndexRange& asked, int64_t projections) {
  const int64_t end = asked.end == 0 ? projections : asked.end;
  if (asked.begin < 0 || asked.begin >= end || end > projections) return {.begin = 0, .end = 0};
  return {.begin = asked.begin, .end = end, .step = std::max<int64_t>(asked.step, 1)};
}

}  // namespace

double Quantile(std::vector<double> values, double part) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(
                                       std::lround(part * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::vector<double> MedianFrame(const Frames& frames) {
  std::vector<double> out(frames.front().size()), pixel(frames.size());
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t f = 0; f < frames.size(); ++f) pixel[f] = frames[f][i];
    out[i] = Median(pixel);
  }
  return out;
}

ValueSampler::ValueSampler(const model::TomographySpec& spec, storage::ProjectionInput& input)
    : input_(input),
      info_(input.info()),
      chosen_(ChosenIn(spec.projections, input.info().projections)) {
  const int64_t begin = spec.rows.begin,
                end = spec.rows.end == 0 ? info_.rows : std::min(spec.rows.end, info_.rows);
  rows_ = std::clamp<int64_t>(end - begin, 1, std::min(kRows, info_.rows));
  first_row_ = std::clamp<int64_t>(begin + (end - begin - rows_) / 2, 0, info_.rows - rows_);
}

std::vector<int64_t> ValueSampler::Places(storage::FrameKind kind, int64_t most) const {
  const bool chosen = kind == storage::FrameKind::kProjection && chosen_.end > chosen_.begin;
  const int64_t begin = chosen ? chosen_.begin : 0, step = chosen ? chosen_.step : 1,
                frames = chosen ? chosen_.count() : info_.frames(kind),
                count = std::min(frames, most);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) places.push_back(begin + i * frames / count * step);
  return places;
}

Frames ValueSampler::Read(storage::FrameKind kind, const std::vector<int64_t>& places) const {
  Frames out;
  std::vector<char> bytes(static_cast<size_t>(rows_ * info_.columns * SizeOf(info_.dtype)));
  for (const int64_t place : places) {
    const storage::ProjectionBox box = {.kind = kind,
                                        .first_frame = place,
                                        .frames = 1,
                                        .first_row = first_row_,
                                        .rows = rows_,
                                        .first_column = 0,
                                        .columns = info_.columns};
    if (!input_.Read(box, bytes.data()).ok()) return {};
    std::vector<double>& frame = out.emplace_back();
    const auto add = [&]<typename T>(T value) {
      for (size_t at = 0; at < bytes.size(); at += sizeof value) {
        std::memcpy(&value, bytes.data() + at, sizeof value);
        frame.push_back(static_cast<double>(value));
      }
    };
    switch (info_.dtype) {
      case DType::kU8: add(uint8_t{}); break;
      case DType::kU16: add(uint16_t{}); break;
      case DType::kI16: add(int16_t{}); break;
      default: add(float{}); break;
    }
  }
  return out;
}

std::vector<double> ValueSampler::Columns(const Frames& frames, int64_t first, int64_t end) const {
  std::vector<double> out;
  for (const auto& frame : frames) AddColumns(frame, first, end, &out);
  return out;
}

std::vector<double> ValueSampler::Columns(const std::vector<double>& frame, int64_t first,
                                          int64_t end) const {
  std::vector<double> out;
  AddColumns(frame, first, end, &out);
  return out;
}

void ValueSampler::AddColumns(const std::vector<double>& frame, int64_t first, int64_t end,
                              std::vector<double>* out) const {
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t x = first; x < end; ++x) {
      if (const double value = frame[static_cast<size_t>(row * info_.columns + x)];
          std::isfinite(value))
        out->push_back(value);
    }
  }
}

}  // namespace octavo::tomography
