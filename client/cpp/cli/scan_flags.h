#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/scan.pb.h"

#include "client/cpp/cli/pattern_flags.h"

namespace octavo::cli {

/// The flags of scan submit and scan plan.
class ScanFlags {
 public:
  void AddTo(CLI::App* app);
  /// The scan described by the flags, on top of --json-spec. Throws CLI::ValidationError if a flag
  /// has no effect for its source or pattern, and if no source is named: a path means replay, every
  /// other source has a name.
  v1::ScanSpec Spec() const;

 private:
  bool Given(const char* flag) const { return app_->count(flag) > 0; }
  std::string SourceOf(const v1::ScanSpec& spec, std::string* why) const;
  void SetSource(v1::ScanSpec* spec) const;
  void SetAcquisition(v1::ScanSpec* spec) const;
  void SetRetention(v1::Retention* retention) const;
  void SetProcessing(v1::Processing* processing) const;
  void CheckLinearisation(const v1::ScanSpec& spec) const;
  void SetRest(v1::ScanSpec* spec) const;

  const CLI::App* app_ = nullptr;
  int spread_ = -1;  // not asked for
  bool striped_ = false;
  std::string spec_file_, source_, path_, raw_type_, title_, mode_, on_full_, on_tier_full_,
      disposition_, on_restart_, destination_, format_, dtype_, value_, window_, k_, interp_,
      background_, device_, fixed_pattern_, camera_, pixel_format_, trigger_, queue_, insert_,
      angiography_;
  std::vector<std::string> labels_;
  std::vector<double> levels_, poly_;
  PatternFlags pattern_;
  uint32_t samples_ = 0, hold_slots_ = 0, keep_last_ = 0, depth_ = 0, fft_length_ = 0, loops_ = 1,
           block_ = 0, channels_ = 0, channel_ = 0, record_average_ = 0, adc_bits_ = 0,
           camera_height_ = 0, group_records_ = 0, window_records_ = 0;
  uint64_t seed_ = 0, header_bytes_ = 0;
  bool fast_ = false, hold_raw_ = false, aip_ = false, allow_partial_ = false;
  double rate_ = 0, ttl_ = 0, a2_ = 0, a3_ = 0, exposure_ = 0, frame_rate_ = 0;
};

}  // namespace octavo::cli
