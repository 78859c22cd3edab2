// Client::Map of memory of a GPU: the driver's calls, their order and their failures, against a
// stand-in for libcuda (fake_cuda.cc).
#include <atomic>
#include <chrono>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/handoff.h"
#include "gpu/base/status.h"
#include "server/handoff/fd_socket.h"
#include "tests/client/client_support.h"

extern "C" {  // fake_cuda.cc
int fake_cuda_open();
int fake_cuda_mapped();
void fake_cuda_fail_access(int times);
int fake_cuda_synchronized();
}

namespace octavo::client {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::OpenDescriptors;
using testing::Thrown;
using testing::Until;

constexpr int64_t kMappedBytes = 2 << 20;

/// Hands over a memory file as if it were the memory of a device.
class FakeDeviceGrant final : public handoff::Grant {
 public:
  FakeDeviceGrant(int fd, std::string uuid) : fd_(fd), uuid_(std::move(uuid)) {}
  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_MEMORY; }
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer&, const handoff::v1::Present& request,
                                       std::shared_ptr<handoff::Link>) override {
    return AnswerTo(request.have_size() > 0);
  }
  absl::StatusOr<handoff::Answer> Message(const handoff::v1::ClientMessage& request) override {
    if (!request.has_release()) return AnswerTo(request.take().have_size() > 0);
    ++released;
    handoff::Answer answer;
    answer.message.mutable_released()->set_name(request.release().name());
    return answer;
  }
  void Ended(handoff::GrantEnd) override {}
  std::atomic<int> released{0}, sent{0};

 private:
  handoff::Answer AnswerTo(bool have) {
    sent += !have;
    handoff::Answer answer{.message = {}, .descriptor = have ? -1 : fd_, .keep = nullptr};
    handoff::v1::Export& out = *answer.message.mutable_exported();
    out.set_name("exports/1");
    out.set_resource("volumes/1");
    out.set_memory("00000000000000ab");
    out.set_generation(3);
    out.set_mapped_bytes(kMappedBytes);
    out.set_byte_size(24);
    out.set_kind(handoff::v1::MEMORY_KIND_CUDA_VMM);
    out.set_device_uuid(uuid_);
    out.set_dtype(handoff::v1::DTYPE_U16);
    out.set_lanes(1);
    out.add_shape(3);
    out.add_shape(4);
    out.set_version(1);
    return answer;
  }
  const int fd_;
  const std::string uuid_;
};

class DeviceMappingTest : public ::testing::Test {
 protected:
  DeviceMappingTest() {
    EXPECT_EQ(::ftruncate(file_.get(), kMappedBytes), 0);
    EXPECT_EQ(::pwrite(file_.get(), "bytes of the device", 19, 0), 19);
    auto socket = handoff::FdSocket::Open({.path = folder_.path() + "/h.sock"}, &clock_);
    EXPECT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    connection_ = Handoff::Connect(socket_->path(), seconds(20));
  }
  std::shared_ptr<FakeDeviceGrant> Offer(const std::string& uuid) {
    auto grant = std::make_shared<FakeDeviceGrant>(file_.get(), uuid);
    nonce_ = socket_->Issue(grant, ::getuid())->nonce;
    return grant;
  }
  octavo::testing::TempFolder folder_;
  SystemClock clock_;
  Descriptor file_{::memfd_create("device", MFD_CLOEXEC)};
  std::unique_ptr<handoff::FdSocket> socket_;
  std::shared_ptr<Handoff> connection_;
  std::string nonce_;
  const std::string uuid_ = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";  // ordinal 1
};

TEST_F(DeviceMappingTest, TheDriversCallsInTheirOrder) {
  const auto grant = Offer(uuid_);
  {
    Mapped mapped = connection_->Present(nonce_);
    EXPECT_EQ(mapped.info().kind, MemoryKind::kCudaVmm);
    EXPECT_EQ(mapped.device(), 1);  // by its UUID
    EXPECT_EQ(std::memcmp(mapped.data(), "bytes of the device", 19), 0);
    EXPECT_THROW(mapped.as<uint16_t>(), std::logic_error);
    EXPECT_EQ(fake_cuda_mapped(), 1);
    EXPECT_EQ(fake_cuda_open(),
              2);  // the mapping and its addresses; no handle is left, no context is current
    const int synchronized = fake_cuda_synchronized();
    mapped.Release();
    EXPECT_EQ(fake_cuda_synchronized(), synchronized + 1);  // enqueued work may still read it
  }
  {
    const Mapped again = connection_->Take("volumes/1");  // already mapped
    EXPECT_EQ(grant->sent, 1);
    EXPECT_EQ(fake_cuda_mapped(), 1);
  }
  EXPECT_TRUE(Until([&] { return grant->released == 2; }));
  connection_->Forget();
  EXPECT_EQ(fake_cuda_open(), 0);
}

TEST_F(DeviceMappingTest, WhatTheDriverRefusesLeavesNothing) {
  auto grant = Offer(uuid_);
  fake_cuda_fail_access(1);
  const Error refused = Thrown([&] { connection_->Present(nonce_); });
  EXPECT_EQ(refused.reason, "CUDA");
  EXPECT_THAT(refused.what(), HasSubstr("cuMemSetAccess: what the driver says (1)"));
  EXPECT_EQ(fake_cuda_open(), 0);
  EXPECT_EQ(connection_->kept(), 0u);
  EXPECT_TRUE(Until([&] { return grant->released == 1; }));  // the server has it back
  const size_t descriptors = OpenDescriptors();  // by now the server has accepted the connection
  grant = Offer("GPU-00000000-0000-0000-0000-000000000000");
  const Error hidden = Thrown([&] { connection_->Present(nonce_); });
  EXPECT_EQ(hidden.reason, "CUDA");
  EXPECT_THAT(hidden.what(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(Until([&] { return grant->released == 1; }));
  EXPECT_EQ(OpenDescriptors(), descriptors);
  grant = Offer(uuid_);
  EXPECT_EQ(connection_->Present(nonce_).device(), 1);
  connection_->Forget();
  EXPECT_EQ(fake_cuda_open(), 0);
}

}  // namespace
}  // namespace octavo::client
