#include "server/rpc/scan_submission.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/rpc/convert/bounds.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/rpc_server.h"

namespace octavo::rpc {

absl::StatusOr<model::ScanSpec> DecodeSubmission(const v1::SubmitScanRequest& request,
                                                 const security::Owner& owner) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  OCTAVO_ASSIGN_OR_RETURN(model::ScanSpec spec, DecodeScanSpec(request.spec()));
  spec.request_id = request.request_id();
  spec.owner = owner;
  // A retry by another caller is another request, because the scan would belong to the first one.
  absl::StrAppend(&spec.request_digest, "owner:", owner.name, "\n");
  return spec;
}

std::string BytesToKeep(const v1::SubmitScanRequest& request) {
  if (request.spec().on_restart() != v1::ON_RESTART_RESUME) return "";
  v1::SubmitScanRequest kept = request;
  kept.clear_session_secret();
  return kept.SerializeAsString();
}

absl::StatusOr<model::ScanStatus> ResumeScan(engine::Scans& scans,
                                             const engine::ScanToResume& earlier) {
  v1::SubmitScanRequest request;
  if (!request.ParseFromString(earlier.request))
    return absl::DataLossError("its record does not parse as SubmitScanRequest");
  OCTAVO_RETURN_IF_ERROR(CheckBounds(request));
  OCTAVO_ASSIGN_OR_RETURN(model::ScanSpec spec, DecodeSubmission(request, earlier.owner));
  return scans.Resume(earlier, std::move(spec));
}

std::vector<ResumeOutcome> ResumeScans(engine::Engine* engine, const OwnerNow& owner_now) {
  std::vector<ResumeOutcome> outcomes;
  engine::ResumeBook& records = engine->scans().records();
  for (const std::string& record : records.found()) {
    ResumeOutcome& outcome = outcomes.emplace_back();
    outcome.was = absl::StrCat("scans/", record);  // until the record tells a later one
    outcome.why = base::ExceptionToStatus([&]() -> absl::Status {
      auto earlier = records.TakeUp(record, &outcome.was);
      outcome.kept = !absl::IsAborted(earlier.status()) && !absl::IsDataLoss(earlier.status());
      OCTAVO_RETURN_IF_ERROR(earlier.status());
      outcome.was = earlier->scan;
      outcome.owner = earlier->owner;
      const auto scan = base::ExceptionToStatus([&]() -> absl::StatusOr<model::ScanStatus> {
        OCTAVO_ASSIGN_OR_RETURN(earlier->owner, owner_now(earlier->owner));
        return ResumeScan(engine->scans(), *earlier);
      });
      if (scan.ok()) {
        outcome.now = scan->name;
        records.Resumed(record, scan->name);
      } else {
        records.Refused(record);
      }
      return scan.status();
    });
  }
  return outcomes;
}

}  // namespace octavo::rpc
