#include "server/scan/scan_threads.h"

#include <chrono>
#include <future>
#include <memory>
#include <pthread.h>
#include <string>
#include <system_error>

#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"

namespace octavo::scan {
namespace {

using namespace std::chrono_literals;

/// Time in which a thread would go on if nothing kept it.
constexpr auto kAWhile = 20ms;

TEST(ScanThreadsTest, BodiesRunWhenTheGateOpens) {
  std::atomic<int> ran{0};
  ScanThreads threads;
  threads.acquire = threads.Make("oct-one", [&](const std::stop_token&) { ++ran; });
  threads.compute = threads.Make("oct-two", [&](const std::stop_token&) { ++ran; });
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(ran, 0);
  threads.Open();
  threads.acquire.join();
  threads.compute.join();
  EXPECT_EQ(ran, 2);
}

TEST(ScanThreadsTest, AGateThatNeverOpensEndsThem) {
  std::atomic<int> ran{0};
  ScanThreads threads;
  threads.retire = threads.Make("oct-one", [&](const std::stop_token&) { ++ran; });
  threads.NeverOpen();
  threads.retire.join();
  threads.copy = threads.Make("oct-late", [&](const std::stop_token&) { ++ran; });
  threads.copy.join();
  EXPECT_EQ(ran, 0);
}

TEST(ScanThreadsTest, AGateThatIsOpenStaysOpen) {
  std::atomic<int> ran{0};
  ScanThreads threads;
  threads.Open();
  threads.NeverOpen();
  threads.copy = threads.Make("oct-late", [&](const std::stop_token&) { ++ran; });
  threads.copy.join();
  EXPECT_EQ(ran, 1);
}

TEST(ScanThreadsTest, ABodyHasTheNameAndTheStopTokenOfItsThread) {
  std::promise<std::string> name;
  std::promise<void> stopped;
  ScanThreads threads;
  threads.acquire = threads.Make("oct-named", [&](const std::stop_token& stop) {
    char text[16] = {};
    pthread_getname_np(pthread_self(), text, sizeof text);
    name.set_value(text);
    while (!stop.stop_requested()) std::this_thread::yield();
    stopped.set_value();
  });
  threads.Open();
  EXPECT_EQ(name.get_future().get(), "oct-named");
  auto end = stopped.get_future();
  EXPECT_EQ(end.wait_for(kAWhile), std::future_status::timeout);
  threads.acquire.request_stop();
  end.wait();
}

TEST(ScanThreadsTest, ItsEndWaitsForTheBodiesBeforeTheGateGoes) {
  std::atomic<bool> ended{false};
  {
    ScanThreads threads;
    threads.compute = threads.Make("oct-slow", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      std::this_thread::sleep_for(kAWhile);
      ended = true;
    });
    threads.Open();
  }
  EXPECT_TRUE(ended);
}

TEST(ScanThreadsTest, AThreadThatCannotStartIsToldAtOnce) {
  ScanThreads threads;
  ArmFailpoint("thread_started:throw=system_error");
  EXPECT_THROW(threads.acquire = threads.Make("oct-one", [](const std::stop_token&) {}),
               std::system_error);
  ArmFailpoint("");
  EXPECT_FALSE(threads.acquire.joinable());
}

}  // namespace
}  // namespace octavo::scan
