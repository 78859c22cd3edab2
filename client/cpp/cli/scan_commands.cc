#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "google/rpc/status.pb.h"

#include "octavo/v1/ingest.grpc.pb.h"
#include "octavo/v1/scan.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/file_push.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/pattern_flags.h"
#include "client/cpp/cli/ring_ticket.h"
#include "client/cpp/cli/scan_flags.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

// Whether the next process of the server goes on with it: a scan that was stopped, or has ended by
// itself, does not come back, whatever was asked for when it was submitted.
bool GoesOn(const v1::Scan& scan) {
  if (scan.spec().on_restart() != v1::ON_RESTART_RESUME || scan.earlier_run()) return false;
  const bool by_server =
      scan.reason_code() == v1::REASON_DRAINED || scan.reason_code() == v1::REASON_SERVER_STOPPED;
  switch (scan.state()) {
    case v1::SCAN_STATE_QUEUED:
    case v1::SCAN_STATE_RUNNING: return true;
    default: return by_server;
  }
}

void PrintScan(const Session& session, const v1::Scan& scan) {
  if (session.json) {
    PrintJson(scan);
    return;
  }
  std::cout << scan.name() << "  " << ShortName(scan.state()) << "  "
            << Printable(scan.spec().title()) << "  volumes " << scan.volumes_done() << " done, "
            << scan.volumes_held() << " held, " << scan.volumes_dropped() << " dropped  "
            << Count(scan.records_per_second()) << " records/s" << OwnerText(scan);
  if (scan.duplicate_records() > 0)
    std::cout << "  " << scan.duplicate_records() << " records came again";
  if (scan.out_of_range_records() > 0)
    std::cout << "  " << scan.out_of_range_records() << " records for no volume";
  if (scan.non_finite_records() > 0)
    std::cout << "  " << scan.non_finite_records()
              << " records with samples that are no finite number";
  if (scan.blocks_dropped() > 0) std::cout << "  " << scan.blocks_dropped() << " blocks dropped";
  if (scan.queue_position() > 0)
    std::cout << "  " << scan.queue_position() << ". in queue " << scan.spec().queue().name();
  if (const int64_t clipped = scan.clipped_below() + scan.clipped_above(); clipped > 0)
    std::cout << "  " << Clipped(clipped, scan.voxels());
  if (scan.source().lost_records() > 0)
    std::cout << "  " << scan.source().lost_records() << " records lost at the source";
  if (scan.earlier_run()) std::cout << "  of an earlier run";
  if (GoesOn(scan)) std::cout << "  goes on after a restart";
  if (!scan.resumed_from().empty()) std::cout << "  resumed from " << scan.resumed_from();
  if (!scan.reason().empty()) std::cout << "  (" << Printable(scan.reason()) << ")";
  std::cout << "\n";
  for (const auto& warning : scan.warnings())
    std::cout << "  warning: " << WithFlags(session, warning) << "\n";
}

// Prints for people what was submitted, and possible mistakes, beside the name on standard output
// for scripts.
void TellSubmitted(const Session& session, const v1::Scan& scan) {
  std::cerr << "  " << scan.plan().substr(0, scan.plan().find('\n')) << "\n";
  if (!scan.spec().title().empty())
    std::cerr << "  title: " << Printable(scan.spec().title()) << "\n";
  for (const auto& warning : scan.warnings())
    std::cerr << "  warning: " << WithFlags(session, warning) << "\n";
}

void Watch(Session& session, const std::string& name) {
  grpc::ClientContext context;
  auto stub = v1::ScanService::NewStub(session.channel());
  v1::WatchScanRequest request;
  request.set_name(name);
  auto reader = stub->WatchScan(&context, request);
  v1::WatchScanResponse answer;
  v1::Scan scan;
  const OnInterrupt interrupt([&context] { context.TryCancel(); });
  {
    ProgressBar bar("scanning");
    while (reader->Read(&answer)) {
      scan.Swap(answer.mutable_scan());
      if (session.json) {
        PrintJson(scan);
        continue;
      }
      const double volumes = VolumesOf(scan.spec().pattern());
      const double done = static_cast<double>(scan.volumes_done()) + scan.current_fraction();
      bar.Update(volumes > 0 ? done / volumes : scan.current_fraction(),
                 Count(scan.records_per_second()) + " A-scans/s, " +
                     std::to_string(scan.volumes_done()) + " volumes",
                 volumes > 0 && scan.volumes_per_second() > 0
                     ? (volumes - done) / scan.volumes_per_second()
                     : 0);
    }
  }
  const grpc::Status status = reader->Finish();
  if (interrupt.came() && !status.ok()) {
    std::cerr << "octavo: the scan goes on: octavo scan cancel " << name << " ends it\n";
    session.exit_code = kInterrupted;
    return;
  }
  if (!Check(session, status)) return;
  if (!session.json) PrintScan(session, scan);
  if (scan.state() == v1::SCAN_STATE_FAILED || scan.state() == v1::SCAN_STATE_LOST)
    session.exit_code = kFailed;
}

// Print the decisive facts first: whether it fits, what to do, possible mistakes; the description
// of the chain comes last.
void PrintReport(const Session& session, const v1::PlanScanResponse& plan) {
  const auto& report = plan.report();
  PrintVerdict(std::cout, report);
  if (!report.advice().empty()) std::cout << report.advice() << "\n";
  for (const auto& warning : plan.warnings())
    std::cout << "warning: " << WithFlags(session, warning) << "\n";
  std::cout << "a volume is " << Bytes(static_cast<double>(report.volume_bytes()));
  if (report.run_bytes() > 0)
    std::cout << ", the run " << Bytes(static_cast<double>(report.run_bytes()));
  if (report.has_time_to_memory_full())
    std::cout << "; memory is full after " << Seconds(SecondsOf(report.time_to_memory_full()));
  if (report.has_time_to_disk_full())
    std::cout << "; the disk after " << Seconds(SecondsOf(report.time_to_disk_full()));
  std::cout << "\n";
  for (const auto& need : report.needs())
    std::cout << "  " << Bytes(static_cast<double>(need.bytes())) << "  " << InWords(need.kind())
              << (need.chain().empty() ? "" : " " + need.chain()) << " (" << need.count() << ")\n";
  PrintHolders(std::cout, report);
  std::cout << plan.plan();
  if (!plan.plan().empty() && plan.plan().back() != '\n') std::cout << "\n";
}

// Prints a local error in the form of Check.
void TellRefused(Session& session, const std::string& error) {
  session.exit_code = kFailed;
  if (session.json) {
    google::rpc::Status out;
    out.set_code(grpc::StatusCode::INVALID_ARGUMENT);
    out.set_message(error);
    PrintJson(out);
  }
  std::cerr << "octavo: " << Printable(error) << FlagsFor(session.app, "", error) << "\n";
}

/// Makes `call` with a request about `spec`. If the server cannot reach the file to replay but this
/// computer can, repeats the request for a pushed file, which is returned.
template <class Request, class Call>
std::unique_ptr<FilePush> CallWithFile(Session& session, Request* request, Call call) {
  const grpc::Status status = call(*request);
  if (!request->spec().has_replay() || !FilePush::Instead(ReasonOf(status)))
    return Check(session, status), nullptr;
  std::string error;
  std::unique_ptr<FilePush> file = FilePush::Open(request->mutable_spec(), &error);
  if (file == nullptr && error.empty()) {
    const std::string path = request->spec().replay().path();
    Check(session, status);
    std::cerr << "  there is no '" << path << "' on this computer either"
              << (absl::StartsWith(path, "/") ? "" : ", in the present folder") << "\n";
    return nullptr;
  }
  if (file == nullptr) {
    // The file is on this computer, so its own error is what matters.
    TellRefused(session, error);
    std::cerr << "  it was read here, to be pushed, since the server does not reach it: "
              << status.error_message() << "\n";
    return nullptr;
  }
  if (!Check(session, call(*request))) return nullptr;
  if (session.json) return file;
  std::cerr << "  " << file->Describe() << "\n";
  for (const auto& doubt : file->doubts())
    std::cerr << "  warning: " << WithFlags(session, doubt) << "\n";
  return file;
}

// The records that a scan takes, as the server plans them; 0 = endless, or not known.
uint64_t RecordsOf(Session& session, v1::ScanService::Stub& stub, const v1::ScanSpec& spec) {
  v1::PlanWaveformRequest request;
  *request.mutable_spec() = spec;
  v1::PlanWaveformResponse answer;
  if (!stub.PlanWaveform(session.Context().get(), request, &answer).ok()) return 0;
  return static_cast<uint64_t>(answer.waveform().total_samples()) * VolumesOf(spec.pattern()) *
         std::max<uint64_t>(spec.acquisition().record_average(), 1);
}

void WriteFile(Session& session, const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return;
  std::cerr << "octavo: could not write " << path << "\n";
  session.exit_code = kFailed;
}

// One line per record: x, y, A-scan (-1: flyback). Long waveforms come in several answers.
void WriteWaveform(Session& session, v1::ScanService::Stub& stub, const v1::ScanSpec& spec,
                   const std::string& path) {
  v1::PlanWaveformRequest request;
  *request.mutable_spec() = spec;
  std::ostringstream text;
  text.precision(9);
  for (int64_t first = 0, total = 1; first < total;) {
    v1::PlanWaveformResponse answer;
    request.set_first_sample(static_cast<uint32_t>(first));
    if (!Check(session, stub.PlanWaveform(session.Context().get(), request, &answer))) return;
    const auto& wave = answer.waveform();
    if (first == 0)
      text << "# " << wave.sample_rate_hz() << " samples/s\nx_" << wave.unit() << ",y_"
           << wave.unit() << ",ascan\n";
    for (int i = 0; i < wave.x_size(); ++i)
      text << wave.x(i) << "," << wave.y(i) << "," << wave.placement(i) << "\n";
    total = wave.total_samples();
    first += std::max(wave.x_size(), 1);
  }
  WriteFile(session, path, text.str());
}

void WritePlot(Session& session, v1::ScanService::Stub& stub, const v1::ScanSpec& spec,
               const std::string& path) {
  v1::PlotWaveformRequest request;
  *request.mutable_spec() = spec;
  v1::PlotWaveformResponse answer;
  if (!Check(session, stub.PlotWaveform(session.Context().get(), request, &answer))) return;
  WriteFile(session, path, answer.png());
}

}  // namespace

void AddScanCommands(CLI::App& app, Session& session) {
  auto* scan = app.add_subcommand("scan", "start, show and end scans")->require_subcommand(1);

  auto* submit = scan->add_subcommand(
      "submit", "start a scan; prints its name, and a summary on standard error");
  auto submitted = std::make_shared<ScanFlags>();
  auto watched = std::make_shared<bool>(false);
  submitted->AddTo(submit);
  auto request_id = std::make_shared<std::string>();
  submit->add_option("--request-id", *request_id,
                     "a retry with the same id returns the first scan");
  submit->add_flag("--watch", *watched, "stay until it ends; an interrupt leaves it alone");
  submit->callback([&session, submitted, request_id, watched] {
    v1::SubmitScanRequest request;
    *request.mutable_spec() = submitted->Spec();
    request.set_request_id(*request_id);
    v1::SubmitScanResponse answer;
    auto stub = v1::ScanService::NewStub(session.channel());
    const auto file = CallWithFile(session, &request, [&](const auto& r) {
      return stub->SubmitScan(session.Context().get(), r, &answer);
    });
    if (session.exit_code != kOk) return;
    if (session.json) {
      PrintJson(answer.scan());
    } else {
      std::cout << answer.scan().name() << "\n" << std::flush;
      TellSubmitted(session, answer.scan());
    }
    if (file != nullptr) file->Send(session, answer.scan().name());
    if (*watched && session.exit_code != kInterrupted) Watch(session, answer.scan().name());
  });

  auto* plan = scan->add_subcommand(
      "plan", "what a scan would need and how it would be processed; starts nothing");
  auto planned = std::make_shared<ScanFlags>();
  auto waveform = std::make_shared<std::string>();
  auto plot = std::make_shared<std::string>();
  planned->AddTo(plan);
  plan->add_option("--waveform", *waveform,
                   "write the scanner's waveforms of one volume to this .csv file");
  plan->add_option("--plot", *plot, "write a picture of the pattern to this .png file");
  plan->callback([&session, planned, waveform, plot] {
    v1::PlanScanRequest request;
    *request.mutable_spec() = planned->Spec();
    if (!plot->empty()) CheckWritable("--plot", *plot);
    if (!waveform->empty()) CheckWritable("--waveform", *waveform);
    v1::PlanScanResponse answer;
    auto stub = v1::ScanService::NewStub(session.channel());
    const auto file = CallWithFile(session, &request, [&](const auto& r) {
      return stub->PlanScan(session.Context().get(), r, &answer);
    });
    if (session.exit_code != kOk) return;
    if (session.json) {
      PrintJson(answer);
    } else {
      if (file != nullptr) file->CompareWith(RecordsOf(session, *stub, request.spec()));
      PrintReport(session, answer);
    }
    if (!answer.report().admitted()) session.exit_code = kFailed;
    if (!plot->empty()) WritePlot(session, *stub, request.spec(), *plot);
    if (!waveform->empty()) WriteWaveform(session, *stub, request.spec(), *waveform);
  });

  auto* list = scan->add_subcommand("list", "all scans the server knows, newest first");
  const ListFlags list_flags;
  list_flags.AddTo(list, "state = RUNNING OR state = QUEUED");
  list->callback([&session, list_flags] {
    auto stub = v1::ScanService::NewStub(session.channel());
    list_flags.EachPage<v1::ListScansResponse>(
        session, v1::ListScansRequest(), "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListScans(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.scans()) PrintScan(session, one);
        });
  });

  auto name = std::make_shared<std::string>();
  auto* show = scan->add_subcommand("show", "one scan: its state and its steps");
  show->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  show->callback([&session, name] {
    v1::GetScanRequest request;
    request.set_name(*name);
    v1::GetScanResponse answer;
    if (!Check(session, v1::ScanService::NewStub(session.channel())
                            ->GetScan(session.Context().get(), request, &answer)))
      return;
    PrintScan(session, answer.scan());
    if (!session.json) std::cout << answer.scan().plan();
  });

  auto* watch = scan->add_subcommand("watch", "progress until the scan ends");
  watch->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  watch->callback([&session, name] { Watch(session, *name); });

  auto* stop = scan->add_subcommand("stop", "end after the current volume");
  stop->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  stop->callback([&session, name] {
    v1::StopScanRequest request;
    request.set_name(*name);
    v1::StopScanResponse answer;
    if (Check(session, v1::ScanService::NewStub(session.channel())
                           ->StopScan(session.Context().get(), request, &answer)))
      PrintScan(session, answer.scan());
  });
  auto marker = std::make_shared<std::string>();
  auto* mark =
      scan->add_subcommand("mark", "put a marker at the record that is being processed now");
  mark->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  mark->add_option("marker", *marker, "its name")->required();
  mark->callback([&session, name, marker] {
    v1::MarkScanRequest request;
    request.set_name(*name);
    request.set_marker(*marker);
    v1::MarkScanResponse answer;
    if (!Check(session, v1::ScanService::NewStub(session.channel())
                            ->MarkScan(session.Context().get(), request, &answer)))
      return;
    if (session.json) {
      PrintJson(answer.event());
    } else {
      std::cout << "marked record " << answer.event().record() << " of volume "
                << answer.event().volume_index() << "\n";
    }
  });
  auto* ring = scan->add_subcommand("ring",
                                    "a ticket for a process on the server's host that feeds a scan "
                                    "with source ring (client/cpp/include/octavo/octavo_ring.h)");
  ring->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  ring->callback([&session, name] {
    v1::OpenRingRequest request;
    request.set_scan(*name);
    PrintRingTicket(session, request);
  });
  auto* cancel = scan->add_subcommand("cancel", "end at once");
  cancel->add_option("scan", *name, "scans/...")->required()->check(ScanName());
  cancel->callback([&session, name] {
    v1::CancelScanRequest request;
    request.set_name(*name);
    v1::CancelScanResponse answer;
    if (Check(session, v1::ScanService::NewStub(session.channel())
                           ->CancelScan(session.Context().get(), request, &answer)))
      PrintScan(session, answer.scan());
  });
}

}  // namespace octavo::cli
