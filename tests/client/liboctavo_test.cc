// liboctavo against a daemon in this process. The library's header is included first, so that this
// file compiles only if the header needs nothing before it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sched.h>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo.h"
#include "gpu/base/failpoint.h"
#include "tests/client/client_support.h"

namespace octavo::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::Thrown;

class LiboctavoTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new octavo::testing::TempFolder();
    ASSERT_OK_AND_ASSIGN(auto daemon, testing::StartDaemon(*folder_));
    daemon_ = daemon.release();
  }
  static void TearDownTestSuite() {
    daemon_->Drain({.hurry = [] { return true; }, .may_take = [](double, const char*) {}});
    delete daemon_;
    delete folder_;
  }
  static ScanSpec Small(uint32_t volumes) {
    return {.source = Simulated{.seed = 3, .as_fast_as_possible = true},
            .pattern = {.ascans_per_bscan = 40, .bscans_per_volume = 12, .volumes = volumes},
            .samples_per_record = 256,
            .title = "small"};
  }
  /// Submits a scan, waits for its end, and returns the names of its volumes.
  std::vector<std::string> Done(const ScanSpec& spec) {
    const Scan scan = client_.WaitScan(client_.SubmitScan(spec).name);
    EXPECT_EQ(scan.state, ScanState::kDone) << scan.reason;
    return scan.volumes;
  }

  static octavo::testing::TempFolder* folder_;
  static Daemon* daemon_;
  Client client_{daemon_->addresses().at(0)};
};
octavo::testing::TempFolder* LiboctavoTest::folder_ = nullptr;
Daemon* LiboctavoTest::daemon_ = nullptr;

TEST_F(LiboctavoTest, TheServerIsThere) {
  EXPECT_TRUE(client_.Health());
  EXPECT_THAT(client_.InfoJson(), HasSubstr("\"version\""));
  Client by_socket(daemon_->addresses().at(1));
  EXPECT_THAT(by_socket.address(), StartsWith("unix:"));
  EXPECT_TRUE(by_socket.Health());
  Client nobody("127.0.0.1:1", std::chrono::milliseconds(500));
  EXPECT_EQ(Thrown([&] { nobody.ListScans(); }).code, Code::kUnavailable);
}

// gRPC takes a port modulo 65536, and 0 for words.
TEST_F(LiboctavoTest, AddressesThatWouldLeadElsewhereAreRefused) {
  for (const char* bad :
       {"127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:0", "127.0.0.1:abc",
        "127.0.0.1:", ":50051", "unix:", "unix://", "127.0.0.1:50051 ", " 127.0.0.1:50051",
        "127.0.0.1:1\n", "::1:50051", "127.0.0.1:-1", "dns:///localhost", "dns:///localhost:99999",
        "ipv4:127.0.0.1:1,127.0.0.1:99999", "127.0.0.1:", "dns:///"}) {
    const Error error = Thrown([&] { Client client{bad}; });
    EXPECT_EQ(error.code, Code::kInvalidArgument) << bad;
    EXPECT_THAT(error.what(), HasSubstr(std::string("address: is '") + bad + "'")) << bad;
    EXPECT_THAT(error.what(), HasSubstr("allowed host:port with port 1 to 65535, or unix:/path"));
  }
  EXPECT_THAT(Thrown([] { Client client("localhost"); }).what(), HasSubstr("without a port"));
  EXPECT_THAT(Thrown([] { Client client("http://a:1"); }).what(), HasSubstr("without http://"));
  for (const char* good :
       {"127.0.0.1:1", "localhost:65535", "[::1]:1", "unix:/none", "unix:///none", "unix:none",
        "dns:///localhost:1", "dns:localhost:1", "dns://127.0.0.1/localhost:1", "ipv4:127.0.0.1:1",
        "ipv4:127.0.0.1:1,127.0.0.1:2", "ipv6:[::1]:1", "ipv6:%5B::1%5D:1"})
    EXPECT_EQ(Client(good).address(), good);
}

TEST_F(LiboctavoTest, AWholeDay) {
  const Admission plan = client_.PlanScan(Small(3));
  EXPECT_TRUE(plan.admitted);
  EXPECT_EQ(plan.volume_bytes, 12 * 40 * 128 * 2);
  EXPECT_THAT(plan.plan, HasSubstr("inverse DFT of 256"));
  ScanSpec spec = Small(3);
  spec.labels = {{"lab", "7"}};
  spec.processing.dtype = DType::kF32;
  const Scan submitted = client_.SubmitScan(spec, "day");
  EXPECT_EQ(client_.SubmitScan(spec, "day").name, submitted.name);  // a retry of the same request
  std::vector<ScanState> states;
  const Scan scan = client_.WatchScan(submitted.name, [&](const Scan& now) {
    states.push_back(now.state);
    return true;
  });
  EXPECT_EQ(states.back(), ScanState::kDone);
  EXPECT_EQ(scan.volumes_done, 3);
  EXPECT_EQ(scan.records, 3 * 12 * 40);
  EXPECT_EQ(client_.ListScans().at(0).name, scan.name);

  const std::vector<Volume> volumes = client_.ListVolumes(scan.name);
  ASSERT_EQ(volumes.size(), 3u);
  EXPECT_EQ(volumes[1].index, 1);
  EXPECT_EQ(volumes[1].state, VolumeState::kHeld);
  EXPECT_EQ(volumes[1].labels.at("lab"), "7");
  EXPECT_EQ(volumes[1].dtype, DType::kF32);
  EXPECT_THAT(volumes[1].shape, ElementsAre(12, 40, 128));
  const Array all = client_.Read(volumes[0].name);
  const Array box = client_.Read(volumes[0].name, {2, 3, 4}, {5, 6, 7});
  EXPECT_THAT(box.shape, ElementsAre(5, 6, 7));
  const auto voxels = all.as<float>(), part = box.as<float>();
  ASSERT_EQ(voxels.size(), 12u * 40 * 128);
  ASSERT_EQ(part.size(), 5u * 6 * 7);
  for (size_t y = 0; y < 5; ++y) {
    for (size_t x = 0; x < 6; ++x) {
      for (size_t z = 0; z < 7; ++z)
        EXPECT_EQ(part[(y * 6 + x) * 7 + z], voxels[((y + 2) * 40 + x + 3) * 128 + z + 4]);
    }
  }
  EXPECT_THROW(all.as<uint8_t>(), std::logic_error);

  const Array coarse = client_.Read(
      volumes[0].name, ReadOptions{.start = {2, 3, 4}, .count = {5, 6, 7}, .downsample = 4});
  EXPECT_THAT(coarse.shape, ElementsAre(2, 2, 2));
  float brightest = -HUGE_VALF;  // of the last cube, which the box cuts off
  for (size_t y = 4; y < 5; ++y)
    for (size_t x = 4; x < 6; ++x)
      for (size_t z = 4; z < 7; ++z) brightest = std::max(brightest, part[(y * 6 + x) * 7 + z]);
  EXPECT_EQ(coarse.as<float>()[7], brightest);
  const float darkest = brightest - 20;
  const Array grey =
      client_.Read(volumes[0].name, ReadOptions{.window = Levels{darkest, brightest}});
  EXPECT_EQ(grey.dtype, DType::kU8);
  ASSERT_EQ(grey.data.size(), voxels.size());
  for (size_t i = 0; i < 100; ++i)
    EXPECT_NEAR(grey.as<uint8_t>()[i], 255 * std::clamp((voxels[i] - darkest) / 20, 0.0f, 1.0f),
                0.51);
  EXPECT_EQ(Thrown([&] { client_.Read(volumes[0].name, ReadOptions{.downsample = 3}); }).code,
            Code::kInvalidArgument);

  OperationProgress last;
  const CommitResult result =
      client_.Commit(volumes[0].name, {.destination = "day_{index:03}", .format = Format::kNpy},
                     [&](const OperationProgress& step) {
                       last = step;
                       return true;
                     });
  EXPECT_TRUE(std::filesystem::exists(result.path)) << result.path;
  EXPECT_EQ(result.raw_bytes, 12 * 40 * 128 * 4);
  EXPECT_EQ(last.fraction, 1);
  EXPECT_EQ(last.done_bytes, result.raw_bytes);
  EXPECT_EQ(client_.GetVolume(volumes[0].name).committed_to, result.path);
  EXPECT_EQ(client_.DiscardVolume(volumes[1].name).state, VolumeState::kDiscarded);
  EXPECT_EQ(client_.ListVolumes(scan.name).size(), 1u);
}

TEST_F(LiboctavoTest, ALargeVolumeComesOverSeveralConnections) {
  ScanSpec spec = Small(1);
  spec.pattern.ascans_per_bscan = 512;
  spec.pattern.bscans_per_volume = 129;  // 64.5 MiB of f32, and ranges of unequal size
  spec.samples_per_record = 512;
  spec.processing.dtype = DType::kF32;
  const std::string name = Done(spec).at(0);
  const Array whole = client_.Read(name, ReadOptions{.connections = 1});
  ASSERT_EQ(whole.data.size(), 129u * 512 * 256 * 4);
  const size_t before = testing::OpenDescriptors();
  for (const uint32_t connections : {2u, 0u, 16u}) {
    const Array array = client_.Read(name, ReadOptions{.connections = connections});
    EXPECT_EQ(array.dtype, DType::kF32);
    EXPECT_THAT(array.shape, ElementsAre(129, 512, 256));
    EXPECT_TRUE(array.data == whole.data) << connections;
  }
  EXPECT_GE(testing::OpenDescriptors(), before + 2);  // client and server are this process

  const size_t line = size_t{512} * 256 * 4;
  const ReadOptions box{.start = {3, 0, 0}, .count = {125, 0, 0}, .connections = 3};
  std::vector<std::byte> into(125 * line, std::byte{0x5a});
  const ArrayLayout layout = client_.ReadInto(name, into, box);
  EXPECT_EQ(layout.dtype, DType::kF32);
  EXPECT_THAT(layout.shape, ElementsAre(125, 512, 256));
  EXPECT_EQ(std::memcmp(into.data(), whole.data.data() + 3 * line, into.size()), 0);
  into.push_back(std::byte{});
  for (const uint32_t connections : {1u, 3u}) {
    const Error size = Thrown([&] {
      client_.ReadInto(name, into,
                       {.start = box.start, .count = box.count, .connections = connections});
    });
    EXPECT_EQ(size.code, Code::kInvalidArgument);
    EXPECT_EQ(size.field, "into");
  }
  const ReadOptions plane{.start = {7, 2, 5}, .count = {1, 0, 9}, .connections = 4};
  EXPECT_THAT(client_.Read(name, plane).shape, ElementsAre(1, 510, 9));
  ReadOptions grey{.window = Levels{-20, 20}, .connections = 1};
  const Array u8 = client_.Read(name, grey);
  grey.connections = 4;
  EXPECT_TRUE(client_.Read(name, grey).data == u8.data);
  // Errors are those of one connection.
  for (const uint32_t connections : {1u, 4u}) {
    const auto code = [&](ReadOptions options) {
      options.connections = connections;
      return Thrown([&] { client_.Read(name, options); }).code;
    };
    EXPECT_EQ(code({.start = {129, 0, 0}}), Code::kOutOfRange);
    EXPECT_EQ(code({.count = {130, 0, 0}}), Code::kOutOfRange);
    EXPECT_EQ(code({.start = {0, 0}}), Code::kInvalidArgument);
    EXPECT_EQ(
        Thrown([&] { client_.Read("volumes/none", ReadOptions{.connections = connections}); }).code,
        Code::kNotFound);
  }
  EXPECT_EQ(Thrown([&] { client_.Read(name, ReadOptions{.connections = 17}); }).field,
            "connections");
  client_.DiscardVolume(name);
  EXPECT_EQ(Thrown([&] { client_.Read(name, ReadOptions{.connections = 4}); }).code,
            Code::kNotFound);
}

TEST_F(LiboctavoTest, ARangeThatFailsEndsTheWholeRead) {
  ScanSpec spec = Small(1);
  spec.pattern.ascans_per_bscan = 512;
  spec.pattern.bscans_per_volume = 128;
  spec.samples_per_record = 512;
  spec.processing.dtype = DType::kF32;
  const std::string name = Done(spec).at(0);
  const Array whole = client_.Read(name, ReadOptions{.connections = 1});
  // The sixth message of any of the ranges.
  ArmFailpoint("ReadVolumeRequest.message:throw=runtime_error:6");
  EXPECT_EQ(Thrown([&] { client_.Read(name, ReadOptions{.connections = 3}); }).code,
            Code::kInternal);
  // Memory may be there later: the range comes once more.
  ArmFailpoint("ReadVolumeRequest.message:throw=bad_alloc:6");
  EXPECT_TRUE(client_.Read(name, ReadOptions{.connections = 3}).data == whole.data);
  EXPECT_FALSE(FailpointArmed());
  ArmFailpoint("");
  client_.DiscardVolume(name);
}

TEST_F(LiboctavoTest, FramesComeByLoopAndByCallback) {
  ScanSpec spec = Small(8);
  spec.source = Simulated{.seed = 3};
  spec.record_rate_hz = 800;  // five seconds: a busy machine subscribes late
  spec.aip = true;
  const Scan scan = client_.SubmitScan(spec);
  std::vector<uint64_t> sequences;
  std::map<std::string, Bytes> mips;
  for (const Frame& frame : client_.Subscribe(
           {.parent = scan.name, .products = {Product::kMip, Product::kAip}, .preview = false})) {
    EXPECT_TRUE(frame.complete);
    EXPECT_THAT(frame.array.shape, ElementsAre(12, 40));
    EXPECT_THAT(frame.axes, ElementsAre("y", "x"));
    if (frame.product == Product::kMip) {
      sequences.push_back(frame.sequence);
      mips[frame.volume] = frame.array.data;
    }
  }
  ASSERT_GE(sequences.size(), 2u);
  EXPECT_TRUE(std::is_sorted(sequences.begin(), sequences.end()));
  for (const auto& [name, mip] : mips) {  // the projection of the held volume
    const Array volume = client_.Read(name);
    const auto voxels = volume.as<uint16_t>();
    for (size_t i = 0; i < mip.size() / 2; ++i) {
      uint16_t most = 0;
      std::memcpy(&most, mip.data() + 2 * i, 2);
      EXPECT_EQ(most,
                *std::max_element(voxels.begin() + static_cast<std::ptrdiff_t>(i * 128),
                                  voxels.begin() + static_cast<std::ptrdiff_t>((i + 1) * 128)));
    }
  }
  int volumes = 0;
  const Scan second = client_.SubmitScan(spec);
  client_.Subscribe({.parent = second.name, .products = {Product::kVolume}},
                    [&](const Frame& frame) {
                      EXPECT_THAT(frame.array.shape, ElementsAre(12, 40, 128));
                      EXPECT_EQ(frame.array.data, client_.Read(frame.volume).data);
                      return ++volumes < 2;
                    });
  EXPECT_EQ(volumes, 2);
}

/// While it lives, this thread and those that it starts have one processor: a reader that chooses
/// by their number takes one connection.
class OneProcessor {
 public:
  OneProcessor() {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &before_)) CPU_SET(i, &one);
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { EXPECT_EQ(sched_setaffinity(0, sizeof before_, &before_), 0); }

 private:
  cpu_set_t before_;
};

// Large volumes come without their data, and the library reads them.
class VolumesByRead : public LiboctavoTest {
 protected:
  /// Three volumes of 16 MiB, and what a subscriber got of them while they were made.
  void SetUp() override {
    ScanSpec spec = Small(3);
    spec.source = Simulated{.seed = 3};
    spec.pattern.ascans_per_bscan = 128;
    spec.pattern.bscans_per_volume = 64;
    spec.samples_per_record = 1024;
    spec.processing.dtype = DType::kF32;
    spec.record_rate_hz = 20'000;
    spec.json = R"({"acquisition": {"ring_blocks": 12}})";  // all of it: a busy machine keeps up
    // And subscribes late, perhaps: what was sealed before it is not announced.
    for (int attempt = 0; attempt < 5 && live_.size() < 3; ++attempt) {
      if (attempt > 0) TearDown();
      scan_ = client_.SubmitScan(spec).name;
      live_.clear();
      try {
        live_ = All({.queue_length = 8});
      } catch (const Error& error) {
        if (error.reason != "NOTHING_KEPT") throw;  // it came later than all of them
      }
      volumes_ = client_.WaitScan(scan_).volumes;
    }
    ASSERT_EQ(live_.size(), 3u);
  }
  void TearDown() override {
    for (const Volume& volume : client_.ListVolumes(scan_)) {
      if (volume.state == VolumeState::kHeld) client_.DiscardVolume(volume.name);
    }
  }
  SubscribeOptions Of(SubscribeOptions options) const {
    options.parent = scan_;
    options.products = {Product::kVolume};
    return options;
  }
  std::vector<Frame> All(const SubscribeOptions& options) {
    std::vector<Frame> frames;
    client_.Subscribe(Of(options), [&](const Frame& frame) {
      frames.push_back(frame);
      return true;
    });
    return frames;
  }

  std::string scan_;
  std::vector<Frame> live_;
  std::vector<std::string> volumes_;
};

TEST_F(VolumesByRead, TheSameFramesComeBothWays) {
  const uint64_t first = live_.front().sequence;
  for (const bool by_read : {true, false}) {
    SCOPED_TRACE(by_read);
    const auto frames = All({.from_sequence = first, .volumes_by_read = by_read});
    ASSERT_EQ(frames.size(), live_.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      const Frame &one = live_[i], &other = frames[i];
      EXPECT_EQ(one.sequence, first + i);
      EXPECT_EQ(other.sequence, one.sequence);
      EXPECT_EQ(other.volume, one.volume);
      EXPECT_EQ(other.volume_index, one.volume_index);
      EXPECT_EQ(other.dropped_before, 0u);
      EXPECT_EQ(other.array.dtype, one.array.dtype);
      EXPECT_EQ(other.axes, one.axes);
      EXPECT_EQ(other.display.hi, one.display.hi);
      EXPECT_THAT(other.array.shape, ElementsAre(64, 128, 512));
      ASSERT_EQ(other.array.data.size(), size_t{16} << 20);
      EXPECT_TRUE(other.array.data == one.array.data);
      EXPECT_TRUE(client_.Read(one.volume).data == one.array.data);
    }
  }
  // A shortage of memory passes. Over one connection, because of several the reader itself would
  // read the refused part once more.
  const OneProcessor one;
  ArmFailpoint("ReadVolumeRequest.message:throw=bad_alloc");
  EXPECT_EQ(All({.from_sequence = first}).size(), live_.size());
  EXPECT_FALSE(FailpointArmed());
  // Only one of the two ways calls ReadVolume.
  ArmFailpoint("ReadVolumeRequest.message:throw=runtime_error");
  EXPECT_EQ(Thrown([&] { All({.from_sequence = first}); }).code, Code::kInternal);
  ArmFailpoint("");
  ArmFailpoint("ReadVolumeRequest.message:throw=runtime_error");
  EXPECT_EQ(All({.from_sequence = first, .volumes_by_read = false}).size(), live_.size());
  EXPECT_TRUE(FailpointArmed());
  ArmFailpoint("");
}

TEST_F(VolumesByRead, WhatHasGoneIsCountedOrTold) {
  client_.DiscardVolume(volumes_.at(1));
  const uint64_t first = live_.front().sequence;
  const auto rest =
      All({.delivery = Delivery::kDropOldest, .queue_length = 8, .from_sequence = first});
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].dropped_before, 0u);
  EXPECT_EQ(rest[1].volume, volumes_[2]);
  EXPECT_EQ(rest[1].dropped_before, 1u);
  const auto newest = All({.delivery = Delivery::kLatest});
  ASSERT_EQ(newest.size(), 1u);
  EXPECT_EQ(newest[0].volume, volumes_[2]);

  FrameStream stream = client_.Subscribe(Of({.from_sequence = first}));
  Frame frame;
  ASSERT_TRUE(stream.Next(&frame));
  EXPECT_EQ(frame.volume, volumes_[0]);
  const Error gone = Thrown([&] { stream.Next(&frame); });
  EXPECT_EQ(gone.code, Code::kNotFound);
  EXPECT_EQ(gone.reason, "VOLUME_GONE");
  EXPECT_THAT(gone.what(), HasSubstr(volumes_[1] + " (frame " + std::to_string(first + 1)));
  EXPECT_THAT(gone.what(), HasSubstr("delivery is LOSSLESS"));
  EXPECT_EQ(gone.numbers.at("resume_from"), std::to_string(first + 2));
  EXPECT_FALSE(stream.Next(&frame)) << "it has ended";
  const auto resumed = All({.from_sequence = first + 2});
  ASSERT_EQ(resumed.size(), 1u);
  EXPECT_EQ(resumed[0].volume, volumes_[2]);
}

// Cancelled from another thread while it waits or reads, and destroyed with volumes that wait.
TEST_F(VolumesByRead, AStreamEndsAtAnyTime) {
  const uint64_t first = live_.front().sequence;
  for (int turn = 0; turn < 10; ++turn) {
    FrameStream stream = client_.Subscribe(Of({.from_sequence = first}));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2 * turn));
      stream.Cancel();
    });
    Frame frame;
    while (stream.Next(&frame)) EXPECT_EQ(frame.array.data.size(), size_t{16} << 20);
    other.join();
    FrameStream unread = client_.Subscribe(Of({.from_sequence = first}));
    if (turn % 2 == 0) unread.Next(&frame);
  }
}

TEST_F(LiboctavoTest, PicturesAreFiles) {
  const auto volumes = Done(Small(1));
  const std::string scan = client_.GetVolume(volumes.at(0)).parent;
  for (const Encoding encoding : {Encoding::kPng, Encoding::kJpeg}) {
    FrameStream stream = client_.Subscribe({.parent = scan,
                                            .products = {Product::kMip},
                                            .encoding = encoding,
                                            .image = ImageOptions{.colour_map = ColourMap::kInferno,
                                                                  .percentiles = Levels{1, 99},
                                                                  .max_width = 20,
                                                                  .scale_bar = true}});
    Frame frame;
    ASSERT_TRUE(stream.Next(&frame));
    EXPECT_EQ(frame.encoding, encoding);
    EXPECT_THAT(frame.array.shape, ElementsAre(6, 20));
    EXPECT_EQ(std::memcmp(frame.array.data.data(),
                          encoding == Encoding::kPng ? "\x89PNG" : "\xFF\xD8\xFF", 3),
              0);
    EXPECT_GT(frame.display.hi, frame.display.lo);
  }
}

TEST_F(LiboctavoTest, AHeldVolumeIsRendered) {
  const std::string name = Done(Small(1)).at(0);
  const Array volume = client_.Read(name);
  const auto voxels = volume.as<uint16_t>();
  const RenderedPicture mip = client_.Render(name, {.rendering = Rendering::kMax,
                                                    .axis = Axis::kZ,
                                                    .begin = 10,
                                                    .end = 20,
                                                    .encoding = Encoding::kRaw});
  EXPECT_THAT(mip.array.shape, ElementsAre(12, 40));
  EXPECT_THAT(mip.axes, ElementsAre("y", "x"));
  EXPECT_THAT(mip.start, ElementsAre(0, 0, 10));
  EXPECT_THAT(mip.count, ElementsAre(12, 40, 10));
  const auto projected = mip.array.as<uint16_t>();
  ASSERT_EQ(projected.size(), 12u * 40);
  for (size_t i = 0; i < projected.size(); ++i) {
    const auto line = voxels.begin() + static_cast<std::ptrdiff_t>(i * 128);
    ASSERT_EQ(projected[i], *std::max_element(line + 10, line + 20)) << i;
  }
  const RenderedPicture file = client_.Render(
      name, {.index = 3,
             .encoding = Encoding::kWebp,
             .image = {.colour_map = ColourMap::kViridis, .depth_down = true, .colour_bar = true}});
  EXPECT_EQ(file.axis, Axis::kY);
  EXPECT_THAT(file.axes, ElementsAre("z", "x"));
  EXPECT_GT(file.colour_bar_columns, 0);
  EXPECT_THAT(file.array.shape, ElementsAre(128, 40 + file.colour_bar_columns));
  EXPECT_EQ(std::memcmp(file.array.data.data(), "RIFF", 4), 0);
  EXPECT_EQ(file.unit, "dB");
  EXPECT_LT(file.values.lo, file.values.hi);
  const Error error = Thrown([&] { client_.Render(name, {.index = 12}); });
  EXPECT_EQ(error.code, Code::kOutOfRange);
  EXPECT_EQ(error.field, "index");
}

TEST_F(LiboctavoTest, OnlyAScanThatCommitsByItselfCanBeResumed) {
  ScanSpec spec = Small(0);
  spec.source = Simulated{.seed = 3};
  spec.resume = true;
  spec.disposition = Disposition::kAutoDiscard;
  EXPECT_EQ(Thrown([&] { client_.SubmitScan(spec); }).code, Code::kInvalidArgument);
  spec.disposition = Disposition::kAutoCommit;
  spec.auto_commit = CommitOptions{.destination = "resumed_{scan}_{index}.npy"};
  const Scan scan = client_.SubmitScan(spec);
  EXPECT_EQ(scan.resumed_from, "");
  EXPECT_NE(scan.json.find("ON_RESTART_RESUME"), std::string::npos);
  client_.CancelScan(scan.name);
}

TEST_F(LiboctavoTest, AStreamEndsWhenItIsToldTo) {
  ScanSpec spec = Small(0);
  spec.source = Simulated{.seed = 3};
  spec.record_rate_hz = 4000;
  spec.disposition = Disposition::kAutoDiscard;
  const Scan scan = client_.SubmitScan(spec);
  FrameStream stream = client_.Subscribe({.parent = scan.name});
  Frame frame;
  ASSERT_TRUE(stream.Next(&frame));
  std::thread other([&] { stream.Cancel(); });
  while (stream.Next(&frame)) {
  }
  other.join();
  EXPECT_FALSE(stream.Next(&frame));
  {
    FrameStream dropped = client_.Subscribe({.parent = scan.name});  // destroyed without being read
    FrameStream moved = std::move(dropped);
    moved = client_.Subscribe({.parent = scan.name});
    EXPECT_TRUE(moved.Next(&frame));
  }
  std::unique_ptr<FrameStream> orphan;
  {
    Client short_lived(client_.address());
    orphan = std::make_unique<FrameStream>(short_lived.Subscribe({.parent = scan.name}));
  }
  EXPECT_TRUE(orphan->Next(&frame));  // the stream keeps its connection open
  orphan = nullptr;
  int seen = 0;
  client_.WatchScan(scan.name, [&](const Scan& now) {
    EXPECT_EQ(now.state, ScanState::kRunning);
    return ++seen < 2;
  });
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(client_.CancelScan(scan.name).name, scan.name);
  EXPECT_EQ(client_.WaitScan(scan.name).state, ScanState::kCancelled);
}

TEST_F(LiboctavoTest, ErrorsCarryReasonFieldAndNumbers) {
  ScanSpec spec = Small(1);
  spec.pattern.bscans_per_volume = 60'000;
  const Error full = Thrown([&] { client_.SubmitScan(spec); });
  EXPECT_EQ(full.code, Code::kResourceExhausted);
  EXPECT_EQ(full.reason, "EXCEEDS_BUDGET");
  spec = Small(1);
  spec.processing.fft_length = 7;
  const Error bad = Thrown([&] { client_.SubmitScan(spec); });
  EXPECT_EQ(bad.code, Code::kInvalidArgument);
  EXPECT_EQ(bad.reason, "BAD_FIELD");
  EXPECT_EQ(bad.field, "processing.fft_length");
  EXPECT_EQ(Thrown([&] { client_.Read("volumes/none"); }).code, Code::kNotFound);
  EXPECT_EQ(Thrown([&] {
              Frame frame;
              client_.Subscribe({.parent = "scans/none"}).Next(&frame);
            }).code,
            Code::kNotFound);
  const Error gone = Thrown([&] {
    const auto volumes = Done(Small(1));
    client_.Commit(volumes.at(0), {.destination = "../out"});
  });
  EXPECT_EQ(gone.code, Code::kInvalidArgument);
  spec = Small(1);
  spec.json = "{ nonsense";
  EXPECT_EQ(Thrown([&] { client_.SubmitScan(spec); }).field, "json");
}

TEST_F(LiboctavoTest, JsonReachesEveryFieldOfTheContract) {
  ScanSpec spec;
  spec.json = R"({"simulated": {"seed": 5, "as_fast_as_possible": true, "noise_counts": 7},
                  "pattern": {"raster": {"ascans_per_bscan": 16, "bscans_per_volume": 4, "volumes": 1}},
                  "acquisition": {"samples_per_record": 256}, "title": "from json", "processing": {"window": "WINDOW_KIND_BLACKMAN"}})";
  spec.title = "from the field";
  spec.processing.json = R"({"refractive_index": 1.33})";
  const Scan scan = client_.WaitScan(client_.SubmitScan(spec).name);
  EXPECT_THAT(scan.json, HasSubstr("\"noise_counts\":7"));
  EXPECT_THAT(scan.json, HasSubstr("\"title\":\"from the field\""));
  EXPECT_THAT(scan.json, HasSubstr("BLACKMAN"));
  EXPECT_THAT(scan.json, HasSubstr("\"refractive_index\":1.33"));
}

}  // namespace
}  // namespace octavo::client
