#pragma once

// What the parts of the BufferStore are made of, without the store itself: two devices on the host,
// a table, turns, the order of the streams, watchers.

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/buffer/buffer_entry.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

class BufferPartsTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 2;

  BufferPartsTest() {
    for (int d = 0; d < kDevices; ++d) {
      owned_.push_back(std::move(OpenDevices("host").value().devices[0]));
      devices_.push_back(owned_.back().get());
      frames_.push_back(std::make_shared<FramePool>(devices_.back(), int64_t{128} << 20));
    }
    table_ = std::make_unique<BufferTable>(devices_, &leases_, &clock_);
    order_ = std::make_unique<StreamOrdering>(devices_);
  }

  /// A buffer of bytes in the table, with a replica on each device. Its bytes are 0, 1, 2, ... on
  /// the first device, zero on the others.
  BufferPtr Add(const std::string& name, int64_t bytes) {
    auto buffer = std::make_shared<BufferEntry>();
    buffer->status.name = name;
    buffer->status.client = "me";
    buffer->status.type = {.scalar = Scalar::kU8, .lanes = 1, .dims = {bytes}};
    for (int d = 0; d < kDevices; ++d) {
      auto replica = ReserveReplica(&ledger_, d, name, bytes, nullptr).value();
      replica->memory = ClientMemory::Allocate(*devices_[static_cast<size_t>(d)], bytes).value();
      std::vector<char> values(static_cast<size_t>(bytes), 0);
      if (d == 0) std::iota(values.begin(), values.end(), 0);
      std::memcpy(replica->memory.data(), values.data(), values.size());  // host memory
      replica->version = 1;
      replica->state = BufferState::kReady;
      buffer->replicas.push_back(std::move(replica));
    }
    MutexLock lock(table_->mutex());
    table_->Insert(buffer);
    return buffer;
  }
  /// The first bytes of a replica, when all work is done.
  std::vector<int> BytesOf(const BufferReplica& replica, int64_t count) {
    order_->WaitForAll();
    const auto* const data = static_cast<const unsigned char*>(replica.memory.data());
    return {data, data + count};
  }
  template <class T>
  static std::string ReasonOf(const T& answer) {
    return std::string(Name(ReasonOrCode(octavo::testing::StatusOf(answer))));
  }

  octavo::testing::FakeClock clock_;
  LeaseTable leases_{&clock_};
  Ledger ledger_{std::vector<int64_t>(kDevices, int64_t{64} << 20)};
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> devices_;
  std::vector<std::shared_ptr<FramePool>> frames_;
  std::unique_ptr<BufferTable> table_;
  BufferTurns turns_{&leases_};
  BufferWatchers watchers_;
  std::unique_ptr<StreamOrdering> order_;  // last: its threads use the rest
};

}  // namespace octavo::engine::testing
