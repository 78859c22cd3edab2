#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/projection.h"
#include "server/rpc/convert/request_digest.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/tomography.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/convert/volume_import.h"
#include "server/security/rights.h"

namespace octavo::rpc {
namespace {

static_assert(static_cast<int>(job::kLastJobKind) == static_cast<int>(v1::JobKind_MAX),
              "job::JobKind has the values of octavo.v1.JobKind");

// Errors of the processing name its place in the request.
absl::StatusOr<model::Processing> DecodeProcessingOf(const char* work, const v1::Processing& in) {
  auto out = DecodeProcessing(in);
  if (out.ok()) return out;
  return base::AtField(absl::StrCat(work, "."), out.status());
}

absl::StatusOr<model::ReprocessSpec> Decode(const v1::ReprocessJob& in) {
  model::ReprocessSpec out{
      .volume = in.volume(), .processing = {}, .operations = {}, .encoded_operations = {}};
  OCTAVO_ASSIGN_OR_RETURN(out.processing, DecodeProcessingOf("reprocess", in.processing()));
  auto operations = DecodeVolumeOperations(in.operations());
  if (!operations.ok()) return base::AtField("reprocess.", operations.status());
  out.operations = *std::move(operations);
  for (const v1::VolumeOperation& operation : in.operations())
    out.encoded_operations.push_back(FixedBytes(operation));
  return out;
}

absl::StatusOr<model::DispersionAutofocusSpec> Decode(const v1::DispersionAutofocusJob& in) {
  for (const auto& [field, value] : {std::pair{"dispersion_autofocus.a2_begin", in.a2_begin()},
                                     std::pair{"dispersion_autofocus.a2_end", in.a2_end()},
                                     std::pair{"dispersion_autofocus.a3_begin", in.a3_begin()},
                                     std::pair{"dispersion_autofocus.a3_end", in.a3_end()}}) {
    OCTAVO_RETURN_IF_ERROR(CheckFinite(field, value));
  }
  model::DispersionAutofocusSpec out{
      .volume = in.volume(),
      .processing = {},
      .processing_given = in.has_processing(),
      .a2_begin = in.a2_begin(),
      .a2_end = in.a2_end(),
      .a3_begin = in.a3_begin(),
      .a3_end = in.a3_end(),
      .only_a2 = in.only_a2(),
      .ascans = in.ascans(),
      .bins = in.bins(),
      .first_bin = in.has_first_bin() ? std::optional<int64_t>(in.first_bin()) : std::nullopt,
      .reprocess = in.reprocess()};
  OCTAVO_ASSIGN_OR_RETURN(out.processing,
                          DecodeProcessingOf("dispersion_autofocus", in.processing()));
  return out;
}

absl::StatusOr<model::KCalibrationSpec> Decode(const v1::KCalibrationJob& in) {
  OCTAVO_RETURN_IF_ERROR(CheckFinite("k_calibration.edge", in.edge()));
  model::KCalibrationSpec out{.volume = in.volume(),
                              .first_record = in.first_record(),
                              .records = in.records(),
                              .processing = {},
                              .processing_given = in.has_processing(),
                              .least_bin = in.least_bin(),
                              .polynomial_degree = in.polynomial_degree(),
                              .edge = in.has_edge() ? std::optional(in.edge()) : std::nullopt};
  OCTAVO_ASSIGN_OR_RETURN(out.processing, DecodeProcessingOf("k_calibration", in.processing()));
  return out;
}

void Encode(const model::ReprocessSpec& in, v1::JobSpec* out) {
  out->mutable_reprocess()->set_volume(in.volume);
  EncodeProcessing(in.processing, out->mutable_reprocess()->mutable_processing());
  for (const std::string& operation : in.encoded_operations)
    out->mutable_reprocess()->add_operations()->ParseFromString(operation);
}

void Encode(const model::DispersionAutofocusSpec& in, v1::JobSpec* spec) {
  auto* out = spec->mutable_dispersion_autofocus();
  out->set_volume(in.volume);
  if (in.processing_given) EncodeProcessing(in.processing, out->mutable_processing());
  out->set_a2_begin(in.a2_begin);
  out->set_a2_end(in.a2_end);
  out->set_a3_begin(in.a3_begin);
  out->set_a3_end(in.a3_end);
  out->set_only_a2(in.only_a2);
  out->set_ascans(static_cast<uint32_t>(in.ascans));
  if (in.first_bin.has_value()) out->set_first_bin(static_cast<uint32_t>(*in.first_bin));
  out->set_bins(static_cast<uint32_t>(in.bins));
  out->set_reprocess(in.reprocess);
}

void Encode(const model::KCalibrationSpec& in, v1::JobSpec* spec) {
  auto* out = spec->mutable_k_calibration();
  out->set_volume(in.volume);
  out->set_first_record(static_cast<uint32_t>(in.first_record));
  out->set_records(static_cast<uint32_t>(in.records));
  if (in.processing_given) EncodeProcessing(in.processing, out->mutable_processing());
  out->set_least_bin(static_cast<uint32_t>(in.least_bin));
  out->set_polynomial_degree(static_cast<uint32_t>(in.polynomial_degree));
  if (in.edge.has_value()) out->set_edge(*in.edge);
}

void Encode(const model::TomographySpec& in, v1::JobSpec* out) {
  EncodeTomography(in, out->mutable_tomography());
}

void Encode(const model::ImportSpec& in, v1::JobSpec* out) {
  EncodeImport(in, out->mutable_volume_import());
}

void Encode(const model::ProjectionSpec& in, v1::JobSpec* out) {
  EncodeProjection(in, out->mutable_projection());
}

void Encode(std::monostate, v1::JobSpec*) {}

void EncodeFinding(const model::DispersionEstimate& in, v1::Job* job) {
  auto* out = job->mutable_dispersion();
  out->set_a2(in.a2);
  out->set_a3(in.a3);
  out->set_sharpness(in.sharpness);
  out->set_sharpness_before(in.sharpness_before);
  out->set_evaluations(static_cast<uint32_t>(in.evaluations));
}

void EncodeFinding(const model::KLinearisationEstimate& in, v1::Job* job) {
  auto* out = job->mutable_k_linearisation();
  out->mutable_index()->Add(in.index.begin(), in.index.end());
  out->mutable_polynomial()->Add(in.polynomial.begin(), in.polynomial.end());
  out->set_residual_rms_rad(in.residual_rms_rad);
  out->set_peak_bin(in.peak_bin);
  out->set_nonlinearity_samples(in.nonlinearity_samples);
}

void EncodeFinding(const model::TomographyReport& in, v1::Job* job) {
  EncodeTomographyReport(in, job->mutable_tomography());
}

void EncodeFinding(std::monostate, v1::Job*) {}

std::string DigestOf(const v1::JobSpec& spec) {
  if (spec.volume_import().deposit().empty()) return RequestDigest(spec);
  v1::JobSpec handed_over = spec;  // with another ticket at each try
  handed_over.mutable_volume_import()->set_deposit("a ticket");
  return RequestDigest(handed_over);
}

}  // namespace

absl::StatusOr<model::JobSpec> DecodeJobSpec(const v1::JobSpec& in, const std::string& client) {
  if (in.title().size() > 256)
    return InvalidField("title",
                        absl::StrCat("has ", in.title().size(), " characters; allowed 256"));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  if (in.priority() < -100 || in.priority() > 100)
    return FieldOutOfRange("priority", in.priority(), -100, 100);
  OCTAVO_RETURN_IF_ERROR(CheckEnum("orphan", in.orphan(), v1::Orphan_IsValid(in.orphan())));
  OCTAVO_RETURN_IF_ERROR(CheckEnum("results", in.results(), v1::Tier_IsValid(in.results())));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  if (const double ttl = ToSeconds(in.ttl()); ttl != 0 && !(ttl >= 1 && ttl <= 31'536'000)) {
    return FieldNotAllowed("ttl", absl::StrCat(ttl, " s"), "unset (never), or 1 s to 365 days");
  }
  if (in.group().size() > 128)
    return InvalidField("group",
                        absl::StrCat("has ", in.group().size(), " characters; allowed 128"));
  model::JobSpec out;
  out.request_digest = DigestOf(in);
  out.title = in.title();
  out.labels.insert(in.labels().begin(), in.labels().end());
  out.priority = in.priority();
  out.device = in.device();
  out.orphan = static_cast<model::Orphan>(in.orphan());
  out.ttl_seconds = ToSeconds(in.ttl());
  if (in.results() == v1::TIER_HOST || in.results() == v1::TIER_DISK)
    out.results = static_cast<model::Tier>(in.results());
  if (in.has_commit()) {
    if (in.commit().destination().empty())
      return InvalidField("commit.destination",
                          "is empty; give a path relative to a storage root, for example "
                          "\"{title}_{date}\"");
    OCTAVO_ASSIGN_OR_RETURN(out.commit, DecodeCommitOptions(in.commit(), "commit"));
  }
  out.group = in.group().empty() ? client : in.group();
  switch (in.work_case()) {
    case v1::JobSpec::kReprocess: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, Decode(in.reprocess()));
      break;
    }
    case v1::JobSpec::kDispersionAutofocus: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, Decode(in.dispersion_autofocus()));
      break;
    }
    case v1::JobSpec::kKCalibration: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, Decode(in.k_calibration()));
      break;
    }
    case v1::JobSpec::kTomography: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, DecodeTomography(in.tomography()));
      break;
    }
    case v1::JobSpec::kVolumeImport: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, DecodeImport(in.volume_import()));
      break;
    }
    case v1::JobSpec::kProjection: {
      OCTAVO_ASSIGN_OR_RETURN(out.work, DecodeProjection(in.projection()));
      break;
    }
    case v1::JobSpec::WORK_NOT_SET:
      return InvalidField("work",
                          "is not given; allowed: reprocess, dispersion_autofocus, k_calibration, "
                          "tomography, volume_import, projection");
  }
  return out;
}

void EncodeJobSpec(const model::JobSpec& in, v1::JobSpec* out) {
  out->set_title(in.title);
  out->mutable_labels()->insert(in.labels.begin(), in.labels.end());
  out->set_priority(in.priority);
  out->set_device(in.device);
  out->set_orphan(static_cast<v1::Orphan>(in.orphan));
  if (in.ttl_seconds > 0) *out->mutable_ttl() = ToDuration(in.ttl_seconds);
  if (in.results.has_value()) out->set_results(static_cast<v1::Tier>(*in.results));
  if (in.commit.has_value()) EncodeCommitOptions(*in.commit, out->mutable_commit());
  out->set_group(in.group);
  std::visit([out](const auto& work) { Encode(work, out); }, in.work);
}

void EncodeJob(const job::JobStatus& in, bool brief, v1::Job* out) {
  out->set_name(in.name);
  EncodeJobSpec(in.spec, out->mutable_spec());
  out->set_session(in.spec.session);
  EncodeOwner(security::OwnerOf(in.spec.caller.principal), out);
  out->set_operation(engine::OperationNameOf(in.name));
  out->set_kind(static_cast<v1::JobKind>(in.kind));
  out->set_state(static_cast<v1::JobState>(in.state));
  out->set_reason(Utf8(in.reason));
  out->set_reason_code(EncodeReason(in.reason_code));
  *out->mutable_create_time() = WallTime(in.created);
  if (in.started.unix_ns != 0) *out->mutable_start_time() = WallTime(in.started);
  if (in.ended.unix_ns != 0) *out->mutable_end_time() = WallTime(in.ended);
  out->set_device(in.device);
  out->set_queue_position(static_cast<uint32_t>(in.queue_position));
  out->set_plan(Utf8(in.plan));
  for (const std::string& warning : in.warnings) out->add_warnings(Utf8(warning));
  out->set_memory_bytes(in.memory_bytes);
  out->set_stage(static_cast<v1::JobStage>(in.stage));
  out->set_fraction(in.fraction);
  out->set_step(in.step);
  out->set_steps(in.steps);
  if (in.eta_seconds > 0) *out->mutable_eta() = ToDuration(in.eta_seconds);
  out->set_step_count(in.step_count);
  out->set_log_lines_total(in.log_count);
  for (const auto& volume : in.volumes) out->add_volumes(volume);
  out->set_buffer(in.buffer);
  for (const std::string& path : in.commits) out->add_commits(Utf8(path));
  out->set_commit_failures(static_cast<uint32_t>(in.commit_failures));
  out->set_earlier_run(in.earlier_run);
  std::visit([out](const auto& finding) { EncodeFinding(finding, out); }, in.finding);
  if (brief) return;
  for (const auto& step : in.history) {
    auto* to = out->add_history();
    to->set_stage(static_cast<v1::JobStage>(step.stage));
    to->set_step(step.step);
    to->set_residual_norm(step.residual_norm);
    *to->mutable_elapsed() = ToDuration(step.seconds);
  }
  for (const auto& line : in.log) {
    auto* to = out->add_log_lines();
    *to->mutable_elapsed() = ToDuration(line.seconds);
    to->set_text(Utf8(line.text));
  }
}

}  // namespace octavo::rpc
