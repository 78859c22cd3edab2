#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "google/protobuf/util/json_util.h"

#include "octavo/v1/job.grpc.pb.h"

#include "client/cpp/commands.h"
#include "client/cpp/terminal.h"

namespace octavo::cli {
namespace {

void PrintJob(const Session& session, const v1::Job& job) {
  if (session.json) {
    PrintJson(job);
    return;
  }
  std::cout << job.name() << "  " << job.kind() << "  " << v1::JobState_Name(job.state()).substr(4);
  if (job.state() == v1::JOB_QUEUED) std::cout << " #" << job.queue_position();
  if (job.state() == v1::JOB_RUNNING) {
    std::cout << "  " << job.stage() << " " << std::lround(100 * job.fraction()) << " %";
    if (job.eta_seconds() > 0) std::cout << ", " << Seconds(job.eta_seconds()) << " left";
  }
  if (!job.device().empty()) std::cout << "  " << job.device();
  std::cout << "  " << Bytes(static_cast<double>(job.memory_bytes()));
  if (!job.spec().title().empty()) std::cout << "  " << job.spec().title();
  if (!job.reason().empty()) std::cout << "  (" << job.reason() << ")";
  for (const auto& volume : job.volumes()) std::cout << "\n  " << volume;
  if (job.has_dispersion()) {
    std::cout << "\n  a2 " << job.dispersion().a2() << " rad/sample^2, a3 " << job.dispersion().a3() << " rad/sample^3, sharpness "
              << job.dispersion().sharpness_before() << " -> " << job.dispersion().sharpness();
  }
  if (job.has_k_linearisation()) {
    std::cout << "\n  polynomial";
    for (const double c : job.k_linearisation().polynomial()) std::cout << " " << c;
    std::cout << ", residual " << job.k_linearisation().residual_rms_rad() << " rad, largest |r[j] - j| "
              << job.k_linearisation().nonlinearity_samples();
  }
  std::cout << "\n";
}

// Follows a job to its end: the newest log lines, and a bar.
void Watch(Session& session, const std::string& name) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  auto reader = v1::JobService::NewStub(session.channel())->WatchJob(&context, request);
  v1::Job job;
  uint64_t told = 0;
  {
    ProgressBar bar("job");
    while (reader->Read(&job)) {
      if (session.json) {
        PrintJson(job);
        continue;
      }
      const uint64_t first = job.log_count() - static_cast<uint64_t>(job.log_size());
      for (uint64_t i = std::max(told, first); i < job.log_count(); ++i) {
        const auto& line = job.log(static_cast<int>(i - first));
        std::cout << "[" << Seconds(line.seconds()) << "] " << line.text() << "\n";
      }
      told = job.log_count();
      std::ostringstream text;
      text << job.stage();
      if (job.steps() > 0) text << " " << job.step() << "/" << job.steps();
      if (job.history_size() > 0 && !std::isnan(job.history(job.history_size() - 1).residual_norm())) {
        text << ", residual " << job.history(job.history_size() - 1).residual_norm();
      }
      if (job.state() == v1::JOB_RUNNING) bar.Update(job.fraction(), text.str(), job.eta_seconds());
    }
  }
  if (!Check(session, reader->Finish())) return;
  if (!session.json) PrintJob(session, job);
  if (job.state() != v1::JOB_DONE) session.exit_code = kFailed;
}

/// What all jobs share.
struct JobFlags {
  std::string json_spec, title, device, group, request_id;
  std::vector<std::string> labels;
  int32_t priority = 0;
  bool watch = false, plan = false;

  void AddTo(CLI::App* app) {
    app->add_option("--json-spec", json_spec, "a JobSpec as JSON; flags given beside it win");
    app->add_option("--title", title, "for people and file names");
    app->add_option("--label", labels, "key=value, may be repeated");
    app->add_option("--priority", priority, "-100 to 100, higher ones first");
    app->add_option("--group", group, "groups of equal priority take turns");
    app->add_option("--device", device, "auto | devices/N");
    app->add_option("--request-id", request_id, "a retry with the same id returns the first job");
    app->add_flag("--watch", watch, "follow it to its end");
    app->add_flag("--plan", plan, "only say what it would need");
  }
  v1::JobSpec Spec() const {
    v1::JobSpec spec;
    if (!json_spec.empty()) {
      std::ifstream file(json_spec);
      std::stringstream text;
      text << file.rdbuf();
      if (!file) throw CLI::ValidationError("--json-spec", "cannot read " + json_spec);
      const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &spec);
      if (!parsed.ok()) throw CLI::ValidationError("--json-spec", std::string(parsed.message()));
    }
    if (!title.empty()) spec.set_title(title);
    if (!device.empty()) spec.set_device(device);
    if (!group.empty()) spec.set_group(group);
    if (!request_id.empty()) spec.set_request_id(request_id);
    if (priority != 0) spec.set_priority(priority);
    for (const auto& label : labels) {
      const size_t equals = label.find('=');
      if (equals == std::string::npos) throw CLI::ValidationError("--label", "needs key=value, not '" + label + "'");
      (*spec.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
    }
    return spec;
  }
  void Submit(Session& session, const v1::JobSpec& spec) const {
    auto stub = v1::JobService::NewStub(session.channel());
    if (plan) {
      v1::PlanJobRequest request;
      *request.mutable_spec() = spec;
      v1::PlanJobResponse answer;
      if (!Check(session, stub->PlanJob(session.Context().get(), request, &answer))) return;
      if (session.json) return PrintJson(answer);
      const auto& report = answer.report();
      std::cout << answer.plan() << report.device() << ": wants " << Bytes(static_cast<double>(report.wanted_bytes())) << ", free "
                << Bytes(static_cast<double>(report.free_bytes())) << (report.admitted() ? "" : "; " + report.advice()) << "\n";
      return;
    }
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    v1::Job job;
    if (!Check(session, stub->SubmitJob(session.Context().get(), request, &job))) return;
    PrintJob(session, job);
    if (watch) Watch(session, job.name());
  }
};

}  // namespace

void AddJobCommands(CLI::App& app, Session& session) {
  auto* job = app.add_subcommand("job", "long computations on held volumes")->require_subcommand(1);
  auto name = std::make_shared<std::string>();

  auto* list = job->add_subcommand("list", "jobs, newest first");
  auto open = std::make_shared<bool>(false);
  list->add_flag("--open", *open, "only those that have not ended");
  list->callback([&session, open] {
    auto stub = v1::JobService::NewStub(session.channel());
    v1::ListJobsRequest request;
    if (*open) {
      for (const auto state : {v1::JOB_QUEUED, v1::JOB_RUNNING, v1::JOB_CANCELLING}) request.add_states(state);
    }
    do {
      v1::ListJobsResponse answer;
      if (!Check(session, stub->ListJobs(session.Context().get(), request, &answer))) return;
      for (const auto& one : answer.jobs()) PrintJob(session, one);
      request.set_page_token(answer.next_page_token());
    } while (!request.page_token().empty());
  });

  auto* show = job->add_subcommand("show", "one job");
  show->add_option("job", *name, "jobs/...")->required();
  show->callback([&session, name] {
    v1::GetJobRequest request;
    request.set_name(*name);
    v1::Job answer;
    if (Check(session, v1::JobService::NewStub(session.channel())->GetJob(session.Context().get(), request, &answer))) PrintJob(session, answer);
  });

  auto* watch = job->add_subcommand("watch", "follow a job to its end");
  watch->add_option("job", *name, "jobs/...")->required();
  watch->callback([&session, name] { Watch(session, *name); });

  auto* cancel = job->add_subcommand("cancel", "end a job; its memory is free again");
  cancel->add_option("job", *name, "jobs/...")->required();
  cancel->callback([&session, name] {
    v1::CancelJobRequest request;
    request.set_name(*name);
    v1::Job answer;
    if (Check(session, v1::JobService::NewStub(session.channel())->CancelJob(session.Context().get(), request, &answer))) PrintJob(session, answer);
  });

  auto flags = std::make_shared<JobFlags>();
  auto* submit = job->add_subcommand("submit", "a job of any kind, as JSON");
  flags->AddTo(submit);
  submit->get_option("--json-spec")->required();
  submit->callback([&session, flags] { flags->Submit(session, flags->Spec()); });

  auto* reprocess = job->add_subcommand("reprocess", "the spectral chain again over held raw spectra; processing as in --json-spec");
  reprocess->add_option("volume", *name, "volumes/... of raw spectra")->required();
  flags->AddTo(reprocess);
  reprocess->callback([&session, flags, name] {
    v1::JobSpec spec = flags->Spec();
    spec.mutable_reprocess()->set_volume(*name);
    flags->Submit(session, spec);
  });

  auto* autofocus = job->add_subcommand("autofocus", "find the dispersion that makes held raw spectra sharpest");
  auto only_a2 = std::make_shared<bool>(false);
  auto make = std::make_shared<bool>(false);
  autofocus->add_option("volume", *name, "volumes/... of raw spectra")->required();
  autofocus->add_flag("--only-a2", *only_a2, "a3 stays 0");
  autofocus->add_flag("--reprocess", *make, "also make the volume with what was found");
  flags->AddTo(autofocus);
  autofocus->callback([&session, flags, name, only_a2, make] {
    v1::JobSpec spec = flags->Spec();
    auto* work = spec.mutable_dispersion_autofocus();
    work->set_volume(*name);
    if (*only_a2) work->set_only_a2(true);
    if (*make) work->set_reprocess(true);
    flags->Submit(session, spec);
  });

  auto* calibrate = job->add_subcommand("calibrate", "find the k-linearisation from held raw spectra of a mirror");
  auto record = std::make_shared<uint32_t>(0);
  auto records = std::make_shared<uint32_t>(0);
  calibrate->add_option("volume", *name, "volumes/... of raw spectra")->required();
  calibrate->add_option("--record", *record, "the first record that is looked at");
  calibrate->add_option("--records", *records, "how many; 0 = 1");
  flags->AddTo(calibrate);
  calibrate->callback([&session, flags, name, record, records] {
    v1::JobSpec spec = flags->Spec();
    auto* work = spec.mutable_k_calibration();
    work->set_volume(*name);
    if (*record > 0) work->set_first_record(*record);
    if (*records > 0) work->set_records(*records);
    flags->Submit(session, spec);
  });
}

}  // namespace octavo::cli
