#pragma once

// A ring, and its producer in the same process.

#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo_ring.h"
#include "server/source/ring_port.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

inline const SystemClock kClock;
inline constexpr int64_t kSlots = 4, kBlock = 50;

/// A record holds its number, so that a misplaced one is noticed.
class RingPortTest : public ::testing::Test {
 protected:
  RingPortTest() { Make({}); }

  struct Options {
    double idle_timeout_s = 0.05, restart_grace_s = 0.05;
    bool fail_on_overrun = false;
    int64_t total = 0;
  };
  void Make(Options options) {
    Hang();
    port_ = std::make_unique<RingPort>(RingLimits{.record_bytes = 4,
                                                  .block_records = kBlock,
                                                  .slots = kSlots,
                                                  .samples_per_record = 2,
                                                  .raw_type = 2,
                                                  .idle_timeout_s = options.idle_timeout_s,
                                                  .restart_grace_s = options.restart_grace_s,
                                                  .fail_on_overrun = options.fail_on_overrun},
                                       &kClock);
    ASSERT_THAT(port_->OpenMemory(octavo::testing::SharedDevice("host")), octavo::testing::IsOk());
    port_->Want(options.total);
  }
  void Attach() {
    auto attached = port_->Attach({.cut = [this] { ++cuts_; }});
    ASSERT_THAT(attached.status(), octavo::testing::IsOk());
    connection_ = attached->connection;
    char error[256] = "";
    ASSERT_EQ(octavo_ring_map(&ring_, attached->fd.get(), error, sizeof error), 0) << error;
  }
  void Detach() {
    octavo_ring_close(&ring_);
    port_->Detach(connection_);
  }
  void Hang() {
    if (ring_.memory != nullptr) octavo_ring_close(&ring_);
  }
  ~RingPortTest() override { Hang(); }

  // Writes the next block as a digitizer does.
  void Write(uint32_t records, uint32_t lie = 0) {
    auto* slot = static_cast<uint32_t*>(octavo_ring_begin(&ring_, 20000));
    ASSERT_NE(slot, nullptr) << strerror(errno);
    std::iota(slot, slot + records, static_cast<uint32_t>(ring_.next_record) + lie);
    octavo_ring_publish(&ring_, records);
  }
  octavo_ring_descriptor& Descriptor(uint64_t block) {
    return reinterpret_cast<octavo_ring_descriptor*>(ring_.memory +
                                                     ring_.facts.descriptor_offset)[block % kSlots];
  }
  octavo_ring_producer& Producer() { return *octavo_ring_producer_of(&ring_); }
  octavo_ring_server& Server() { return *octavo_ring_server_of(&ring_); }

  // Takes the next block as (first record, contents) and returns it at once.
  std::pair<int64_t, std::vector<uint32_t>> Next() {
    auto loan = port_->Lend(stop_.get_token());
    EXPECT_THAT(loan.status(), octavo::testing::IsOk());
    if (!loan.ok() || loan->block.records == 0) return {-1, {}};
    std::vector<uint32_t> got(static_cast<size_t>(loan->block.records));
    std::memcpy(got.data(), loan->data, got.size() * 4);
    port_->Return(loan->loan);
    return {loan->block.first_record, got};
  }
  static std::pair<int64_t, std::vector<uint32_t>> Run(int64_t first, int64_t count) {
    std::vector<uint32_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(first));
    return {first, numbers};
  }

  std::unique_ptr<RingPort> port_;
  octavo_ring ring_{};
  int64_t connection_ = 0;
  std::atomic<int> cuts_{0};
  std::stop_source stop_;
};

}  // namespace octavo::engine::testing
