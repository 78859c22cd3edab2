#include "server/volume/mirrorer.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"

namespace octavo::volume {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

Mirrorer::Mirrorer(Context context, Pace pace)
    : context_(std::move(context)),
      pace_(pace),
      quiet_since_(SteadyClock::now()),
      not_before_(quiet_since_),
      thread_([this] { Run(); }) {}

Mirrorer::~Mirrorer() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

bool Mirrorer::Ends() {
  MutexLock lock(mutex_);
  return end_;
}

bool Mirrorer::Sleep(Duration time) {
  MutexLock lock(mutex_);
  if (!end_) wake_.WaitFor(lock, time);
  return end_;
}

void Mirrorer::Run() {
  pthread_setname_np(pthread_self(), "oct-mirror");
  while (!Sleep(pace_.look)) {
    const absl::Status turn = base::ExceptionToStatus([this]() -> absl::Status {
      if (context_.busy()) {
        quiet_since_ = SteadyClock::now();
      } else if (const Time now = SteadyClock::now();
                 now - quiet_since_ >= pace_.quiet && now >= not_before_) {
        MirrorOne();
      }
      return absl::OkStatus();
    });
    if (!turn.ok()) {
      Log(LogLevel::kError, "a turn of the mirrors failed", {{"error", turn.ToString()}});
      not_before_ = SteadyClock::now() + pace_.most_pause;
    }
  }
}

void Mirrorer::MirrorOne() {
  VolumeTiers::MirrorWish wish{.most_bytes = context_.spiller->FreeForMirrors(),
                               .least_held_seconds = pace_.held_seconds};
  const Time now = SteadyClock::now();
  std::erase_if(try_again_at_, [&](const auto& one) { return one.second <= now; });
  for (const auto& [volume, at] : try_again_at_) wish.except.insert(volume);
  auto begun = context_.volumes->tiers().BeginMirror(wish);
  if (!begun.ok()) return;
  const std::string volume = begun->hold().status.name;
  const int64_t bytes = begun->hold().status.bytes;
  const absl::Status status = context_.spiller->Mirror(
      *std::move(begun),
      [this](const std::function<bool()>& stopped) { return WaitForQuiet(stopped); });
  if (status.ok()) {
    if (std::exchange(failed_, 0) > 0)
      Log(LogLevel::kInfo, "volumes are mirrored again", {{"volume", volume}});
    Log(LogLevel::kDebug, "volume mirrored", {{"volume", volume}, {"bytes", bytes}});
  } else if (!absl::IsCancelled(status)) {
    Failed(volume, status);
  }
}

void Mirrorer::Failed(const std::string& volume, const absl::Status& status) {
  const Time now = SteadyClock::now();
  const int doublings = std::min(failed_++, 16);
  not_before_ = now + std::min<Duration>(pace_.first_pause * (1 << doublings), pace_.most_pause);
  try_again_at_[volume] = now + pace_.most_pause;
  // A disk that is full says so at each try: one line is enough until it works again.
  Log(failed_ > 1 ? LogLevel::kDebug : LogLevel::kWarning,
      "volume not mirrored; it stays where it is, and would be lost if the server were killed",
      {{"volume", volume}, {"error", std::string(status.message())}});
}

bool Mirrorer::WaitForQuiet(const std::function<bool()>& stopped) {
  while (!stopped() && !Ends()) {
    const Time now = SteadyClock::now();
    if (context_.busy()) {
      quiet_since_ = now;
    } else if (now - quiet_since_ >= pace_.quiet) {
      return true;
    }
    (void)Sleep(std::min<Duration>(pace_.look, std::chrono::milliseconds(20)));
  }
  return false;
}

}  // namespace octavo::volume
