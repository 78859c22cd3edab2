// The end of the engine while work is in progress.

#include <atomic>
#include <future>
#include <memory>
#include <pthread.h>
#include <string_view>
#include <thread>

#include "server/model/volume_operation.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using testing::MemoryTest;

using ShutdownTest = MemoryTest;

// A thread of the scan reports the states of a volume, and then looks for that scan to make the
// volume's chains.
TEST_F(ShutdownTest, WhileAVolumeWithChainsIsSealed) {
  ScanSpec spec = Spec(0, {.mode = RetentionMode::kCapture, .hold_slots = 2});
  auto chains = std::make_shared<DerivedVolumeRecipes>();
  chains->chains.push_back({.name = "front", .operations = {OpSpec{SlabOp{}}}});
  spec.chains = chains;
  struct Gate {
    std::promise<void> reached, open;
    std::shared_future<void> opened = open.get_future().share();
    std::atomic<bool> asked{false};
  };
  const auto gate = std::make_shared<Gate>();
  // The thread that seals the first volume tells of it, before it asks for the volume's chains.
  SubscribeSpec events;
  events.products = {Product::kEvent};
  ASSERT_OK_AND_ASSIGN(const auto subscription, engine_->streams().Subscribe(events, [this, gate] {
    char thread[16] = {};
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    if (std::string_view(thread) != "oct-retire" || gate->asked) return;
    for (const VolumeStatus& volume : engine_->volumes().List()) {
      if (volume.state != VolumeState::kHeld || gate->asked.exchange(true)) continue;
      gate->reached.set_value();
      gate->opened.wait();
    }
  }));
  Submit(spec);
  gate->reached.get_future().wait();
  std::thread opener([gate] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(500));  // by now the engine waits for its scan
    gate->open.set_value();
  });
  const auto ended = std::async(std::launch::async, [this] { engine_ = nullptr; });
  opener.join();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(20)), std::future_status::ready)
      << "the engine does not end";
}

}  // namespace
}  // namespace octavo::engine
