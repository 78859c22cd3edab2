#include "server/base/periodic_thread.h"

#include <pthread.h>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "server/base/exception_to_status.h"

namespace octavo::base {

PeriodicThread::PeriodicThread(std::string name, std::chrono::milliseconds pause,
                               std::function<void()> work)
    : thread_([name = std::move(name), pause, work = std::move(work)](const std::stop_token& stop) {
        pthread_setname_np(pthread_self(), name.c_str());
        const std::string broke_off = absl::StrCat("a turn of ", name, " broke off");
        Mutex mutex;
        CondVar cv;
        const std::stop_callback wake(stop, [&] {
          MutexLock lock(mutex);
          cv.NotifyAll();
        });
        MutexLock lock(mutex);
        while (!stop.stop_requested()) {
          cv.WaitFor(lock, pause);
          if (!stop.stop_requested()) GuardedTurn(broke_off.c_str(), work);
        }
      }) {}

}  // namespace octavo::base
