#include "client/cpp/cli/interrupt.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace octavo::cli {
namespace {

volatile std::sig_atomic_t g_event = -1;

void Signal() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(g_event, &one, sizeof one);
}

// Restores the default action for the next signal of each kind.
void Note(int /*signal*/) {
  const int error = errno;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, SIG_DFL);
  Signal();
  errno = error;
}

}  // namespace

OnInterrupt::OnInterrupt(std::function<void()> act) : act_(std::move(act)) {
  g_event = ::eventfd(0, EFD_CLOEXEC);
  before_int_ = std::signal(SIGINT, Note);
  before_term_ = std::signal(SIGTERM, Note);
  before_hup_ = std::signal(SIGHUP, Note);
  if (before_hup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup
  thread_ = std::thread([this] { Wait(); });
}

OnInterrupt::~OnInterrupt() {
  std::signal(SIGINT, before_int_);
  std::signal(SIGTERM, before_term_);
  std::signal(SIGHUP, before_hup_);
  over_ = true;
  Signal();
  thread_.join();
  ::close(g_event);
  g_event = -1;
}

void OnInterrupt::Wait() {
  uint64_t count = 0;
  while (::read(g_event, &count, sizeof count) < 0 && errno == EINTR) continue;
  if (over_ && count == 1) return;
  came_ = true;
  act_();
}

}  // namespace octavo::cli
