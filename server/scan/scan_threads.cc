#include "server/scan/scan_threads.h"

#include <pthread.h>
#include <utility>

#include "gpu/base/failpoint.h"

namespace octavo::scan {

std::jthread ScanThreads::Make(const char* name, Body body) {
  (void)Failpoint("thread_started");
  return std::jthread([this, name, body = std::move(body)](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), name);
    gate_.wait(Gate::kClosed);
    if (gate_ == Gate::kOpen) body(stop);
  });
}

void ScanThreads::NeverOpen() {
  Gate closed = Gate::kClosed;
  gate_.compare_exchange_strong(closed, Gate::kNever);
  gate_.notify_all();
}

void ScanThreads::Open() {
  gate_ = Gate::kOpen;
  gate_.notify_all();
}

}  // namespace octavo::scan
