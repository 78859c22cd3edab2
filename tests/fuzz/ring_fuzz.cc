// The memory of a producer's ring, under the control of a program that writes into it whatever it
// likes, whenever it likes. The first byte chooses: the server's side (RingPort), driven by steps
// that write words of the producer, attach, lend and return; the same while another thread writes
// there all the time; the ring of a job (ProjectionRing), whose own thread reads meanwhile; or the
// producer's side (octavo_ring.h), which maps what a server hands over.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stop_token>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "client/cpp/include/octavo/octavo_ring.h"
#include "gpu/base/unique_fd.h"
#include "server/source/projection_ring.h"
#include "server/source/push_projections.h"
#include "server/source/ring_layout.h"
#include "server/source/ring_port.h"
#include "server/source/ring_words.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/device/forwarding_device.h"

namespace octavo::source {
namespace {

using fuzz::Input;
using fuzz::Require;

constexpr int64_t kRecordBytes = 16;

/// All that a program with the descriptor can write.
class Producer {
 public:
  Producer(int fd, int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        at_(static_cast<char*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))) {
    Require(at_ != MAP_FAILED);
  }
  ~Producer() { ::munmap(at_, bytes_); }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  RingProducerPage& page() {
    return *reinterpret_cast<RingProducerPage*>(at_ + kRingProducerOffset);
  }
  RingDescriptor& descriptor(int64_t slot) {
    return reinterpret_cast<RingDescriptor*>(at_ + kRingDescriptorOffset)[slot];
  }
  /// Any word of the memory, the server's own pages included.
  void Write(size_t at, uint64_t value) { Store(WordAt(at), value); }

 private:
  uint64_t& WordAt(size_t at) { return *reinterpret_cast<uint64_t*>(at_ + at % (bytes_ / 8) * 8); }

  const size_t bytes_;
  char* const at_;
};

/// Writes into the producer's pages until it is destroyed.
class Scribbler {
 public:
  Scribbler(Producer* to, int64_t slots, uint64_t seed)
      : thread_([this, to, slots, seed] {
          uint64_t x = seed | 1;
          while (!stop_.load(std::memory_order_relaxed)) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            RingDescriptor& of =
                to->descriptor(static_cast<int64_t>(x % static_cast<uint64_t>(slots)));
            switch (x >> 60) {
              case 0: Store(to->page().published, x >> 8 & 7); break;
              case 1: Store(of.first_record, x >> 8 & 0xFFF); break;
              case 2: Store(of.first_record, x); break;
              case 3: Store(of.records, static_cast<uint32_t>(x >> 8 & 0xF)); break;
              case 4: Store(of.records, static_cast<uint32_t>(x)); break;
              case 5: Store(of.number, x >> 8 & 7); break;
              case 6: Store(of.flags, static_cast<uint32_t>(x >> 8)); break;
              case 7: Store(to->page().next_record, x); break;
              case 8: StoreInt(of.time_ns, static_cast<int64_t>(x)); break;
              default: Store(to->page().error[x >> 8 & 0xFF], static_cast<char>(x)); break;
            }
          }
        }) {}
  ~Scribbler() { stop_ = true; }
  Scribbler(const Scribbler&) = delete;
  Scribbler& operator=(const Scribbler&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::jthread thread_;  // the last member: it ends before the others do
};

/// The ring's memory is the host's, and no device locks it: nothing of this one is called.
class NoDevice final : public octavo::testing::ForwardingDevice {
 public:
  NoDevice() : ForwardingDevice(static_cast<Device&>(*this)) {}  // no copy
};

class Server {
 public:
  explicit Server(Input* input) : input_(*input) {
    const uint8_t form = input_.Byte();
    limits_ = {.record_bytes = kRecordBytes,
               .block_records = 1 + form % 8,
               .slots = 1 + form / 8 % 4,
               .samples_per_record = 8,
               .raw_type = 2,
               .idle_timeout_s = 1e-9,  // Lend never waits
               .restart_grace_s = (form & 0x40) != 0 ? 1e-9 : 60,
               .producer_waits = false,
               .fail_on_overrun = (form & 0x80) != 0};
    port_ = std::make_unique<RingPort>(limits_, &clock_);
    NoDevice no_device;
    Require(port_->OpenMemory(no_device).ok());
    port_->Want(input_.Byte() % 4 == 0 ? 0 : input_.Number<uint16_t>());
  }

  void Run(bool scribble) {
    Attach();
    if (producer_ == nullptr) return;
    std::unique_ptr<Scribbler> scribbler;
    if (scribble)
      scribbler =
          std::make_unique<Scribbler>(producer_.get(), limits_.slots, input_.Number<uint64_t>());
    for (int step = 0; step < 200 && !input_.empty(); ++step) Step(input_.Byte());
    scribbler.reset();
    for (const int64_t loan : loans_) port_->Return(loan);
    port_->Detach(connection_);
    port_->Close();
    const auto last = port_->Lend(never_.get_token());
    Require(!last.ok() || last->block.records == 0);
    port_->CloseMemory();
  }

 private:
  void Attach() {
    auto attached = port_->Attach({.cut = [this] { ++cuts_; }});
    if (!attached.ok()) return;
    Require(attached->connection > connection_ && attached->fd);
    connection_ = attached->connection;
    if (producer_ == nullptr)  // the memory is the same, and the one before keeps it
      producer_ = std::make_unique<Producer>(attached->fd.get(), limits_.total_bytes());
  }
  void Step(uint8_t what) {
    RingProducerPage& page = producer_->page();
    RingDescriptor& of = producer_->descriptor(what / 16 % limits_.slots);
    switch (what % 16) {
      case 0: Lend(); break;
      case 1: Return(); break;
      case 2: Publish(&of); break;  // as a right producer does, so that later steps matter
      case 3: Store(page.published, input_.Number<uint64_t>()); break;
      case 4: Store(page.published, Load(page.published) + 1); break;
      case 5: Store(of.number, input_.Number<uint64_t>()); break;
      case 6: Store(of.first_record, input_.Number<uint64_t>()); break;
      case 7: Store(of.records, input_.Number<uint32_t>()); break;
      case 8: Store(of.flags, input_.Number<uint32_t>()); break;
      case 9: Store(of.time_ns, input_.Number<int64_t>()); break;
      case 10:
        Store(page.next_record, input_.Number<uint64_t>());
        Store(page.overrun_records, input_.Number<uint64_t>());
        Store(page.state, static_cast<uint32_t>(what / 16 % 4));
        break;
      case 11: producer_->Write(input_.Number<uint16_t>(), input_.Number<uint64_t>()); break;
      case 12: port_->Detach(connection_ - what / 128); break;
      case 13: Attach(); break;
      case 14: {
        const absl::string_view text = input_.Bytes(16);
        for (size_t i = 0; i < text.size(); ++i)
          Store(page.error[(i + size_t{what} / 16 * 16) % kRingText], text[i]);
        break;
      }
      default: {
        const double occupancy = port_->Occupancy();
        Require(occupancy >= 0 && occupancy <= 1);
        CheckCounts();
      }
    }
  }
  void Publish(RingDescriptor* any) {
    RingProducerPage& page = producer_->page();
    const uint64_t number = Load(page.published);
    RingDescriptor& of =
        producer_->descriptor(static_cast<int64_t>(number % static_cast<uint64_t>(limits_.slots)));
    Store(of.number, number);
    Store(of.records, static_cast<uint32_t>(limits_.block_records));
    StoreInt(of.first_record, next_);
    StoreInt(of.time_ns, 0);
    Store(of.flags, static_cast<uint32_t>(any == &of ? kRingOverrun : 0));
    next_ += limits_.block_records;
    Store(page.published, number + 1);
  }
  // Whatever was written: a loan lies in the slots, and its records follow those before it.
  void Lend() {
    const auto loan = port_->Lend(never_.get_token());
    if (!loan.ok()) {
      const absl::StatusCode code = loan.status().code();
      return Require(code == absl::StatusCode::kDeadlineExceeded ||
                     code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDataLoss);
    }
    if (loan->block.records == 0) return;
    Require(loan->block.records > 0 && loan->block.records <= limits_.block_records);
    Require(loan->block.first_record >= end_);
    end_ = loan->block.first_record + loan->block.records;
    Require(loan->loan > last_loan_);
    last_loan_ = loan->loan;
    // Read it: all of it has to be memory of the ring.
    const auto* bytes = static_cast<const uint8_t*>(loan->data);
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < loan->block.records * kRecordBytes; ++i)
      sum = static_cast<uint8_t>(sum + bytes[i]);
    const auto now = clock_.Now();
    Require(loan->block.acquired.monotonic_ns <= now.monotonic_ns &&
            loan->block.acquired.monotonic_ns > now.monotonic_ns - 120'000'000'000);
    loans_.push_back(loan->loan);
    CheckCounts();
  }
  void Return() {
    if (loans_.empty()) return;
    port_->Return(loans_.front());
    loans_.erase(loans_.begin());
  }
  void CheckCounts() {
    const model::SourceCounts counts = port_->Counts();
    for (const int64_t count :
         {counts.records, counts.lost_records, counts.duplicate_records, counts.overrun_records,
          counts.out_of_range_records, counts.broken_blocks, counts.gaps, counts.overruns})
      Require(count >= 0);
    Require(counts.overrun_records <= counts.lost_records);
  }

  Input& input_;
  RingLimits limits_;
  const SystemClock clock_;
  std::unique_ptr<RingPort> port_;
  std::unique_ptr<Producer> producer_;
  std::stop_source never_;
  int64_t connection_ = 0, next_ = 0, end_ = 0, last_loan_ = 0;
  std::vector<int64_t> loans_;
  std::atomic<int> cuts_{0};
};

/// The ring of a job, and a producer that publishes frames, right ones and wrong ones.
class FrameServer {
 public:
  explicit FrameServer(Input* input) : input_(*input), budget_(1 << 20) {
    const uint8_t form = input_.Byte();
    spec_ = {.rows = 1 + form % 3, .columns = 2 + form / 4 % 4, .frames = 1 + form / 16};
    port_ = ProjectionPort::Create(spec_, &budget_, &clock_).value();
    ring_ = port_->OpenRing(2 + form % 4).value();
  }
  void Run() {
    Attach();
    for (int step = 0; step < 200 && !input_.empty(); ++step) Step(input_.Byte());
    if (input_.Byte() % 2 != 0) ring_->Detach(connection_);
    port_->Close();
    Check();
    Require(!ring_->Attach({.cut = [] {}}).ok());
    Require(budget_.used_bytes() == spec_.frames * port_->spec().frame_bytes());
  }

 private:
  void Attach() {
    auto attached = ring_->Attach({.cut = [this] { ++cuts_; }});
    if (!attached.ok()) return;
    Require(attached->connection > connection_ && attached->fd);
    connection_ = attached->connection;
    if (producer_ == nullptr)
      producer_ = std::make_unique<Producer>(attached->fd.get(), ring_->total_bytes());
  }
  void Step(uint8_t what) {
    RingProducerPage& page = producer_->page();
    RingDescriptor& of = producer_->descriptor(what / 16 % ring_->slots());
    switch (what % 16) {
      case 0:
      case 1:
      case 2: Publish(); break;
      case 3: Store(page.published, input_.Number<uint64_t>()); break;
      case 4: Store(page.published, Load(page.published) + 1); break;
      case 5: Store(of.number, input_.Number<uint64_t>()); break;
      case 6: Store(of.sequence, input_.Number<uint64_t>()); break;
      case 7: Store(of.records, input_.Number<uint32_t>()); break;
      case 8: Store(of.flags, input_.Number<uint32_t>()); break;
      case 9: Store(of.kind, input_.Number<uint64_t>()); break;
      case 10: Store(page.state, static_cast<uint32_t>(what / 16 % 4)); break;
      case 11: producer_->Write(input_.Number<uint16_t>(), input_.Number<uint64_t>()); break;
      case 12: ring_->Detach(connection_ - what / 128); break;
      case 13: Attach(); break;
      case 14: Store(of.angle_bits, input_.Number<uint64_t>()); break;
      default: Check();
    }
  }
  void Publish() {
    RingProducerPage& page = producer_->page();
    const uint64_t number = Load(page.published);
    RingDescriptor& of =
        producer_->descriptor(static_cast<int64_t>(number % static_cast<uint64_t>(ring_->slots())));
    Store(of.number, number);
    Store(of.records, uint32_t{1});
    Store(of.flags, kRingFrame);
    Store(of.sequence, uint64_t{input_.Byte()} % 20);
    Store(of.kind, uint64_t{input_.Byte()} % 4);
    Store(of.angle_bits, uint64_t{0});
    Store(page.published, number + 1);
    Store(page.bell, Load(page.bell) + 1);
    FutexWake(page.bell);
  }
  void Check() {
    const ProjectionPushCounts counts = port_->Totals().counts;
    Require(counts.frames >= 0 && counts.frames <= spec_.frames);
    Require(counts.projections + counts.flats + counts.darks == counts.frames);
    Require(counts.duplicate_frames >= 0 && counts.out_of_range_frames >= 0);
    Require(counts.missing_frames >= 0 && counts.missing_frames <= spec_.frames);
    for (const ArrivedFrame& frame : port_->Arrivals(0, spec_.frames)) {
      Require(std::isfinite(frame.angle_rad));
      volatile uint8_t sum = 0;
      for (int64_t i = 0; i < port_->spec().frame_bytes(); ++i)
        sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(frame.data[i]));
    }
  }

  Input& input_;
  const SystemClock clock_;
  ProjectionMemory budget_;
  model::PushedProjectionsSpec spec_;
  std::atomic<int> cuts_{0};
  std::shared_ptr<ProjectionPort> port_;
  std::shared_ptr<ProjectionRing> ring_;
  std::unique_ptr<Producer> producer_;
  int64_t connection_ = 0;
};

// What a server hands to a producer: all addresses that the producer then uses lie in the mapping.
void MapFromServer(Input input) {
  const auto pages = static_cast<size_t>(input.Byte() % 8);
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  const size_t bytes = pages * kRingPage + input.Byte() % 2 * 100;
  Require(fd && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  octavo_ring_facts facts{};
  const bool kept = (input.Byte() & 1) != 0;
  const absl::string_view given = input.Bytes(sizeof facts);
  std::memcpy(&facts, given.data(), given.size());
  if (kept) {  // the part that no mutation guesses
    facts.magic = OCTAVO_RING_MAGIC;
    facts.version = OCTAVO_RING_VERSION;
    facts.total_bytes = bytes;
    facts.slot_bytes = uint64_t{facts.block_records} * facts.record_bytes;
  }
  if (bytes >= sizeof facts)
    Require(::pwrite(fd.get(), &facts, sizeof facts, 0) == static_cast<ssize_t>(sizeof facts));
  octavo_ring ring;
  char error[64] = "";
  if (octavo_ring_map(&ring, fd.get(), error, sizeof error) != 0) {
    Require(error[0] != '\0');
    return;
  }
  const auto inside = [&](const void* begin, uint64_t length) {
    const auto offset = static_cast<uint64_t>(static_cast<const char*>(begin) - ring.memory);
    Require(offset <= bytes && length <= bytes - offset);
  };
  for (const uint32_t slot : {0u, ring.slots / 2, ring.slots - 1}) {
    inside(ring.memory + ring.facts.descriptor_offset +
               uint64_t{slot} * sizeof(octavo_ring_descriptor),
           sizeof(octavo_ring_descriptor));
    inside(ring.memory + ring.facts.data_offset + slot * ring.facts.slot_bytes,
           ring.facts.slot_bytes);
  }
  if (void* const begin = octavo_ring_begin(&ring, 0); begin != nullptr) {
    inside(begin, ring.facts.slot_bytes);
    if (ring.of_job) {
      (void)!octavo_ring_publish_frame(&ring, input.Number<uint32_t>(), OCTAVO_RING_FLAT, 0);
    } else {
      octavo_ring_publish(&ring, 1);
      octavo_ring_drop(&ring, input.Number<uint32_t>());
    }
  }
  octavo_ring_end(&ring);
  octavo_ring_close(&ring);
}

}  // namespace
}  // namespace octavo::source

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::fuzz::Input input(data, size);
  const uint8_t side = input.Byte();
  if (side % 8 == 7) {
    octavo::source::FrameServer(&input).Run();
  } else if (side % 4 == 3) {
    octavo::source::MapFromServer(input);
  } else {
    octavo::source::Server(&input).Run(side % 4 == 2);
  }
  return 0;
}
