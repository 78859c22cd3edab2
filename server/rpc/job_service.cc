#include <algorithm>

#include "absl/strings/str_cat.h"

#include "octavo/v1/job.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/handler.h"
#include "server/rpc/job_submission.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  JobServiceImpl(engine::Engine* engine, SlowWork* slow)
      : engine_(*engine), jobs_(engine->jobs()), slow_(slow) {}

  ServerUnaryReactor* SubmitJob(CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                v1::SubmitJobResponse* response) override {
    return ReplyInTurn(
        &slow_->jobs, kMostSubmits, context, request, response,
        [this, context, request, response](model::AdmissionReport* report) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const job::JobStatus job,
                                  Submit(engine_,
                                         {.spec = request->spec(),
                                          .request_id = request->request_id(),
                                          .session_secret = request->session_secret(),
                                          .peer = context->peer(),
                                          .caller = CallerOf(*context)},
                                         report));
          PassPoint(MethodOf<v1::SubmitJobRequest>(), ".answer");
          Encode(job, CallerOf(*context), /*brief=*/false, response->mutable_job());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* PlanJob(CallbackServerContext* context, const v1::PlanJobRequest* request,
                              v1::PlanJobResponse* response) override {
    return ReplyInTurn(&slow_->jobs, kMostSubmits, context, request, response,
                       [this, context, request, response]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(model::JobSpec spec,
                                                 DecodeJobSpec(request->spec(), context->peer()));
                         spec.caller = CallerOf(*context);
                         job::JobPlan plan;
                         OCTAVO_ASSIGN_OR_RETURN(const auto report, jobs_.Plan(spec, &plan));
                         response->set_plan(Utf8(plan.text));
                         for (const std::string& warning : plan.warnings)
                           response->add_warnings(Utf8(warning));
                         response->mutable_shape()->Assign(plan.shape.begin(), plan.shape.end());
                         EncodeAdmissionReport(report, response->mutable_report());
                         return absl::OkStatus();
                       });
  }

  ServerUnaryReactor* GetJob(CallbackServerContext* context, const v1::GetJobRequest* request,
                             v1::GetJobResponse* response) override {
    return Answer(context, request, response, [&] { return jobs_.Get(request->name()); });
  }
  ServerUnaryReactor* CancelJob(CallbackServerContext* context, const v1::CancelJobRequest* request,
                                v1::CancelJobResponse* response) override {
    return Answer(context, request, response,
                  [&] { return jobs_.Cancel(request->name(), PrincipalOf(*context)); });
  }

  ServerUnaryReactor* ListJobs(CallbackServerContext* context, const v1::ListJobsRequest* request,
                               v1::ListJobsResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Job::descriptor()));
      FillPage<v1::Job>(
          query,
          [this, caller = CallerOf(*context)](int64_t after, size_t most) {
            std::vector<RankedRow<v1::Job>> rows;
            for (const job::JobStatus& job : jobs_.List(NumberBefore(after), most)) {
              rows.emplace_back().rank = RankOfNewest(job.number);
              Encode(job, caller, /*brief=*/true, &rows.back().row);
            }
            return rows;
          },
          response->mutable_jobs(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      CallbackServerContext* context, const v1::WatchJobRequest* request) override {
    return Stream<v1::WatchJobResponse>(
        context, request,
        [&](const std::shared_ptr<QueuedWriter<v1::WatchJobResponse>>& writer) -> absl::Status {
          const auto tell = [this, caller = CallerOf(*context), weak = std::weak_ptr(writer)](
                                const absl::StatusOr<job::JobStatus>& job) {
            auto to = weak.lock();
            if (to == nullptr) return;
            to->Feed([&] {
              if (!job.ok()) return to->End(ToGrpc(job.status()));
              v1::WatchJobResponse message;
              Encode(*job, caller, /*brief=*/false, message.mutable_job());
              to->Push(std::move(message), /*replace=*/true);
              if (IsFinal(job->state)) to->End({});
            });
          };
          OCTAVO_ASSIGN_OR_RETURN(auto handle, jobs_.Watch(request->name(), tell));
          writer->OnOver(
              [held = std::shared_ptr<base::Handle>(std::move(handle))] { held->Cancel(); });
          return absl::OkStatus();
        });
  }

 private:
  /// As EncodeJob, without the name of a private buffer that the caller may not see.
  void Encode(const job::JobStatus& job, const model::Caller& caller, bool brief,
              v1::Job* out) const {
    EncodeJob(job, brief, out);
    if (!engine_.buffers().MaySee(job.buffer, caller)) out->clear_buffer();
  }

  template <class Request, class Response, class F>
  ServerUnaryReactor* Answer(CallbackServerContext* context, const Request* request,
                             Response* response, F call) {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const job::JobStatus job, call());
      PassPoint(MethodOf<Request>(), ".answer");
      Encode(job, CallerOf(*context), /*brief=*/false, response->mutable_job());
      return absl::OkStatus();
    });
  }

  engine::Engine& engine_;
  engine::Jobs& jobs_;
  SlowWork* const slow_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(engine::Engine* engine, SlowWork* slow) {
  return std::make_unique<JobServiceImpl>(engine, slow);
}

}  // namespace octavo::rpc
