#include "client/cpp/cli/job_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/strip.h"

#include "octavo/v1/job.grpc.pb.h"

#include "client/cpp/cli/axis_text.h"
#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/file_push.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/json_spec.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {

namespace {

// A series may have thousands: the newest ones show how far it is.
void PrintNewest(const std::string& before, const char* things,
                 const google::protobuf::RepeatedPtrField<std::string>& names) {
  constexpr int kMost = 16;
  const int first = names.size() <= kMost ? 0 : names.size() - kMost;
  if (first > 0) std::cout << "\n  " << first << " " << things << ", and";
  for (int i = first; i < names.size(); ++i) std::cout << "\n  " << before << names[i];
}

}  // namespace

void PrintJob(const Session& session, const v1::Job& job) {
  if (session.json) {
    PrintJson(job);
    return;
  }
  std::cout << job.name() << "  " << InOneWord(job.kind()) << "  " << ShortName(job.state());
  if (job.state() == v1::JOB_STATE_QUEUED) std::cout << " #" << job.queue_position();
  if (job.state() == v1::JOB_STATE_RUNNING) {
    std::cout << "  " << InWords(job.stage()) << " " << std::lround(100 * job.fraction()) << " %";
    if (job.has_eta()) std::cout << ", " << Seconds(SecondsOf(job.eta())) << " left";
  }
  if (!job.device().empty()) std::cout << "  " << job.device();
  std::cout << "  " << Bytes(static_cast<double>(job.memory_bytes())) << OwnerText(job);
  if (!job.spec().title().empty()) std::cout << "  " << Printable(job.spec().title());
  if (job.earlier_run()) std::cout << "  of an earlier run";
  if (!job.reason().empty())
    std::cout << "  (" << Printable(job.reason()) << ")" << FlagsFor(session.app, "", job.reason());
  for (const auto& warning : job.warnings())
    std::cout << "\n  warning: " << WithFlags(session, warning);
  PrintNewest("", "volumes", job.volumes());
  PrintNewest("committed to ", "commits", job.commits());
  if (job.has_dispersion()) {
    std::cout << "\n  a2 " << job.dispersion().a2() << " rad/sample^2, a3 " << job.dispersion().a3()
              << " rad/sample^3, sharpness " << job.dispersion().sharpness_before() << " -> "
              << job.dispersion().sharpness();
  }
  if (job.has_k_linearisation()) {
    std::cout << "\n  polynomial";
    for (const double c : job.k_linearisation().polynomial()) std::cout << " " << c;
    std::cout << ", residual " << job.k_linearisation().residual_rms_rad()
              << " rad, largest |r[j] - j| " << job.k_linearisation().nonlinearity_samples();
  }
  if (job.has_tomography()) {
    const auto& found = job.tomography();
    if (job.spec().tomography().has_try_centers() && found.centers_size() > 0) {
      std::cout << "\n  axes from column " << found.centers(0) << " to "
                << found.centers(found.centers_size() - 1) << " tried";
    } else if (found.centers_size() > 0) {
      std::cout << "\n  axis at column " << found.centers(0) << " (" << HowAxisWasFound(found)
                << ")" << HowAxisLeans(found);
    }
    if (found.center_check_method() != v1::RotationCenter::METHOD_UNSPECIFIED)
      std::cout << ", " << found.center_check() << " by " << InWords(found.center_check_method());
    std::cout << (found.centers_size() > 0 ? ", " : "\n  ") << found.batches() << " batches of "
              << found.slices_per_batch() << " slices";
    if (found.algorithm() != v1::TomographyAlgorithmOptions::ALGORITHM_UNSPECIFIED)
      std::cout << ", by " << InWords(found.algorithm());
    if (found.stop() != v1::TomographyReport::STOP_UNSPECIFIED)
      std::cout << ", " << found.iterations() << " iterations, residual " << found.residual_norm();
    if (found.low() < found.high())
      std::cout << ", window " << found.low() << " to " << found.high();
    if (found.flat_components() > 0)
      std::cout << ", " << found.flat_components()
                << (found.flat_components() == 1 ? " component" : " components")
                << " of the flat fields";
    if (found.row_shifts_size() > 0) {
      const auto [least, most] =
          std::minmax_element(found.row_shifts().begin(), found.row_shifts().end());
      std::cout << ", shifts along the axis " << *least << " to " << *most << " rows";
    }
    for (int i = 0; i < found.mosaic_tiles_size(); ++i) {
      const v1::MosaicTileReport& tile = found.mosaic_tiles(i);
      std::cout << (i == 0 ? ", tiles at column,row " : "; ") << tile.first_column() << ","
                << tile.first_row() << (tile.found() ? " (found)" : "");
    }
    if (found.series_planned() > 0) {
      std::cout << ", " << found.series_volumes() << " of " << found.series_planned()
                << " volumes of the series";
    }
    for (int i = 0; i < found.half_turns_size(); ++i) {
      const auto& half = found.half_turns(i);
      if (!half.used()) continue;
      std::cout << ", half turn " << i + 1 << " of " << found.half_turns_size();
      if (!std::isnan(half.score())) std::cout << " (off by " << half.score() << ")";
    }
    if (found.clipped_below() + found.clipped_above() > 0) {
      std::cout << ", clipped " << found.clipped_below() << " below and " << found.clipped_above()
                << " above";
    }
  }
  std::cout << "\n" << std::flush;  // so that a script gets the name at once
}

bool CheckJob(Session& session, const v1::JobSpec& spec, const grpc::Status& status) {
  if (Check(session, status)) return true;
  const std::string& path = spec.tomography().file().path();
  std::error_code error;
  if (!FilePush::Instead(ReasonOf(status)) || path.empty() || !std::filesystem::exists(path, error))
    return false;
  std::cerr
      << "  '" << path
      << "' is here, and the server reads files below its replay roots alone: copy it there, or "
         "send it from here:\n"
      << "  octavo recon --follow (HDF5, Zarr, a folder of TIFF files), or Python: "
         "octavo.recon(...), or octavo.PushedProjections and client.push_projections(...)\n";
  return false;
}

std::set<std::string> WarningsOf(const v1::Job& job) {
  return {job.warnings().begin(), job.warnings().end()};
}

v1::Job WatchJob(Session& session, const std::string& name, JobWatch how) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  auto reader = v1::JobService::NewStub(session.channel())->WatchJob(&context, request);
  v1::WatchJobResponse answer;
  v1::Job job;
  std::optional<OnInterrupt> interrupt;
  if (how.alone) interrupt.emplace([&context] { context.TryCancel(); });
  uint64_t told = 0;
  {
    ProgressBar bar("job");
    while (reader->Read(&answer)) {
      job.Swap(answer.mutable_job());
      if (session.json) {
        PrintJson(job);
        continue;
      }
      const uint64_t first = job.log_lines_total() - static_cast<uint64_t>(job.log_lines_size());
      for (uint64_t i = std::max(told, first); i < job.log_lines_total(); ++i) {
        const auto& line = job.log_lines(static_cast<int>(i - first));
        absl::string_view warning = line.text();
        const bool warns = absl::ConsumePrefix(&warning, "warning: ");
        if (warns && !how.told.insert(std::string(warning)).second) continue;
        std::cout << "[" << Seconds(SecondsOf(line.elapsed())) << "] "
                  << Printable(warns ? WithFlags(session, line.text()) : line.text()) << "\n";
      }
      told = job.log_lines_total();
      std::ostringstream text;
      if (const auto& found = job.tomography(); found.series_planned() > 0)
        text << "volume " << found.series_volumes() + 1 << " of " << found.series_planned() << ", ";
      text << InWords(job.stage());
      if (job.steps() > 0) text << " " << job.step() << "/" << job.steps();
      if (job.history_size() > 0 &&
          !std::isnan(job.history(job.history_size() - 1).residual_norm())) {
        text << ", residual " << job.history(job.history_size() - 1).residual_norm();
      }
      if (job.state() == v1::JOB_STATE_RUNNING)
        bar.Update(job.fraction(), text.str(), SecondsOf(job.eta()));
    }
  }
  const grpc::Status status = reader->Finish();
  if (interrupt.has_value() && interrupt->came() && !status.ok()) {
    std::cerr << "octavo: the job goes on: octavo job cancel " << name << " ends it\n";
    session.exit_code = kInterrupted;
    return job;
  }
  if (!Check(session, status)) return job;
  if (!session.json) {
    v1::Job rest = job;
    rest.clear_warnings();
    for (const auto& warning : job.warnings()) {
      if (how.told.insert(warning).second) rest.add_warnings(warning);
    }
    if (!how.volumes) rest.clear_volumes();
    PrintJob(session, rest);
  }
  if (job.state() != v1::JOB_STATE_DONE) session.exit_code = kFailed;
  return job;
}

void JobFlags::AddTo(CLI::App* app) {
  app->add_option("--json-spec", json_spec,
                  "a JobSpec: a file of JSON, or JSON itself ('{...}'); flags given beside it win");
  AddSharedTo(app);
  app->add_option("--results", results,
                  "where its volumes go as each is complete: device (default) | host | disk")
      ->check(OneOf({"device", "host", "disk"}));
  app->add_flag("--watch", watch, "follow it to its end");
}

void JobFlags::AddCommitTo(CLI::App* app) {
  app->add_option("--commit", commit,
                  "the server writes its volume to this, below a storage root, once it is "
                  "complete; the ending says the format")
      ->excludes("--results");
}

void JobFlags::AddSharedTo(CLI::App* app) {
  app->add_option("--title", title, "for people and file names");
  app->add_option("--label", labels, "key=value, may be repeated");
  app->add_option("--priority", priority, "-100 to 100, higher ones first");
  app->add_option("--group", group, "groups of equal priority take turns");
  app->add_option("--device", device, "auto | devices/N, or N | host: tomography on devices/host")
      ->transform(DeviceName());
  app->add_option("--request-id", request_id, "a retry with the same id returns the first job");
  app->add_flag("--plan", plan, "only print what it would need");
}

v1::JobSpec JobFlags::Spec() const {
  v1::JobSpec spec;
  if (!json_spec.empty()) ReadJsonSpec(json_spec, &spec);
  if (!title.empty()) spec.set_title(title);
  if (!device.empty()) spec.set_device(device);
  if (!group.empty()) spec.set_group(group);
  if (priority != 0) spec.set_priority(priority);
  if (!results.empty())
    spec.set_results(results == "disk"   ? v1::TIER_DISK
                     : results == "host" ? v1::TIER_HOST
                                         : v1::TIER_DEVICE);
  if (!commit.empty()) spec.mutable_commit()->set_destination(commit);
  for (const auto& label : labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos)
      throw CLI::ValidationError("--label", "needs key=value, not '" + label + "'");
    (*spec.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return spec;
}

std::optional<v1::PlanJobResponse> PlanOf(Session& session, const v1::JobSpec& spec) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = spec;
  v1::PlanJobResponse answer;
  if (!CheckJob(session, spec,
                v1::JobService::NewStub(session.channel())
                    ->PlanJob(session.Context().get(), request, &answer)))
    return std::nullopt;
  return answer;
}

v1::Job JobFlags::Submit(Session& session, const v1::JobSpec& spec,
                         const std::string& secret) const {
  auto stub = v1::JobService::NewStub(session.channel());
  if (plan) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = spec;
    v1::PlanJobResponse answer;
    if (!CheckJob(session, spec, stub->PlanJob(session.Context().get(), request, &answer)))
      return {};
    if (session.json) {
      PrintJson(answer);
      return {};
    }
    PrintVerdict(std::cout, answer.report());
    if (!answer.report().advice().empty()) std::cout << answer.report().advice() << "\n";
    for (const auto& warning : answer.warnings())
      std::cout << "warning: " << WithFlags(session, warning) << "\n";
    PrintHolders(std::cout, answer.report());
    std::cout << answer.plan();
    return {};
  }
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(request_id);
  request.set_session_secret(secret);
  v1::SubmitJobResponse answer;
  if (!CheckJob(session, spec, stub->SubmitJob(session.Context().get(), request, &answer)))
    return {};
  PrintJob(session, answer.job());
  return watch ? WatchJob(session, answer.job().name(),
                          {.told = WarningsOf(answer.job()), .alone = true})
               : answer.job();
}

}  // namespace octavo::cli
