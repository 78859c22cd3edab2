#include <utility>

#include "octavo/v1/job.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/derive_flags.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/ring_ticket.h"

namespace octavo::cli {
void AddJobCommands(CLI::App& app, Session& session) {
  auto* job = app.add_subcommand("job", "long computations on held volumes")->require_subcommand(1);
  auto name = std::make_shared<std::string>();

  auto* list = job->add_subcommand("list", "jobs, newest first");
  auto open = std::make_shared<bool>(false);
  list->add_flag("--open", *open, "only those that have not ended");
  const ListFlags list_flags;
  list_flags.AddTo(list, "state = FAILED AND spec.labels.eye = OD");
  list->callback([&session, open, list_flags] {
    auto stub = v1::JobService::NewStub(session.channel());
    list_flags.EachPage<v1::ListJobsResponse>(
        session, v1::ListJobsRequest(),
        *open ? "state = QUEUED OR state = RUNNING OR state = CANCELLING" : "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListJobs(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.jobs()) PrintJob(session, one);
        });
  });

  auto* show = job->add_subcommand("show", "one job");
  show->add_option("job", *name, "jobs/...")->required()->check(JobName());
  show->callback([&session, name] {
    v1::GetJobRequest request;
    request.set_name(*name);
    v1::GetJobResponse answer;
    if (Check(session, v1::JobService::NewStub(session.channel())
                           ->GetJob(session.Context().get(), request, &answer)))
      PrintJob(session, answer.job());
  });

  auto* watch = job->add_subcommand("watch", "follow a job to its end");
  watch->add_option("job", *name, "jobs/...")->required()->check(JobName());
  watch->callback([&session, name] { (void)WatchJob(session, *name, {.alone = true}); });

  auto* cancel = job->add_subcommand("cancel", "end a job; its memory is free again");
  cancel->add_option("job", *name, "jobs/...")->required()->check(JobName());
  cancel->callback([&session, name] {
    v1::CancelJobRequest request;
    request.set_name(*name);
    v1::CancelJobResponse answer;
    if (Check(session, v1::JobService::NewStub(session.channel())
                           ->CancelJob(session.Context().get(), request, &answer)))
      PrintJob(session, answer.job());
  });

  auto* ring = job->add_subcommand(
      "ring",
      "a ticket for a process on the server's host that pushes the frames of a tomography job "
      "(client/cpp/include/octavo/octavo_ring.h)");
  ring->add_option("job", *name, "jobs/...")->required()->check(JobName());
  auto slots = std::make_shared<uint32_t>(0);
  ring->add_option(
          "--slots", *slots,
          "frames that the ring holds, 2 to 1024; the first ticket of a job makes its ring "
          "(default 8)")
      ->check(CLI::Range(uint32_t{2}, uint32_t{1024}));
  ring->callback([&session, name, slots] {
    v1::OpenRingRequest request;
    request.set_job(*name);
    request.set_slots(*slots);
    PrintRingTicket(session, request);
  });

  auto flags = std::make_shared<JobFlags>();
  auto* submit = job->add_subcommand("submit", "a job of any kind, as JSON");
  flags->AddTo(submit);
  flags->AddCommitTo(submit);
  submit->get_option("--json-spec")->required();
  submit->callback([&session, flags] { (void)flags->Submit(session, flags->Spec()); });

  auto* reprocess = job->add_subcommand(
      "reprocess",
      "the spectral chain again over held raw spectra; processing as in --json-spec; then the "
      "operations, as in `octavo volume derive`");
  auto steps = std::make_shared<DeriveFlags>();
  reprocess->add_option("volume", *name, "volumes/... of raw spectra")
      ->required()
      ->check(VolumeName());
  steps->AddTo(reprocess);
  flags->AddTo(reprocess);
  flags->AddCommitTo(reprocess);
  reprocess->callback([&session, flags, name, steps] {
    v1::JobSpec spec = flags->Spec();
    auto* work = spec.mutable_reprocess();
    work->set_volume(*name);
    for (auto& operation : steps->Operations()) *work->add_operations() = std::move(operation);
    (void)flags->Submit(session, spec);
  });

  auto* autofocus =
      job->add_subcommand("autofocus", "find the dispersion that makes held raw spectra sharpest");
  auto only_a2 = std::make_shared<bool>(false);
  auto make = std::make_shared<bool>(false);
  autofocus->add_option("volume", *name, "volumes/... of raw spectra")
      ->required()
      ->check(VolumeName());
  autofocus->add_flag("--only-a2", *only_a2, "a3 stays 0");
  autofocus->add_flag("--reprocess", *make, "also make the volume with the coefficients found");
  flags->AddTo(autofocus);
  flags->AddCommitTo(autofocus);
  autofocus->callback([&session, flags, name, only_a2, make] {
    v1::JobSpec spec = flags->Spec();
    auto* work = spec.mutable_dispersion_autofocus();
    work->set_volume(*name);
    if (*only_a2) work->set_only_a2(true);
    if (*make) work->set_reprocess(true);
    (void)flags->Submit(session, spec);
  });

  auto* calibrate = job->add_subcommand(
      "calibrate", "find the k-linearisation from held raw spectra of a mirror");
  auto record = std::make_shared<uint32_t>(0);
  auto records = std::make_shared<uint32_t>(0);
  calibrate->add_option("volume", *name, "volumes/... of raw spectra")
      ->required()
      ->check(VolumeName());
  calibrate->add_option("--record", *record, "the first record to use");
  calibrate->add_option("--records", *records, "how many; 0 = 1");
  flags->AddTo(calibrate);
  calibrate->callback([&session, flags, name, record, records] {
    v1::JobSpec spec = flags->Spec();
    auto* work = spec.mutable_k_calibration();
    work->set_volume(*name);
    if (*record > 0) work->set_first_record(*record);
    if (*records > 0) work->set_records(*records);
    (void)flags->Submit(session, spec);
  });
}

}  // namespace octavo::cli
