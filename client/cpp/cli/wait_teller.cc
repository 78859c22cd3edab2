#include "client/cpp/cli/wait_teller.h"

#include <chrono>
#include <iostream>
#include <utility>

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/scan.grpc.pb.h"

namespace octavo::cli {
namespace {

constexpr std::chrono::seconds kQuiet(2);

}  // namespace

WaitTeller::WaitTeller(const Session& session, std::string name)
    : session_(session),
      name_(std::move(name)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

WaitTeller::~WaitTeller() { thread_.request_stop(); }

void WaitTeller::Came() {
  const std::lock_guard lock(mutex_);
  came_ = true;
  changed_.notify_all();
}

void WaitTeller::Run(const std::stop_token& stop) {
  std::string told;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (changed_.wait_for(lock, stop, kQuiet, [this] { return came_; })) {
      came_ = false;
      told.clear();
      continue;
    }
    lock.unlock();
    const std::string reason = stop.stop_requested() ? "" : Reason();
    lock.lock();
    if (reason.empty() || reason == told || came_) continue;
    told = reason;
    std::cerr << "octavo: nothing comes" << (name_.empty() ? "" : " of " + name_)
              << ": it waits for " << reason << "\n";
  }
}

std::string WaitTeller::Reason() const {
  if (name_.empty()) return ReasonOfAnyScan();
  return name_.starts_with("jobs/") ? ReasonOfJob() : ReasonOfScan();
}

std::string WaitTeller::ReasonOfScan() const {
  v1::GetScanRequest request;
  request.set_name(name_);
  v1::GetScanResponse answer;
  const grpc::Status status = v1::ScanService::NewStub(session_.channel())
                                  ->GetScan(session_.Context().get(), request, &answer);
  return status.ok() ? answer.scan().waits_for() : "";
}

std::string WaitTeller::ReasonOfJob() const {
  v1::GetJobRequest request;
  request.set_name(name_);
  v1::GetJobResponse answer;
  if (!v1::JobService::NewStub(session_.channel())
           ->GetJob(session_.Context().get(), request, &answer)
           .ok())
    return "";
  if (answer.job().state() == v1::JOB_STATE_QUEUED)
    return "its turn (" + answer.job().reason() + ")";
  if (answer.job().state() != v1::JOB_STATE_RUNNING ||
      answer.job().stage() != v1::JOB_STAGE_PROJECTIONS)
    return "";
  return "frames that are pushed: " + std::to_string(answer.job().step()) + " of " +
         std::to_string(answer.job().steps()) + " are in";
}

std::string WaitTeller::ReasonOfAnyScan() const {
  v1::ListScansRequest request;
  request.set_filter("state = QUEUED OR state = RUNNING");
  request.set_page_size(1);
  v1::ListScansResponse answer;
  if (!v1::ScanService::NewStub(session_.channel())
           ->ListScans(session_.Context().get(), request, &answer)
           .ok())
    return "";
  if (answer.scans().empty()) return "a scan; none is queued or running";
  const v1::Scan& scan = answer.scans(0);
  return scan.waits_for().empty() ? "" : scan.name() + ", which waits for " + scan.waits_for();
}

}  // namespace octavo::cli
