#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/rpc/convert/array_operation.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"
#include "server/volume/commit_format.h"

namespace octavo::rpc {

absl::StatusOr<model::CommitOptions> DecodeCommitOptions(const v1::CommitOptions& in,
                                                         const std::string& field) {
  model::CommitOptions out;
  if (in.destination().size() > 2048) {
    return InvalidField(absl::StrCat(field, ".destination"),
                        absl::StrCat("has ", in.destination().size(), " characters; allowed 2048"));
  }
  if (!v1::Format_IsValid(in.format())) {
    return InvalidField(absl::StrCat(field, ".format"),
                        absl::StrCat("has the unknown value ", static_cast<int>(in.format())));
  }
  if (!v1::Codec_IsValid(in.codec())) {
    return InvalidField(absl::StrCat(field, ".codec"),
                        absl::StrCat("has the unknown value ", static_cast<int>(in.codec())));
  }
  if (!v1::Shuffle_IsValid(in.shuffle())) {
    return InvalidField(absl::StrCat(field, ".shuffle"),
                        absl::StrCat("has the unknown value ", static_cast<int>(in.shuffle())));
  }
  if (!v1::TiffPlane_IsValid(in.tiff_plane())) {
    return InvalidField(absl::StrCat(field, ".tiff_plane"),
                        absl::StrCat("has the unknown value ", static_cast<int>(in.tiff_plane())));
  }
  if (!v1::NgffVersion_IsValid(in.ngff())) {
    return InvalidField(absl::StrCat(field, ".ngff"),
                        absl::StrCat("has the unknown value ", static_cast<int>(in.ngff())));
  }
  if (in.level() < 0 || in.level() > 9)
    return FieldOutOfRange(absl::StrCat(field, ".level"), in.level(), 0, 9);
  if (in.pyramid_levels() > 16) {
    return FieldOutOfRange(absl::StrCat(field, ".pyramid_levels"), in.pyramid_levels(), 0, 16);
  }
  for (int i = 0; i < in.pyramid_um_size(); ++i) {
    const double um = in.pyramid_um(i);
    if (!std::isfinite(um) || um <= 0)
      return InvalidField(absl::StrCat(field, ".pyramid_um[", i, "]"),
                          absl::StrCat("is ", um, "; allowed are finite sizes above 0"));
  }
  if (in.nifti_version() > 2) {
    return FieldNotAllowed(absl::StrCat(field, ".nifti_version"), in.nifti_version(), "0, 1, 2");
  }
  out.destination = in.destination();
  const auto asked = in.format() == v1::FORMAT_UNSPECIFIED
                         ? std::nullopt
                         : std::optional(static_cast<storage::Format>(in.format()));
  OCTAVO_ASSIGN_OR_RETURN(out.writer.format,
                          volume::FormatOfCommit(field, in.destination(), asked));
  out.writer.compress = in.codec() != v1::CODEC_NONE;
  out.writer.codec =
      out.writer.compress ? static_cast<storage::Codec>(in.codec()) : storage::Codec::kDefault;
  out.writer.shuffle = static_cast<storage::Shuffle>(in.shuffle());
  out.writer.level = in.level();
  out.writer.pyramid_levels = static_cast<int>(in.pyramid_levels());
  out.writer.pyramid_um.assign(in.pyramid_um().begin(), in.pyramid_um().end());
  out.writer.nifti_version = static_cast<int>(in.nifti_version());
  out.writer.tiff_plane = static_cast<storage::TiffPlane>(in.tiff_plane());
  out.writer.tiff_stack = in.tiff_stack();
  out.writer.ngff = static_cast<storage::NgffVersion>(in.ngff());
  for (const auto& [name, values, to] : {std::tuple{"chunk", &in.chunk(), out.writer.chunk},
                                         std::tuple{"shard", &in.shard(), out.writer.shard}}) {
    if (values->empty()) continue;
    if (values->size() != 3) {
      return InvalidField(
          absl::StrCat(field, ".", name),
          absl::StrCat("has ", values->size(),
                       " numbers; allowed none or 3, along the axes of the volume"));
    }
    for (int d = 0; d < 3; ++d) {
      if (values->Get(d) == 0)
        return InvalidField(absl::StrCat(field, ".", name), "has an extent of 0; allowed >= 1");
      to[d] = values->Get(d);
    }
  }
  if (in.zstd_level() < 0 || in.zstd_level() > 19) {
    return FieldOutOfRange(absl::StrCat(field, ".zstd_level"), in.zstd_level(), 0, 19);
  }
  out.writer.zstd_level = in.zstd_level();
  return out;
}

void EncodeCommitOptions(const model::CommitOptions& in, v1::CommitOptions* out) {
  out->set_destination(in.destination);
  out->set_format(static_cast<v1::Format>(in.writer.format));
  const auto given = [](const int64_t* v) {
    return std::any_of(v, v + 3, [](int64_t x) { return x != 0; });
  };
  for (int d = 0; d < 3 && given(in.writer.chunk); ++d)
    out->add_chunk(static_cast<uint32_t>(in.writer.chunk[d]));
  for (int d = 0; d < 3 && given(in.writer.shard); ++d)
    out->add_shard(static_cast<uint32_t>(in.writer.shard[d]));
  out->set_zstd_level(in.writer.zstd_level);
  out->set_codec(in.writer.compress ? static_cast<v1::Codec>(in.writer.codec) : v1::CODEC_NONE);
  out->set_shuffle(static_cast<v1::Shuffle>(in.writer.shuffle));
  out->set_level(in.writer.level);
  out->set_pyramid_levels(static_cast<uint32_t>(in.writer.pyramid_levels));
  out->mutable_pyramid_um()->Assign(in.writer.pyramid_um.begin(), in.writer.pyramid_um.end());
  out->set_nifti_version(static_cast<uint32_t>(in.writer.nifti_version));
  out->set_tiff_plane(static_cast<v1::TiffPlane>(in.writer.tiff_plane));
  out->set_tiff_stack(in.writer.tiff_stack);
  out->set_ngff(static_cast<v1::NgffVersion>(in.writer.ngff));
}

void EncodeCommitResult(const storage::CommitOutcome& in, v1::CommitResult* out) {
  out->set_path(Utf8(in.path));
  out->set_format(static_cast<v1::Format>(in.format));
  out->set_bytes(in.disk_bytes);
  *out->mutable_elapsed() = ToDuration(in.seconds);
  out->set_checksum(in.checksum);
  out->set_raw_bytes(in.raw_bytes);
}

absl::StatusOr<std::vector<model::VolumeOperation>> DecodeVolumeOperations(
    const google::protobuf::RepeatedPtrField<v1::VolumeOperation>& in) {
  std::vector<model::VolumeOperation> out;
  for (int i = 0; i < in.size(); ++i) {
    const std::string at = absl::StrCat("operations[", i, "]");
    const auto& operation = in[i];
    switch (operation.operation_case()) {
      case v1::VolumeOperation::kCartesian: {
        const auto& grid = operation.cartesian();
        for (const auto& [name, value] : {std::pair{".cartesian.extent_x_mm", grid.extent_x_mm()},
                                          std::pair{".cartesian.extent_y_mm", grid.extent_y_mm()},
                                          std::pair{".cartesian.reach_mm", grid.reach_mm()}}) {
          OCTAVO_RETURN_IF_ERROR(CheckFinite((at + name).c_str(), value));
        }
        out.emplace_back(pattern::CartesianGrid{.rows = grid.rows(),
                                                .columns = grid.columns(),
                                                .extent_x_mm = grid.extent_x_mm(),
                                                .extent_y_mm = grid.extent_y_mm(),
                                                .reach_mm = grid.reach_mm()});
        break;
      }
      case v1::VolumeOperation::kAngiography:
        if (!v1::Angiography::Method_IsValid(operation.angiography().contrast_method())) {
          return InvalidField(
              at + ".angiography.contrast_method",
              absl::StrCat("has the unknown value ",
                           static_cast<int>(operation.angiography().contrast_method())));
        }
        out.emplace_back(
            model::AngiographyOperation{.method = operation.angiography().contrast_method() ==
                                                          v1::Angiography::METHOD_SPECKLE_VARIANCE
                                                      ? MotionContrast::kSpeckleVariance
                                                      : MotionContrast::kAmplitudeDecorrelation});
        break;
      case v1::VolumeOperation::kDoppler:
        if (!v1::Doppler::Between_IsValid(operation.doppler().between())) {
          return InvalidField(at + ".doppler.between",
                              absl::StrCat("has the unknown value ",
                                           static_cast<int>(operation.doppler().between())));
        }
        out.emplace_back(model::DopplerOperation{
            .between = static_cast<model::DopplerBetween>(operation.doppler().between()),
            .half_window = operation.doppler().half_window()});
        break;
      case v1::VolumeOperation::kArray: {
        OCTAVO_ASSIGN_OR_RETURN(model::OpSpec array, DecodeVolumeOperation(operation.array(), at));
        out.emplace_back(std::move(array));
        break;
      }
      case v1::VolumeOperation::OPERATION_NOT_SET:
        return InvalidField(at, "is empty; allowed: cartesian, angiography, doppler, array");
    }
  }
  return out;
}

absl::StatusOr<derive::DeriveSpec> DecodeDerive(const v1::DeriveVolumeRequest& in) {
  derive::DeriveSpec out;
  out.name = in.name();
  OCTAVO_ASSIGN_OR_RETURN(out.operations, DecodeVolumeOperations(in.operations()));
  return out;
}

void EncodeVolume(const model::VolumeStatus& in, v1::Volume* out) {
  out->set_name(in.name);
  out->set_parent(model::ParentOf(in));
  out->set_index(in.index);
  out->set_state(static_cast<v1::VolumeState>(in.state));
  out->set_reason(Utf8(in.reason));
  out->set_reason_code(EncodeReason(in.reason_code));
  for (const std::string& axis : in.axes) out->add_axes(axis);
  for (int d = 0; d < 3; ++d) {
    out->add_shape(in.shape[d]);
    out->add_spacing_um(in.spacing_um[d]);
    out->add_spacing_units(in.IsLength(d)           ? v1::SPACING_UNIT_MICROMETRE
                           : !in.spacing_inverse[d] ? v1::SPACING_UNIT_SAMPLE
                           : !in.spacing_assumed[d] ? v1::SPACING_UNIT_PER_MICROMETRE
                                                    : v1::SPACING_UNIT_PER_SAMPLE);
  }
  out->set_dtype(static_cast<v1::Dtype>(in.dtype));
  if (in.has_levels) {
    out->mutable_levels()->set_lo(in.level_lo);
    out->mutable_levels()->set_hi(in.level_hi);
  }
  if (in.quantity == model::Quantity::kNone) out->set_value(static_cast<v1::Value>(in.value));
  if (in.acquired_begin.unix_ns != 0) {
    *out->mutable_acquire_begin_time() = WallTime(in.acquired_begin);
    out->set_acquire_begin_monotonic_ns(in.acquired_begin.monotonic_ns);
  }
  if (in.acquired_end.unix_ns != 0) {
    *out->mutable_acquire_end_time() = WallTime(in.acquired_end);
    out->set_acquire_end_monotonic_ns(in.acquired_end.monotonic_ns);
  }
  out->set_complete(in.complete);
  out->set_missing_ascans(in.missing_ascans);
  for (const auto& [first, count] : in.missing) {
    auto* range = out->add_missing();
    range->set_first(first);
    range->set_count(count);
  }
  out->set_device(in.device);
  for (const auto& device : in.spread_devices) out->add_spread_devices(device);
  out->set_stripe_bscans(static_cast<uint32_t>(in.stripe_bscans));
  out->set_bytes(in.bytes);
  out->set_digest(in.digest);
  out->mutable_labels()->insert(in.labels.begin(), in.labels.end());
  out->set_title(in.title);
  if (in.has_commit) EncodeCommitResult(in.commit, out->mutable_commit());
  out->set_last_error(Utf8(in.last_error));
  for (const model::SkippedChain& skipped : in.skipped_chains) {
    auto* to = out->add_skipped_chains();
    to->set_chain(skipped.chain);
    to->set_reason_code(EncodeReason(skipped.reason_code));
    to->set_reason(Utf8(skipped.reason));
  }
  if (in.held_unix_ns != 0) *out->mutable_hold_time() = WallTime(in.held_unix_ns);
  out->set_kept(in.kept);
  out->set_derived_from(in.derived_from);
  for (const auto& operation : in.operations) out->add_operations(operation);
  out->set_quantity(static_cast<v1::Quantity>(in.quantity));
  out->set_tier(static_cast<v1::Tier>(in.tier));
  out->set_moving(static_cast<v1::VolumeMove>(in.moving));
  if (in.expires_unix_ns != 0) *out->mutable_expire_time() = WallTime(in.expires_unix_ns);
  out->set_session(in.session);
  EncodeOwner(in.owner, out);
  out->set_orphaned(in.orphaned);
  out->set_recovered(in.recovered);
  out->set_marked(in.marked);
  out->set_mirrored(in.mirrored);
  out->set_shared_leases(static_cast<int32_t>(in.shared_leases));
  out->set_raw(in.is_raw);
  out->set_chain(in.chain);
  out->set_clipped_below(in.clipped_below);
  out->set_clipped_above(in.clipped_above);
  out->set_missing_frames(in.missing_frames);
  out->set_expected_frames(in.expected_frames);
  for (const auto& [first, count] : in.missing_frame_ranges) {
    auto* range = out->add_missing_frame_ranges();
    range->set_first(static_cast<uint64_t>(first));
    range->set_count(static_cast<uint64_t>(count));
  }
}

}  // namespace octavo::rpc
