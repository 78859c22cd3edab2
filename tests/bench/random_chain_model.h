#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <utility>
#include <vector>

#include "tbb/parallel_for.h"

#include "tests/bench/random_chain.h"
#include "tests/gpu/spectral/spectral_model.h"

namespace octavo::bench {

using Complexes = std::vector<std::complex<double>>;

/// Complex depth samples of a record, minus the pattern of its B-scan. If two segments are about
/// equally quiet, there is one form for each.
struct Modelled {
  std::vector<Complexes> forms;
  // [D]: |value before| + |the pattern|: rounding is relative to this sum
  std::vector<double> size;
};

/// All records of a chain in double precision.
class Model {
 public:
  explicit Model(const RandomChain& chain) : s_(chain), c_(chain.config) {
    // -132 dB of full scale, and more for short transforms: the error of a sum of
    // N rounded terms, divided by F.
    error_ =
        s_.full_scale * std::max(2.5e-7, 6e-7 * std::sqrt(static_cast<double>(c_.window.size())) /
                                             static_cast<double>(c_.fft_length));
    records_.resize(s_.missing.size());
    tbb::parallel_for(size_t{0}, records_.size(), [&](size_t r) {
      if (!s_.missing[r]) Transform(static_cast<int64_t>(r));
    });
    if (c_.fixed_pattern == math::FixedPattern::kNone) return;
    for (int64_t v = 0; v < s_.volumes; ++v) {
      for (const BscanSpan& span : s_.spans)
        LessPattern(v * s_.records + span.first_record, span.records);
    }
  }

  const Modelled& of(int64_t record) const { return records_[static_cast<size_t>(record)]; }
  /// Allowed difference between a depth sample and the model, for a sample of `size`.
  double ErrorOf(double size) const { return error_ + 1.5e-6 * size; }

 private:
  std::vector<double> Values(int64_t record) const {
    const auto begin = s_.values.begin() + record * c_.samples_per_record;
    return {begin, begin + c_.samples_per_record};
  }
  /// Mean of the records that arrived.
  std::vector<double> Mean(int64_t begin, int64_t end) const {
    std::vector<double> mean(static_cast<size_t>(c_.samples_per_record), 0.0);
    double count = 0;
    for (int64_t r = begin; r < end; ++r) {
      if (s_.missing[static_cast<size_t>(r)]) continue;
      ++count;
      for (size_t j = 0; j < mean.size(); ++j)
        mean[j] += s_.values[static_cast<size_t>(r * c_.samples_per_record) + j];
    }
    for (double& v : mean) v /= std::max(count, 1.0);
    return mean;
  }
  /// For groups of records, which restart with each volume: the mean of the last records up to the
  /// end of the group.
  std::vector<double> RollingOf(int64_t record) const {
    const int64_t volume = record / s_.records * s_.records, group = c_.background_group_records;
    int64_t begin = volume + (record - volume) / group * group;
    const int64_t end = std::min(begin + group, volume + s_.records);
    if (c_.background_window_records > 0)
      begin = std::max<int64_t>(0, end - c_.background_window_records);
    return Mean(begin, end);
  }
  std::vector<double> BackgroundOf(int64_t record) const {
    switch (c_.background) {
      case math::Background::kNone: return {};
      case math::Background::kStatic:
        return {c_.background_spectrum.begin(), c_.background_spectrum.end()};
      case math::Background::kRolling: return RollingOf(record);
      case math::Background::kBscan: break;
    }
    const int64_t volume = record / s_.records * s_.records;
    for (const BscanSpan& span : s_.spans) {
      const int64_t first = volume + span.first_record;
      if (record >= first && record < first + span.records)
        return Mean(first, first + span.records);
    }
    return {};  // flyback
  }
  void Transform(int64_t record) {
    Modelled& out = records_[static_cast<size_t>(record)];
    out.forms.push_back(testing::ModelDepth(c_, Values(record), BackgroundOf(record)));
    for (const auto& z : out.forms[0]) out.size.push_back(std::abs(z));
  }
  void LessPattern(int64_t first, int64_t count) {
    const auto depth = static_cast<size_t>(c_.depth);
    const int64_t segments =
        c_.fixed_pattern == math::FixedPattern::kQuietSegment && count >= 18 ? 9 : 1;
    std::vector<std::vector<std::complex<double>>> patterns(depth);
    for (size_t z = 0; z < depth; ++z) {
      std::vector<std::pair<double, std::complex<double>>> found;  // variance, mean
      for (int64_t k = 0; k < segments; ++k) {
        const int64_t begin = first + count * k / segments,
                      end = first + count * (k + 1) / segments;
        std::complex<double> mean = 0;
        double variance = 0;
        for (int64_t r = begin; r < end; ++r)
          mean += of(r).forms[0][z] / static_cast<double>(end - begin);
        for (int64_t r = begin; r < end; ++r)
          variance += std::norm(of(r).forms[0][z] - mean) / static_cast<double>(end - begin);
        found.emplace_back(variance, mean);
      }
      std::sort(found.begin(), found.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      const double least = found[0].first, slack = ErrorOf(std::abs(found[0].second)) * 4;
      for (const auto& [variance, mean] : found) {
        if (variance <= least * 1.001 + slack * (std::sqrt(least) + slack))
          patterns[z].push_back(mean);
      }
    }
    for (int64_t r = first; r < first + count; ++r) {
      Modelled& record = records_[static_cast<size_t>(r)];
      const Complexes plain = record.forms[0];
      record.forms.clear();
      for (size_t z = 0; z < depth; ++z) {
        for (size_t k = 0; k < patterns[z].size(); ++k) {
          if (k >= record.forms.size()) record.forms.push_back(Less(plain, patterns));
          record.forms[k][z] = plain[z] - patterns[z][k];
        }
        record.size[z] += std::abs(patterns[z][0]);
      }
    }
  }
  static Complexes Less(const Complexes& plain, const std::vector<Complexes>& patterns) {
    Complexes out = plain;
    for (size_t z = 0; z < out.size(); ++z) out[z] -= patterns[z][0];
    return out;
  }

  const RandomChain& s_;
  const SpectralConfig& c_;
  double error_ = 0;
  std::vector<Modelled> records_;
};

}  // namespace octavo::bench
