#include "client/cpp/cli/pending_result.h"

#include <filesystem>

#include "absl/strings/match.h"

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

namespace octavo::cli {
namespace {

constexpr char kNotOver[] =
    "state = QUEUED OR state = RUNNING OR state = CANCELLING OR state = DONE";
constexpr int kRowsOfAPage = 1000;

// Whether the result of a job that is done will be written. A volume that is gone will not.
grpc::Status IsToBeWritten(Session& session, const v1::Job& job, bool* is) {
  *is = false;
  if (!job.commits().empty() || job.commit_failures() > 0 || job.volumes().empty())
    return grpc::Status::OK;
  v1::GetVolumeRequest request;
  request.set_name(job.volumes(0));
  v1::GetVolumeResponse answer;
  const grpc::Status status = v1::VolumeService::NewStub(session.channel())
                                  ->GetVolume(session.Context().get(), request, &answer);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return grpc::Status::OK;
  *is = answer.volume().state() == v1::VOLUME_STATE_HELD ||
        answer.volume().state() == v1::VOLUME_STATE_COMMITTING;
  return status;
}

}  // namespace

bool SamePath(const std::string& a, const std::string& b) {
  const auto one = std::filesystem::path(a).lexically_normal(),
             other = std::filesystem::path(b).lexically_normal();
  if (one.is_absolute() == other.is_absolute()) return one == other;
  const std::string& whole = (one.is_absolute() ? one : other).native();
  return absl::EndsWith(whole, "/" + (one.is_absolute() ? other : one).native());
}

grpc::Status FindPendingResult(Session& session, const std::string& destination,
                               std::optional<v1::Job>* found) {
  found->reset();
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::ListJobsRequest request;
  request.set_filter(kNotOver);
  request.set_page_size(kRowsOfAPage);
  do {
    v1::ListJobsResponse answer;
    if (const auto status = stub->ListJobs(session.Context().get(), request, &answer); !status.ok())
      return status;
    for (v1::Job& job : *answer.mutable_jobs()) {
      if (!job.spec().has_commit() || !SamePath(job.spec().commit().destination(), destination))
        continue;
      bool pending = true;
      if (job.state() == v1::JOB_STATE_DONE) {
        if (const auto status = IsToBeWritten(session, job, &pending); !status.ok()) return status;
      }
      if (!pending) continue;
      found->emplace().Swap(&job);
      return grpc::Status::OK;
    }
    request.set_page_token(answer.next_page_token());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

}  // namespace octavo::cli
