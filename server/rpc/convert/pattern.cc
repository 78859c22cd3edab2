#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"

namespace octavo::rpc {
namespace {

using pattern::PatternKind;

absl::Status DecodeRaster(const v1::Raster& in, const std::string& at, pattern::Pattern* out) {
  OCTAVO_RETURN_IF_ERROR(CheckFinite((at + "extent_x_mm").c_str(), in.extent_x_mm()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite((at + "extent_y_mm").c_str(), in.extent_y_mm()));
  out->ascans_per_bscan = in.ascans_per_bscan();
  out->bscans_per_volume = in.bscans_per_volume();
  out->volumes = in.volumes();
  out->bidirectional = in.bidirectional();
  out->bidirectional_volumes = in.bidirectional_volumes();
  out->flyback_records = in.flyback_records();
  out->volume_flyback_records = in.volume_flyback_records();
  out->extent_x_mm = in.extent_x_mm();
  out->extent_y_mm = in.extent_y_mm();
  return absl::OkStatus();
}

void EncodeRaster(const pattern::Pattern& in, v1::Raster* out) {
  out->set_ascans_per_bscan(static_cast<uint32_t>(in.ascans_per_bscan));
  out->set_bscans_per_volume(static_cast<uint32_t>(in.bscans_per_volume));
  out->set_volumes(static_cast<uint32_t>(in.volumes));
  out->set_bidirectional(in.bidirectional);
  out->set_bidirectional_volumes(in.bidirectional_volumes);
  out->set_flyback_records(static_cast<uint32_t>(in.flyback_records));
  out->set_volume_flyback_records(static_cast<uint32_t>(in.volume_flyback_records));
  out->set_extent_x_mm(in.extent_x_mm);
  out->set_extent_y_mm(in.extent_y_mm);
}

void DecodeRadial(const v1::Radial& in, pattern::Pattern* out) {
  out->ascans_per_bscan = in.ascans_per_bscan();
  out->bscans_per_volume = in.bscans_per_volume();
  out->volumes = in.volumes();
  out->bidirectional = in.bidirectional();
  out->bidirectional_volumes = in.bidirectional_volumes();
  out->radius_begin_mm = in.radius_begin_mm();
  out->radius_end_mm = in.radius_end_mm();
  out->angle_begin_deg = in.angle_begin_deg();
  out->angle_end_deg = in.angle_end_deg();
  out->flyback_records = in.flyback_records();
  out->volume_flyback_records = in.volume_flyback_records();
}

void EncodeRadial(const pattern::Pattern& in, v1::Radial* out) {
  out->set_ascans_per_bscan(static_cast<uint32_t>(in.ascans_per_bscan));
  out->set_bscans_per_volume(static_cast<uint32_t>(in.bscans_per_volume));
  out->set_volumes(static_cast<uint32_t>(in.volumes));
  out->set_bidirectional(in.bidirectional);
  out->set_bidirectional_volumes(in.bidirectional_volumes);
  out->set_radius_begin_mm(in.radius_begin_mm);
  out->set_radius_end_mm(in.radius_end_mm);
  out->set_angle_begin_deg(in.angle_begin_deg);
  out->set_angle_end_deg(in.angle_end_deg);
  out->set_flyback_records(static_cast<uint32_t>(in.flyback_records));
  out->set_volume_flyback_records(static_cast<uint32_t>(in.volume_flyback_records));
}

absl::Status DecodeRepeat(const v1::Repeat& in, const std::string& at, pattern::Pattern* out) {
  if (!v1::Repeat::Strategy_IsValid(in.strategy())) {
    return InvalidField(at + "strategy",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.strategy())));
  }
  out->repeat_count = in.count();
  out->repeat_period = in.period();
  out->repeat_strategy = static_cast<pattern::RepeatStrategy>(in.strategy());
  return absl::OkStatus();
}

void EncodeRepeat(const pattern::Pattern& in, v1::Repeat* out) {
  out->set_count(static_cast<uint32_t>(in.repeat_count));
  out->set_period(static_cast<uint32_t>(in.repeat_period));
  out->set_strategy(static_cast<v1::Repeat::Strategy>(in.repeat_strategy));
}

pattern::AxisLimits DecodeAxis(const v1::Scanner::Axis& in) {
  return {.position_min = in.position_min(),
          .position_max = in.position_max(),
          .velocity = in.velocity(),
          .acceleration = in.acceleration()};
}

void EncodeAxis(const pattern::AxisLimits& in, v1::Scanner::Axis* out) {
  out->set_position_min(in.position_min);
  out->set_position_max(in.position_max);
  out->set_velocity(in.velocity);
  out->set_acceleration(in.acceleration);
}

absl::Status DecodeCommon(const v1::Pattern& in, pattern::Pattern* out) {
  out->offset_x_mm = in.offset_x_mm();
  out->offset_y_mm = in.offset_y_mm();
  out->rotation_deg = in.rotation_deg();
  if (in.has_angular_warp()) {
    out->warp = pattern::WarpKind::kAngular;
    out->warp_mm_per_deg = in.angular_warp().factor();
  } else if (in.has_telecentric_warp()) {
    out->warp = pattern::WarpKind::kTelecentric;
    out->warp_lens_spacing_mm = in.telecentric_warp().galvo_lens_spacing_mm();
    out->warp_rad_per_deg = in.telecentric_warp().scale_rad_per_deg();
  }
  if (!v1::FlybackPolicy_IsValid(in.flyback())) {
    return InvalidField("pattern.flyback",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.flyback())));
  }
  out->flyback = static_cast<pattern::FlybackPolicy>(in.flyback());
  if (in.has_scanner()) {
    out->has_limits = true;
    out->limits[0] = DecodeAxis(in.scanner().x());
    out->limits[1] = DecodeAxis(in.scanner().y());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<pattern::Pattern> DecodePattern(const v1::Pattern& in) {
  pattern::Pattern out;
  switch (in.pattern_case()) {
    case v1::Pattern::kRaster:
      out.kind = pattern::PatternKind::kRaster;
      OCTAVO_RETURN_IF_ERROR(DecodeRaster(in.raster(), "pattern.raster.", &out));
      break;
    case v1::Pattern::kRepeatedRaster:
      out.kind = pattern::PatternKind::kRepeatedRaster;
      OCTAVO_RETURN_IF_ERROR(
          DecodeRaster(in.repeated_raster().raster(), "pattern.repeated_raster.raster.", &out));
      OCTAVO_RETURN_IF_ERROR(
          DecodeRepeat(in.repeated_raster().repeat(), "pattern.repeated_raster.repeat.", &out));
      break;
    case v1::Pattern::kRadial:
      out.kind = pattern::PatternKind::kRadial;
      DecodeRadial(in.radial(), &out);
      break;
    case v1::Pattern::kRepeatedRadial:
      out.kind = pattern::PatternKind::kRepeatedRadial;
      DecodeRadial(in.repeated_radial().radial(), &out);
      OCTAVO_RETURN_IF_ERROR(
          DecodeRepeat(in.repeated_radial().repeat(), "pattern.repeated_radial.repeat.", &out));
      break;
    case v1::Pattern::kSpiral: {
      const auto& spiral = in.spiral();
      if (!v1::Spiral::Sampling_IsValid(spiral.sampling())) {
        return InvalidField(
            "pattern.spiral.sampling",
            absl::StrCat("has the unknown value ", static_cast<int>(spiral.sampling())));
      }
      out.kind = pattern::PatternKind::kSpiral;
      out.ascans_per_bscan = spiral.ascans_per_ring();
      out.bscans_per_volume = spiral.rings();
      out.volumes = spiral.volumes();
      out.volume_flyback_records = spiral.volume_flyback_records();
      out.radius_begin_mm = spiral.inner_radius_mm();
      out.radius_end_mm = spiral.outer_radius_mm();
      out.spiral_sampling = static_cast<pattern::SpiralSampling>(spiral.sampling());
      out.bidirectional_volumes = spiral.bidirectional_volumes();
      break;
    }
    case v1::Pattern::kLissajous: {
      const auto& figure = in.lissajous();
      out.kind = pattern::PatternKind::kLissajous;
      out.ascans_per_bscan = figure.ascans_per_row();
      out.bscans_per_volume = figure.rows();
      out.volumes = figure.volumes();
      out.volume_flyback_records = figure.volume_flyback_records();
      out.extent_x_mm = figure.extent_x_mm();
      out.extent_y_mm = figure.extent_y_mm();
      out.cycles_x = figure.cycles_x();
      out.cycles_y = figure.cycles_y();
      out.phase_x_deg = figure.phase_x_deg();
      out.phase_y_deg = figure.phase_y_deg();
      break;
    }
    case v1::Pattern::kFreeform: {
      const auto& form = in.freeform();
      out.kind = pattern::PatternKind::kFreeform;
      out.points_x_mm.assign(form.x_mm().begin(), form.x_mm().end());
      out.points_y_mm.assign(form.y_mm().begin(), form.y_mm().end());
      out.ascans_per_bscan = form.ascans_per_bscan();
      out.volumes = form.volumes();
      out.flyback_records = form.flyback_records();
      out.volume_flyback_records = form.volume_flyback_records();
      out.bidirectional = form.bidirectional();
      out.bidirectional_volumes = form.bidirectional_volumes();
      break;
    }
    case v1::Pattern::PATTERN_NOT_SET:
      return InvalidField("pattern",
                          "is not given; allowed: raster, repeated_raster, radial, "
                          "repeated_radial, spiral, lissajous, freeform");
  }
  OCTAVO_RETURN_IF_ERROR(DecodeCommon(in, &out));
  return out;
}

void EncodePattern(const pattern::Pattern& in, v1::Pattern* out) {
  switch (in.kind) {
    case pattern::PatternKind::kRaster: EncodeRaster(in, out->mutable_raster()); break;
    case pattern::PatternKind::kRepeatedRaster:
      EncodeRaster(in, out->mutable_repeated_raster()->mutable_raster());
      EncodeRepeat(in, out->mutable_repeated_raster()->mutable_repeat());
      break;
    case pattern::PatternKind::kRadial: EncodeRadial(in, out->mutable_radial()); break;
    case pattern::PatternKind::kRepeatedRadial:
      EncodeRadial(in, out->mutable_repeated_radial()->mutable_radial());
      EncodeRepeat(in, out->mutable_repeated_radial()->mutable_repeat());
      break;
    case pattern::PatternKind::kSpiral: {
      auto* spiral = out->mutable_spiral();
      spiral->set_ascans_per_ring(static_cast<uint32_t>(in.ascans_per_bscan));
      spiral->set_rings(static_cast<uint32_t>(in.bscans_per_volume));
      spiral->set_volumes(static_cast<uint32_t>(in.volumes));
      spiral->set_volume_flyback_records(static_cast<uint32_t>(in.volume_flyback_records));
      spiral->set_inner_radius_mm(in.radius_begin_mm);
      spiral->set_outer_radius_mm(in.radius_end_mm);
      spiral->set_sampling(static_cast<v1::Spiral::Sampling>(in.spiral_sampling));
      spiral->set_bidirectional_volumes(in.bidirectional_volumes);
      break;
    }
    case pattern::PatternKind::kLissajous: {
      auto* figure = out->mutable_lissajous();
      figure->set_ascans_per_row(static_cast<uint32_t>(in.ascans_per_bscan));
      figure->set_rows(static_cast<uint32_t>(in.bscans_per_volume));
      figure->set_volumes(static_cast<uint32_t>(in.volumes));
      figure->set_volume_flyback_records(static_cast<uint32_t>(in.volume_flyback_records));
      figure->set_extent_x_mm(in.extent_x_mm);
      figure->set_extent_y_mm(in.extent_y_mm);
      figure->set_cycles_x(static_cast<uint32_t>(in.cycles_x));
      figure->set_cycles_y(static_cast<uint32_t>(in.cycles_y));
      figure->set_phase_x_deg(in.phase_x_deg);
      figure->set_phase_y_deg(in.phase_y_deg);
      break;
    }
    case pattern::PatternKind::kFreeform: {
      auto* form = out->mutable_freeform();
      form->mutable_x_mm()->Add(in.points_x_mm.begin(), in.points_x_mm.end());
      form->mutable_y_mm()->Add(in.points_y_mm.begin(), in.points_y_mm.end());
      form->set_ascans_per_bscan(static_cast<uint32_t>(in.ascans_per_bscan));
      form->set_volumes(static_cast<uint32_t>(in.volumes));
      form->set_flyback_records(static_cast<uint32_t>(in.flyback_records));
      form->set_volume_flyback_records(static_cast<uint32_t>(in.volume_flyback_records));
      form->set_bidirectional(in.bidirectional);
      form->set_bidirectional_volumes(in.bidirectional_volumes);
      break;
    }
  }
  out->set_offset_x_mm(in.offset_x_mm);
  out->set_offset_y_mm(in.offset_y_mm);
  out->set_rotation_deg(in.rotation_deg);
  if (in.warp == pattern::WarpKind::kAngular)
    out->mutable_angular_warp()->set_factor(in.warp_mm_per_deg);
  if (in.warp == pattern::WarpKind::kTelecentric) {
    out->mutable_telecentric_warp()->set_galvo_lens_spacing_mm(in.warp_lens_spacing_mm);
    out->mutable_telecentric_warp()->set_scale_rad_per_deg(in.warp_rad_per_deg);
  }
  out->set_flyback(static_cast<v1::FlybackPolicy>(in.flyback));
  if (in.has_limits) {
    EncodeAxis(in.limits[0], out->mutable_scanner()->mutable_x());
    EncodeAxis(in.limits[1], out->mutable_scanner()->mutable_y());
  }
}

absl::Status EncodeWaveform(const pattern::PatternWaveform& wave, int64_t first_sample,
                            v1::Waveform* out) {
  const auto total = static_cast<int64_t>(wave.x.size());
  if (first_sample >= total) {
    return WithInfo(absl::OutOfRangeError(absl::StrCat("first_sample is ", first_sample,
                                                       "; the waveforms have ", total, " samples")),
                    {.reason = Reason::kOutOfRange,
                     .field = "first_sample",
                     .numbers = {{"total_samples", absl::StrCat(total)}}});
  }
  const int64_t end = std::min(first_sample + kMostWaveformSamples, total);
  for (int64_t i = first_sample; i < end; ++i) {
    out->add_x(static_cast<float>(wave.x[static_cast<size_t>(i)]));
    out->add_y(static_cast<float>(wave.y[static_cast<size_t>(i)]));
    out->add_placement(wave.placement[static_cast<size_t>(i)]);
  }
  out->set_unit(wave.unit);
  out->set_sample_rate_hz(wave.rate_hz);
  out->set_total_samples(total);
  out->set_first_sample(first_sample);
  return absl::OkStatus();
}

}  // namespace octavo::rpc
