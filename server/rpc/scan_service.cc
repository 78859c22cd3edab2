#include <type_traits>

#include "octavo/v1/scan.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/picture/plot.h"
#include "server/processing/merge_processing.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_mask.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/scan_submission.h"
#include "server/rpc/services.h"
#include "server/security/rights.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class ScanServiceImpl final : public v1::ScanService::CallbackService {
 public:
  ScanServiceImpl(engine::Engine* engine, SlowWork* slow)
      : scans_(engine->scans()), clients_(engine->clients()), slow_(slow) {}

  ServerUnaryReactor* SubmitScan(CallbackServerContext* context,
                                 const v1::SubmitScanRequest* request,
                                 v1::SubmitScanResponse* response) override {
    return ReplyMaybeSlow(
        &slow_->submits, kMostSubmits, context, request, response,
        [this, context, request, response](model::AdmissionReport* report) -> absl::Status {
          const security::Principal caller = PrincipalOf(*context);
          OCTAVO_ASSIGN_OR_RETURN(model::ScanSpec spec,
                                  DecodeSubmission(*request, security::OwnerOf(caller)));
          spec.trace_id = TraceIdOf(*context);
          OCTAVO_RETURN_IF_ERROR(SetSession(request->session_secret(), caller, &spec));
          OCTAVO_ASSIGN_OR_RETURN(const model::ScanStatus scan,
                                  scans_.Submit(spec, report, caller, BytesToKeep(*request)));
          PassPoint(MethodOf<v1::SubmitScanRequest>(), ".answer");
          EncodeScan(scan, response->mutable_scan());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* PlanScan(CallbackServerContext* context, const v1::PlanScanRequest* request,
                               v1::PlanScanResponse* response) override {
    return ReplyMaybeSlow(
        &slow_->plans, kMostPlans, context, request, response,
        [this, context, request, response]() -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(model::ScanSpec spec, DecodeScanSpec(request->spec()));
          OCTAVO_RETURN_IF_ERROR(
              SetSession(request->session_secret(), PrincipalOf(*context), &spec));
          spec.owner = security::OwnerOf(PrincipalOf(*context));
          std::vector<std::string> warnings;
          OCTAVO_ASSIGN_OR_RETURN(const auto report,
                                  scans_.Plan(spec, response->mutable_plan(), &warnings));
          PassPoint(MethodOf<v1::PlanScanRequest>(), ".answer");
          for (const auto& warning : warnings) response->add_warnings(Utf8(warning));
          response->set_plan(Utf8(response->plan()));
          EncodeAdmissionReport(report, response->mutable_report());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* PlanWaveform(CallbackServerContext* context,
                                   const v1::PlanWaveformRequest* request,
                                   v1::PlanWaveformResponse* response) override {
    return ReplyMaybeSlow(
        &slow_->plans, kMostPlans, context, request, response,
        [this, request, response]() -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const pattern::PatternWaveform wave, WaveformOf(*request));
          PassPoint(MethodOf<v1::PlanWaveformRequest>(), ".answer");
          return EncodeWaveform(wave, request->first_sample(), response->mutable_waveform());
        });
  }

  ServerUnaryReactor* PlotWaveform(CallbackServerContext* context,
                                   const v1::PlotWaveformRequest* request,
                                   v1::PlotWaveformResponse* response) override {
    return ReplyMaybeSlow(
        &slow_->plans, kMostPlans, context, request, response,
        [this, request, response]() -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const pattern::PatternWaveform wave, WaveformOf(*request));
          PassPoint(MethodOf<v1::PlotWaveformRequest>(), ".answer");
          OCTAVO_ASSIGN_OR_RETURN(*response->mutable_png(), picture::PlotPattern(wave));
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* MarkScan(CallbackServerContext* context, const v1::MarkScanRequest* request,
                               v1::MarkScanResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(
          const model::ScanEvent event,
          scans_.Mark(request->name(), request->marker(), PrincipalOf(*context)));
      EncodeScanEvent(event, response->mutable_event());
      return absl::OkStatus();
    });
  }

  ServerUnaryReactor* GetScan(CallbackServerContext* context, const v1::GetScanRequest* request,
                              v1::GetScanResponse* response) override {
    return Answer(context, request, response, [&] { return scans_.Get(request->name()); });
  }
  ServerUnaryReactor* StopScan(CallbackServerContext* context, const v1::StopScanRequest* request,
                               v1::StopScanResponse* response) override {
    return AnswerEnd(context, request, response,
                     [&] { return scans_.Stop(request->name(), PrincipalOf(*context)); });
  }
  ServerUnaryReactor* CancelScan(CallbackServerContext* context,
                                 const v1::CancelScanRequest* request,
                                 v1::CancelScanResponse* response) override {
    return AnswerEnd(context, request, response,
                     [&] { return scans_.Cancel(request->name(), PrincipalOf(*context)); });
  }
  ServerUnaryReactor* UpdateScan(CallbackServerContext* context,
                                 const v1::UpdateScanRequest* request,
                                 v1::UpdateScanResponse* response) override {
    return ReplyInTurn(&slow_->submits, kMostSubmits, context, request, response,
                       [this, context, request, response]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(
                             const std::set<std::string> fields,
                             FieldsOfMask(request->update_mask(), processing::ProcessingFields()));
                         OCTAVO_ASSIGN_OR_RETURN(const model::Processing given,
                                                 DecodeProcessing(request->processing()));
                         OCTAVO_ASSIGN_OR_RETURN(
                             const model::ScanStatus scan,
                             scans_.Update(request->name(), given, fields, PrincipalOf(*context)));
                         PassPoint(MethodOf<v1::UpdateScanRequest>(), ".answer");
                         EncodeScan(scan, response->mutable_scan());
                         return absl::OkStatus();
                       });
  }

  ServerUnaryReactor* ListScans(CallbackServerContext* context, const v1::ListScansRequest* request,
                                v1::ListScansResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Scan::descriptor()));
      FillPage<v1::Scan>(
          query,
          [this](int64_t after, size_t most) {
            std::vector<RankedRow<v1::Scan>> rows;
            for (const model::ScanStatus& scan : scans_.List(NumberBefore(after), most)) {
              rows.emplace_back().rank = RankOfNewest(scan.number);
              EncodeScan(scan, &rows.back().row);
              rows.back().row.clear_events();  // a page with events would take megabytes
            }
            return rows;
          },
          response->mutable_scans(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::WatchScanResponse>* WatchScan(
      CallbackServerContext* context, const v1::WatchScanRequest* request) override {
    return Stream<v1::WatchScanResponse>(
        context, request,
        [&](const std::shared_ptr<QueuedWriter<v1::WatchScanResponse>>& writer) -> absl::Status {
          const auto tell =
              [weak = std::weak_ptr(writer)](const absl::StatusOr<model::ScanStatus>& scan) {
                auto to = weak.lock();
                if (to == nullptr) return;
                to->Feed([&] {
                  if (!scan.ok()) return to->End(ToGrpc(scan.status()));
                  v1::WatchScanResponse message;
                  EncodeScan(*scan, message.mutable_scan());
                  to->Push(std::move(message), /*replace=*/true);
                  if (IsFinal(scan->state)) to->End({});
                });
              };
          OCTAVO_ASSIGN_OR_RETURN(auto handle, scans_.Watch(request->name(), tell));
          writer->OnOver(
              [held = std::shared_ptr<base::Handle>(std::move(handle))] { held->Cancel(); });
          return absl::OkStatus();
        });
  }

 private:
  /// The waveforms that PlanWaveform and PlotWaveform speak of.
  template <typename Request>
  absl::StatusOr<pattern::PatternWaveform> WaveformOf(const Request& request) {
    OCTAVO_ASSIGN_OR_RETURN(const model::ScanSpec spec, DecodeScanSpec(request.spec()));
    return scans_.PlanWaveform(spec, request.odd_volume());
  }

  absl::Status SetSession(const std::string& secret, const security::Principal& caller,
                          model::ScanSpec* spec) {
    if (secret.empty()) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const session::SessionStatus session, clients_.Find(secret, caller));
    spec->session = session.name;
    // Likewise by another session.
    spec->request_digest += session.name;
    return absl::OkStatus();
  }

  // Calls that query a camera wait for each other only, and so do those that wait for the disk of
  // the server's state. Who does both is among the first: answers to StopScan never wait for a
  // camera.
  template <class Request, class Response, class Work>
  ServerUnaryReactor* ReplyMaybeSlow(base::WorkerPool* pool, int most,
                                     CallbackServerContext* context, const Request* request,
                                     const Response* response, Work work) {
    const bool recorded = std::is_same_v<Request, v1::SubmitScanRequest> &&
                          request->spec().on_restart() == v1::ON_RESTART_RESUME;
    return ReplyInTurn(request->spec().has_camera() ? &slow_->cameras
                       : recorded                   ? &slow_->resume_io
                                                    : pool,
                       most, context, request, response, std::move(work));
  }

  template <class Request, class Response, class F>
  static ServerUnaryReactor* Answer(CallbackServerContext* context, const Request* request,
                                    Response* response, F call) {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const model::ScanStatus scan, call());
      PassPoint(MethodOf<Request>(), ".answer");
      EncodeScan(scan, response->mutable_scan());
      return absl::OkStatus();
    });
  }

  // The scan ends at once. If it would go on after a restart, its record is removed before the
  // answer, by a thread that may wait for the disk: after the answer no daemon resumes it, unless
  // the disk refused to remove the record, which the log tells. The scan of the answer is the one
  // that ends: it may have been asked for by the name of an earlier one that it goes on with.
  template <class Request, class Response, class F>
  ServerUnaryReactor* AnswerEnd(CallbackServerContext* context, const Request* request,
                                Response* response, F call) {
    return Unary(context, request, response, [&](UnaryReply* reply) {
      const auto work = [&]() -> absl::Status {
        OCTAVO_ASSIGN_OR_RETURN(const model::ScanStatus scan, call());
        PassPoint(MethodOf<Request>(), ".answer");
        EncodeScan(scan, response->mutable_scan());
        return absl::OkStatus();
      };
      const grpc::Status answer = rpc::Answer(*request, work);
      if (!answer.ok() || !scans_.records().Has(response->scan().name())) {
        reply->Answer(answer);
        return absl::OkStatus();
      }
      slow_->resume_io.Post([this, reply, response, answer] {
        const absl::Status dropped = Guarded([&] {
          scans_.records().Drop(response->scan().name());
          return absl::OkStatus();
        });
        reply->Answer(dropped.ok() ? answer : ToGrpc(dropped));
      });
      return absl::OkStatus();
    });
  }

  engine::Scans& scans_;
  engine::Clients& clients_;
  SlowWork* const slow_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeScanService(engine::Engine* engine, SlowWork* slow) {
  return std::make_unique<ScanServiceImpl>(engine, slow);
}

}  // namespace octavo::rpc
